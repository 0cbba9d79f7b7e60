//! Which pieces the peer has.
//!
//! `Unsized` (the metadata is still missing, so that the number of pieces is not known) becomes
//! `Sized` once. The peer tells its pieces in one first message (`bitfield`, `have all`, `have
//! none`), then by changes; aria2 sends the first two again where that is shorter.

use crate::peer::bitfield::Bitfield;
use crate::peer::fault::{PeerFault, Violation};
use crate::peer::layout::PieceIndex;
use crate::peer::message::MessageId;

/// The pieces of the peer.
#[derive(Clone, Debug)]
pub(super) enum PeerPieces {
    Unsized { first: First, changes: Vec<(PieceIndex, bool)> },
    Sized(Bitfield),
}

/// The peer's first message about its pieces, owned.
#[derive(Clone, Debug)]
pub(super) enum First {
    None,
    All,
    Bitfield(Vec<u8>),
}

impl PeerPieces {
    pub fn new(pieces: Option<u32>) -> PeerPieces {
        match pieces {
            Some(pieces) => PeerPieces::Sized(Bitfield::none(pieces)),
            None => PeerPieces::Unsized { first: First::None, changes: Vec::new() },
        }
    }

    /// Returns the pieces, `None` while their number is not known.
    pub fn known(&self) -> Option<&Bitfield> {
        match self {
            PeerPieces::Sized(bitfield) => Some(bitfield),
            PeerPieces::Unsized { .. } => None,
        }
    }

    /// Takes the peer's first message, or a later one, which only adds pieces.
    pub fn start(&mut self, first: First) -> Result<(), Violation> {
        match self {
            PeerPieces::Sized(bitfield) if bitfield.is_empty() => {
                *bitfield = first.sized(bitfield.pieces())?;
            }
            PeerPieces::Sized(bitfield) => {
                let added = first.sized(bitfield.pieces())?;
                added.iter().for_each(|piece| _ = bitfield.insert(piece));
            }
            PeerPieces::Unsized { first: First::All, .. } => {}
            PeerPieces::Unsized { first: slot, .. } => *slot = first,
        }
        Ok(())
    }

    /// Adds or removes a piece; returns whether that changed anything (`false` while the number of
    /// pieces is not known).
    pub fn change(&mut self, piece: PieceIndex, has: bool) -> Result<bool, Violation> {
        match self {
            PeerPieces::Sized(bitfield) if piece.0 >= bitfield.pieces() => {
                Err(Violation::NoSuchPiece(piece))
            }
            PeerPieces::Sized(bitfield) => {
                Ok(if has { bitfield.insert(piece) } else { bitfield.remove(piece) })
            }
            PeerPieces::Unsized { changes, .. } if changes.len() >= CHANGES_MAX => {
                Err(Violation::Flood)
            }
            PeerPieces::Unsized { changes, .. } => {
                changes.push((piece, has));
                Ok(false)
            }
        }
    }

    /// Checks what the peer told against the number of pieces, now that it is known.
    pub fn size(&mut self, pieces: u32) -> Result<(), PeerFault> {
        let PeerPieces::Unsized { first, changes } = self else { return Ok(()) };
        let bitfield = first.sized(pieces).map_err(|it| it.by(MessageId::BITFIELD))?;
        let changes = std::mem::take(changes);
        *self = PeerPieces::Sized(bitfield);
        for (piece, has) in changes {
            self.change(piece, has).map_err(|violation| {
                violation.by(if has { MessageId::HAVE } else { MessageId::EXTENDED })
            })?;
        }
        Ok(())
    }
}

impl First {
    fn sized(&self, pieces: u32) -> Result<Bitfield, Violation> {
        match self {
            First::None => Ok(Bitfield::none(pieces)),
            First::All => Ok(Bitfield::all(pieces)),
            First::Bitfield(wire) => Ok(Bitfield::from_wire(wire, pieces)?),
        }
    }
}

/// Changes remembered until the number of pieces is known. Metadata arrives within seconds.
const CHANGES_MAX: usize = 1 << 16;
