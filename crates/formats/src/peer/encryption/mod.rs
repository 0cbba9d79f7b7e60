//! Message stream encryption (MSE, also called protocol encryption), which some peers demand.
//!
//! It hides from the network between two peers that they speak BitTorrent. It is no protection
//! against anyone else: nobody is authenticated, and RC4 is weak. The specification is that of
//! Azureus; no BEP describes it.
//!
//! A is the side that connects, S the shared secret, SKEY the info-hash, VC eight zero bytes:
//!
//! ```text
//! A → B  public key of A, up to 512 random bytes
//! B → A  public key of B, up to 512 random bytes
//! A → B  SHA1("req1", S), SHA1("req2", SKEY) xor SHA1("req3", S),
//!        RC4(VC, methods offered, length of padding, padding, length of payload, first payload)
//! B → A  RC4(VC, method chosen, length of padding, padding)
//! ```
//!
//! Everything behind that is the ordinary stream, by the chosen method. States:
//! `Key` → (A) `FindZeros` → `Chosen` → `Padding` → `Done`,
//! (B) `FindSecret` → `Torrent` → `Offered` → `Padding` → `FirstLength` → `First` → `Done`.

mod key_exchange;
mod rc4;

pub use rc4::Rc4;

use swath_model::digest::{Algorithm, Hasher};
use thiserror::Error;

use self::key_exchange::{KEY_BYTES, Secret};
use super::handshake::WireInfoHash;

/// How the stream behind the handshake is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// As it is.
    Plain,
    /// Encrypted.
    Rc4,
}

/// Methods that a side offers or accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Methods {
    /// [`Method::Plain`].
    pub plain: bool,
    /// [`Method::Rc4`].
    pub rc4: bool,
}

/// The handshake of one side.
#[derive(Debug)]
pub struct Encryption {
    secret: Secret,
    role: Role,
    methods: Methods,
    padding: Vec<u8>,
    state: State,
    output: Vec<u8>,
    shared: [u8; KEY_BYTES],
    receive: Option<Rc4>,
    send: Option<Rc4>,
    established: Option<(WireInfoHash, Method)>,
    first: Vec<u8>,
}

#[derive(Debug)]
enum Role {
    /// The side that connects: to a torrent, with the begin of its stream.
    Outgoing {
        info_hash: WireInfoHash,
        first: Vec<u8>,
    },
    Incoming,
}

/// What comes next in the input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Key,
    FindZeros { skipped: usize },
    Chosen,
    FindSecret { skipped: usize },
    Torrent,
    Offered,
    Padding { left: usize, is_last: bool },
    FirstLength,
    First { left: usize },
    Done,
}

/// A connection whose handshake is done.
#[derive(Debug)]
pub struct Encrypted {
    /// The torrent.
    pub info_hash: WireInfoHash,
    /// The method of the stream.
    pub method: Method,
    /// What the peer sent with its handshake, decrypted: the begin of its stream.
    pub first: Vec<u8>,
    /// Decrypts what is received from now on, if it is encrypted.
    pub receive: Option<Rc4>,
    /// Encrypts what is sent from now on, if it is to be encrypted.
    pub send: Option<Rc4>,
}

impl Encryption {
    /// Returns the handshake of the side that connects. `random` and `padding` (of random length, at
    /// most 512 bytes) must be random. `first` is sent with the handshake: the BitTorrent handshake,
    /// at most 65,535 bytes.
    pub fn outgoing(
        random: [u8; 20],
        padding: Vec<u8>,
        info_hash: WireInfoHash,
        methods: Methods,
        first: Vec<u8>,
    ) -> Encryption {
        let role = Role::Outgoing { info_hash, first };
        let mut this = Encryption::new(random, padding, methods, role);
        this.send_key();
        this
    }

