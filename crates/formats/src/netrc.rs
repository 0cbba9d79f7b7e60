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

/// A whole netrc file. Of an entry that cannot be read whole nothing is used, and nothing else in its
/// place; the other entries stay.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Netrc {
    machines: Vec<Entry>,
    default: Option<Entry>,
    problems: Vec<NetrcError>,
}

/// What follows one `machine` or `default`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Entry {
    machine: String,
    credentials: Credentials,
    /// Some of it cannot be read, so that a password may be half of one.
    broken: bool,
}

/// Which entry is being read.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    /// None has begun.
    None,
    /// The last machine.
    Machine,
    /// The default.
    Default,
}

impl Netrc {
    /// Reads a netrc file, which has no form so wrong that all of it is lost. What is not
    /// understood is in [`Netrc::problems`].
    pub fn parse(text: &[u8]) -> Netrc {
        let text = String::from_utf8_lossy(text);
        let text = text.strip_prefix('\u{feff}').unwrap_or(&text);
        let mut netrc = Netrc::default();
        let mut words = Words { rest: text, line: 1 };
        let mut place = Place::None;
        while let Some(word) = words.next() {
            let line = words.line;
            if let Err(problem) = netrc.word(word, &mut words, &mut place, line) {
                if let Some(entry) = netrc.entry(place) {
                    entry.broken |= problem.breaks_entry();
                }
                if netrc.problems.len() < PROBLEMS_MAX {
                    netrc.problems.push(problem);
                }
            }
        }
        netrc
    }

    /// What was passed over, by its lines; no more than a few of many.
    pub fn problems(&self) -> &[NetrcError] {
        &self.problems
    }

    /// Handles one word with what belongs to it.
    fn word(
        &mut self,
        word: Word,
        words: &mut Words,
        place: &mut Place,
        line: u64,
    ) -> Result<(), NetrcError> {
        let word = match word {
            Word::Text(word) => word,
            Word::NoQuote => return Err(NetrcError::NoQuote { line }),
        };
        match word.as_str() {
            "machine" => {
                // Without a name it is nobody's entry, and not that of the machine before it.
                self.machines.push(Entry { broken: true, ..Entry::default() });
                *place = Place::Machine;
                let machine = words.value("machine")?.to_ascii_lowercase();
                *self.entry(*place).unwrap_or(&mut Entry::default()) =
                    Entry { machine, ..Entry::default() };
            }
            "default" => {
                *place = Place::Default;
                self.default = Some(Entry::default());
            }
            "login" => {
                let login = words.value("login")?;
                self.entry(*place).ok_or(NetrcError::NoMachine { line })?.credentials.login = login;
            }
            "password" => {
                let password = words.value("password")?;
                let entry = self.entry(*place).ok_or(NetrcError::NoMachine { line })?;
                entry.credentials.password = password;
            }
            "account" => {
                words.value("account")?;
            }
            "macdef" => {
                words.value("macdef")?;
                words.skip_macro();
            }
            _ => {
                let has_value = words.skip_value();
                return Err(NetrcError::Unexpected { line, word_bytes: word.len(), has_value });
            }
        }
        Ok(())
    }

    /// The credentials for `host`: the first `machine` of that name, else the default.
    pub fn find(&self, host: &str) -> Option<&Credentials> {
        let found = self.machines.iter().find(|entry| entry.machine.eq_ignore_ascii_case(host));
        let found = found.or(self.default.as_ref())?;
        (!found.broken).then_some(&found.credentials)
    }

    /// The credentials of `login` at `host`, for addresses that name a user.
    pub fn find_login(&self, host: &str, login: &str) -> Option<&Credentials> {
        let machines =
            self.machines.iter().filter(|entry| entry.machine.eq_ignore_ascii_case(host));
        let mut all = machines.chain(self.default.as_ref()).filter(|entry| !entry.broken);
        all.find(|entry| entry.credentials.login == login).map(|entry| &entry.credentials)
    }

