//! What the output can show: width, height, colour, Unicode.

use std::env;
use std::sync::atomic::{AtomicBool, Ordering};

/// The abilities of an output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Look {
    /// Columns.
    pub width: usize,
    /// Lines.
    pub height: usize,
    /// Whether to use colours.
    pub colour: bool,
    /// Whether to use Unicode.
    pub unicode: bool,
    /// Whether to show details of the transfer (`-v`).
    pub details: bool,
}

/// Whether the user wants details.
static DETAILS: AtomicBool = AtomicBool::new(false);

/// Turns details on.
pub fn show_details() {
    DETAILS.store(true, Ordering::Relaxed);
}

fn are_details_wanted() -> bool {
    DETAILS.load(Ordering::Relaxed)
}

/// Colours and styles of text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tone {
    Plain,
    Bold,
    Dim,
    Good,
    Busy,
    Warn,
    Bad,
}

impl Look {
    /// 80 columns without escape sequences: for files, pipes and tests.
    pub const PLAIN: Self =
        Self { width: 80, height: 24, colour: false, unicode: true, details: false };

    /// Returns the look of standard error, with the current size of the window.
    pub fn of_stderr() -> Self {
        let (width, height) = stderr_size().unwrap_or((80, 24));
        let colour = env::var_os("NO_COLOR").is_none_or(|v| v.is_empty());
        let unicode = unicode_locale(|name| env::var(name).ok());
        Self { width, height, colour, unicode, details: are_details_wanted() }
    }

    /// Returns the look of lines that are not redrawn: no colour, Unicode by locale.
    pub fn of_lines() -> Self {
        let unicode = unicode_locale(|name| env::var(name).ok());
        Self { width: 110, unicode, details: are_details_wanted(), ..Self::PLAIN }
    }

    /// Returns `text` in a tone.
    pub(super) fn tone(self, tone: Tone, text: &str) -> String {
        let code = match tone {
            Tone::Plain => "",
            Tone::Bold => "1",
            Tone::Dim => "2",
            Tone::Good => "32",
            Tone::Busy => "36",
            Tone::Warn => "33",
            Tone::Bad => "31",
        };
        if self.colour && !code.is_empty() && !text.is_empty() {
            format!("\x1b[{code}m{text}\x1b[0m")
        } else {
            text.to_owned()
        }
    }

    /// Returns the first with Unicode, else the second.
    pub fn either<T>(self, unicode: T, ascii: T) -> T {
        if self.unicode { unicode } else { ascii }
    }

    /// Wraps `line` between words.
    pub fn wrapped(self, line: &str) -> String {
        super::text::wrapped(line, self.width)
    }

    /// Escapes the control characters in `text`, which may come from a server.
    pub fn safe_words(self, text: &str) -> String {
        super::text::safe(&self.plain_words(text), self)
    }

    /// Replaces non-ASCII characters in a message where Unicode is off.
    pub(super) fn plain_words(self, text: &str) -> String {
        if self.unicode {
            return text.to_owned();
        }
        text.chars()
            .map(|c| match c {
                '–' | '−' => '-',
                '…' => '.',
                '×' => 'x',
                c if c.is_ascii() => c,
                _ => '?',
            })
            .collect()
    }
}

/// Whether the locale is UTF-8.
fn unicode_locale(var: impl Fn(&str) -> Option<String>) -> bool {
    let set = ["LC_ALL", "LC_CTYPE", "LANG"]
        .into_iter()
        .find_map(|name| var(name).filter(|v| !v.is_empty()));
    set.is_some_and(|locale| {
        let locale = locale.to_ascii_lowercase();
        locale.contains("utf-8") || locale.contains("utf8")
    })
}

/// Returns columns and lines of the terminal of standard error.
fn stderr_size() -> Option<(usize, usize)> {
    // SAFETY: winsize is plain numbers, for which all zeroes are valid.
    let mut size: libc::winsize = unsafe { std::mem::zeroed() };
    // SAFETY: the request writes one winsize to the pointer, which is valid for the call.
    let result = unsafe { libc::ioctl(libc::STDERR_FILENO, libc::TIOCGWINSZ, &raw mut size) };
    (result == 0 && size.ws_col > 0 && size.ws_row > 0)
        .then(|| (usize::from(size.ws_col), usize::from(size.ws_row)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_locale_decides_by_its_first_set_variable() {
        let with = |vars: &'static [(&str, &str)]| {
            unicode_locale(move |name| {
                vars.iter().find(|(n, _)| *n == name).map(|(_, v)| (*v).to_owned())
            })
        };
        assert!(with(&[("LANG", "de_DE.UTF-8")]));
        assert!(with(&[("LC_ALL", ""), ("LANG", "C.utf8")]));
        assert!(!with(&[("LC_ALL", "C"), ("LANG", "de_DE.UTF-8")]));
        assert!(!with(&[]));
    }

    #[test]
    fn tones_vanish_without_colour() {
        assert_eq!(Look::PLAIN.tone(Tone::Bad, "bad"), "bad");
        assert_eq!(
            Look { colour: true, ..Look::PLAIN }.tone(Tone::Bad, "bad"),
            "\x1b[31mbad\x1b[0m"
        );
    }
}
