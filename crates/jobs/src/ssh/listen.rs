//! Reads the output of a remote command up to an expected line.
//!
//! The login shell may print anything: greetings, endless prompts, or the same line forever. Other output
//! is skipped, up to a limit. Before the login the user may be typing a password, without a time limit;
//! from the first byte on (`host.rs` makes ssh print one after the login) silence has a limit.

use std::time::Duration;
use swath_model::path::is_treacherous;

use tokio::io::{AsyncBufRead, AsyncBufReadExt as _};
use tokio::time::{Instant, timeout_at};

/// Printed locally by ssh after the login.
pub const LOGGED_IN: &str = "swath-logged-in";
/// Printed by the remote shell before it runs the command.
pub const BEGUN: &str = "swath-begins";

/// Reads the output.
pub struct OutputReader<R> {
    from: R,
    patience: Duration,
    /// The time limit of silence; `None` while ssh may ask for a password.
    until: Option<Instant>,
    /// Whether the shell has begun the command.
    has_begun: bool,
    heard_bytes: usize,
    /// The beginning of the unexpected output.
    noise: Vec<u8>,
}

/// Why the expected line did not arrive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoLine {
    /// The output ended.
    Ended,
    /// Too much output.
    TooMuch,
    /// Too late.
    TooLate,
}

impl<R: AsyncBufRead + Unpin> OutputReader<R> {
    /// Returns a reader of `from`; `is_in` if ssh is logged in.
    pub fn new(from: R, patience: Duration, is_in: bool) -> OutputReader<R> {
        let until = is_in.then(|| Instant::now() + patience);
        OutputReader { from, patience, until, has_begun: false, heard_bytes: 0, noise: Vec::new() }
    }

    /// Returns what `find` finds in the first matching line. Reads nothing after that line.
    pub async fn listen<T>(
        &mut self,
        mut find: impl FnMut(&str) -> Option<T>,
    ) -> Result<T, NoLine> {
        let mut line = Vec::new();
        loop {
            let why = self.hear(&mut line).await.err();
            let text = String::from_utf8_lossy(&line);
            let is_begun = ends(&text, BEGUN).is_some();
            if is_begun {
                // The shell is ready now.
                self.has_begun = true;
                self.noise.clear();
                self.give(self.patience);
            }
            // Only the last line may be incomplete.
            let is_whole = matches!(why, None | Some(NoLine::Ended));
            if let Some(found) = find(&text).filter(|_| is_whole) {
                return Ok(found);
            }
            if !is_begun && ends(&text, LOGGED_IN).is_none() {
                let room = NOISE_BYTES_MAX.saturating_sub(self.noise.len());
                self.noise.extend_from_slice(&line[..line.len().min(room)]);
            }
            line.clear();
            why.map_or(Ok(()), Err)?;
        }
    }

    /// Reads to the end of a line.
    async fn hear(&mut self, line: &mut Vec<u8>) -> Result<(), NoLine> {
        while !line.ends_with(b"\n") {
            let part = self.from.fill_buf();
            let part = match self.until {
                Some(until) => timeout_at(until, part).await.map_err(|_| NoLine::TooLate)?,
                None => part.await,
            };
            let part = part.unwrap_or_default();
            if part.is_empty() {
                return Err(NoLine::Ended);
            }
            let end = part.iter().position(|&byte| byte == b'\n');
            let bytes = end.map_or(part.len(), |end| end + 1);
            let bytes = bytes.min(HEARD_BYTES_MAX - self.heard_bytes);
            line.extend_from_slice(&part[..bytes]);
            self.from.consume(bytes);
            self.heard_bytes += bytes;
            self.until.get_or_insert_with(|| Instant::now() + self.patience);
            if self.heard_bytes == HEARD_BYTES_MAX {
                return Err(NoLine::TooMuch);
            }
        }
        Ok(())
    }

    /// Sets the time limit, from now.
    pub fn give(&mut self, patience: Duration) {
        self.until = Some(Instant::now() + patience);
    }

    /// Whether ssh has logged in.
    pub fn is_in(&self) -> bool {
        self.until.is_some()
    }