    /// Returns the handshake of the side to which a peer connects. `methods` are accepted; RC4 is
    /// chosen if both sides can.
    pub fn incoming(random: [u8; 20], padding: Vec<u8>, methods: Methods) -> Encryption {
        Encryption::new(random, padding, methods, Role::Incoming)
    }

    fn new(random: [u8; 20], mut padding: Vec<u8>, methods: Methods, role: Role) -> Encryption {
        padding.truncate(PADDING_BYTES_MAX);
        Encryption {
            secret: Secret::new(random),
            role,
            methods,
            padding,
            state: State::Key,
            output: Vec::new(),
            shared: [0; KEY_BYTES],
            receive: None,
            send: None,
            established: None,
            first: Vec::new(),
        }
    }

    /// Reads from the front of `input` and returns how many bytes it has used. It needs more than
    /// the rest, or is done. `torrents` are those that a peer may connect to.
    ///
    /// # Errors
    /// [`EncryptionError`] if this is no such handshake, or there is nothing to agree on.
    pub fn handle_input(
        &mut self,
        input: &[u8],
        torrents: &[WireInfoHash],
    ) -> Result<usize, EncryptionError> {
        let mut rest = input;
        while self.state != State::Done && self.step(&mut rest, torrents)? {}
        Ok(input.len() - rest.len())
    }

    /// Appends what is to be sent to `out`.
    pub fn poll_transmit(&mut self, out: &mut Vec<u8>) {
        out.append(&mut self.output);
    }

    /// Returns whether the handshake is done; what [`Encryption::poll_transmit`] returns must still
    /// be sent.
    pub fn is_done(&self) -> bool {
        self.state == State::Done
    }

    /// Returns the connection if the handshake is done.
    pub fn finish(self) -> Option<Encrypted> {
        let (info_hash, method) = self.established.filter(|_| self.state == State::Done)?;
        let is_encrypted = method == Method::Rc4;
        Some(Encrypted {
            info_hash,
            method,
            first: self.first,
            receive: self.receive.filter(|_| is_encrypted),
            send: self.send.filter(|_| is_encrypted),
        })
    }

