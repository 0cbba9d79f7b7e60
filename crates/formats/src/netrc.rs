//! `~/.netrc`: which login and password belong to which host.
//!
//! The words are those of ftp(1) and curl: `machine`, `default`, `login`, `password`, `account`
//! and `macdef`; quoted strings with backslash escapes; comments from `#` to the line's end.
//! Passwords never appear in debug output.

use std::fmt;

/// A login with its password.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct Credentials {
    /// Who.
    pub login: String,
    /// The secret.
    pub password: String,
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Credentials({:?}, password hidden)", self.login)
    }
}

/// A whole netrc file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Netrc {
    machines: Vec<(String, Credentials)>,
    default: Option<Credentials>,
}

impl Netrc {
    /// Reads a netrc file.
    ///
    /// # Errors
    /// [`NetrcError`] with the line, where a word lacks its value or stands where none may.
    pub fn parse(text: &str) -> Result<Netrc, NetrcError> {
        let mut netrc = Netrc::default();
        let mut words = Words { rest: text, line: 1 };
        while let Some(word) = words.next()? {
            let line = words.line;
            match word.as_str() {
                "machine" => {
                    let name = words.value("machine")?.to_ascii_lowercase();
                    netrc.machines.push((name, Credentials::default()));
                }
                // What follows it can never be reached, as in ftp(1); it is still checked.
                "default" => netrc.default = Some(Credentials::default()),
                "login" => netrc.current(line)?.login = words.value("login")?,
                "password" => netrc.current(line)?.password = words.value("password")?,
                "account" => {
                    words.value("account")?;
                }
                "macdef" => {
                    words.value("macdef")?;
                    words.skip_macro();
                }
                _ => return Err(NetrcError::Unexpected { line, word_bytes: word.len() }),
            }
        }
        Ok(netrc)
    }

    /// The credentials for `host`: the first `machine` of that name, else the default.
    pub fn find(&self, host: &str) -> Option<&Credentials> {
        let found = self.machines.iter().find(|(name, _)| name.eq_ignore_ascii_case(host));
        found.map(|(_, credentials)| credentials).or(self.default.as_ref())
    }

    /// The credentials of `login` at `host`, for addresses that name a user.
    pub fn find_login(&self, host: &str, login: &str) -> Option<&Credentials> {
        let machines = self.machines.iter().filter(|(name, _)| name.eq_ignore_ascii_case(host));
        let mut all = machines.map(|(_, credentials)| credentials).chain(self.default.as_ref());
        all.find(|credentials| credentials.login == login)
    }

    /// The entry that a `login` or `password` belongs to.
    fn current(&mut self, line: u64) -> Result<&mut Credentials, NetrcError> {
        let last = self.machines.last_mut().map(|(_, credentials)| credentials);
        self.default.as_mut().or(last).ok_or(NetrcError::NoMachine { line })
    }
}

/// Why a netrc file cannot be used. Words that are not understood are not shown: they may be a
/// password with a space in it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NetrcError {
    /// A word at the end lacks its value.
    #[error("netrc line {line}: '{word}' lacks its value")]
    NoValue {
        /// The line.
        line: u64,
        /// The word.
        word: &'static str,
    },
    /// `login` or `password` before any `machine`.
    #[error("netrc line {line}: a login or password stands before any 'machine' or 'default'")]
    NoMachine {
        /// The line.
        line: u64,
    },
    /// Something else.
    #[error(
        "netrc line {line}: a word of {word_bytes} bytes where 'machine', 'default', 'login', \
         'password', 'account' or 'macdef' should be"
    )]
    Unexpected {
        /// The line.
        line: u64,
        /// Its length.
        word_bytes: usize,
    },
    /// A quoted string without its end.
    #[error("netrc line {line}: the closing quote is missing")]
    NoQuote {
        /// The line.
        line: u64,
    },
}

/// The words of the file.
struct Words<'a> {
    rest: &'a str,
    line: u64,
}

