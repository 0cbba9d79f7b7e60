//! The messages that peers exchange after the handshake: BEP 3, the fast extension (BEP 6),
//! extension messages (BEP 10) and hashes (BEP 52), read and written.
//!
//! A message is a length of four bytes, an identifier of one, and its fields; numbers are
//! big-endian. Messages are read out of the caller's buffer without being copied. Of `piece` only
//! the first 13 bytes are a message here: the payload behind them is read and written by the
//! caller, straight between the socket and its own buffers or files. A length that is not allowed
//! is an error before any more is read.

use std::fmt;

use super::bitfield::Bitfield;
use super::fault::{PeerFault, Violation};
use super::layout::{Block, PIECES_MAX, PieceIndex};

/// One message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Message<'a> {
    /// Keeps the connection open.
    KeepAlive,
    /// The sender answers no requests from now on.
    Choke,
    /// The sender answers requests from now on.
    Unchoke,
    /// The sender wants pieces.
    Interested,
    /// The sender wants no piece.
    NotInterested,
    /// The sender has one more piece.
    Have(PieceIndex),
    /// The pieces that the sender has: the payload, see [`Bitfield::from_wire`].
    Bitfield(&'a [u8]),
    /// Asks for a block.
    Request(Block),
    /// A block; its payload of `length` bytes follows.
    Piece(Block),
    /// Takes back a request.
    Cancel(Block),
    /// The UDP port of the sender's node of the distributed hash table (BEP 5).
    Port(u16),
    /// The receiver might like this piece (BEP 6).
    Suggest(PieceIndex),
    /// The sender has all pieces (BEP 6).
    HaveAll,
    /// The sender has no piece (BEP 6).
    HaveNone,
    /// The sender will not answer this request (BEP 6).
    Reject(Block),
    /// The sender answers requests for this piece also while it chokes (BEP 6).
    AllowedFast(PieceIndex),
    /// An extension message (BEP 10).
    Extended {
        /// 0 for the handshake; otherwise the receiver's number of the extension.
        id: u8,
        /// Everything behind the number.
        payload: &'a [u8],
    },
    /// Asks for hashes of a file's tree (BEP 52).
    HashRequest(HashRange),
    /// The hashes asked for: 32 bytes each, those of the base layer first, then the uncle hashes
    /// up to the root.
    Hashes {
        /// The request that this answers.
        range: HashRange,
        /// The hashes; a multiple of 32 bytes.
        hashes: &'a [u8],
    },
    /// The sender will not answer this request for hashes.
    HashReject(HashRange),
    /// A message that is not understood.
    Unknown(MessageId),
}

/// Some hashes of the tree of one file (BEP 52).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct HashRange {
    /// The root of the file's tree.
    pub pieces_root: [u8; 32],
    /// The lowest layer asked for; 0 is the layer of the leaves.
    pub base_layer: u32,
    /// The first hash of that layer.
    pub index: u32,
    /// The number of hashes of that layer.
    pub length: u32,
    /// The number of layers above from which uncle hashes are wanted.
    pub proof_layers: u32,
}

impl HashRange {
    /// Returns whether the request may be answered: `length` is a power of two from 2 to
    /// [`HASHES_MAX`], `index` is a multiple of it, and the layers are those of a tree whose leaves
    /// have numbers of 64 bits.
    pub fn is_valid(&self) -> bool {
        self.length.is_power_of_two()
            && (2..=HASHES_MAX).contains(&self.length)
            && self.index.is_multiple_of(self.length)
            && self.base_layer.saturating_add(self.proof_layers) < 64
    }
}

/// Which lengths are accepted from the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The number of pieces of the torrent; `None` while it is not known.
    pub pieces: Option<u32>,
    /// Longest block that may be asked for or delivered.
    pub block_bytes_max: u32,
    /// Longest payload of an extension message.
    pub extended_bytes_max: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Limits { pieces: None, block_bytes_max: 128 << 10, extended_bytes_max: 1 << 20 }
    }
}