    /// The entry that a `login` or `password` belongs to.
    fn entry(&mut self, place: Place) -> Option<&mut Entry> {
        match place {
            Place::None => None,
            Place::Machine => self.machines.last_mut(),
            Place::Default => self.default.as_mut(),
        }
    }
}

/// What in a netrc file is passed over. Words that are not understood are not shown: they may be a
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
    /// A word of other programs.
    #[error(
        "netrc line {line}: a word of {word_bytes} bytes where 'machine', 'default', 'login', \
         'password', 'account' or 'macdef' should be{}",
        if *.has_value { "; it is ignored, with the word after it" } else { "" }
    )]
    Unexpected {
        /// The line.
        line: u64,
        /// Its length.
        word_bytes: usize,
        /// A word on the same line follows it, and was passed over too. Without one it may be the
        /// end of a password with a space in it.
        has_value: bool,
    },
    /// A value that is not UTF-8.
    #[error("netrc line {line}: the value of '{word}' is not UTF-8")]
    NotUtf8 {
        /// The line.
        line: u64,
        /// The word.
        word: &'static str,
    },
    /// A quoted string without its end.
    #[error("netrc line {line}: the closing quote is missing")]
    NoQuote {
        /// The line.
        line: u64,
    },
}

impl NetrcError {
    /// Whether the login or the password that it stands in may be wrong.
    fn breaks_entry(&self) -> bool {
        !matches!(self, Self::NoMachine { .. } | Self::Unexpected { has_value: true, .. })
    }
}

/// One word, or what begins as one and has no end.
enum Word {
    Text(String),
    /// The rest of its line is passed over.
    NoQuote,
}

/// The words of the file.
struct Words<'a> {
    rest: &'a str,
    line: u64,
}

