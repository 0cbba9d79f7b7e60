//! Trees that are copied, and the check that they arrived.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::unix::fs::symlink;
use std::path::Path;

/// What a tree looks like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// So many files of one size in folders of a thousand.
    Equal {
        /// How many.
        files: u64,
        /// Bytes of each.
        bytes: u64,
    },
    /// So many files in folders of a thousand, empty but for every hundredth, which has 100 bytes:
    /// nearly nothing but names.
    Names {
        /// How many.
        files: u64,
    },
    /// As the source of a large program: most files small, a few large, folders in folders, a link
    /// for every hundredth file.
    Natural {
        /// How many.
        files: u64,
        /// Bytes of all of them.
        bytes: u64,
    },
}

impl Shape {
    /// Bytes of all files.
    pub fn bytes(self) -> u64 {
        match self {
            Shape::Equal { files, bytes } => files * bytes,
            Shape::Names { files } => files / 100 * 100,
            Shape::Natural { bytes, .. } => bytes,
        }
    }

    /// How many files.
    pub fn files(self) -> u64 {
        match self {
            Shape::Equal { files, .. } | Shape::Names { files } | Shape::Natural { files, .. } => {
                files
            }
        }
    }
}

/// Make a tree of incompressible files, the same for the same shape.
pub fn make_tree(folder: &Path, shape: Shape) -> io::Result<()> {
    let mut random = fastrand::Rng::with_seed(shape.files() ^ shape.bytes());
    let mut noise = vec![0; NOISE_BYTES];
    random.fill(&mut noise);
    let mut last = None;
    for (number, bytes) in sizes(shape, &mut random).into_iter().enumerate() {
        let below = match shape {
            Shape::Equal { files, .. } if files <= 1000 => String::new(),
            Shape::Equal { .. } | Shape::Names { .. } => format!("{}", number / 1000),
            // Ten files in each folder, ten folders in each folder above.
            Shape::Natural { .. } => {
                format!("{}/{}/{}", number / 10_000, number / 100 % 100, number / 10 % 10)
            }
        };
        let below = folder.join(below);
        if last.as_ref() != Some(&below) {
            fs::create_dir_all(&below)?;
            last = Some(below.clone());
        }
        let path = below.join(format!("file-{number}.dat"));
        let mut file = File::create(path)?;
        let mut left_bytes = bytes as usize;
        while left_bytes > 0 {
            let now_bytes = left_bytes.min(NOISE_BYTES);
            random.fill(&mut noise[..now_bytes]);
            file.write_all(&noise[..now_bytes])?;
            left_bytes -= now_bytes;
        }
        if matches!(shape, Shape::Natural { .. }) && number % 100 == 99 {
            symlink(format!("file-{number}.dat"), below.join(format!("link-{number}")))?;
        }
    }
    Ok(())
}

/// The size of each file.
fn sizes(shape: Shape, random: &mut fastrand::Rng) -> Vec<u64> {
    match shape {
        Shape::Equal { files, bytes } => (0..files).map(|_| bytes).collect(),
        Shape::Names { files } => {
            (0..files).map(|number| if number % 100 == 99 { 100 } else { 0 }).collect()
        }
        Shape::Natural { files, bytes } => {
            // Sums of uniform numbers are as good as normal ones here.
            let mut normal = || (0..12).map(|_| random.f64()).sum::<f64>() - 6.0;
            let weights: Vec<f64> = (0..files).map(|_| (SPREAD * normal()).exp()).collect();
            let all: f64 = weights.iter().sum();
            let mut sizes: Vec<u64> =
                weights.iter().map(|weight| (weight / all * bytes as f64) as u64).collect();
            let short_bytes = bytes - sizes.iter().sum::<u64>();
            if let Some(first) = sizes.first_mut() {
                *first += short_bytes;
            }
            sizes
        }
    }
}

