//! `swath verify DIR --torrent FILE`, `swath verify DIR --trust PUBKEY`: checks files against what
//! `swath publish` wrote.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, IsTerminal as _, Read as _};
use std::path::{Path, PathBuf};

use swath_formats::minisign::Signature;
use swath_formats::torrent::Metainfo;
use swath_formats::torrent::metainfo::METAFILE_BYTES_MAX;
use swath_model::path::visible;
use swath_model::units;
use swath_publish::{CheckError, Checked, Index, Progress, WrongFile, check_index, check_torrent};

use crate::args::Verify;
use crate::exit::{Exit, chain, warn};
use crate::failure::Failure;
use crate::{keys, publish, say};

/// Returns whether the command line asks for this: with a torrent, a key, or the index of a
/// publication.
pub fn is_meant(verify: &Verify) -> bool {
    let starts_like_one = |path: &String| {
        let mut start = [0; START.len()];
        let is_file = Path::new(path).is_file();
        is_file
            && File::open(path).and_then(|mut file| file.read_exact(&mut start)).is_ok()
            && start == *START
    };
    verify.torrent.is_some()
        || verify.trust.is_some()
        || verify.index.as_ref().is_some_and(starts_like_one)
}

/// Runs the command.
pub fn run(verify: &Verify) -> Result<Exit, Failure> {
    let is_filtered = !verify.include.is_empty() || !verify.exclude.is_empty() || verify.strict;
    if is_filtered {
        let text = "--include, --exclude and --strict are for copies of 'swath cp'";
        return Err(Failure::usage(text));
    }
    let place = verify.file();
    if let Some(path) = &verify.torrent {
        let bytes = read(path, METAFILE_BYTES_MAX as u64)?;
        let torrent = Metainfo::read(&bytes).map_err(|error| {
            Failure::input(format!("cannot use {}: {}", path.display(), chain(&error)))
        })?;
        let bytes = torrent.info.files().iter().map(|file| file.length_bytes).sum();
        let checked = shown(verify, bytes, |progress| check_torrent(place, &torrent, progress))?;
        return told(verify, &checked, "torrent");
    }
    let key = verify.trust.as_deref().map(keys::public_key).transpose()?;
    let path = match &verify.index {
        Some(url) if url.contains("://") => {
            let text = "--trust checks an index on this machine";
            return Err(Failure::usage(text).hint(format!("fetch {url} and {url}.minisig first")));
        }
        Some(path) => PathBuf::from(path),
        None => signed_index(place)?,
    };
    let name = path.display();
    let bytes = read(&path, INDEX_BYTES_MAX)?;
    let signed = match &key {
        Some(key) => {
            let mut signature_path = path.clone().into_os_string();
            signature_path.push(".minisig");
            let signature_path = PathBuf::from(signature_path);
            let shown = signature_path.display();
            let signature = read(&signature_path, SIGNATURE_BYTES_MAX)?;
            let signature = String::from_utf8(signature).ok();
            let signature = signature.and_then(|text| Signature::read(&text).ok());
            let signature = signature.ok_or_else(|| {
                Failure::input(format!("cannot use {shown}: it is no minisign signature"))
            })?;
            let comment = key.verify(&bytes, &signature).map_err(|error| {
                Failure::new(Exit::Mismatch, format!("{shown} does not prove {name}: {error}"))
            })?;
            Some(format!(
                "{name}: signed by the key {} ({})\n",
                key.id,
                visible(&comment.replace('\t', " "))
            ))
        }
        None => None,
    };
    let index = str::from_utf8(&bytes).ok().map(Index::read);
    let index = match index {
        Some(Ok(index)) => index,
        Some(Err(error)) => return Err(Failure::input(format!("cannot use {name}: {error}"))),
        None => return Err(Failure::input(format!("cannot use {name}: it is not text"))),
    };
    if let Some(signed) = signed.filter(|_| !verify.quiet)
        && let exit @ (Exit::Internal | Exit::Target) = say::out(signed.as_bytes(), Exit::Done)
    {
        return Ok(exit);
    }
    let bytes = index.files.iter().map(|file| file.bytes).sum();
    let checked = shown(verify, bytes, |progress| check_index(place, &index, progress))?;
    told(verify, &checked, "index")
}

/// Returns the only signed index of the dataset `place`: beside it, in it, or in the current folder.
fn signed_index(place: &Path) -> Result<PathBuf, Failure> {
    let absolute = std::path::absolute(place).unwrap_or_else(|_| place.to_owned());
    let name = absolute.file_name().map(|name| name.to_string_lossy().into_owned());
    let name = name.unwrap_or_default();
    let mut found = BTreeSet::new();
    for folder in [absolute.parent(), Some(&absolute), Some(Path::new("."))].into_iter().flatten() {
        let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
        for path in entries.map(|entry| entry.path()) {
            let is_index = path.extension().is_some_and(|extension| extension == "index");
            if !is_index || !path.with_extension("index.minisig").is_file() {
                continue;
            }
            let text = read(&path, INDEX_BYTES_MAX).ok().and_then(|it| String::from_utf8(it).ok());
            let index = text.and_then(|text| Index::read(&text).ok());
            if index.is_some_and(|index| index.name == name) {
                found.insert(std::fs::canonicalize(&path).unwrap_or(path));
            }
        }
    }
    let mut all = found.into_iter();
    match (all.next(), all.next()) {
        (Some(only), None) => Ok(only),
        (None, _) => Err(Failure::input(format!(
            "there is no signed index of '{}' beside it, in it, or in this folder",
            visible(&name)
        ))
        .hint("--index FILE names it; FILE.minisig is its signature")),
        (Some(one), Some(other)) => Err(Failure::usage(format!(
            "several indexes are signed, such as {} and {}: choose one with --index",
            one.display(),
            other.display()
        ))),
    }
}