    /// Takes one step; returns false if it needs more input.
    fn step(
        &mut self,
        input: &mut &[u8],
        torrents: &[WireInfoHash],
    ) -> Result<bool, EncryptionError> {
        match self.state {
            State::Key => {
                let Some(key) = take::<KEY_BYTES>(input) else { return Ok(false) };
                self.shared = self.secret.shared(&key).ok_or(EncryptionError::Key)?;
                self.state = match std::mem::replace(&mut self.role, Role::Incoming) {
                    Role::Outgoing { info_hash, first } => {
                        self.offer(info_hash, &first);
                        State::FindZeros { skipped: 0 }
                    }
                    Role::Incoming => {
                        self.send_key();
                        State::FindSecret { skipped: 0 }
                    }
                };
            }
            State::FindZeros { skipped } => {
                // The zeros are encrypted with the first bytes of the peer's cipher.
                let mut receive = self.receive.clone();
                let mut zeros = [0; 8];
                receive.iter_mut().for_each(|cipher| cipher.apply(&mut zeros));
                match find(input, &zeros, skipped)? {
                    Found::Yes => (self.state, self.receive) = (State::Chosen, receive),
                    Found::NotYet { skipped } => {
                        self.state = State::FindZeros { skipped };
                        return Ok(false);
                    }
                }
            }
            State::Chosen => {
                let Some(fields) = self.decrypted::<6>(input) else { return Ok(false) };
                let [a, b, c, d, padding @ ..] = fields;
                let method = match u32::from_be_bytes([a, b, c, d]) {
                    PLAIN if self.methods.plain => Method::Plain,
                    RC4 if self.methods.rc4 => Method::Rc4,
                    _ => return Err(EncryptionError::Method),
                };
                self.established = self.established.map(|it| (it.0, method));
                self.state = State::Padding { left: padding_bytes(padding)?, is_last: true };
            }
            State::FindSecret { skipped } => {
                let expected = sha1(&[b"req1", &self.shared]);
                match find(input, &expected, skipped)? {
                    Found::Yes => self.state = State::Torrent,
                    Found::NotYet { skipped } => {
                        self.state = State::FindSecret { skipped };
                        return Ok(false);
                    }
                }
            }
            State::Torrent => {
                let Some(hash) = take::<20>(input) else { return Ok(false) };
                let mask = sha1(&[b"req3", &self.shared]);
                let named = xor(hash, mask);
                let info_hash = torrents.iter().find(|it| sha1(&[b"req2", &it.0]) == named);
                let info_hash = *info_hash.ok_or(EncryptionError::Torrent)?;
                // The method is chosen in the next step.
                self.established = Some((info_hash, Method::Plain));
                self.receive = Some(self.cipher(b"keyA", info_hash));
                self.send = Some(self.cipher(b"keyB", info_hash));
                self.state = State::Offered;
            }
            State::Offered => {
                let Some(fields) = self.decrypted::<14>(input) else { return Ok(false) };
                let [zeros @ .., a, b, c, d, e, f] = fields;
                if zeros != [0; 8] {
                    return Err(EncryptionError::NoHandshake);
                }
                let offered = u32::from_be_bytes([a, b, c, d]);
                let (chosen, method) = match offered {
                    _ if offered & RC4 != 0 && self.methods.rc4 => (RC4, Method::Rc4),
                    _ if offered & PLAIN != 0 && self.methods.plain => (PLAIN, Method::Plain),
                    _ => return Err(EncryptionError::Method),
                };
                self.established = self.established.map(|it| (it.0, method));
                let mut answer = [&[0; 8][..], &chosen.to_be_bytes(), &[0; 2]].concat();
                self.encrypt(&mut answer);
                self.output.append(&mut answer);
                self.state = State::Padding { left: padding_bytes([e, f])?, is_last: false };
            }
            State::Padding { left: 0, is_last: true } => self.state = State::Done,
            State::Padding { left: 0, is_last: false } => self.state = State::FirstLength,
            State::Padding { left, is_last } => {
                let skipped = self.decrypted_part(input, left).len();
                self.state = State::Padding { left: left - skipped, is_last };
                return Ok(skipped > 0);
            }
            State::FirstLength => {
                let Some(length) = self.decrypted::<2>(input) else { return Ok(false) };
                self.state = State::First { left: usize::from(u16::from_be_bytes(length)) };
            }
            State::First { left: 0 } => self.state = State::Done,
            State::First { left } => {
                let mut part = self.decrypted_part(input, left);
                self.state = State::First { left: left - part.len() };
                let is_more = !part.is_empty();
                self.first.append(&mut part);
                return Ok(is_more);
            }
            State::Done => return Ok(false),
        }
        Ok(true)
    }

    fn send_key(&mut self) {
        self.output.extend_from_slice(&self.secret.public());
        self.output.append(&mut self.padding);
    }

    /// Sends the third message.
    fn offer(&mut self, info_hash: WireInfoHash, first: &[u8]) {
        self.established = Some((info_hash, Method::Plain));
        self.send = Some(self.cipher(b"keyA", info_hash));
        self.receive = Some(self.cipher(b"keyB", info_hash));
        self.output.extend_from_slice(&sha1(&[b"req1", &self.shared]));
        let named = sha1(&[b"req2", &info_hash.0]);
        self.output.extend_from_slice(&xor(named, sha1(&[b"req3", &self.shared])));
        let offered =
            if self.methods.plain { PLAIN } else { 0 } | if self.methods.rc4 { RC4 } else { 0 };
        let first = &first[..first.len().min(usize::from(u16::MAX))];
        let length = first.len() as u16;
        let mut fields =
            [&[0; 8][..], &offered.to_be_bytes(), &[0; 2], &length.to_be_bytes(), first].concat();
        self.encrypt(&mut fields);
        self.output.append(&mut fields);
    }

