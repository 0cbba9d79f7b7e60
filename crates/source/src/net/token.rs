//! Bearer tokens, which others renew in their files while transfers last.
//!
//! A file is looked at before each request that shows its token, and is read again if it has changed. If it
//! cannot be read then, or has no token in it, the last one stays: whoever renews it may be at work. A pipe
//! is read once.

use std::fs::{File, Metadata};
use std::io::{self, Read as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use super::credentials::Secret;

/// A token, as it was given or as its file has it. Clones share what was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Token(Place);

#[derive(Clone, Debug)]
enum Place {
    Given(Secret),
    File(Arc<TokenFile>),
}

#[derive(Debug)]
struct TokenFile {
    path: PathBuf,
    /// Pipes cannot be read twice.
    is_regular: bool,
    read: Mutex<Reading>,
}

#[derive(Debug)]
struct Reading {
    token: Secret,
    /// `None`: it changed so shortly before that another change may look the same.
    version: Option<FileVersion>,
    /// How often another token was found.
    renewals: u64,
}

/// What changes with a file.
#[derive(Debug, PartialEq, Eq)]
struct FileVersion {
    device: u64,
    inode: u64,
    size_bytes: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

/// Why a file gives no token. Messages contain nothing of it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TokenError {
    /// It cannot be read.
    #[error("cannot read the token in {}: {error}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The error of the system.
        error: io::Error,
    },
    /// It contains nothing but white space.
    #[error("{} does not contain a token: it is empty", .0.display())]
    Empty(PathBuf),
    /// It contains something else.
    #[error("{} does not contain a token: it must be one word of printable characters", .0.display())]
    NotAToken(PathBuf),
}

impl Token {
    /// Reads the token in a file, without the white space around it.
    ///
    /// # Errors
    /// [`TokenError`].
    pub fn in_file(path: &Path) -> Result<Token, TokenError> {
        let unreadable = |error| TokenError::Read { path: path.to_owned(), error };
        let file = File::open(path).map_err(unreadable)?;
        let is_regular = file.metadata().map_err(unreadable)?.is_file();
        let (token, version) = read(file, path)?;
        let read = Mutex::new(Reading { token, version, renewals: 0 });
        Ok(Token(Place::File(Arc::new(TokenFile { path: path.to_owned(), is_regular, read }))))
    }

    /// Returns the token as it is now.
    pub fn now(&self) -> Secret {
        match &self.0 {
            Place::Given(token) => token.clone(),
            Place::File(file) => file.read_again().token.clone(),
        }
    }

    /// How often the file had another token than before, as far as it was looked at.
    pub(super) fn renewals(&self) -> u64 {
        match &self.0 {
            Place::Given(_) => 0,
            Place::File(file) => file.lock().renewals,
        }
    }
}

impl From<Secret> for Token {
    fn from(token: Secret) -> Token {
        Token(Place::Given(token))
    }
}

impl PartialEq for Place {
    /// Whether both are the same token, or in the same file.
    fn eq(&self, other: &Place) -> bool {
        match (self, other) {
            (Place::Given(one), Place::Given(other)) => one == other,
            (Place::File(one), Place::File(other)) => one.path == other.path,
            _ => false,
        }
    }
}

impl Eq for Place {}

impl TokenFile {
    fn lock(&self) -> std::sync::MutexGuard<'_, Reading> {
        self.read.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn read_again(&self) -> std::sync::MutexGuard<'_, Reading> {
        let mut reading = self.lock();
        let has_changed = self.is_regular
            && std::fs::metadata(&self.path)
                .is_ok_and(|now| now.is_file() && Some(FileVersion::of(&now)) != reading.version);
        if has_changed {
            match self.read_now() {
                Ok((token, version)) => {
                    if token != reading.token {
                        tracing::debug!(path = %self.path.display(), "another token");
                        reading.renewals += 1;
                    }
                    (reading.token, reading.version) = (token, version);
                }
                Err(error) => tracing::debug!(%error, "the last token stays"),
            }
        }
        reading
    }

    fn read_now(&self) -> Result<(Secret, Option<FileVersion>), TokenError> {
        // It may have become a pipe meanwhile, which must not keep us.
        let file = File::options().read(true).custom_flags(libc::O_NONBLOCK).open(&self.path);
        let file = file.map_err(|error| TokenError::Read { path: self.path.clone(), error })?;
        read(file, &self.path)
    }
}

impl FileVersion {
    fn of(meta: &Metadata) -> FileVersion {
        FileVersion {
            device: meta.dev(),
            inode: meta.ino(),
            size_bytes: meta.size(),
            modified: (meta.mtime(), meta.mtime_nsec()),
            changed: (meta.ctime(), meta.ctime_nsec()),
        }
    }
}

