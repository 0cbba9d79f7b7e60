//! What a node says of itself: a log that others read from where they left off, and its form on the wire.
//!
//! Numbers are big-endian. An answer is: the version of this form (1 byte), the id of the node (16), the
//! number of the entry behind the last one (8), and the entries, each with its kind (1) before it:
//!
//! | kind | entry | bytes |
//! | --- | --- | --- |
//! | 1 | claimed | unit (4) |
//! | 2 | released | unit (4) |
//! | 3 | held | unit (4), hash of the unit (32), id of the node that fetched it (16) |
//! | 4 | cleared | |

use crate::units::Unit;

/// The id of a node, new at each start.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NodeId(pub [u8; 16]);

/// The hash of a unit, and the node that vouches that the origin has sent it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Vouch {
    /// The BLAKE3 hash.
    pub hash: [u8; 32],
    /// The node that fetched the unit from the origin.
    pub by: NodeId,
}

/// Something that happened at a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entry {
    /// It will fetch this unit from the origin.
    Claimed(Unit),
    /// It will not after all.
    Released(Unit),
    /// It has verified this unit.
    Held(Unit, Vouch),
    /// It has nothing any more, and claims nothing.
    Cleared,
}

/// A part of the log of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// Whose.
    pub node: NodeId,
    /// The number of the entry behind the last one here.
    pub next: u64,
    /// The entries.
    pub entries: Vec<Entry>,
}

/// Bytes that are no part of a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the answer is not one of a node")]
pub struct BadPart;

impl Part {
    /// Returns the part as bytes.
    pub fn bytes(&self) -> Vec<u8> {
        let mut bytes = vec![VERSION];
        bytes.extend(self.node.0);
        bytes.extend(self.next.to_be_bytes());
        for entry in &self.entries {
            match entry {
                Entry::Claimed(unit) => {
                    bytes.push(1);
                    bytes.extend(unit.to_be_bytes());
                }
                Entry::Released(unit) => {
                    bytes.push(2);
                    bytes.extend(unit.to_be_bytes());
                }
                Entry::Held(unit, vouch) => {
                    bytes.push(3);
                    bytes.extend(unit.to_be_bytes());
                    bytes.extend(vouch.hash);
                    bytes.extend(vouch.by.0);
                }
                Entry::Cleared => bytes.push(4),
            }
        }
        bytes
    }

    /// Reads what [`Part::bytes`] wrote.
    ///
    /// # Errors
    /// [`BadPart`], also if there are more than [`ENTRIES_MAX`] entries.
    pub fn read(bytes: &[u8]) -> Result<Part, BadPart> {
        let mut left = bytes;
        if take::<1>(&mut left)? != [VERSION] {
            return Err(BadPart);
        }
        let (node, next) = (NodeId(take(&mut left)?), u64::from_be_bytes(take(&mut left)?));
        let mut entries = Vec::new();
        while !left.is_empty() {
            if entries.len() == ENTRIES_MAX {
                return Err(BadPart);
            }
            let [kind] = take(&mut left)?;
            let mut unit = || Ok(Unit::from_be_bytes(take(&mut left)?));
            entries.push(match kind {
                1 => Entry::Claimed(unit()?),
                2 => Entry::Released(unit()?),
                3 => {
                    let unit = unit()?;
                    let hash = take(&mut left)?;
                    Entry::Held(unit, Vouch { hash, by: NodeId(take(&mut left)?) })
                }
                4 => Entry::Cleared,
                _ => return Err(BadPart),
            });
        }
        Ok(Part { node, next, entries })
    }
}

fn take<const N: usize>(left: &mut &[u8]) -> Result<[u8; N], BadPart> {
    let (taken, rest) = left.split_first_chunk().ok_or(BadPart)?;
    *left = rest;
    Ok(*taken)
}

impl std::fmt::Debug for NodeId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "NodeId({:032x})", u128::from_be_bytes(self.0))
    }
}

/// The form described above.
const VERSION: u8 = 1;
/// Most entries of an answer.
pub const ENTRIES_MAX: usize = 4096;
/// Most bytes of an answer.
pub const PART_BYTES_MAX: usize = 25 + ENTRIES_MAX * 53;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn entry() -> impl Strategy<Value = Entry> {
        prop_oneof![
            any::<Unit>().prop_map(Entry::Claimed),
            any::<Unit>().prop_map(Entry::Released),
            (any::<Unit>(), any::<[u8; 32]>(), any::<[u8; 16]>())
                .prop_map(|(unit, hash, by)| Entry::Held(unit, Vouch { hash, by: NodeId(by) })),
            Just(Entry::Cleared),
        ]
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_again_and_never_half(
            node in any::<[u8; 16]>(),
            next in any::<u64>(),
            entries in prop::collection::vec(entry(), 0..50),
            cut in any::<prop::sample::Index>(),
        ) {
            let part = Part { node: NodeId(node), next, entries };
            let bytes = part.bytes();
            prop_assert!(bytes.len() <= PART_BYTES_MAX);
            prop_assert_eq!(Part::read(&bytes), Ok(part.clone()));
            let cut = &bytes[..cut.index(bytes.len())];
            prop_assert!(Part::read(cut).is_err() || Part::read(cut).is_ok_and(|it| it.entries.len() < part.entries.len()));
        }

        #[test]
        fn anything_is_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            if let Ok(part) = Part::read(&bytes) {
                prop_assert_eq!(part.bytes(), bytes);
            }
        }
    }

    #[test]
    fn too_many_entries_are_refused() {
        let of =
            |count| Part { node: NodeId([1; 16]), next: 0, entries: vec![Entry::Cleared; count] };
        assert!(Part::read(&of(ENTRIES_MAX).bytes()).is_ok());
        assert_eq!(Part::read(&of(ENTRIES_MAX + 1).bytes()), Err(BadPart));
    }
}
