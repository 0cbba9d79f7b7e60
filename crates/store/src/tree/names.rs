//! The names in one folder, in order.

use std::os::fd::BorrowedFd;

use rustix::fs::RawDir;

/// Names, close together: a folder may have millions.
#[derive(Debug, Default)]
pub(super) struct Names {
    bytes: Vec<u8>,
    /// Where each begins, how long it is, and its number on the device.
    spots: Vec<Spot>,
}

#[derive(Clone, Copy, Debug)]
struct Spot {
    start: u32,
    length: u16,
    inode: u64,
}

impl Names {
    /// Reads a folder.
    pub fn read(folder: BorrowedFd<'_>) -> rustix::io::Result<Names> {
        let mut names = Names::default();
        let mut buffer = Vec::with_capacity(READ_BYTES);
        let mut entries = RawDir::new(folder, buffer.spare_capacity_mut());
        while let Some(entry) = entries.next() {
            let entry = entry?;
            let name = entry.file_name().to_bytes();
            if name == b"." || name == b".." {
                continue;
            }
            let (Ok(start), Ok(length)) =
                (u32::try_from(names.bytes.len()), u16::try_from(name.len()))
            else {
                return Err(rustix::io::Errno::OVERFLOW);
            };
            names.bytes.extend_from_slice(name);
            names.spots.push(Spot { start, length, inode: entry.ino() });
        }
        let Names { bytes, spots } = &mut names;
        spots.sort_unstable_by(|a, b| name_at(bytes, *a).cmp(name_at(bytes, *b)));
        bytes.shrink_to_fit();
        spots.shrink_to_fit();
        Ok(names)
    }

    pub fn len(&self) -> usize {
        self.spots.len()
    }

    /// Whether this name is among them.
    pub fn has(&self, name: &[u8]) -> bool {
        self.spots.binary_search_by(|&spot| name_at(&self.bytes, spot).cmp(name)).is_ok()
    }

    /// Keeps those of these places alone.
    pub fn retain(&mut self, is_kept: impl Fn(usize) -> bool) {
        let mut at = 0;
        self.spots.retain(|_| {
            at += 1;
            is_kept(at - 1)
        });
    }

    /// The name of this place in the order; empty if there is none.
    pub fn name(&self, at: usize) -> &[u8] {
        self.spots.get(at).map_or(&[], |&spot| name_at(&self.bytes, spot))
    }

    /// Its number on the device: what lies close together there has numbers that do.
    pub fn inode(&self, at: usize) -> u64 {
        self.spots.get(at).map_or(0, |spot| spot.inode)
    }
}

fn name_at(bytes: &[u8], spot: Spot) -> &[u8] {
    let start = spot.start as usize;
    &bytes[start..start + usize::from(spot.length)]
}

/// What one call reads: some thousand names.
const READ_BYTES: usize = 128 << 10;