impl<'a> Message<'a> {
    /// Reads a message from the front of `input` and moves `input` behind it; behind the first 13
    /// bytes of `piece`. Returns `None`, and leaves `input` alone, if more bytes are needed.
    ///
    /// # Errors
    /// [`PeerFault`] if the length of the message, or of the block that it names, is not allowed.
    pub fn decode(input: &mut &'a [u8], limits: &Limits) -> Result<Option<Self>, PeerFault> {
        let Some((length, rest)) = input.split_first_chunk::<4>() else { return Ok(None) };
        let length = u32::from_be_bytes(*length);
        if length == 0 {
            *input = rest;
            return Ok(Some(Message::KeepAlive));
        }
        let Some((&id, rest)) = rest.split_first() else { return Ok(None) };
        let (id, body_bytes) = (MessageId(id), length - 1);
        if !id.allows(body_bytes, limits) {
            return Err(PeerFault { message: id, violation: Violation::Length(length) });
        }
        let buffered_bytes = if id == MessageId::PIECE { 8 } else { body_bytes as usize };
        let Some((body, rest)) = rest.split_at_checked(buffered_bytes) else { return Ok(None) };
        let message = Self::parse(id, body, body_bytes);
        if let Message::Request(block) | Message::Cancel(block) | Message::Reject(block) = message
            && !(1..=limits.block_bytes_max).contains(&block.length)
        {
            return Err(PeerFault { message: id, violation: Violation::BlockLength(block) });
        }
        *input = rest;
        Ok(Some(message))
    }

    /// Reads the fields of a message whose length was checked. `body_bytes` includes the payload of
    /// `piece`, `body` does not.
    fn parse(id: MessageId, body: &'a [u8], body_bytes: u32) -> Self {
        let number = |at: usize| {
            let bytes = body.get(at..).and_then(|rest| rest.first_chunk());
            u32::from_be_bytes(bytes.copied().unwrap_or_default())
        };
        let piece = PieceIndex(number(0));
        let block = Block { piece, begin: number(4), length: number(8) };
        let range = || HashRange {
            pieces_root: body.first_chunk().copied().unwrap_or_default(),
            base_layer: number(32),
            index: number(36),
            length: number(40),
            proof_layers: number(44),
        };
        match id {
            MessageId::CHOKE => Message::Choke,
            MessageId::UNCHOKE => Message::Unchoke,
            MessageId::INTERESTED => Message::Interested,
            MessageId::NOT_INTERESTED => Message::NotInterested,
            MessageId::HAVE => Message::Have(piece),
            MessageId::BITFIELD => Message::Bitfield(body),
            MessageId::REQUEST => Message::Request(block),
            MessageId::PIECE => Message::Piece(Block { length: body_bytes - 8, ..block }),
            MessageId::CANCEL => Message::Cancel(block),
            MessageId::PORT => {
                Message::Port(body.first_chunk().map_or(0, |bytes| u16::from_be_bytes(*bytes)))
            }
            MessageId::SUGGEST => Message::Suggest(piece),
            MessageId::HAVE_ALL => Message::HaveAll,
            MessageId::HAVE_NONE => Message::HaveNone,
            MessageId::REJECT => Message::Reject(block),
            MessageId::ALLOWED_FAST => Message::AllowedFast(piece),
            MessageId::EXTENDED => {
                let (id, payload) = body.split_first().unwrap_or((&0, &[]));
                Message::Extended { id: *id, payload }
            }
            MessageId::HASH_REQUEST => Message::HashRequest(range()),
            MessageId::HASHES => {
                let hashes = body.get(HASH_RANGE_BYTES as usize..).unwrap_or_default();
                Message::Hashes { range: range(), hashes }
            }
            MessageId::HASH_REJECT => Message::HashReject(range()),
            other => Message::Unknown(other),
        }
    }

