//! Fetches a v1 torrent from one peer: the metadata, then every piece, each verified.
//!
//! ```sh
//! cargo run -p swath-formats --example peer_fetch -- 127.0.0.1:6881 INFO_HASH [plain|encrypted]
//! ```
#![allow(clippy::disallowed_methods, reason = "the crate has no sockets, its example needs one")]

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Instant;

use swath_formats::peer::encryption::{Encryption, Methods, Rc4};
use swath_formats::peer::{
    Bitfield, Event, Handshake, MetadataAssembly, MetadataMessage, PeerId, PieceIndex, PieceLayout,
    Reserved, Session, SessionConfig, WireInfoHash,
};
use swath_formats::torrent::{InfoHash, InfoHashV1, bencode};
use swath_model::digest::{Algorithm, Hasher};
use swath_model::{Range, Time};

type Failure = Box<dyn std::error::Error>;

/// A connection, encrypted or not.
struct Stream {
    tcp: TcpStream,
    receive: Option<Rc4>,
    send: Option<Rc4>,
    input: Vec<u8>,
}

impl Stream {
    fn read_more(&mut self) -> Result<(), Failure> {
        let mut part = [0; 65536];
        let count = self.tcp.read(&mut part)?;
        if count == 0 {
            return Err("the peer has closed the connection".into());
        }
        self.receive.iter_mut().for_each(|cipher| cipher.apply(&mut part[..count]));
        self.input.extend_from_slice(&part[..count]);
        Ok(())
    }

    fn write(&mut self, mut bytes: Vec<u8>) -> Result<(), Failure> {
        self.send.iter_mut().for_each(|cipher| cipher.apply(&mut bytes));
        Ok(self.tcp.write_all(&bytes)?)
    }
}

fn main() -> Result<(), Failure> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [address, info_hash, rest @ ..] = &arguments[..] else {
        return Err("usage: peer_fetch ADDRESS INFO_HASH [plain|encrypted]".into());
    };
    let torrent = InfoHash::V1(info_hash.parse::<InfoHashV1>()?);
    let info_hash = WireInfoHash::from(torrent);
    let reserved = Reserved { extended: true, fast: true, dht: false, v2: false };
    let ours = Handshake { reserved, info_hash, peer_id: PeerId::new(*b"example-0001") };
    let mut first = Vec::new();
    ours.encode(&mut first);

    let tcp = TcpStream::connect(address)?;
    let mut stream = Stream { tcp, receive: None, send: None, input: Vec::new() };
    match rest.first() {
        Some(method) => encrypt(&mut stream, info_hash, method == "plain", first)?,
        None => stream.write(first)?,
    }
    let theirs = loop {
        if let Some(theirs) = Handshake::decode(&stream.input)? {
            break theirs;
        }
        stream.read_more()?;
    };
    stream.input.drain(..swath_formats::peer::HANDSHAKE_BYTES);
    ours.check_answer(&theirs, None)?;
    println!("connected to {}, {:?}", theirs.peer_id, theirs.reserved);
    fetch(&mut stream, Fetch::new(reserved, theirs.reserved, torrent))
}

/// Makes the encrypted handshake.
fn encrypt(
    stream: &mut Stream,
    info_hash: WireInfoHash,
    plain: bool,
    first: Vec<u8>,
) -> Result<(), Failure> {
    let methods = Methods { plain, rc4: !plain };
    // An example needs no secrets.
    let mut side = Encryption::outgoing([0x5a; 20], vec![1; 77], info_hash, methods, first);
    while !side.is_done() {
        let mut out = Vec::new();
        side.poll_transmit(&mut out);
        stream.write(out)?;
        stream.read_more()?;
        let used = side.handle_input(&stream.input, &[])?;
        stream.input.drain(..used);
    }
    let encrypted = side.finish().ok_or("the handshake is not done")?;
    println!("method of encryption: {:?}", encrypted.method);
    (stream.receive, stream.send) = (encrypted.receive, encrypted.send);
    stream.receive.iter_mut().for_each(|cipher| cipher.apply(&mut stream.input));
    Ok(())
}

/// A torrent that arrives.
struct Fetch {
    session: Session,
    info_hash: InfoHash,
    metadata: Option<MetadataAssembly>,
    layout: Option<PieceLayout>,
    /// Digests of the pieces.
    pieces: Vec<[u8; 20]>,
    bytes: Vec<u8>,
    missing_bytes: u64,
}

