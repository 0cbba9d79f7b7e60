//! Moving bars in a terminal.
//!
//! Clones share one screen. Frames are at least [`FRAME_MS`] apart; notes are printed at once. When the
//! transfer ends or the last clone is dropped, the bars are removed, and the summary is printed.

use std::io::{self, Write};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use swath_transfer::observe::{Event, Observer, SourceState};

use super::frame::{View, frame};
use super::look::{Look, Tone};
use super::screen::Screen;
use super::{summary, text};

/// Time between two frames.
const FRAME_MS: u64 = 90;

/// The terminal display.
#[derive(Clone)]
pub struct Terminal {
    shared: Arc<Mutex<Shared>>,
}

/// The screen and its content.
pub(super) struct Shared {
    screen: Screen<Box<dyn Write + Send>>,
    look: Box<dyn Fn() -> Look + Send>,
    view: View,
    block: Vec<String>,
    drawn_at: Option<Instant>,
}

impl Terminal {
    /// Returns the display on standard error.
    pub fn stderr() -> Self {
        Self::new(Box::new(io::stderr()), Box::new(Look::of_stderr))
    }

    /// Returns a display on any terminal; `look` is called before each frame.
    pub fn new(out: Box<dyn Write + Send>, look: Box<dyn Fn() -> Look + Send>) -> Self {
        let screen = Screen::new(out);
        let shared =
            Shared { screen, look, view: View::default(), block: Vec::new(), drawn_at: None };
        Self { shared: Arc::new(Mutex::new(shared)) }
    }

    /// Returns a writer that prints log lines above the bars.
    pub fn log_writer(&self) -> LogWriter {
        LogWriter { shared: Arc::clone(&self.shared), line: Vec::new() }
    }

    /// Removes the bars.
    pub fn clear(&self) {
        self.lock().clear();
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Shared> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Observer for Terminal {
    fn observe(&mut self, event: &Event) {
        let mut shared = self.lock();
        match event {
            Event::Started { path, sources } => {
                shared.view =
                    View { path: path.clone(), sources: sources.len(), ..View::default() };
                shared.draw_view(true);
            }
            Event::Staging { path, depots } => {
                let sources = depots.len();
                let (path, is_staging) = (path.clone(), true);
                shared.view = View { path, sources, is_staging, ..View::default() };
                shared.draw_view(true);
            }
            Event::Source { source, name, state, reason, .. } => {
                match reason {
                    Some(reason) => shared.view.reasons.insert(*source, reason.clone()),
                    None => shared.view.reasons.remove(source),
                };
                if *state == SourceState::Bad {
                    let look = (shared.look)();
                    let kind = text::kind(name, shared.view.is_staging);
                    let name = text::cut_name(name, 60, look);
                    let why = reason.as_deref().map_or(String::new(), |r| format!(": {r}"));
                    let number = u64::from(*source) + 1;
                    let line = format!("not using {kind} {number} ({name}){why}");
                    shared.note(&line, Tone::Warn);
                }
            }
            Event::Progress(snapshot) => {
                shared.view.snapshot = Some(snapshot.clone());
                shared.draw_view(false);
            }
            Event::Note { text, warning, .. } => {
                shared.note(text, if *warning { Tone::Warn } else { Tone::Plain });
            }
            Event::Finished(end) => {
                let text = summary(end, (shared.look)());
                shared.end(&text);
            }
            Event::Failed { summary: end, .. } => {
                match super::stopped_summary(end, (shared.look)()) {
                    Some(text) => shared.end(&text),
                    None => shared.clear(),
                }
            }
            Event::Metalink { .. } => shared.clear(),
            Event::Present { path, size_bytes, same, .. } => {
                let text = super::already(path, *size_bytes, *same, (shared.look)());
                shared.end(&text);
            }
            // The summary reports it.
            Event::Unverified { .. } => {}
            Event::Opened { .. }
            | Event::Forecast { .. }
            | Event::Swath(_)
            | Event::Routes { .. } => {}
        }
    }
}

impl Shared {
    /// Draws the view, unless a frame was drawn just before.
    fn draw_view(&mut self, now: bool) {
        if now || self.is_due() {
            let look = (self.look)();
            let lines = frame(&mut self.view, look);
            self.draw(lines);
        }
    }

    /// Whether a frame is due.
    pub(super) fn is_due(&self) -> bool {
        self.drawn_at.is_none_or(|at| at.elapsed() >= Duration::from_millis(FRAME_MS))
    }

    pub(super) fn look(&self) -> Look {
        (self.look)()
    }

    pub(super) fn draw(&mut self, mut lines: Vec<String>) {
        let Look { width: columns, height, .. } = (self.look)();
        // Lines above the screen cannot be redrawn; the cursor needs the last line.
        lines.truncate(height.saturating_sub(1).max(1));
        self.screen.draw(&lines, columns);
        self.block = lines;
        self.drawn_at = Some(Instant::now());
    }

    /// Prints a sentence above the bars.
    pub(super) fn note(&mut self, sentence: &str, tone: Tone) {
        let look = (self.look)();
        let line = look.tone(tone, &text::safe(&look.plain_words(sentence), look));
        self.screen.print_above(&text::wrapped(&line, look.width), &self.block, look.width);
    }

    /// Replaces the bars by a text.
    pub(super) fn end(&mut self, text: &str) {
        self.clear();
        let columns = (self.look)().width;
        self.screen.print_above(&text::wrapped(text, columns), &[], columns);
    }

    fn clear(&mut self) {
        let columns = (self.look)().width;
        self.screen.clear(columns);
        self.block.clear();
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.clear();
    }
}

/// Prints whole lines above the bars.
#[derive(Clone)]
pub struct LogWriter {
    shared: Arc<Mutex<Shared>>,
    line: Vec<u8>,
}

impl Write for LogWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.line.extend_from_slice(bytes);
        if let Some(end) = self.line.iter().rposition(|b| *b == b'\n') {
            let rest = self.line.split_off(end + 1);
            let lines = std::mem::replace(&mut self.line, rest);
            let mut shared = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
            let shared = &mut *shared;
            let columns = (shared.look)().width;
            shared.screen.print_above(&String::from_utf8_lossy(&lines), &shared.block, columns);
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
