//! `swath verify`: checks a file against digests or a Metalink, or prints its digests.

use std::fs::File;
use std::io::{self, BufReader, Read as _};
use std::path::Path;

use crate::failure::Failure;
use swath_formats::metalink;
use swath_model::digest::{Algorithm, Digest, Hasher};

use crate::args::Verify;
use crate::exit::{Exit, chain, fail};
use crate::say;
use swath_transfer::check::{self, Wanted};

/// Runs the command.
pub fn run(verify: &Verify) -> Result<Exit, Failure> {
    swath_jobs::one_value_each(&verify.digest)?;
    if let Some(sums) = &verify.check {
        return Ok(crate::verify_sums::run(verify, sums));
    }
    let mut wanted = Wanted { digests: verify.digest.clone(), ..Wanted::default() };
    if let Some(path) = &verify.metalink {
        let entry = entry(path, verify.file())?;
        let new = entry.digests.into_iter().filter(|digest| !verify.digest.contains(digest));
        wanted.digests.extend(new);
        wanted.pieces = entry.pieces;
        wanted.size_bytes = entry.size_bytes;
        if !wanted.proves() {
            let (path, file) = (path.display(), verify.file().display());
            return Err(Failure::input(format!("{path} has no digest of {file}")));
        }
    }
    let name = verify.file().display();
    let unreadable = |error| Failure::input(format!("cannot read {name}: {error}"));
    let file = check::open(verify.file()).map_err(unreadable)?;
    if !wanted.proves() {
        let digests = digests(file).map_err(unreadable)?;
        let lines = digests.map(|digest| format!("{digest}  {name}\n"));
        return Ok(say::out(lines.concat().as_bytes(), Exit::Done));
    }
    if let (Some(expected), Ok(metadata)) = (wanted.size_bytes, file.metadata())
        && metadata.len() != expected
    {
        let text = format!("{name} has {}", check::other_size(metadata.len(), expected));
        return Err(Failure::new(Exit::Mismatch, text));
    }
    let found = check::hash(file, &wanted.digests, wanted.pieces.as_ref(), &|| false);
    let found = found.map_err(unreadable)?;
    let mut exit = Exit::Done;
    let mut right = String::new();
    for (wanted, actual) in wanted.digests.iter().zip(&found.digests) {
        if wanted == actual {
            right.push_str(&format!("{name}: {} matches\n", wanted.algorithm()));
        } else {
            let (actual, hex) = (actual.to_hex(), wanted.to_hex());
            exit = fail(
                Exit::Mismatch,
                &format!("{name}: {} is {actual}, expected {hex}", wanted.algorithm()),
            );
        }
    }
    if let Some(pieces) = &wanted.pieces {
        match found.bad_pieces.as_slice() {
            [] => right.push_str(&format!(
                "{name}: {} {} pieces match\n",
                pieces.count(),
                pieces.algorithm()
            )),
            bad => {
                let (count, first) = (pieces.count(), bad[0] * pieces.length_bytes());
                let words = match bad.len() {
                    1 => format!("{name}: 1 of {count} pieces does not match, at byte {first}"),
                    more => format!(
                        "{name}: {more} of {count} pieces do not match, the first at byte {first}"
                    ),
                };
                exit = fail(Exit::Mismatch, &words);
            }
        }
    }
    Ok(if verify.quiet { exit } else { say::out(right.as_bytes(), exit) })
}

/// Returns what a file is known by.
fn digests(mut file: File) -> io::Result<[Digest; 2]> {
    let mut hashers = [Algorithm::Sha256, Algorithm::Blake3].map(Hasher::new);
    let mut part = vec![0; PART_BYTES];
    loop {
        let read = match file.read(&mut part) {
            Ok(0) => return Ok(hashers.each_ref().map(Hasher::finish)),
            Ok(read) => read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        hashers.iter_mut().for_each(|hasher| hasher.update(&part[..read]));
    }
}

/// Read at a time.
const PART_BYTES: usize = 1 << 20;

/// Returns the Metalink entry whose path fits the file best, or the only entry.
fn entry(path: &Path, file: &Path) -> Result<metalink::File, Failure> {
    let name = path.display();
    let input = |what: String| Failure::input(what);
    let opened = File::open(path).map_err(|error| input(format!("cannot read {name}: {error}")))?;
    let metalink = metalink::parse_with(BufReader::new(opened), metalink::Options::default())
        .map_err(|error| input(format!("{name}: {}", chain(&error))))?;
    let mut files = metalink.files;
    if files.len() == 1 && metalink.refused.is_empty() {
        return Ok(files.remove(0));
    }
    // `b/data` and `x/b/data` are the entry `b/data` rather than `a/data`.
    let full = std::path::absolute(file).unwrap_or_else(|_| file.to_owned());
    let fits: Vec<usize> =
        files.iter().map(|entry| common_end(&full, entry.name.as_path())).collect();
    let best = fits.iter().copied().max().unwrap_or(0);
    let mut found = (0..files.len()).filter(|&at| fits[at] == best);
    match (best, found.next(), found.next()) {
        (1.., Some(at), None) => Ok(files.swap_remove(at)),
        (1.., Some(at), Some(other)) => Err(input(format!(
            "{name} lists several files of this name, such as '{}' and '{}': give the full path of {}",
            files[at].name,
            files[other].name,
            file.display()
        ))),
        _ => Err(input(format!("{name} does not list {}", file.display()))),
    }
}

/// Returns how many trailing components two paths share, plus one if the whole entry matches.
fn common_end(file: &Path, entry: &Path) -> usize {
    let count = file
        .components()
        .rev()
        .zip(entry.components().rev())
        .take_while(|(ours, theirs)| ours == theirs)
        .count();
    count + usize::from(file.ends_with(entry))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longer_end_wins() {
        let fits = |file: &str, entry: &str| common_end(Path::new(file), Path::new(entry));
        assert_eq!(fits("/w/b/data", "b/data"), 3);
        assert_eq!(fits("/w/b/data", "a/data"), 1);
        assert_eq!(fits("/w/b/data", "data"), 2);
        assert_eq!(fits("/w/x", "data"), 0);
    }
}