    fn cipher(&self, name: &[u8], info_hash: WireInfoHash) -> Rc4 {
        let mut cipher = Rc4::new(&sha1(&[name, &self.shared, &info_hash.0]));
        cipher.apply(&mut [0; DROPPED_BYTES]);
        cipher
    }

    fn encrypt(&mut self, bytes: &mut [u8]) {
        self.send.iter_mut().for_each(|cipher| cipher.apply(bytes));
    }

    fn decrypted<const N: usize>(&mut self, input: &mut &[u8]) -> Option<[u8; N]> {
        let mut bytes = take::<N>(input)?;
        self.receive.iter_mut().for_each(|cipher| cipher.apply(&mut bytes));
        Some(bytes)
    }

    /// Decrypts up to `most` bytes.
    fn decrypted_part(&mut self, input: &mut &[u8], most: usize) -> Vec<u8> {
        let (part, rest) = input.split_at(most.min(input.len()));
        *input = rest;
        let mut part = part.to_vec();
        self.receive.iter_mut().for_each(|cipher| cipher.apply(&mut part));
        part
    }
}

enum Found {
    Yes,
    NotYet { skipped: usize },
}

/// Skips padding up to the first `pattern`, and the pattern itself. `skipped` bytes of the padding were
/// skipped by earlier calls.
fn find(input: &mut &[u8], pattern: &[u8], skipped: usize) -> Result<Found, EncryptionError> {
    let at = input.windows(pattern.len()).position(|window| window == pattern);
    let padding = at.unwrap_or((input.len() + 1).saturating_sub(pattern.len()));
    if skipped + padding > PADDING_BYTES_MAX {
        return Err(EncryptionError::NoHandshake);
    }
    let (_, rest) = input.split_at(padding + at.map_or(0, |_| pattern.len()));
    *input = rest;
    Ok(at.map_or(Found::NotYet { skipped: skipped + padding }, |_| Found::Yes))
}

fn take<const N: usize>(input: &mut &[u8]) -> Option<[u8; N]> {
    let (bytes, rest) = input.split_first_chunk()?;
    *input = rest;
    Some(*bytes)
}

fn padding_bytes(length: [u8; 2]) -> Result<usize, EncryptionError> {
    let length = usize::from(u16::from_be_bytes(length));
    if length > PADDING_BYTES_MAX { Err(EncryptionError::NoHandshake) } else { Ok(length) }
}

fn sha1(parts: &[&[u8]]) -> [u8; 20] {
    let digest = Hasher::digest(Algorithm::Sha1, &parts.concat());
    let mut bytes = [0; 20];
    bytes.copy_from_slice(digest.as_bytes());
    bytes
}

fn xor(mut a: [u8; 20], b: [u8; 20]) -> [u8; 20] {
    a.iter_mut().zip(b).for_each(|(a, b)| *a ^= b);
    a
}

/// An encrypted handshake that leads to no connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum EncryptionError {
    /// The peer's key makes every secret known.
    #[error("the peer's key is not valid")]
    Key,
    /// Too much padding, or something else is spoken.
    #[error("the peer does not encrypt its connections")]
    NoHandshake,
    /// The peer connects to a torrent that is not here.
    #[error("the peer wants a torrent that is not shared here")]
    Torrent,
    /// No method that both sides accept, or the peer chose one that was not offered.
    #[error("there is no method of encryption that both sides accept")]
    Method,
}

/// `crypto_provide` and `crypto_select`: plain text.
const PLAIN: u32 = 1;
/// RC4.
const RC4: u32 = 2;
/// Most padding, by the specification.
const PADDING_BYTES_MAX: usize = 512;
/// The first bytes of RC4 tell about its key, and are not used.
const DROPPED_BYTES: usize = 1024;

#[cfg(test)]
mod tests;
