//! Access tokens, and the file that lists them.

use std::io;
use std::path::Path;
use std::time::{Duration, SystemTime};

use swath_formats::http_date;

/// What somebody has to show, and what it is good for.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Token {
    /// What is shown.
    pub secret: String,
    /// It opens writing too, where the server takes anything.
    pub may_write: bool,
    /// From then on it opens nothing.
    pub expires: Option<SystemTime>,
}

impl Token {
    /// Whether it opens nothing any more.
    pub fn is_over(&self, now: SystemTime) -> bool {
        self.expires.is_some_and(|expires| expires <= now)
    }
}

impl std::fmt::Debug for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Token(may write: {}, expires: {:?})", self.may_write, self.expires)
    }
}

/// Why no tokens can be had from a file. No message holds a word of it: it may be a secret.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TokensError {
    /// The system refuses it.
    #[error(transparent)]
    Read(#[from] io::Error),
    /// A line is none that is understood.
    #[error(
        "line {line} is no token with, perhaps, 'read' or 'write' and 'until=DATE' behind it \
         (DATE: 2026-12-31 or 2026-12-31T18:00:00Z)"
    )]
    Line {
        /// Counted from 1.
        line: usize,
    },
    /// There is nothing in it.
    #[error("there is no token in it")]
    Empty,
}

/// A token that nobody can guess: 192 bits, as text that needs no quotes anywhere.
pub fn new_token() -> String {
    use base64::Engine as _;
    let mut random_bytes = [0; 24];
    crate::tls::random(&mut random_bytes);
    let token = base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(random_bytes);
    // Typed behind an option, a token that began with '-' would be taken for another one.
    if token.starts_with('-') { new_token() } else { token }
}

/// Reads tokens from a file, one a line: `TOKEN [read|write] [until=DATE]`. Empty lines and what
/// follows a `#` do not count.
pub fn read_tokens(path: &Path) -> Result<Vec<Token>, TokensError> {
    let text = std::fs::read_to_string(path)?;
    let mut tokens = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let mut words = line.split_whitespace().take_while(|word| !word.starts_with('#'));
        let Some(secret) = words.next() else { continue };
        let wrong = || TokensError::Line { line: number + 1 };
        let (mut right, mut expires) = (None, None);
        for word in words {
            match word.strip_prefix("until=") {
                Some(date) if expires.is_none() => {
                    let time_s = http_date::parse_plain(date).ok_or_else(wrong)?;
                    expires = Some(SystemTime::UNIX_EPOCH + Duration::from_secs(time_s));
                }
                None if right.is_none() && ["read", "write"].contains(&word) => right = Some(word),
                _ => return Err(wrong()),
            }
        }
        let may_write = right == Some("write");
        tokens.push(Token { secret: secret.to_owned(), may_write, expires });
    }
    if tokens.is_empty() { Err(TokensError::Empty) } else { Ok(tokens) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_of_tokens_may_have_remarks_and_says_where_it_is_wrong() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tokens");
        let read = |text: &str| {
            std::fs::write(&path, text).unwrap();
            read_tokens(&path).map_err(|error| error.to_string())
        };
        let text = "# for the lab\none  # Ada\n\n two write # Grace\nthree read\n\
                    four until=2026-11-22 write\nfive until=2026-11-22T03:14:15Z\n";
        let after = |time_s| Some(SystemTime::UNIX_EPOCH + Duration::from_secs(time_s));
        let expected = [
            ("one", false, None),
            ("two", true, None),
            ("three", false, None),
            ("four", true, after(1_795_305_600)),
            ("five", false, after(1_795_317_255)),
        ];
        let expected = expected.map(|(secret, may_write, expires)| Token {
            secret: secret.to_owned(),
            may_write,
            expires,
        });
        assert_eq!(read(text).unwrap(), expected);
        for wrong in [
            "two words more",
            "two secret",
            "two read write",
            "two until=",
            "two until=tomorrow",
            "two until=2026-13-01",
            "two until=2026-11-22 until=2026-11-23",
        ] {
            let said = read(&format!("one\n{wrong}\n")).unwrap_err();
            assert!(said.starts_with("line 2 ") && !said.contains("secret"), "{wrong}: {said}");
        }
        assert!(read("# nobody\n").unwrap_err().contains("no token"));
    }

    #[test]
    fn a_token_is_good_until_its_last_second() {
        let at = |time_s| SystemTime::UNIX_EPOCH + Duration::from_secs(time_s);
        let token = Token { expires: Some(at(10)), ..Token::default() };
        assert!(!token.is_over(at(9)) && token.is_over(at(10)) && token.is_over(at(11)));
        assert!(!Token::default().is_over(at(u64::from(u32::MAX))));
    }
}
