//! The names in one folder, in order.

use std::os::fd::BorrowedFd;

use rustix::fs::RawDir;

/// Names, stored compactly: a folder may have millions.
#[derive(Debug, Default)]
pub(super) struct Names {
    bytes: Vec<u8>,
    /// Position, length and inode number of each name.
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

    /// Returns the memory that they take, in bytes.
    pub fn memory_bytes(&self) -> usize {
        self.bytes.capacity() + self.spots.capacity() * size_of::<Spot>()
    }

    pub fn len(&self) -> usize {
        self.spots.len()
    }

    /// Returns whether this name is among them.
    pub fn has(&self, name: &[u8]) -> bool {
        self.spots.binary_search_by(|&spot| name_at(&self.bytes, spot).cmp(name)).is_ok()
    }

    /// Keeps only the names at these positions.
    pub fn retain(&mut self, is_kept: impl Fn(usize) -> bool) {
        let mut at = 0;
        self.spots.retain(|_| {
            at += 1;
            is_kept(at - 1)
        });
    }

    /// Returns the name at this position; empty if there is none.
    pub fn name(&self, at: usize) -> &[u8] {
        self.spots.get(at).map_or(&[], |&spot| name_at(&self.bytes, spot))
    }

    /// Returns its inode number; close numbers usually lie close together on the device.
    pub fn inode(&self, at: usize) -> u64 {
        self.spots.get(at).map_or(0, |spot| spot.inode)
    }
}

fn name_at(bytes: &[u8], spot: Spot) -> &[u8] {
    let start = spot.start as usize;
    &bytes[start..start + usize::from(spot.length)]
}

/// Bytes read by one call: some thousand names.
const READ_BYTES: usize = 128 << 10;
