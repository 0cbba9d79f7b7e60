//! Extension messages (BEP 10): the second handshake, in which peers tell which extensions they
//! speak, and the extensions themselves: `ut_metadata` (BEP 9), `ut_pex` (BEP 11) and `lt_donthave`
//! (BEP 54).
//!
//! Each side chooses the numbers of the messages that it receives; ours are constants. Unknown
//! extensions, and unknown keys of known ones, are ignored.

mod handshake;
mod metadata;
mod peer_exchange;

pub use handshake::ExtensionHandshake;
pub use metadata::{
    METADATA_BYTES_MAX, METADATA_PIECE_BYTES, MetadataAssembly, MetadataError, MetadataMessage,
};
pub use peer_exchange::{EXCHANGED_PEERS_MAX, ExchangedPeer, PeerExchange, PeerFlags};

use thiserror::Error;

use crate::torrent::bencode;

/// An extension that is understood here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extension {
    /// Transfer of the info dictionary (BEP 9).
    Metadata,
    /// Exchange of peers' addresses (BEP 11).
    PeerExchange,
    /// Pieces that a peer has lost (BEP 54).
    DontHave,
}

impl Extension {
    /// All extensions.
    pub const ALL: [Extension; 3] =
        [Extension::Metadata, Extension::PeerExchange, Extension::DontHave];

    /// Returns its name in the handshake.
    pub fn name(self) -> &'static str {
        match self {
            Extension::Metadata => "ut_metadata",
            Extension::PeerExchange => "ut_pex",
            Extension::DontHave => "lt_donthave",
        }
    }

    /// Returns the number that peers must use when they send such a message here.
    pub fn local_id(self) -> u8 {
        self as u8 + 1
    }

    /// Returns the extension of a message that was received here.
    pub fn of_local_id(id: u8) -> Option<Extension> {
        Extension::ALL.into_iter().find(|extension| extension.local_id() == id)
    }
}

/// The number of each extension at one side, 0 if it is switched off. `None` is not mentioned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct ExtensionIds([Option<u8>; Extension::ALL.len()]);

impl ExtensionIds {
    /// Returns the numbers of this side for the extensions that `uses` selects.
    pub fn local(uses: impl Fn(Extension) -> bool) -> ExtensionIds {
        ExtensionIds(Extension::ALL.map(|it| uses(it).then(|| it.local_id())))
    }

    /// Returns the number of an extension, `None` if it is not spoken.
    pub fn id(&self, extension: Extension) -> Option<u8> {
        self.0[extension as usize].filter(|id| *id != 0)
    }

    /// Applies the changes of a later handshake.
    pub fn update(&mut self, changes: &ExtensionIds) {
        for (id, change) in self.0.iter_mut().zip(changes.0) {
            *id = change.or(*id);
        }
    }
}

/// An extension message that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ExtensionError {
    /// It is not bencoded.
    #[error("it is not bencoded: {0}")]
    Bencode(#[from] bencode::BencodeError),
    /// It is not a dictionary.
    #[error("it is not a dictionary")]
    NoDictionary,
    /// A value is missing, or is none of those allowed.
    #[error("no possible value of {0}")]
    Value(&'static str),
    /// `lt_donthave` is not the four bytes of a piece's number.
    #[error("the number of a piece has four bytes, not {0}")]
    DontHave(usize),
}

#[cfg(test)]
mod tests;
