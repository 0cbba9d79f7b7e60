//! `swath verify -c SUMS`: checks files against a checksum file.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use swath_model::path::visible;

use swath_formats::checksums::Checksums;
use swath_model::digest::Digest;
use swath_transfer::check;

use crate::args::Verify;
use crate::exit::{Exit, fail};
use crate::say;

/// Runs the command. Paths in the list are relative to the current folder, as with `sha256sum -c`, or
/// else to the folder of the list.
pub fn run(verify: &Verify, sums: &Path) -> Exit {
    let title = sums.display().to_string();
    let bytes = match std::fs::read(sums) {
        Ok(bytes) => bytes,
        Err(error) => return fail(Exit::Input, &format!("cannot read {title}: {error}")),
    };
    let own_name = sums.file_name().map(OsStr::to_string_lossy).unwrap_or_default();
    let checksums = Checksums::parse(&bytes, &own_name);
    let own_file = swath_jobs::checked_file(sums);
    let mut jobs: Vec<(PathBuf, Vec<Digest>)> = Vec::new();
    let mut exit = Exit::Done;
    if let Some(file) = &verify.file {
        let name = plain(file);
        let is_beside = checksums.entries.len() == 1;
        match checksums.of(name.as_os_str().as_bytes(), is_beside) {
            Ok(digests) if digests.is_empty() => {
                let words = format!("{title} does not list {}", file.display());
                return fail(Exit::Input, &words);
            }
            Ok(digests) => jobs.push((file.clone(), digests)),
            Err((line, problem)) => {
                return fail(Exit::Input, &format!("{title}: line {line}: {problem}"));
            }
        }
    } else {
        for entry in &checksums.entries {
            let name = match entry.name.as_slice() {
                b"" => own_file.map(PathBuf::from),
                name => Some(PathBuf::from(OsStr::from_bytes(name))),
            };
            match (name, entry.digest) {
                (Some(name), Ok(digest)) => jobs.push((found(name, sums), vec![digest])),
                (None, _) => {
                    exit = fail(Exit::Input, &format!("{title}: line {}: no name", entry.line));
                }
                (_, Err(problem)) => {
                    let words = format!("{title}: line {}: {problem}", entry.line);
                    exit = fail(Exit::Input, &words);
                }
            }
        }
        if jobs.is_empty() && exit == Exit::Done {
            return fail(Exit::Input, &format!("{title} lists no file"));
        }
        if checksums.is_cut {
            exit = fail(Exit::Input, &format!("{title} is too long: not all lines were read"));
        }
    }
    let mut is_wrong = false;
    for (file, digests) in jobs {
        let name = shown(&file);
        let hashed = check::open(&file).and_then(|it| check::hash(it, &digests, None, &|| false));
        let found = match hashed {
            Ok(found) => found.digests,
            Err(error) => {
                exit = fail(Exit::Input, &format!("cannot read {name}: {error}"));
                continue;
            }
        };
        for (wanted, actual) in digests.iter().zip(&found) {
            let (algorithm, hex) = (wanted.algorithm(), actual.to_hex());
            if wanted != actual {
                is_wrong = true;
                let words = format!("{name}: {algorithm} is {hex}, expected {}", wanted.to_hex());
                fail(Exit::Mismatch, &words);
            } else if !verify.quiet {
                let said = say::out(format!("{name}: {algorithm} matches\n").as_bytes(), exit);
                if said != exit {
                    return said;
                }
            }
        }
    }
    if is_wrong { Exit::Mismatch } else { exit }
}

/// Finds a file of the list.
fn found(name: PathBuf, sums: &Path) -> PathBuf {
    let beside = sums.parent().map(|folder| folder.join(&name));
    match beside {
        Some(beside) if !name.exists() && beside.exists() => beside,
        _ => name,
    }
}

fn plain(file: &Path) -> &Path {
    file.strip_prefix(".").unwrap_or(file)
}

/// Escapes a name from the list.
fn shown(file: &Path) -> String {
    visible(&file.display().to_string())
}