/// Returns the paths of all files of a tree from its top, without links, in order.
pub fn files(tree: &Path) -> io::Result<Vec<String>> {
    let (mut found, mut below) = (Vec::new(), vec![String::new()]);
    while let Some(folder) = below.pop() {
        for entry in fs::read_dir(tree.join(&folder))? {
            let entry = entry?;
            let path = format!("{folder}{}", entry.file_name().to_string_lossy());
            match entry.file_type()? {
                kind if kind.is_dir() => below.push(path + "/"),
                kind if kind.is_file() => found.push(path),
                _ => {}
            }
        }
    }
    found.sort();
    Ok(found)
}

/// Why two trees are not the same, if they are not. Reads all of both.
pub fn difference(one: &Path, other: &Path) -> io::Result<Option<String>> {
    difference_with(one, other, false)
}

/// The same where `other` may have files in the place of links: what a program that follows them makes.
pub fn difference_behind_links(one: &Path, other: &Path) -> io::Result<Option<String>> {
    difference_with(one, other, true)
}

fn difference_with(one: &Path, other: &Path, follows: bool) -> io::Result<Option<String>> {
    let names = |folder: &Path| -> io::Result<Vec<std::ffi::OsString>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(folder)? {
            names.push(entry?.file_name());
        }
        names.sort();
        Ok(names)
    };
    let (ours, theirs) = (names(one)?, names(other)?);
    if ours != theirs {
        return Ok(Some(format!("{} has other entries", other.display())));
    }
    for name in ours {
        let (our, their) = (one.join(&name), other.join(&name));
        let (a, b) = match follows {
            true => (our.metadata()?, their.metadata()?),
            false => (our.symlink_metadata()?, their.symlink_metadata()?),
        };
        let differs = || Some(format!("{} is not the same", their.display()));
        if a.file_type() != b.file_type() || (a.is_file() && a.len() != b.len()) {
            return Ok(differs());
        }
        if a.is_dir() {
            if let Some(what) = difference_with(&our, &their, follows)? {
                return Ok(Some(what));
            }
        } else if a.is_symlink() {
            if fs::read_link(&our)? != fs::read_link(&their)? {
                return Ok(differs());
            }
        } else if a.len() <= SMALL_BYTES {
            if fs::read(&our)? != fs::read(&their)? {
                return Ok(differs());
            }
        } else if !crate::data::same_content(&our, &their)? {
            return Ok(differs());
        }
    }
    Ok(None)
}

/// So much is written at once. (It is also drawn once before the sizes of files are: they stay what
/// they were in earlier results.)
const NOISE_BYTES: usize = 8 << 20;
/// Of the logarithms of sizes.
const SPREAD: f64 = 1.5;
/// Files up to this size are compared in one go.
const SMALL_BYTES: u64 = 1 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tree_is_made_as_told_and_compared() {
        let folder = tempfile::tempdir().unwrap();
        let (one, other) = (folder.path().join("one"), folder.path().join("other"));
        let shape = Shape::Natural { files: 2000, bytes: 3_000_000 };
        for tree in [&one, &other] {
            make_tree(tree, shape).unwrap();
        }
        assert_eq!(difference(&one, &other).unwrap(), None);
        let sizes = sizes(shape, &mut fastrand::Rng::with_seed(7));
        let paths = files(&one).unwrap();
        assert_eq!((paths.len(), &*paths[0]), (2000, "0/0/0/file-0.dat"));
        assert!(!paths.iter().any(|path| path.contains("link")));
        assert_eq!((sizes.len(), sizes.iter().sum::<u64>()), (2000, 3_000_000));
        fs::write(other.join("0/3/2/file-321.dat"), "x").unwrap();
        assert!(difference(&one, &other).unwrap().unwrap().contains("file-321.dat"));
        fs::remove_file(other.join("0/3/2/file-321.dat")).unwrap();
        assert!(difference(&one, &other).unwrap().unwrap().contains("0/3/2"));
        fs::copy(one.join("0/3/2/file-321.dat"), other.join("0/3/2/file-321.dat")).unwrap();
        let link = other.join("0/0/9/link-99");
        let behind = fs::read(&link).unwrap();
        fs::remove_file(&link).unwrap();
        fs::write(&link, behind).unwrap();
        assert!(difference(&one, &other).unwrap().unwrap().contains("link-99"));
        assert_eq!(difference_behind_links(&one, &other).unwrap(), None);
    }
}
