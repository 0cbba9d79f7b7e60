//! `~/.netrc`: which login and password belong to which host.
//!
//! The words are those of ftp(1) and curl: `machine`, `default`, `login`, `password`, `account` and
//! `macdef`; quoted strings with backslash escapes; comments from `#` to the line's end. Passwords
//! never appear in debug output.

use std::fmt;

/// A login with its password.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct Credentials {
    /// The login name.
    pub login: String,
    /// The secret.
    pub password: String,
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Credentials({:?}, password hidden)", self.login)
    }
}

/// A whole netrc file. An entry that cannot be read completely is not used at all, nor replaced by
/// another; the other entries stay.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Netrc {
    machines: Vec<Entry>,
    default: Option<Entry>,
    problems: Vec<NetrcError>,
}

/// The words after one `machine` or `default`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Entry {
    machine: String,
    credentials: Credentials,
    /// Part of it cannot be read, so that a password may be incomplete.
    broken: bool,
}

/// The entry being read.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Section {
    /// None so far.
    None,
    /// The last machine.
    Machine,
    /// The default.
    Default,
}

impl Netrc {
    /// Parses a netrc file. No mistake makes the whole file useless; [`Netrc::problems`] lists the
    /// parts that were not understood.
    pub fn parse(text: &[u8]) -> Netrc {
        let text = String::from_utf8_lossy(text);
        let text = text.strip_prefix('\u{feff}').unwrap_or(&text);
        let mut netrc = Netrc::default();
        let mut tokens = Tokens { rest: text, line: 1 };
        let mut section = Section::None;
        while let Some(word) = tokens.next() {
            let line = tokens.line;
            if let Err(problem) = netrc.word(word, &mut tokens, &mut section) {
                if let Some(entry) = netrc.entry(section) {
                    entry.broken |= problem.breaks_entry();
                }
                if netrc.problems.len() < PROBLEMS_MAX {
                    netrc.problems.push(NetrcError { line, problem });
                }
            }
        }
        netrc
    }

    /// Returns the skipped parts by line, but only the first few.
    pub fn problems(&self) -> &[NetrcError] {
        &self.problems
    }

    /// Handles one word with its values.
    fn word(
        &mut self,
        word: Token,
        tokens: &mut Tokens,
        section: &mut Section,
    ) -> Result<(), Problem> {
        let word = match word {
            Token::Text(word) => word,
            Token::NoQuote => return Err(Problem::NoQuote),
        };
        match word.as_str() {
            "machine" => {
                // Without a name it belongs to no machine, not even to the one before it.
                self.machines.push(Entry { broken: true, ..Entry::default() });
                *section = Section::Machine;
                let machine = tokens.value("machine")?.to_ascii_lowercase();
                *self.entry(*section).unwrap_or(&mut Entry::default()) =
                    Entry { machine, ..Entry::default() };
            }
            "default" => {
                *section = Section::Default;
                self.default = Some(Entry::default());
            }
            "login" => {
                let login = tokens.value("login")?;
                self.entry(*section).ok_or(Problem::NoMachine)?.credentials.login = login;
            }
            "password" => {
                let password = tokens.value("password")?;
                let entry = self.entry(*section).ok_or(Problem::NoMachine)?;
                entry.credentials.password = password;
            }
            "account" => {
                tokens.value("account")?;
            }
            "macdef" => {
                tokens.value("macdef")?;
                tokens.skip_macro();
            }
            _ => {
                let has_value = tokens.skip_value();
                return Err(Problem::Unexpected { word_bytes: word.len(), has_value });
            }
        }
        Ok(())
    }

    /// Returns the credentials for `host`: the first `machine` of that name, otherwise the default.
    pub fn find(&self, host: &str) -> Option<&Credentials> {
        let found = self.machines.iter().find(|entry| entry.machine.eq_ignore_ascii_case(host));
        let found = found.or(self.default.as_ref())?;
        (!found.broken).then_some(&found.credentials)
    }

    /// Returns the entry that a `login` or `password` belongs to.
    fn entry(&mut self, section: Section) -> Option<&mut Entry> {
        match section {
            Section::None => None,
            Section::Machine => self.machines.last_mut(),
            Section::Default => self.default.as_mut(),
        }
    }
}

/// A skipped part of a netrc file. Unknown words are not shown: they may belong to a password with
/// a space in it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("netrc line {line}: {problem}")]
pub struct NetrcError {
    line: u64,
    problem: Problem,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
enum Problem {
    #[error("'{0}' lacks its value")]
    NoValue(&'static str),
    #[error("a login or password stands before any 'machine' or 'default'")]
    NoMachine,
    /// A word of other programs. If another word follows on the same line, that was skipped too;
    /// otherwise it may be the end of a password with a space in it.
    #[error(
        "a word of {word_bytes} bytes where 'machine', 'default', 'login', 'password', 'account' \
         or 'macdef' should be{}",
        if *.has_value { "; it is ignored, with the word after it" } else { "" }
    )]
    Unexpected { word_bytes: usize, has_value: bool },
    #[error("the value of '{0}' is not UTF-8")]
    NotUtf8(&'static str),
    #[error("the closing quote is missing")]
    NoQuote,
}

impl Problem {
    /// Returns whether the login or the password of its entry may be wrong.
    fn breaks_entry(&self) -> bool {
        !matches!(self, Self::NoMachine | Self::Unexpected { has_value: true, .. })
    }
}

/// A word, or the beginning of one that has no end.
enum Token {
    Text(String),
    /// The rest of its line is skipped.
    NoQuote,
}

/// The words of the file.
struct Tokens<'a> {
    rest: &'a str,
    line: u64,
}

impl Tokens<'_> {
    fn next(&mut self) -> Option<Token> {
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
                        return Some(Token::Text(word));
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
            return Some(Token::NoQuote);
        }
        let end = self.rest.find(char::is_whitespace).unwrap_or(self.rest.len());
        let word = self.rest[..end].to_owned();
        self.advance(end);
        Some(Token::Text(word)).filter(|_| end > 0)
    }

    /// Reads the word after `word`. A password may begin with `#`, so comments are not recognized
    /// on the same line. A keyword on the next line is not a value.
    fn value(&mut self, word: &'static str) -> Result<String, Problem> {
        self.skip_blanks();
        let is_same_line = !self.rest.starts_with(['\n', '\r']);
        let value = if self.rest.starts_with('#') {
            let end = self.rest.find(char::is_whitespace).unwrap_or(self.rest.len());
            let value = self.rest[..end].to_owned();
            self.advance(end);
            value
        } else {
            let before = (self.rest, self.line);
            match self.next() {
                None => return Err(Problem::NoValue(word)),
                Some(Token::NoQuote) => return Err(Problem::NoQuote),
                Some(Token::Text(value)) if !is_same_line && KEYWORDS.contains(&&*value) => {
                    (self.rest, self.line) = before;
                    return Err(Problem::NoValue(word));
                }
                Some(Token::Text(value)) => value,
            }
        };
        // Stands for bytes that were not UTF-8.
        match value.contains(char::REPLACEMENT_CHARACTER) {
            true => Err(Problem::NotUtf8(word)),
            false => Ok(value),
        }
    }

    /// Skips the value of an unknown word: the next word on the same line, unless it is a keyword.
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

    /// Skips a macro, which ends at the next empty line.
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

/// The known words.
const KEYWORDS: [&str; 6] = ["machine", "default", "login", "password", "account", "macdef"];
/// Enough to see the cause.
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
