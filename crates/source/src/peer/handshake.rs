//! The handshakes that begin a connection between peers: the plain one (BEP 3), inside the encrypted
//! one where that is wanted.

use std::io;

use swath_formats::peer::encryption::{Encryption, Methods};
use swath_formats::peer::{HANDSHAKE_BYTES, Handshake, HandshakeError, WireInfoHash};

use super::error::PeerError;
use super::stream::PeerStream;
use super::torrent::random;

/// Sends our handshake and returns the peer's, encrypted by one of `methods` if there are any.
pub(super) async fn call(
    stream: &mut PeerStream,
    ours: &Handshake,
    methods: Option<Methods>,
) -> Result<Handshake, PeerError> {
    let mut first = Vec::new();
    ours.encode(&mut first);
    match methods {
        None => stream.push(first),
        Some(methods) => {
            let (secret, padding) = secrets();
            let side = Encryption::outgoing(secret, padding, ours.info_hash, methods, first);
            encrypt(stream, side, &[]).await?;
        }
    }
    stream.send_all().await.map_err(|error| PeerError::io(&error))?;
    read(stream).await
}

/// Reads the handshake of a peer that calls, encrypted or not. `torrents` are those that it may name
/// by an encrypted handshake.
pub(super) async fn answer(
    stream: &mut PeerStream,
    torrents: &[WireInfoHash],
    methods: Methods,
) -> Result<Handshake, PeerError> {
    match read(stream).await {
        Err(PeerError::Handshake(HandshakeError::NotBitTorrent)) => {
            let (secret, padding) = secrets();
            encrypt(stream, Encryption::incoming(secret, padding, methods), torrents).await?;
            read(stream).await
        }
        other => other,
    }
}

/// Sends our handshake to a peer that has called.
pub(super) async fn send(stream: &mut PeerStream, ours: &Handshake) -> Result<(), PeerError> {
    let mut bytes = Vec::new();
    ours.encode(&mut bytes);
    stream.push(bytes);
    stream.send_all().await.map_err(|error| PeerError::io(&error))
}

/// Reads a handshake of the form of BEP 3.
async fn read(stream: &mut PeerStream) -> Result<Handshake, PeerError> {
    loop {
        if let Some(theirs) = Handshake::decode(stream.input())? {
            stream.consume(HANDSHAKE_BYTES);
            return Ok(theirs);
        }
        read_more(stream).await?;
    }
}

/// Makes the encrypted handshake.
async fn encrypt(
    stream: &mut PeerStream,
    mut side: Encryption,
    torrents: &[WireInfoHash],
) -> Result<(), PeerError> {
    loop {
        let used = side.handle_input(stream.input(), torrents)?;
        stream.consume(used);
        let mut out = Vec::new();
        side.poll_transmit(&mut out);
        stream.push(out);
        stream.send_all().await.map_err(|error| PeerError::io(&error))?;
        if side.is_done() {
            break;
        }
        read_more(stream).await?;
    }
    let encrypted = side.finish().ok_or(PeerError::NotEncrypted)?;
    stream.encrypt(encrypted.first, encrypted.receive, encrypted.send);
    Ok(())
}

async fn read_more(stream: &mut PeerStream) -> Result<(), PeerError> {
    match stream.read_more().await {
        Ok(0) => Err(PeerError::io(&io::ErrorKind::UnexpectedEof.into())),
        Ok(_) => Ok(()),
        Err(error) => Err(PeerError::io(&error)),
    }
}

/// Returns the random parts of an encrypted handshake: the secret and the padding.
fn secrets() -> ([u8; 20], Vec<u8>) {
    let mut secret = [0; 20];
    random(&mut secret);
    let mut length = [0; 2];
    random(&mut length);
    let mut padding = vec![0; usize::from(u16::from_le_bytes(length)) % (PADDING_BYTES_MAX + 1)];
    random(&mut padding);
    (secret, padding)
}

/// Most padding, by the specification.
const PADDING_BYTES_MAX: usize = 512;
