//! The self-signed certificate and the token of a server, kept between starts.
//!
//! They are in the state folder with mode 0600, and are replaced only on request. Without a writable
//! state folder (`SWATH_STATE=off`, a service without a home) they are made for one run.

use std::fs::{self, DirBuilder, File};
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use crate::failure::Failure;
use swath_model::digest::{Algorithm, Hasher};
use swath_serve::{Identity, Tls, new_token};
use swath_source::is_token;
use swath_state::Location;

use crate::exit::{chain, warn};
use crate::remember;
use crate::serve::machine;

/// Returns the state folder, if there is one.
pub fn state_folder() -> Option<PathBuf> {
    match remember::place() {
        Location::At(path) => Some(path.parent().unwrap_or(Path::new("")).to_owned()),
        Location::Off | Location::Homeless => None,
    }
}

/// Returns the certificate of this machine's servers of this kind (`serve`, `relay`); makes one if
/// there is none or `is_new`.
pub fn certificate(kind: &str, host: &str, is_new: bool) -> Result<Tls, Failure> {
    let once = || machine::self_signed(host);
    let make = || match machine::self_signed(host) {
        Tls::SelfSigned(names) => {
            Identity::make_pem(names).map_err(|error| Failure::input(chain(&error)))
        }
        _ => Err(Failure::input("not a self-signed certificate")),
    };
    let Some(folder) = state_folder() else { return Ok(once()) };
    let path = folder.join(kind).join("identity.pem");
    Ok(match kept(&path, is_new, make)? {
        Some(_) => Tls::Files { certificates: path.clone(), key: path },
        None => once(),
    })
}

/// Returns the token of a server of these folders. Every set of folders has its own tokens for reading
/// and for writing, so that a token gives access to nothing else.
pub fn token(folders: &[PathBuf], may_write: bool, is_new: bool) -> Result<Token, Failure> {
    let once = || Token { secret: new_token(), kept_at: None };
    let Some(folder) = state_folder() else { return Ok(once()) };
    let name = name_of(folders, if may_write { b"write" } else { b"read" });
    let path = folder.join("serve").join(format!("token-{name}"));
    let text = kept(&path, is_new, || Ok(new_token() + "\n"))?;
    let Some(text) = text else { return Ok(once()) };
    let secret = text.trim().to_owned();
    if !is_token(&secret) {
        let text = format!("{} does not contain a token; --new-identity makes one", path.display());
        return Err(Failure::input(text));
    }
    Ok(Token { secret, kept_at: Some(path) })
}

/// Returns a name for what belongs to these folders and serves this purpose.
pub fn name_of(folders: &[PathBuf], purpose: &[u8]) -> String {
    let mut name = Hasher::new(Algorithm::Sha256);
    for path in folders {
        let whole = fs::canonicalize(path).unwrap_or_else(|_| path.clone());
        name.update(whole.as_os_str().as_encoded_bytes());
        name.update(&[0]);
    }
    name.update(purpose);
    name.finish().to_hex()[..NAME_DIGITS].to_owned()
}

/// A token made by swath.
pub struct Token {
    /// The token.
    pub secret: String,
    /// The file that keeps it.
    pub kept_at: Option<PathBuf>,
}

/// Reads the file at `path`, or makes it; `None`, with a warning, if it cannot be written.
fn kept(
    path: &Path,
    is_new: bool,
    make: impl Fn() -> Result<String, Failure>,
) -> Result<Option<String>, Failure> {
    let failed = |error: io::Error| Failure::input(format!("{}: {error}", path.display()));
    if !is_new {
        match read(path) {
            Ok(text) => return Ok(Some(text)),
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(failed(error)),
        }
    }
    let text = make()?;
    match write(path, &text, is_new) {
        Ok(()) => Ok(Some(text)),
        // Another server was faster: both use its file.
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {
            read(path).map(Some).map_err(failed)
        }
        Err(error) => {
            let failed = failed(error);
            warn(&format!("using a certificate and a token for this run only: {failed}"));
            Ok(None)
        }
    }
}

fn read(path: &Path) -> io::Result<String> {
    // Devices may be endless, and pipes may block.
    let file = File::options().read(true).custom_flags(libc::O_NONBLOCK).open(path)?;
    let about = file.metadata()?;
    if !about.is_file() {
        return Err(io::Error::other("not a regular file"));
    }
    if about.mode() & 0o077 != 0 {
        let mode = about.mode() & 0o777;
        let text = format!(
            "other users can read or change it (mode {mode:04o}): run 'chmod 600' on it, or use \
             --new-identity"
        );
        return Err(io::Error::other(text));
    }
    let mut text = String::new();
    file.take(TEXT_MAX_BYTES).read_to_string(&mut text)?;
    Ok(text)
}

/// Writes a temporary file first, so that nobody reads half of it.
fn write(path: &Path, text: &str, replaces: bool) -> io::Result<()> {
    let folder = path.parent().unwrap_or(Path::new(""));
    DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    let name = format!(".new-{}-{}", std::process::id(), new_token());
    let new = folder.join(name);
    let mut file = File::options().write(true).create_new(true).mode(0o600).open(&new)?;
    let written = file.write_all(text.as_bytes()).and_then(|()| file.sync_all());
    let named = written.and_then(|()| match replaces {
        true => fs::rename(&new, path),
        false => fs::hard_link(&new, path),
    });
    if named.is_err() || !replaces {
        let _ = fs::remove_file(&new);
    }
    named
}

/// Enough that two sets of folders never share a token.
const NAME_DIGITS: usize = 32;
/// Certificate and key have some 800 bytes.
const TEXT_MAX_BYTES: u64 = 1 << 20;