    /// Whether the shell has begun the command.
    pub fn has_begun(&self) -> bool {
        self.has_begun
    }

    /// Returns the beginning of the unexpected output without control characters, if there is any.
    pub fn noise(&self) -> Option<String> {
        let text = String::from_utf8_lossy(&self.noise);
        let visible = |line: &str| -> String {
            line.chars().filter(|c| !is_treacherous(*c)).collect::<String>().trim().to_owned()
        };
        let lines: Vec<String> = text.lines().map(visible).filter(|it| !it.is_empty()).collect();
        let all = lines.join(" / ");
        let short: String = all.chars().take(NOISE_CHARS_MAX).collect();
        let more = if short.len() < all.len() { "…" } else { "" };
        (!short.is_empty()).then(|| short + more)
    }

    /// Returns the rest of the output.
    pub fn into_inner(self) -> R {
        self.from
    }
}

/// Whether a line ends with a marker, perhaps after a prompt; an echoed command does not end with it.
pub fn ends(line: &str, with: &str) -> Option<()> {
    line.trim_end().ends_with(with).then_some(())
}

/// More than any greeting; stops a shell that prints forever.
pub const HEARD_BYTES_MAX: usize = 1 << 20;
/// More than is shown, because control characters are removed.
const NOISE_BYTES_MAX: usize = 4 << 10;
/// Characters that fit into a message.
const NOISE_CHARS_MAX: usize = 160;

#[cfg(test)]
mod tests {
    use super::*;

    fn listener_of(text: &str) -> OutputReader<&[u8]> {
        OutputReader::new(text.as_bytes(), Duration::from_secs(60), false)
    }

    fn word(line: &str) -> Option<usize> {
        line.find("WORD")
    }

    #[tokio::test]
    async fn what_is_not_waited_for_is_skipped_and_what_follows_is_left() {
        let mut listener =
            listener_of("swath-logged-in\nWelcome\n\nswath-begins\n\u{1b}[1mprompt> WORD\nrest\n");
        assert_eq!(listener.listen(word).await, Ok("\u{1b}[1mprompt> ".len()));
        assert!(listener.is_in() && listener.has_begun());
        assert_eq!(listener.into_inner(), b"rest\n");
        // The last line need not end.
        assert_eq!(listener_of("a\nWORD").listen(word).await, Ok(0));
    }

    #[tokio::test]
    async fn what_came_instead_is_told_in_a_few_harmless_words() {
        let mut listener = listener_of("swath-logged-in\n\u{1b}[31mNo\r\n\n entry \u{7}\n");
        assert_eq!(listener.listen(word).await, Err(NoLine::Ended));
        assert_eq!(listener.noise().as_deref(), Some("[31mNo / entry"));
        assert!(!listener.has_begun());
        let mut silent = listener_of("");
        assert_eq!(silent.listen(word).await, Err(NoLine::Ended));
        assert!(silent.noise().is_none() && !silent.is_in());
    }

    #[tokio::test]
    async fn what_never_ends_is_not_read_to_its_end() {
        for part in ["y\n", "y"] {
            let noise = part.repeat(HEARD_BYTES_MAX);
            let mut listener = listener_of(&noise);
            assert_eq!(listener.listen(word).await, Err(NoLine::TooMuch));
            assert!(listener.noise().unwrap().chars().count() <= NOISE_CHARS_MAX + 1);
            assert!(listener.noise.capacity() <= HEARD_BYTES_MAX);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn silence_has_a_limit_once_ssh_is_in() {
        use tokio::io::{AsyncWriteExt as _, BufReader, duplex};
        let patience = Duration::from_secs(5);
        let (mut there, here) = duplex(1000);
        let mut listener = OutputReader::new(BufReader::new(here), patience, false);
        // A password is typed slowly; the greetings that follow are no answer.
        let says = tokio::spawn(async move {
            tokio::time::sleep(Duration::from_secs(1000)).await;
            loop {
                let _ = there.write_all(b"hm\n").await;
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
        });
        let began = Instant::now();
        assert_eq!(listener.listen(word).await, Err(NoLine::TooLate));
        assert_eq!(began.elapsed().as_secs(), 1005);
        says.abort();
    }
}