impl Words<'_> {
    fn next(&mut self) -> Option<Word> {
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
                        return Some(Word::Text(word));
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
            self.advance(self.rest.find('\n').unwrap_or(self.rest.len()));
            return Some(Word::NoQuote);
        }
        let end = self.rest.find(char::is_whitespace).unwrap_or(self.rest.len());
        let word = self.rest[..end].to_owned();
        self.advance(end);
        Some(Word::Text(word)).filter(|_| end > 0)
    }

    /// The word after `word`. A password may begin with `#`, so no comment is looked for on the
    /// same line. A word on the next line that begins something else is no value.
    fn value(&mut self, word: &'static str) -> Result<String, NetrcError> {
        let line = self.line;
        self.skip_blanks();
        let is_same_line = !self.rest.starts_with(['\n', '\r']);
        let value = if self.rest.starts_with('#') {
            let end = self.rest.find(char::is_whitespace).unwrap_or(self.rest.len());
            let value = self.rest[..end].to_owned();
            self.advance(end);
            value
        } else {
            let (rest, rest_line) = (self.rest, self.line);
            match self.next() {
                None => return Err(NetrcError::NoValue { line, word }),
                Some(Word::NoQuote) => return Err(NetrcError::NoQuote { line }),
                Some(Word::Text(value)) if !is_same_line && KEYWORDS.contains(&&*value) => {
                    (self.rest, self.line) = (rest, rest_line);
                    return Err(NetrcError::NoValue { line, word });
                }
                Some(Word::Text(value)) => value,
            }
        };
        // What was not UTF-8 has become this.
        match value.contains(char::REPLACEMENT_CHARACTER) {
            true => Err(NetrcError::NotUtf8 { line, word }),
            false => Ok(value),
        }
    }

    /// Passes over the value of a word that is not known: the next word of the same line, unless it
    /// is one that is known.
    fn skip_value(&mut self) -> bool {
        self.skip_blanks();
        let end = self.rest.find(char::is_whitespace).unwrap_or(self.rest.len());
        let value = &self.rest[..end];
        let is_value = !value.is_empty() && !value.starts_with('#') && !KEYWORDS.contains(&value);
        if is_value {
            self.advance(end);
        }
        is_value
    }

    fn skip_blanks(&mut self) {
        let blank = self.rest.find(|c: char| !matches!(c, ' ' | '\t')).unwrap_or(self.rest.len());
        self.advance(blank);
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

/// The words that mean something.
const KEYWORDS: [&str; 6] = ["machine", "default", "login", "password", "account", "macdef"];
/// Enough to see what is wrong.
const PROBLEMS_MAX: usize = 20;

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
        let netrc = Netrc::parse(text.as_bytes());
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
        let netrc = Netrc::parse(b"machine a login b password c");
        assert_eq!(netrc.find("b"), None);
        assert_eq!(netrc.find("a.a"), None);
        assert_eq!(Netrc::parse(b"").find("a"), None);
    }

    #[test]
    fn mistakes_name_the_line_but_no_secret_and_cost_one_entry() {
        for (text, expected) in [
            ("machine a\nlogin", "line 2: 'login' lacks"),
            ("machine a\nlogin\nmachine c login d password words\n", "line 2: 'login' lacks"),
            ("machine a password two words", "line 1: a word of 5 bytes"),
            ("machine a\n\npassword \"open words\n", "line 3: the closing quote"),
        ] {
            let netrc = Netrc::parse(format!("{text}\nmachine b login x password y").as_bytes());
            let problem = netrc.problems()[0].to_string();
            assert!(problem.contains(expected) && !problem.contains("words"), "{problem}");
            // Half a password is not sent, nor the one for everybody else.
            assert_eq!(netrc.find("a"), None, "{text}");
            assert_eq!(login(&netrc, "b"), ("x", "y"), "{text}");
        }
    }

    /// Tools of Heroku, GitHub and Emacs write words of their own; all logins were lost by one.
    #[test]
    fn words_of_other_programs_are_passed_over() {
        let text = "machine a.example\n  login x\n  password y\n  method interactive\n\
            machine b.example port 443 login me protocol https password pw\n\
            machine c.example login c password d port\n\
            machine caf\u{e9} login e password f\n";
        let netrc = Netrc::parse(text.as_bytes());
        assert_eq!(login(&netrc, "a.example"), ("x", "y"));
        assert_eq!(login(&netrc, "b.example"), ("me", "pw"));
        assert_eq!(netrc.problems().len(), 4, "{:?}", netrc.problems());
        let latin = Netrc::parse(
            b"# caf\xe9\nmachine a login b password caf\xe9\nmachine c login d password e",
        );
        assert_eq!((latin.find("a"), login(&latin, "c")), (None, ("d", "e")));
        assert!(latin.problems()[0].to_string().contains("line 2: the value of 'password'"));
    }

    #[test]
    fn no_word_gives_a_login_to_another_host() {
        // Without a name a machine's login went to the machine before it.
        let netrc = Netrc::parse(b"machine a login x password y\nmachine\nlogin z password secret");
        assert_eq!(login(&netrc, "a"), ("x", "y"));
        // Behind a default a machine's login became that of everybody.
        let netrc = Netrc::parse(b"default login any password one machine c login d password e");
        assert_eq!((login(&netrc, "q"), login(&netrc, "c")), (("any", "one"), ("d", "e")));
        let netrc = Netrc::parse(b"login x password y machine a login b password c");
        assert_eq!((netrc.find("q"), login(&netrc, "a")), (None, ("b", "c")));
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
            let netrc = Netrc::parse(text.as_bytes());
            for (host, (login, password)) in &entries {
                let found = netrc.find(host).unwrap();
                prop_assert_eq!((&found.login, &found.password), (login, password));
            }
        }

        #[test]
        fn nothing_panics(text in "((machine|login|password|macdef|default|[\"\\\\#é])[ \\n]?){0,12}") {
            let _ = Netrc::parse(text.as_bytes());
        }
    }
}