impl Words<'_> {
    fn next(&mut self) -> Result<Option<String>, NetrcError> {
        loop {
            let word_at = self.rest.find(|c: char| !c.is_whitespace()).unwrap_or(self.rest.len());
            self.advance(word_at);
            if !self.rest.starts_with('#') {
                break;
            }
            self.advance(self.rest.find('\n').unwrap_or(self.rest.len()));
        }
        if let Some(quoted) = self.rest.strip_prefix('"') {
            let mut word = String::new();
            let mut chars = quoted.char_indices();
            while let Some((at, c)) = chars.next() {
                match c {
                    '"' => {
                        self.advance(at + 2);
                        return Ok(Some(word));
                    }
                    '\n' => break,
                    '\\' => word.extend(chars.next().map(|(_, c)| match c {
                        'n' => '\n',
                        'r' => '\r',
                        't' => '\t',
                        c => c,
                    })),
                    c => word.push(c),
                }
            }
            return Err(NetrcError::NoQuote { line: self.line });
        }
        let end = self.rest.find(char::is_whitespace).unwrap_or(self.rest.len());
        let word = self.rest[..end].to_owned();
        self.advance(end);
        Ok(Some(word).filter(|word| !word.is_empty()))
    }

    /// The word after `word`. A password may begin with `#`, so no comment is looked for on the
    /// same line.
    fn value(&mut self, word: &'static str) -> Result<String, NetrcError> {
        let line = self.line;
        let blank = self.rest.find(|c: char| !matches!(c, ' ' | '\t')).unwrap_or(self.rest.len());
        self.advance(blank);
        if self.rest.starts_with('#') {
            let end = self.rest.find(char::is_whitespace).unwrap_or(self.rest.len());
            let value = self.rest[..end].to_owned();
            self.advance(end);
            return Ok(value);
        }
        self.next()?.ok_or(NetrcError::NoValue { line, word })
    }

    /// A macro reaches to the next empty line.
    fn skip_macro(&mut self) {
        let end = self.rest.find("\n\n").unwrap_or(self.rest.len());
        let end_crlf = self.rest.find("\n\r\n").unwrap_or(self.rest.len());
        self.advance(end.min(end_crlf));
    }

    fn advance(&mut self, bytes: usize) {
        let (passed, rest) = self.rest.split_at(bytes);
        self.line += passed.bytes().filter(|byte| *byte == b'\n').count() as u64;
        self.rest = rest;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn login<'a>(netrc: &'a Netrc, host: &str) -> (&'a str, &'a str) {
        let found = netrc.find(host).unwrap();
        (&found.login, &found.password)
    }

    #[test]
    fn a_usual_file_is_read() {
        let text = "# mine\nmachine A.example login me password s#cret\n\
            machine b.example\n\tlogin \"you there\"\n\taccount x\n\tpassword \"a \\\"b\\\"\\n\"\n\
            macdef init\nmachine evil login x\ncd /\n\nmachine c.example password #1 # comment\n\
            login c\nmachine a.example login second password other\n\
            default login anonymous password me@example.org\n";
        let netrc = Netrc::parse(text).unwrap();
        assert_eq!(login(&netrc, "a.EXAMPLE"), ("me", "s#cret"));
        assert_eq!(login(&netrc, "b.example"), ("you there", "a \"b\"\n"));
        assert_eq!(login(&netrc, "c.example"), ("c", "#1"));
        assert_eq!(login(&netrc, "evil"), ("anonymous", "me@example.org"));
        assert_eq!(netrc.find_login("a.example", "second").unwrap().password, "other");
        assert_eq!(netrc.find_login("a.example", "third"), None);
        assert!(!format!("{netrc:?}").contains("s#cret"));
    }

    #[test]
    fn without_default_strangers_get_nothing() {
        let netrc = Netrc::parse("machine a login b password c").unwrap();
        assert_eq!(netrc.find("b"), None);
        assert_eq!(netrc.find("a.a"), None);
        assert_eq!(Netrc::parse("").unwrap().find("a"), None);
    }

    #[test]
    fn mistakes_name_the_line_but_no_secret() {
        for (text, expected) in [
            ("machine a\nlogin", "line 2: 'login' lacks"),
            ("\nlogin x", "line 2: a login or password stands before"),
            ("machine a password two words", "line 1: a word of 5 bytes"),
            ("machine a\n\npassword \"open\n", "line 3: the closing quote"),
        ] {
            let error = Netrc::parse(text).unwrap_err().to_string();
            assert!(error.contains(expected) && !error.contains("words"), "{error}");
        }
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(
            entries in prop::collection::btree_map("[a-z]{1,4}", ("[!-~&&[^\"#]]{1,8}", "[ -~é\\n\\t]{0,8}"), 0..5),
        ) {
            let mut text = String::new();
            for (host, (login, password)) in &entries {
                let quoted = password.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
                text.push_str(&format!("machine {host}\n  login {login} password \"{quoted}\"\n"));
            }
            let netrc = Netrc::parse(&text).unwrap();
            for (host, (login, password)) in &entries {
                let found = netrc.find(host).unwrap();
                prop_assert_eq!((&found.login, &found.password), (login, password));
            }
        }

        #[test]
        fn nothing_panics(text in "((machine|login|password|macdef|default|[\"\\\\#é])[ \\n]?){0,12}") {
            let _ = Netrc::parse(&text);
        }
    }
}