    /// Appends the message to `out`; of `piece` only the first 13 bytes, which the payload must
    /// follow. Lengths are not checked against any limit.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let start = out.len();
        out.extend_from_slice(&[0; 4]);
        out.extend(self.id().map(|id| id.0));
        let mut payload_bytes = 0;
        match self {
            Message::Have(piece) | Message::Suggest(piece) | Message::AllowedFast(piece) => {
                out.extend_from_slice(&piece.0.to_be_bytes());
            }
            Message::Bitfield(wire) => out.extend_from_slice(wire),
            Message::Request(block) | Message::Cancel(block) | Message::Reject(block) => {
                for number in [block.piece.0, block.begin, block.length] {
                    out.extend_from_slice(&number.to_be_bytes());
                }
            }
            Message::Piece(block) => {
                for number in [block.piece.0, block.begin] {
                    out.extend_from_slice(&number.to_be_bytes());
                }
                payload_bytes = block.length;
            }
            Message::Port(port) => out.extend_from_slice(&port.to_be_bytes()),
            Message::Extended { id, payload } => {
                out.push(*id);
                out.extend_from_slice(payload);
            }
            Message::HashRequest(range) | Message::HashReject(range) => range.encode(out),
            Message::Hashes { range, hashes } => {
                range.encode(out);
                out.extend_from_slice(hashes);
            }
            Message::KeepAlive
            | Message::Choke
            | Message::Unchoke
            | Message::Interested
            | Message::NotInterested
            | Message::HaveAll
            | Message::HaveNone
            | Message::Unknown(_) => {}
        }
        let length = (out.len() - start - 4) as u32 + payload_bytes;
        out[start..start + 4].copy_from_slice(&length.to_be_bytes());
    }

    /// Returns the message's identifier; keep-alive has none.
    pub fn id(&self) -> Option<MessageId> {
        Some(match self {
            Message::KeepAlive => return None,
            Message::Choke => MessageId::CHOKE,
            Message::Unchoke => MessageId::UNCHOKE,
            Message::Interested => MessageId::INTERESTED,
            Message::NotInterested => MessageId::NOT_INTERESTED,
            Message::Have(_) => MessageId::HAVE,
            Message::Bitfield(_) => MessageId::BITFIELD,
            Message::Request(_) => MessageId::REQUEST,
            Message::Piece(_) => MessageId::PIECE,
            Message::Cancel(_) => MessageId::CANCEL,
            Message::Port(_) => MessageId::PORT,
            Message::Suggest(_) => MessageId::SUGGEST,
            Message::HaveAll => MessageId::HAVE_ALL,
            Message::HaveNone => MessageId::HAVE_NONE,
            Message::Reject(_) => MessageId::REJECT,
            Message::AllowedFast(_) => MessageId::ALLOWED_FAST,
            Message::Extended { .. } => MessageId::EXTENDED,
            Message::HashRequest(_) => MessageId::HASH_REQUEST,
            Message::Hashes { .. } => MessageId::HASHES,
            Message::HashReject(_) => MessageId::HASH_REJECT,
            Message::Unknown(id) => *id,
        })
    }
}

impl HashRange {
    fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.pieces_root);
        for number in [self.base_layer, self.index, self.length, self.proof_layers] {
            out.extend_from_slice(&number.to_be_bytes());
        }
    }
}

/// The identifier of a message, shown as its name.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct MessageId(pub u8);

