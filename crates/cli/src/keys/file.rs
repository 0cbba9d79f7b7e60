//! Files of keys. A secret key is readable by its owner only, before and after it is written.

use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;

use swath_formats::minisign::{KeyError, PublicKey, SecretKey};
use zeroize::Zeroizing;

use crate::exit::Exit;
use crate::failure::Failure;

/// Reads a secret key, which others must not be able to read.
pub fn secret_key(path: &Path) -> Result<SecretKey, Failure> {
    let (text, mode) = read(path).map_err(|error| unreadable(path, &error))?;
    let key = SecretKey::read(&text).map_err(|error| unusable(path, error))?;
    if mode & 0o077 != 0 {
        let path = path.display();
        let text = format!("{path}: other users can read or change it (mode {:04o})", mode & 0o777);
        return Err(Failure::input(text).hint(format!("make a new key, or run 'chmod 600 {path}'")));
    }
    Ok(key)
}

/// Reads a public key: the file of one, or the key itself.
pub fn public_key(text: &str) -> Result<PublicKey, Failure> {
    if let Ok(key) = PublicKey::read(text) {
        return Ok(key);
    }
    let path = Path::new(text);
    let (text, _) = read(path).map_err(|error| {
        unreadable(path, &error).hint("a public key is a file, or 56 characters: RWQ…")
    })?;
    PublicKey::read(&text).map_err(|error| unusable(path, error))
}

/// Reads the public key of either file.
pub fn shown_key(path: &Path) -> Result<PublicKey, Failure> {
    let (text, _) = read(path).map_err(|error| unreadable(path, &error))?;
    match PublicKey::read(&text) {
        Err(KeyError::Secret) => {
            let secret = SecretKey::read(&text).map_err(|error| unusable(path, error))?;
            Ok(secret.public().clone())
        }
        read => read.map_err(|error| unusable(path, error)),
    }
}

/// Writes a file that does not exist yet: a key that is replaced is lost.
pub fn create(path: &Path, text: &str, is_secret: bool) -> Result<(), Failure> {
    let mode = if is_secret { 0o600 } else { 0o644 };
    let created = File::options().write(true).create_new(true).mode(mode).open(path);
    let written = created.and_then(|mut file| {
        file.write_all(text.as_bytes())?;
        file.sync_all()
    });
    written.map_err(|error| match error.kind() {
        io::ErrorKind::AlreadyExists => {
            let text = format!("{} exists, and keys are not replaced", path.display());
            Failure::new(Exit::Target, text).hint("-o FILE chooses another name")
        }
        _ => Failure::new(Exit::Target, format!("cannot write {}: {error}", path.display())),
    })
}

/// Returns the text of a small file, and its mode.
fn read(path: &Path) -> io::Result<(Zeroizing<String>, u32)> {
    // Devices may be endless, and pipes may block.
    let file = File::options().read(true).custom_flags(libc::O_NONBLOCK).open(path)?;
    let about = file.metadata()?;
    if !about.is_file() {
        return Err(io::Error::other("not a regular file"));
    }
    // It never grows: growing would leave parts of a key in memory.
    let mut text = Zeroizing::new(String::with_capacity(KEY_FILE_BYTES_MAX));
    file.take(KEY_FILE_BYTES_MAX as u64 - 1).read_to_string(&mut text)?;
    Ok((text, about.mode()))
}

fn unreadable(path: &Path, error: &io::Error) -> Failure {
    Failure::input(format!("cannot read {}: {error}", path.display()))
}

fn unusable(path: &Path, error: KeyError) -> Failure {
    let failure = Failure::input(format!("cannot use {}: {error}", path.display()));
    match error {
        KeyError::Password => failure.hint("'minisign -C -W -s FILE' removes the password"),
        _ => failure,
    }
}

/// minisign's comments have at most 1024 bytes.
const KEY_FILE_BYTES_MAX: usize = 4096;
