//! What comes from a command on the other side, up to the line that is waited for.
//!
//! In between stands a login shell, which may print what it likes: greetings, prompts without an
//! end, or the same line for ever. What is not waited for is skipped, up to a bound. Before ssh has
//! logged in a user may be typing a password, which takes as long as it takes; from the first byte
//! on (`machine.rs` has ssh print one when it is in) silence has a limit.

use std::time::Duration;
use swath_model::path::is_treacherous;

use tokio::io::{AsyncBufRead, AsyncBufReadExt as _};
use tokio::time::{Instant, timeout_at};

/// Printed here by ssh, once it is in.
pub const LOGGED_IN: &str = "swath-logged-in";
/// Printed there by the shell, just before it runs what it was told to.
pub const BEGUN: &str = "swath-begins";

/// Reads what comes.
pub struct Listener<R> {
    from: R,
    patience: Duration,
    /// When silence has lasted for too long; `None` as long as ssh may be asking for a password.
    until: Option<Instant>,
    /// That the shell runs commands has been seen.
    has_begun: bool,
    heard_bytes: usize,
    /// The first of what was not waited for.
    noise: Vec<u8>,
}

/// Why the line did not come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoLine {
    /// Nothing more comes.
    Ended,
    /// So much came that no more is read.
    TooMuch,
    /// It has taken too long.
    TooLate,
}

impl<R: AsyncBufRead + Unpin> Listener<R> {
    /// Hear what comes `from` there; `is_in` if nobody is asked for a password any more.
    pub fn new(from: R, patience: Duration, is_in: bool) -> Listener<R> {
        let until = is_in.then(|| Instant::now() + patience);
        Listener { from, patience, until, has_begun: false, heard_bytes: 0, noise: Vec::new() }
    }

    /// The first line in which something is found. Not a byte behind it is read.
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
                // That is the last that one has to wait for a shell.
                self.has_begun = true;
                self.noise.clear();
                self.give(self.patience);
            }
            // The last line may lack its end, but not if more of it may come.
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

    /// Read to the end of a line.
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

    /// So long from now on.
    pub fn give(&mut self, patience: Duration) {
        self.until = Some(Instant::now() + patience);
    }

    /// Whether ssh is known to have logged in.
    pub fn is_in(&self) -> bool {
        self.until.is_some()
    }

    /// Whether the shell there is known to run commands.
    pub fn has_begun(&self) -> bool {
        self.has_begun
    }

    /// What was printed instead, in a few words without control characters; `None` if it is nothing.
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

    /// What comes behind the line that was found.
    pub fn into_inner(self) -> R {
        self.from
    }
}

/// Whether a line ends with this; what is before it may be a prompt, what shows a whole command is
/// none.
pub fn ends(line: &str, with: &str) -> Option<()> {
    line.trim_end().ends_with(with).then_some(())
}

/// No greeting is longer; a shell that prints for ever ends here.
pub const HEARD_BYTES_MAX: usize = 1 << 20;
/// More than is shown of it, since control characters are not.
const NOISE_BYTES_MAX: usize = 4 << 10;
/// What a line of a message can hold.
const NOISE_CHARS_MAX: usize = 160;

#[cfg(test)]
mod tests {
    use super::*;

    fn listener_of(text: &str) -> Listener<&[u8]> {
        Listener::new(text.as_bytes(), Duration::from_secs(60), false)
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
        let mut listener = Listener::new(BufReader::new(here), patience, false);
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
