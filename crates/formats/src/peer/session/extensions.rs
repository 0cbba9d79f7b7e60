//! The extension messages and hash requests of one connection.

use crate::peer::extension::{
    Extension, ExtensionError, ExtensionHandshake, ExtensionIds, MetadataMessage, PeerExchange,
};
use crate::peer::fault::Violation;
use crate::peer::layout::PieceIndex;
use crate::peer::message::{HashRange, Message};

/// What both sides told of their extensions, and which hashes are owed.
#[derive(Clone, Debug)]
pub(super) struct Extensions {
    peer_exchange: bool,
    peer: ExtensionHandshake,
    /// Requests for hashes that the peer has not answered.
    hashes_asked: Vec<HashRange>,
    /// Requests for hashes that we have not answered.
    hashes_owed: usize,
}

/// What an extension message said.
pub(super) enum Said {
    Handshake,
    Metadata(MetadataMessage),
    Peers(PeerExchange),
    DontHave(PieceIndex),
    Nothing,
}

impl Extensions {
    pub fn new(peer_exchange: bool) -> Extensions {
        Extensions {
            peer_exchange,
            peer: ExtensionHandshake::default(),
            hashes_asked: Vec::new(),
            hashes_owed: 0,
        }
    }

    /// Returns what the peer told.
    pub fn peer(&self) -> &ExtensionHandshake {
        &self.peer
    }

    /// Returns whether addresses of peers may be exchanged.
    pub fn exchanges_peers(&self) -> bool {
        self.peer_exchange
    }

    /// Returns the payload of our handshake.
    pub fn handshake(&self, requests_max: usize, told: ExtensionHandshake) -> Vec<u8> {
        let is_used = |it| it != Extension::PeerExchange || self.peer_exchange;
        let ids = ExtensionIds::local(is_used);
        let requests_max = u32::try_from(requests_max).ok();
        ExtensionHandshake { ids, requests_max, ..told }.encode()
    }

    /// Reads an extension message.
    pub fn read(&mut self, id: u8, payload: &[u8]) -> Result<Said, ExtensionError> {
        if id == 0 {
            self.peer.update(ExtensionHandshake::decode(payload)?);
            return Ok(Said::Handshake);
        }
        Ok(match Extension::of_local_id(id) {
            Some(Extension::Metadata) => {
                MetadataMessage::decode(payload)?.map_or(Said::Nothing, Said::Metadata)
            }
            Some(Extension::PeerExchange) if self.peer_exchange => {
                Said::Peers(PeerExchange::decode(payload)?)
            }
            Some(Extension::DontHave) => match payload.try_into() {
                Ok(piece) => Said::DontHave(PieceIndex(u32::from_be_bytes(piece))),
                Err(_) => return Err(ExtensionError::DontHave(payload.len())),
            },
            Some(Extension::PeerExchange) | None => Said::Nothing,
        })
    }

    /// Writes a message of an extension if the peer speaks it; returns whether it does.
    pub fn write(&self, extension: Extension, payload: &[u8], out: &mut Vec<u8>) -> bool {
        let id = self.peer.ids.id(extension);
        if let Some(id) = id {
            Message::Extended { id, payload }.encode(out);
        }
        id.is_some()
    }

    /// Records a request for hashes.
    pub fn ask_hashes(&mut self, range: HashRange) {
        self.hashes_asked.push(range);
    }

    /// Checks an answer to a request for hashes.
    pub fn end_hashes(&mut self, range: HashRange) -> Result<(), Violation> {
        let at = self.hashes_asked.iter().position(|asked| *asked == range);
        self.hashes_asked.swap_remove(at.ok_or(Violation::HashesNotRequested)?);
        Ok(())
    }

    /// Counts a request for hashes of the peer.
    pub fn owe_hashes(&mut self) -> Result<(), Violation> {
        self.hashes_owed += 1;
        if self.hashes_owed > HASH_REQUESTS_MAX { Err(Violation::Flood) } else { Ok(()) }
    }

    /// Counts an answer of ours.
    pub fn answer_hashes(&mut self) {
        self.hashes_owed = self.hashes_owed.saturating_sub(1);
    }
}

/// Requests for hashes that a peer may have outstanding; others ask for a few at a time.
const HASH_REQUESTS_MAX: usize = 256;