impl Fetch {
    fn new(ours: Reserved, theirs: Reserved, info_hash: InfoHash) -> Fetch {
        let session = Session::new(Time::ZERO, ours, theirs, None, SessionConfig::default());
        let (pieces, bytes) = (Vec::new(), Vec::new());
        Fetch { session, info_hash, metadata: None, layout: None, pieces, bytes, missing_bytes: 0 }
    }

    fn event(&mut self, event: Event) -> Result<(), Failure> {
        match event {
            Event::Handshake if self.metadata.is_none() => {
                let told = self.session.peer_handshake();
                println!("{:?}, {:?} requests", told.client, told.requests_max);
                let bytes = told.metadata_bytes.ok_or("the peer has no metadata")?;
                let assembly = MetadataAssembly::new(self.info_hash, bytes)?;
                let missing: Vec<u32> = assembly.missing().collect();
                for piece in missing {
                    self.session.send_metadata(&MetadataMessage::Request { piece });
                }
                self.metadata = Some(assembly);
            }
            Event::Metadata(MetadataMessage::Data { piece, total_bytes, data }) => {
                let assembly = self.metadata.as_mut().ok_or("metadata that was not asked for")?;
                if let Some(info) = assembly.insert(piece, total_bytes, &data)? {
                    self.start(&info)?;
                }
            }
            Event::Refused { range, .. } => self.session.want(range),
            Event::Pieces => {
                let pieces = self.session.peer_pieces().map_or(0, Bitfield::count);
                println!("the peer has {pieces} of {} pieces", self.pieces.len());
            }
            event => println!("{event:?}"),
        }
        Ok(())
    }

    fn start(&mut self, info: &[u8]) -> Result<(), Failure> {
        let info = bencode::read(info)?.value;
        let int = |key: &[u8]| info.get(key).and_then(|value| value.int());
        let total = int(b"length").ok_or("only torrents of one file")? as u64;
        let piece_bytes = int(b"piece length").ok_or("no piece length")?;
        let layout = PieceLayout::new(piece_bytes.try_into()?, total).ok_or("no such layout")?;
        let pieces = info.get(b"pieces").and_then(|value| value.bytes()).ok_or("no pieces")?;
        self.pieces = pieces.as_chunks::<20>().0.to_vec();
        println!("{total} bytes in {} pieces", self.pieces.len());
        self.bytes = vec![0; total as usize];
        (self.layout, self.missing_bytes) = (Some(layout), total);
        self.session.set_layout(layout)?;
        self.session.set_pipeline(500);
        self.session.want(Range::new(0, total));
        Ok(())
    }

    fn verify(&self) -> Result<(), Failure> {
        let layout = self.layout.ok_or("nothing to verify")?;
        for (expected, piece) in self.pieces.iter().zip(0..) {
            let range = layout.range_of(PieceIndex(piece)).ok_or("too many pieces")?;
            let bytes = &self.bytes[range.start as usize..range.end as usize];
            if Hasher::digest(Algorithm::Sha1, bytes).as_bytes() != expected {
                return Err(format!("piece {piece} is wrong").into());
            }
        }
        Ok(())
    }
}

/// Fetches everything that the peer has.
fn fetch(stream: &mut Stream, mut fetch: Fetch) -> Result<(), Failure> {
    let start = Instant::now();
    while fetch.layout.is_none() || fetch.missing_bytes > 0 {
        let now = Time::from_millis(start.elapsed().as_millis() as u64);
        let mut at = 0;
        loop {
            let used = fetch.session.handle_input(now, &stream.input[at..])?;
            at += used;
            let events: Vec<_> = std::iter::from_fn(|| fetch.session.poll_event()).collect();
            let is_quiet = events.is_empty();
            events.into_iter().try_for_each(|event| fetch.event(event))?;
            let Some(payload) = fetch.session.payload() else {
                if used == 0 && is_quiet {
                    break;
                }
                continue;
            };
            let part = (payload.bytes_left as usize).min(stream.input.len() - at);
            let to = (payload.range.end - u64::from(payload.bytes_left)) as usize;
            fetch.bytes[to..to + part].copy_from_slice(&stream.input[at..at + part]);
            at += part;
            fetch.missing_bytes -= part as u64;
            fetch.session.take_payload(now, part as u32);
            if part == 0 {
                break;
            }
        }
        stream.input.drain(..at);
        let mut out = Vec::new();
        fetch.session.poll_transmit(now, &mut out);
        stream.write(out)?;
        if fetch.missing_bytes > 0 || fetch.layout.is_none() {
            stream.read_more()?;
        }
    }
    fetch.verify()?;
    println!("{} bytes verified in {:?}", fetch.bytes.len(), start.elapsed());
    Ok(())
}