/// Checks, with the progress on a terminal.
fn shown(
    verify: &Verify,
    bytes: u64,
    check: impl FnOnce(&Progress) -> Result<Checked, CheckError> + Send,
) -> Result<Checked, Failure> {
    let progress = Progress::default();
    let checked = std::thread::scope(|scope| {
        let checking = scope.spawn(|| check(&progress));
        if !verify.quiet && io::stderr().is_terminal() {
            publish::show(&progress, bytes, || checking.is_finished());
        }
        checking.join()
    });
    // The thread has reported its panic.
    let checked = checked.map_err(|_| Failure::new(Exit::Internal, "the check failed"))?;
    checked.map_err(|error| Failure::input(chain(&error)))
}

/// Prints the result.
fn told(verify: &Verify, checked: &Checked, against: &str) -> Result<Exit, Failure> {
    let place = verify.file().display();
    for (path, what) in checked.wrong.iter().take(NAMED_MAX) {
        say::err(&format!("{}: {}", visible(&String::from_utf8_lossy(path)), words(*what)));
    }
    let wrong = checked.wrong.len();
    if wrong > NAMED_MAX {
        say::err(&format!("and {} more", units::count((wrong - NAMED_MAX) as u64)));
    }
    if checked.unchecked_pieces > 0 {
        let pieces = units::counted(checked.unchecked_pieces, "piece");
        say::err(&format!("{pieces} not checked: they reach into missing files"));
    }
    if let (Some(first), false) = (checked.others.first(), verify.quiet) {
        let more = match checked.others.len() as u64 - 1 {
            0 => String::new(),
            more => format!(" and {} more", units::count(more)),
        };
        let first = visible(&String::from_utf8_lossy(first));
        warn(&format!("{place}: not in the {against}, and not checked: {first}{more}"));
    }
    let files = units::counted(checked.files, "file");
    if checked.wrong_files > 0 {
        let verb = if checked.wrong_files == 1 { "does" } else { "do" };
        let wrong = units::count(checked.wrong_files);
        let text = format!("{place}: {wrong} of {files} {verb} not match the {against}");
        let failure = Failure::new(Exit::Mismatch, text);
        let is_in_segments = checked.wrong.iter().any(|(_, what)| *what == WrongFile::InSegments);
        return Err(match is_in_segments {
            true => failure.hint(
                "check segments with --torrent FILE, or join them first: cat NAME/NAME.* > WHOLE",
            ),
            false => failure,
        });
    }
    if verify.quiet {
        return Ok(Exit::Done);
    }
    let bytes = units::bytes(checked.bytes);
    let text = format!("{place}: everything matches the {against}: {files}, {bytes}\n");
    Ok(say::out(text.as_bytes(), Exit::Done))
}

fn words(what: WrongFile) -> String {
    match what {
        WrongFile::Missing => "missing".to_owned(),
        WrongFile::Length { found, expected } => {
            format!("{} bytes instead of {}", units::count(found), units::count(expected))
        }
        WrongFile::Pieces { wrong, of, first } => {
            let (wrong, first) = (units::count(wrong), units::count(first));
            format!("{wrong} of {} wrong, the first at byte {first}", units::counted(of, "piece"))
        }
        WrongFile::Content => "different content".to_owned(),
        WrongFile::InSegments => "there in segments, which the index does not list".to_owned(),
    }
}

/// Reads a file of at most `most` bytes.
fn read(path: &Path, most: u64) -> Result<Vec<u8>, Failure> {
    let name = path.display();
    let unreadable = |error: io::Error| Failure::input(format!("cannot read {name}: {error}"));
    let file = swath_transfer::check::open(path).map_err(unreadable)?;
    let mut bytes = Vec::new();
    file.take(most + 1).read_to_end(&mut bytes).map_err(unreadable)?;
    match bytes.len() as u64 > most {
        true => Err(Failure::input(format!("cannot use {name}: it is too long"))),
        false => Ok(bytes),
    }
}

const START: &[u8; 12] = b"swath-index ";
/// Some five million files.
const INDEX_BYTES_MAX: u64 = 1 << 30;
/// minisign's comments have at most 9 KiB.
const SIGNATURE_BYTES_MAX: u64 = 64 << 10;
/// Most files that are listed.
const NAMED_MAX: usize = 1000;
