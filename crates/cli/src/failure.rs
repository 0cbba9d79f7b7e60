//! Why a command ends before its work is done: its exit code, what happened, and what helps.

use std::fmt;

use swath_jobs::{
    AddressError, ChecksumsError, EntryError, FileError, JobError, MetalinkError, SecretError,
    SpecError,
};
use swath_transfer::EngineError;

use crate::exit::{self, Exit, chain};
use crate::progress::units;

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

impl From<JobError> for Failure {
    fn from(error: JobError) -> Failure {
        match error {
            JobError::Stopped => Failure::new(Exit::Interrupted, error.to_string()),
            JobError::Spec(error) => error.into(),
            JobError::Address(error) => error.into(),
            JobError::Secret(error) => error.into(),
            JobError::Engine(error) => error.into(),
            JobError::Metalink(ref inner) => Failure::new(exit_of_metalink(inner), chain(&error)),
            JobError::Checksums(ChecksumsError::Fetch { .. }) => Failure::sources(chain(&error)),
            JobError::List { .. } | JobError::Checksums(_) => Failure::input(chain(&error)),
            JobError::Copy(error) => crate::cp::failure(*error),
            JobError::Transfer { name, error, kept } => {
                let what = exit::about(&name, &exit::words_of_all(&error));
                Failure::new(exit::of(&error, kept.come_bytes), what)
            }
            error => Failure::new(Exit::Some, error.to_string()),
        }
    }
}

fn exit_of_metalink(error: &MetalinkError) -> Exit {
    match error {
        MetalinkError::Fetch { .. } | MetalinkError::Late { .. } => Exit::Sources,
        _ => Exit::Input,
    }
}

impl From<AddressError> for Failure {
    fn from(error: AddressError) -> Failure {
        Failure::usage(error.to_string())
    }
}

impl From<SecretError> for Failure {
    fn from(error: SecretError) -> Failure {
        Failure::input(error.to_string())
    }
}

impl From<EngineError> for Failure {
    fn from(error: EngineError) -> Failure {
        match error {
            EngineError::Memory { wanted_bytes, least_bytes, most_bytes } => {
                Failure::usage(format!(
                    "--memory: buffers of {} in all are not possible: it takes at least {}, and this machine can spare {} now",
                    units::bytes(wanted_bytes as u64),
                    units::bytes(least_bytes as u64),
                    units::bytes(most_bytes as u64)
                ))
            }
            EngineError::Thread(error) => crate::threads::failure(&error),
            error => Failure::input(chain(&error)),
        }
    }
}

/// The options that a specification was made of are named.
impl From<SpecError> for Failure {
    fn from(error: SpecError) -> Failure {
        Failure::usage(match error {
            SpecError::SeveralToOne { name, count } => {
                format!("{name} names {count} files: use -d DIR in place of -o")
            }
            SpecError::DigestOfSeveral { name, count } => {
                format!("{name} names {count} files: --digest is for one")
            }
            SpecError::ListToOne => {
                "a list may hold several files: use -d DIR in place of -o".to_owned()
            }
            SpecError::NoName { name, why } => {
                let why = why.map_or("does not name a file".to_owned(), |why| why.to_string());
                format!("{name} {why}; say where to write with -o FILE")
            }
            SpecError::Contradiction { one, other } => {
                format!("--digest contradicts itself: {one} and {other}")
            }
            SpecError::ChecksumsOfMetalink => {
                "--checksums is for the URL of a file: a Metalink has digests of its own".to_owned()
            }
            SpecError::Reserved { path, .. } => format!(
                "the report {} would be written over the file or over what is kept beside it: give --report another name",
                path.display()
            ),
            error => error.to_string(),
        })
    }
}

/// What a file of a list failed of: for the shell, and as a sentence.
pub fn of_file(error: &FileError) -> (Exit, String) {
    match error {
        FileError::Entry(EntryError::List(error)) => (Exit::Input, chain(error)),
        FileError::Entry(_) | FileError::Headers(_) => (Exit::Input, error.to_string()),
        FileError::Transfer { error, kept } => {
            (exit::of(error, kept.come_bytes), exit::words_of_all(error))
        }
        error => (Exit::Internal, error.to_string()),
    }
}