/// Returns the token in an open file, and of which version it is.
fn read(mut file: File, path: &Path) -> Result<(Secret, Option<FileVersion>), TokenError> {
    let unreadable = |error| TokenError::Read { path: path.to_owned(), error };
    // Before its bytes: what is written meanwhile is another version.
    let meta = file.metadata().map_err(unreadable)?;
    let mut text = String::new();
    file.by_ref().take(TOKEN_MAX_BYTES + 1).read_to_string(&mut text).map_err(unreadable)?;
    let token = text.trim();
    if token.is_empty() {
        return Err(TokenError::Empty(path.to_owned()));
    }
    if !is_token(token) || text.len() as u64 > TOKEN_MAX_BYTES {
        return Err(TokenError::NotAToken(path.to_owned()));
    }
    let age = meta.modified().ok().and_then(|at| SystemTime::now().duration_since(at).ok());
    let is_settled = age.is_none_or(|age| age >= SETTLED_AFTER);
    Ok((Secret::new(token), is_settled.then(|| FileVersion::of(&meta))))
}

/// Whether this can be a token: one word of printable characters.
pub fn is_token(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic())
}

/// Longer than the heads of requests that servers accept.
const TOKEN_MAX_BYTES: u64 = 1 << 20;
/// Times of files are no more precise than this anywhere (FAT).
const SETTLED_AFTER: Duration = Duration::from_secs(2);

#[cfg(test)]
mod tests {
    use super::*;

    fn renew(path: &Path, text: &str) {
        let new = path.with_extension("new");
        std::fs::write(&new, text).unwrap();
        std::fs::rename(&new, path).unwrap();
    }

    #[test]
    fn a_file_is_read_again_when_it_has_changed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("token");
        std::fs::write(&path, " one\n").unwrap();
        let token = Token::in_file(&path).unwrap();
        let clone = token.clone();
        assert_eq!((token.now().expose(), token.renewals()), ("one", 0));
        renew(&path, "two\n");
        assert_eq!((token.now().expose(), clone.renewals()), ("two", 1));
        // In place, with as many bytes, within the same tick of the clock.
        std::fs::write(&path, "six\n").unwrap();
        assert_eq!((clone.now().expose(), token.renewals()), ("six", 2));
        renew(&path, "six\n");
        assert_eq!((token.now().expose(), token.renewals()), ("six", 2), "the same again");
        // Whoever writes it has not finished, or has taken it away.
        for unfinished in ["", "two words", "\u{7f}"] {
            std::fs::write(&path, unfinished).unwrap();
            assert_eq!(token.now().expose(), "six", "{unfinished:?}");
        }
        std::fs::remove_file(&path).unwrap();
        assert_eq!((token.now().expose(), token.renewals()), ("six", 2));
        renew(&path, "last");
        assert_eq!(token.now().expose(), "last");
        assert!(!format!("{token:?}").contains("last"), "{token:?}");
    }

    #[test]
    fn what_is_old_is_read_once() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("token");
        std::fs::write(&path, "one").unwrap();
        let old = SystemTime::now() - Duration::from_secs(60);
        File::options().write(true).open(&path).unwrap().set_modified(old).unwrap();
        let Token(Place::File(file)) = Token::in_file(&path).unwrap() else { panic!("a file") };
        let version = FileVersion::of(&std::fs::metadata(&path).unwrap());
        assert_eq!(file.read_again().version, Some(version));
    }

    #[test]
    fn a_pipe_is_read_once() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("pipe");
        let name = std::ffi::CString::new(path.as_os_str().as_encoded_bytes()).unwrap();
        // SAFETY: the name is a string that ends with a zero byte.
        assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o600) }, 0);
        let to = path.clone();
        let writer = std::thread::spawn(move || std::fs::write(to, "one"));
        let token = Token::in_file(&path).unwrap();
        writer.join().unwrap().unwrap();
        assert_eq!(token.now().expose(), "one");
        // Nor does a file wait that has become one.
        let file = folder.path().join("file");
        std::fs::write(&file, "two").unwrap();
        let token = Token::in_file(&file).unwrap();
        std::fs::rename(&path, &file).unwrap();
        assert_eq!(token.now().expose(), "two");
    }

    #[test]
    fn what_is_no_token_is_said_without_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("token");
        for (text, words) in [
            ("  \n".to_owned(), "it is empty"),
            ("two words".to_owned(), "one word of printable characters"),
            ("x".repeat(2 << 20), "one word of printable characters"),
        ] {
            std::fs::write(&path, &text).unwrap();
            let error = Token::in_file(&path).unwrap_err().to_string();
            assert!(error.contains(words) && error.len() < 300, "{error}");
            assert!(!error.contains("two words"), "{error}");
        }
        let error = Token::in_file(&folder.path().join("none")).unwrap_err().to_string();
        assert!(error.starts_with("cannot read the token in /"), "{error}");
    }
}