#[allow(missing_docs, reason = "the constants say the names of the messages, see `Message`")]
impl MessageId {
    pub const CHOKE: MessageId = MessageId(0);
    pub const UNCHOKE: MessageId = MessageId(1);
    pub const INTERESTED: MessageId = MessageId(2);
    pub const NOT_INTERESTED: MessageId = MessageId(3);
    pub const HAVE: MessageId = MessageId(4);
    pub const BITFIELD: MessageId = MessageId(5);
    pub const REQUEST: MessageId = MessageId(6);
    pub const PIECE: MessageId = MessageId(7);
    pub const CANCEL: MessageId = MessageId(8);
    pub const PORT: MessageId = MessageId(9);
    pub const SUGGEST: MessageId = MessageId(13);
    pub const HAVE_ALL: MessageId = MessageId(14);
    pub const HAVE_NONE: MessageId = MessageId(15);
    pub const REJECT: MessageId = MessageId(16);
    pub const ALLOWED_FAST: MessageId = MessageId(17);
    pub const EXTENDED: MessageId = MessageId(20);
    pub const HASH_REQUEST: MessageId = MessageId(21);
    pub const HASHES: MessageId = MessageId(22);
    pub const HASH_REJECT: MessageId = MessageId(23);
}

impl MessageId {
    /// Returns whether the message may have a body of `bytes` behind its identifier.
    fn allows(self, bytes: u32, limits: &Limits) -> bool {
        match self {
            MessageId::CHOKE
            | MessageId::UNCHOKE
            | MessageId::INTERESTED
            | MessageId::NOT_INTERESTED
            | MessageId::HAVE_ALL
            | MessageId::HAVE_NONE => bytes == 0,
            MessageId::HAVE | MessageId::SUGGEST | MessageId::ALLOWED_FAST => bytes == 4,
            MessageId::BITFIELD => match limits.pieces {
                Some(pieces) => bytes as usize == Bitfield::wire_bytes(pieces),
                None => bytes as usize <= Bitfield::wire_bytes(PIECES_MAX),
            },
            MessageId::REQUEST | MessageId::CANCEL | MessageId::REJECT => bytes == 12,
            MessageId::PIECE => bytes > 8 && bytes - 8 <= limits.block_bytes_max,
            MessageId::PORT => bytes == 2,
            MessageId::EXTENDED => bytes > 0 && bytes - 1 <= limits.extended_bytes_max,
            MessageId::HASH_REQUEST | MessageId::HASH_REJECT => bytes == HASH_RANGE_BYTES,
            MessageId::HASHES => bytes.checked_sub(HASH_RANGE_BYTES).is_some_and(|hashes| {
                hashes.is_multiple_of(32) && hashes / 32 <= HASHES_MAX + PROOF_HASHES_MAX
            }),
            _ => bytes <= UNKNOWN_BYTES_MAX,
        }
    }

    fn name(self) -> Option<&'static str> {
        Some(match self {
            MessageId::CHOKE => "choke",
            MessageId::UNCHOKE => "unchoke",
            MessageId::INTERESTED => "interested",
            MessageId::NOT_INTERESTED => "not interested",
            MessageId::HAVE => "have",
            MessageId::BITFIELD => "bitfield",
            MessageId::REQUEST => "request",
            MessageId::PIECE => "piece",
            MessageId::CANCEL => "cancel",
            MessageId::PORT => "port",
            MessageId::SUGGEST => "suggest piece",
            MessageId::HAVE_ALL => "have all",
            MessageId::HAVE_NONE => "have none",
            MessageId::REJECT => "reject request",
            MessageId::ALLOWED_FAST => "allowed fast",
            MessageId::EXTENDED => "extended",
            MessageId::HASH_REQUEST => "hash request",
            MessageId::HASHES => "hashes",
            MessageId::HASH_REJECT => "hash reject",
            _ => return None,
        })
    }
}

impl fmt::Display for MessageId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => f.write_str(name),
            None => write!(f, "message {}", self.0),
        }
    }
}

impl fmt::Debug for MessageId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Most hashes of the base layer in one request: BEP 52 advises 512, libtorrent accepts 8192.
pub const HASHES_MAX: u32 = 8192;
/// At most one uncle hash a layer.
const PROOF_HASHES_MAX: u32 = 64;
/// A root and four numbers.
const HASH_RANGE_BYTES: u32 = 48;
/// Messages of later extensions are skipped up to this length.
const UNKNOWN_BYTES_MAX: u32 = 64 << 10;

#[cfg(test)]
mod tests;
