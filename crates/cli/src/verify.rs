//! `swath verify`: a file against digests, or against what a Metalink says of it.

use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::Path;

use swath_formats::metalink;
use swath_model::digest::{Digest, Hasher};
use swath_model::pieces::Pieces;

use crate::args::Verify;
use crate::exit::{Exit, chain, fail};

/// Run the command.
pub fn run(verify: &Verify) -> Exit {
    let mut wanted = verify.digest.clone();
    let mut pieces = None;
    let mut size_bytes = None;
    if let Some(path) = &verify.metalink {
        match entry(path, &verify.file) {
            Ok(entry) => {
                wanted.extend(entry.digests);
                pieces = entry.pieces;
                size_bytes = entry.size_bytes;
            }
            Err(message) => return fail(Exit::Input, &message),
        }
        if wanted.is_empty() && pieces.is_none() {
            return fail(
                Exit::Input,
                &format!("{} holds no digest of {}", path.display(), verify.file.display()),
            );
        }
    }
    let name = verify.file.display();
    let file = match File::open(&verify.file) {
        Ok(file) => file,
        Err(error) => return fail(Exit::Input, &format!("cannot read {name}: {error}")),
    };
    if let (Some(expected), Ok(metadata)) = (size_bytes, file.metadata())
        && metadata.len() != expected
    {
        return fail(
            Exit::Mismatch,
            &format!("{name} has {} bytes, {expected} are expected", metadata.len()),
        );
    }
    let found = match hash(file, &wanted, pieces.as_ref()) {
        Ok(found) => found,
        Err(error) => return fail(Exit::Input, &format!("cannot read {name}: {error}")),
    };
    let mut good = true;
    for (wanted, actual) in wanted.iter().zip(&found.digests) {
        if wanted == actual {
            say(verify, &format!("{name}: {} is right", wanted.algorithm()));
        } else {
            good = false;
            eprintln!(
                "swath: {name}: {} is {}, wanted {}",
                wanted.algorithm(),
                actual.to_hex(),
                wanted.to_hex()
            );
        }
    }
    if let Some(pieces) = &pieces {
        match found.bad_pieces.as_slice() {
            [] => say(
                verify,
                &format!("{name}: {} pieces by {} are right", pieces.count(), pieces.algorithm()),
            ),
            bad => {
                good = false;
                let first = bad[0] * pieces.length_bytes();
                eprintln!(
                    "swath: {name}: {} of {} pieces are wrong, the first at byte {first}",
                    bad.len(),
                    pieces.count()
                );
            }
        }
    }
    if good { Exit::Done } else { Exit::Mismatch }
}

fn say(verify: &Verify, text: &str) {
    if !verify.quiet {
        println!("{text}");
    }
}

/// What a Metalink says about this file: the entry of its name, or its only entry.
fn entry(path: &Path, file: &Path) -> Result<metalink::File, String> {
    let name = path.display();
    let input = File::open(path).map_err(|error| format!("cannot read {name}: {error}"))?;
    let metalink = metalink::parse_with(BufReader::new(input), metalink::Options::default())
        .map_err(|error| format!("{name}: {}", chain(&error)))?;
    let file_name =
        file.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let mut files = metalink.files;
    if files.len() == 1 {
        return Ok(files.remove(0));
    }
    files
        .into_iter()
        .find(|entry| entry.name.file_name() == file_name || file.ends_with(entry.name.as_path()))
        .ok_or_else(|| format!("{name} says nothing about {file_name}"))
}

struct Found {
    digests: Vec<Digest>,
    bad_pieces: Vec<u64>,
}

/// One pass over the file for all digests.
fn hash(mut file: File, wanted: &[Digest], pieces: Option<&Pieces>) -> io::Result<Found> {
    let mut hashers: Vec<Hasher> =
        wanted.iter().map(|digest| Hasher::new(digest.algorithm())).collect();
    let mut bad_pieces = Vec::new();
    let mut piece =
        pieces.map(|pieces| (0u64, Hasher::new(pieces.algorithm()), pieces.length_bytes()));
    let mut buffer = vec![0; READ_BYTES];
    loop {
        let got = match file.read(&mut buffer) {
            Ok(0) => break,
            Ok(got) => got,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        for hasher in &mut hashers {
            hasher.update(&buffer[..got]);
        }
        let mut data = &buffer[..got];
        while let (Some((number, hasher, left)), Some(pieces)) = (&mut piece, pieces) {
            if data.is_empty() {
                break;
            }
            let take = data.len().min(usize::try_from(*left).unwrap_or(usize::MAX));
            hasher.update(&data[..take]);
            data = &data[take..];
            *left -= take as u64;
            if *left == 0 {
                if pieces.digest(*number) != Some(hasher.finish()) {
                    bad_pieces.push(*number);
                }
                *number += 1;
                *hasher = Hasher::new(pieces.algorithm());
                *left = pieces.length_bytes();
            }
        }
    }
    if let (Some((number, hasher, _)), Some(pieces)) = (&piece, pieces) {
        if hasher.bytes() > 0 && pieces.digest(*number) != Some(hasher.finish()) {
            bad_pieces.push(*number);
        }
        let seen = number + u64::from(hasher.bytes() > 0);
        bad_pieces.extend(seen..pieces.count());
    }
    Ok(Found { digests: hashers.iter().map(Hasher::finish).collect(), bad_pieces })
}

/// Bytes per read.
const READ_BYTES: usize = 1 << 20;

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;
    use swath_model::digest::Algorithm;

    #[test]
    fn wrong_missing_and_right_pieces_are_told_apart() {
        let data: Vec<u8> = (0..2500u32).map(|i| i as u8).collect();
        let packed = data
            .chunks(1000)
            .flat_map(|p| Hasher::digest(Algorithm::Sha256, p).as_bytes().to_vec())
            .collect();
        let pieces = Pieces::new(Algorithm::Sha256, 1000, packed).unwrap();
        let check = |data: &[u8]| {
            let mut file = tempfile::tempfile().unwrap();
            file.write_all(data).unwrap();
            io::Seek::rewind(&mut file).unwrap();
            hash(file, &[], Some(&pieces)).unwrap().bad_pieces
        };
        assert_eq!(check(&data), Vec::<u64>::new());
        assert_eq!(check(&data[..1500]), [1, 2]);
        let mut wrong = data.clone();
        wrong[2400] ^= 1;
        assert_eq!(check(&wrong), [2]);
    }
}
