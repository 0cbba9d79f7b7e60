//! Why a command ends before its work is done: its exit code, what happened, and what helps.

use std::fmt;

use crate::exit::Exit;

/// Why a command ends before its work is done.
#[derive(Debug)]
pub struct Failure {
    /// What the shell is told.
    pub exit: Exit,
    /// What happened, as a sentence.
    pub what: String,
    /// What to do about it, a line each.
    hints: Vec<String>,
}

impl Failure {
    /// The command ends with `exit`, because of `what`.
    pub fn new(exit: Exit, what: impl Into<String>) -> Failure {
        Failure { exit, what: what.into(), hints: Vec::new() }
    }

    /// The command line makes no sense.
    pub fn usage(what: impl Into<String>) -> Failure {
        Failure::new(Exit::Usage, what)
    }

    /// Something that was given cannot be read.
    pub fn input(what: impl Into<String>) -> Failure {
        Failure::new(Exit::Input, what)
    }

    /// Nothing can be had from where it should come from.
    pub fn sources(what: impl Into<String>) -> Failure {
        Failure::new(Exit::Sources, what)
    }

    /// The same with one more line about what to do.
    pub fn hint(self, hint: impl Into<String>) -> Failure {
        self.hints([hint])
    }

    /// The same with more lines about what to do.
    pub fn hints<H: Into<String>>(mut self, hints: impl IntoIterator<Item = H>) -> Failure {
        self.hints.extend(hints.into_iter().map(Into::into));
        self
    }

    /// Tell the user, and end with this exit code.
    pub fn tell(&self) -> Exit {
        crate::exit::tell(self.exit, &self.to_string());
        crate::say::err(&format!("swath: {}", self.what));
        self.hints.iter().for_each(|hint| crate::say::hint(hint));
        self.exit
    }
}

/// As one line.
impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)?;
        self.hints.iter().try_for_each(|hint| write!(f, "; {hint}"))
    }
}
