//! A disk that fills up, fails, and forgets what was not synced when the power is cut.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use swath_store::simulated::Faults;

/// See the module.
#[derive(Debug, Default)]
pub struct FakeDisk {
    /// Bytes that it still takes.
    room_bytes: AtomicU64,
    /// Steps until one fails.
    steps_left: AtomicU64,
    /// What the files held when they were synced, by inode.
    durable: Mutex<HashMap<u64, Vec<u8>>>,
}

impl FakeDisk {
    /// From now on it takes so many bytes, and its step after so many others fails.
    pub fn bears(&self, room_bytes: Option<u64>, fails_after_steps: Option<u64>) {
        self.room_bytes.store(room_bytes.unwrap_or(u64::MAX / 2), Ordering::Relaxed);
        self.steps_left.store(fails_after_steps.unwrap_or(u64::MAX / 2), Ordering::Relaxed);
    }

    /// The power was cut: of what was not synced, each block is there or is not.
    pub fn cut_power(&self, folder: &Path, random: &mut fastrand::Rng) {
        let mut durable = self.durable.lock().unwrap();
        let mut paths: Vec<_> =
            fs::read_dir(folder).unwrap().map(|it| it.unwrap().path()).collect();
        paths.sort();
        for path in paths {
            let now = fs::read(&path).unwrap();
            let nothing = Vec::new();
            let inode = fs::metadata(&path).unwrap().ino();
            let mut left = durable.get(&inode).unwrap_or(&nothing).clone();
            if now.len() > left.len() {
                // What was appended may be there up to any byte.
                let grown = random.usize(left.len()..=now.len());
                left.resize(grown, 0);
            }
            let cut = File::options().write(true).open(&path).unwrap();
            for at in (0..left.len()).step_by(BLOCK_BYTES) {
                let end = (at + BLOCK_BYTES).min(left.len());
                if end <= now.len() && random.bool() {
                    left[at..end].copy_from_slice(&now[at..end]);
                }
            }
            cut.set_len(left.len() as u64).unwrap();
            cut.write_all_at(&left, 0).unwrap();
            durable.insert(inode, left);
        }
    }
}

impl Faults for FakeDisk {
    fn before_write(&self, _: u64, bytes: usize) -> io::Result<()> {
        let room = self.room_bytes.load(Ordering::Relaxed);
        match room.checked_sub(bytes as u64) {
            Some(left) => {
                self.room_bytes.store(left, Ordering::Relaxed);
                Ok(())
            }
            None => Err(io::Error::from_raw_os_error(libc_enospc())),
        }
    }

    fn before_step(&self) -> io::Result<()> {
        match self.steps_left.load(Ordering::Relaxed).checked_sub(1) {
            Some(left) => {
                self.steps_left.store(left, Ordering::Relaxed);
                Ok(())
            }
            None => {
                // It fails once.
                self.steps_left.store(u64::MAX / 2, Ordering::Relaxed);
                Err(io::Error::other("the disk has failed"))
            }
        }
    }

    fn synced(&self, file: &File) {
        let found = file.metadata().unwrap();
        let mut bytes = vec![0; found.len() as usize];
        file.read_exact_at(&mut bytes, 0).unwrap();
        self.durable.lock().unwrap().insert(found.ino(), bytes);
    }
}

/// What the system says of a full disk.
fn libc_enospc() -> i32 {
    28
}

const BLOCK_BYTES: usize = 4096;
