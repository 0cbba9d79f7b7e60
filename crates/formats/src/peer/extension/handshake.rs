//! The handshake of extensions: which ones a side speaks, and what else it tells of itself.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::{Extension, ExtensionError, ExtensionIds};
use crate::torrent::bencode::{self, Value, Writer};

/// What one side tells in the handshake of extensions (BEP 10). It may be sent again: what it does
/// not mention stays as it was.
///
/// A value of the wrong kind or size is ignored like an unknown key, because clients differ.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct ExtensionHandshake {
    /// `m`: the numbers of its extensions.
    pub ids: ExtensionIds,
    /// `v`: name and version of its program, control characters escaped.
    pub client: Option<String>,
    /// `reqq`: requests that it queues before it drops any.
    pub requests_max: Option<u32>,
    /// `metadata_size`: length of the info dictionary in bytes (BEP 9).
    pub metadata_bytes: Option<u32>,
    /// `yourip`: the address at which it sees the receiver.
    pub your_address: Option<IpAddr>,
    /// `ipv4`: an address at which it can be reached.
    pub ipv4: Option<Ipv4Addr>,
    /// `ipv6`: an address at which it can be reached.
    pub ipv6: Option<Ipv6Addr>,
    /// `p`: the TCP port at which it accepts connections.
    pub port: Option<u16>,
    /// `upload_only`: it wants nothing, now or ever (BEP 21).
    pub upload_only: Option<bool>,
    /// `e`: it prefers encrypted connections.
    pub prefers_encryption: Option<bool>,
}

impl ExtensionHandshake {
    /// Reads the payload of extension message 0. Bytes behind the dictionary are ignored.
    ///
    /// # Errors
    /// [`ExtensionError`] if it does not begin with a bencoded dictionary.
    pub fn decode(payload: &[u8]) -> Result<ExtensionHandshake, ExtensionError> {
        let entries = bencode::read(payload)?.value.dict().ok_or(ExtensionError::NoDictionary)?;
        let mut told = ExtensionHandshake::default();
        for (key, value) in entries {
            match key {
                b"m" => told.ids = ids(value),
                b"v" => told.client = value.bytes().map(client),
                b"reqq" => told.requests_max = number(value),
                b"metadata_size" => told.metadata_bytes = number(value),
                b"yourip" => told.your_address = address(value),
                b"ipv4" => told.ipv4 = fixed::<4>(value).map(Ipv4Addr::from),
                b"ipv6" => told.ipv6 = fixed::<16>(value).map(Ipv6Addr::from),
                b"p" => told.port = number(value).filter(|port| *port != 0),
                b"upload_only" => told.upload_only = value.int().map(|flag| flag != 0),
                b"e" => told.prefers_encryption = value.int().map(|flag| flag != 0),
                _ => {}
            }
        }
        Ok(told)
    }

    /// Returns the payload of extension message 0.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Writer::new();
        let int = |out: &mut Writer, key: &str, value: Option<u64>| {
            if let Some(value) = value {
                out.text(key).int(value);
            }
        };
        let bytes = |out: &mut Writer, key: &str, value: Option<&[u8]>| {
            if let Some(value) = value {
                out.text(key).bytes(value);
            }
        };
        let your_address = self.your_address.map(|address| match address {
            IpAddr::V4(address) => address.octets().to_vec(),
            IpAddr::V6(address) => address.octets().to_vec(),
        });
        // Keys in ascending order.
        out.dict();
        int(&mut out, "e", self.prefers_encryption.map(u64::from));
        bytes(
            &mut out,
            "ipv4",
            self.ipv4.map(|address| address.octets()).as_ref().map(|it| &it[..]),
        );
        bytes(
            &mut out,
            "ipv6",
            self.ipv6.map(|address| address.octets()).as_ref().map(|it| &it[..]),
        );
        out.text("m").dict();
        let mut extensions = Extension::ALL;
        extensions.sort_by_key(|extension| extension.name());
        for extension in extensions {
            int(&mut out, extension.name(), self.ids.0[extension as usize].map(u64::from));
        }
        out.end();
        int(&mut out, "metadata_size", self.metadata_bytes.map(u64::from));
        int(&mut out, "p", self.port.map(u64::from));
        int(&mut out, "reqq", self.requests_max.map(u64::from));
        int(&mut out, "upload_only", self.upload_only.map(u64::from));
        bytes(&mut out, "v", self.client.as_deref().map(str::as_bytes));
        bytes(&mut out, "yourip", your_address.as_deref());
        out.end();
        out.finish()
    }

    /// Applies a later handshake of the same side.
    pub fn update(&mut self, later: ExtensionHandshake) {
        self.ids.update(&later.ids);
        self.client = later.client.or(self.client.take());
        self.requests_max = later.requests_max.or(self.requests_max);
        self.metadata_bytes = later.metadata_bytes.or(self.metadata_bytes);
        self.your_address = later.your_address.or(self.your_address);
        self.ipv4 = later.ipv4.or(self.ipv4);
        self.ipv6 = later.ipv6.or(self.ipv6);
        self.port = later.port.or(self.port);
        self.upload_only = later.upload_only.or(self.upload_only);
        self.prefers_encryption = later.prefers_encryption.or(self.prefers_encryption);
    }
}

fn ids(value: Value<'_>) -> ExtensionIds {
    let mut ids = ExtensionIds::default();
    for (key, value) in value.dict().into_iter().flatten() {
        if let Some(it) = Extension::ALL.into_iter().find(|it| it.name().as_bytes() == key) {
            ids.0[it as usize] = number(value);
        }
    }
    ids
}

/// Returns the name of a program, fit to be shown.
fn client(name: &[u8]) -> String {
    let name = String::from_utf8_lossy(name);
    let mut shown = String::new();
    for letter in name.chars().take(CLIENT_LETTERS_MAX) {
        match letter.is_control() {
            true => shown.extend(letter.escape_default()),
            false => shown.push(letter),
        }
    }
    shown
}

fn number<T: TryFrom<i64>>(value: Value<'_>) -> Option<T> {
    T::try_from(value.int()?).ok()
}

fn fixed<const N: usize>(value: Value<'_>) -> Option<[u8; N]> {
    value.bytes()?.try_into().ok()
}

fn address(value: Value<'_>) -> Option<IpAddr> {
    let v6 = || Some(IpAddr::from(fixed::<16>(value)?));
    fixed::<4>(value).map(IpAddr::from).or_else(v6)
}

/// Longer names of programs are cut.
const CLIENT_LETTERS_MAX: usize = 64;
