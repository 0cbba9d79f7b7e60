//! The files of a web folder that this server fetches for somebody else, reported as one copy.

use std::sync::{Mutex, PoisonError};

use swath_transfer::observe::{Event, SameBy, Summary, Verified};

/// What is known of the files so far.
#[derive(Default)]
pub struct ListedFiles(Mutex<Sums>);

#[derive(Default)]
struct Sums {
    size_bytes: u64,
    fetched_bytes: u64,
    /// Of files that were there already.
    kept_bytes: u64,
    kept_files: u64,
    /// Files that no digest proves.
    unproved: u64,
}

impl ListedFiles {
    /// Counts a file that is complete.
    pub fn note(&self, event: &Event) {
        let mut sums = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match event {
            Event::Finished(file) => {
                sums.size_bytes += file.size_bytes;
                sums.fetched_bytes += file.fetched_bytes;
                sums.unproved += u64::from(file.verified == Verified::None);
            }
            Event::Present { size_bytes, same, .. } => {
                sums.size_bytes += size_bytes;
                sums.kept_bytes += size_bytes;
                sums.kept_files += 1;
                let is_compared_only = matches!(same, SameBy::SizeAndTime | SameBy::Name);
                sums.unproved += u64::from(is_compared_only);
            }
            _ => {}
        }
    }

    /// Returns the summary of all of them.
    pub fn summary(&self, elapsed_s: f64) -> Summary {
        let sums = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (verified, verified_by) = match sums.unproved {
            0 => (Verified::Digest, "the digests that the server tells".to_owned()),
            1 => (Verified::None, "no digest of one file is known".to_owned()),
            count => (Verified::None, format!("no digests of {count} files are known")),
        };
        Summary {
            size_bytes: sums.size_bytes,
            fetched_bytes: sums.fetched_bytes,
            kept_bytes: sums.kept_bytes,
            kept_files: sums.kept_files,
            elapsed_s,
            rate_bytes_per_s: sums.fetched_bytes as f64 / elapsed_s.max(f64::EPSILON),
            proved: sums.unproved == 0,
            verified,
            verified_by,
            ..Summary::default()
        }
    }
}
