//! Names that are not UTF-8, as old programs wrote them.
//!
//! Such a name is written with a code such as `%DF` for each byte that belongs to no character: nobody knows
//! which encoding was meant. Web seeds have the name as it was, so its bytes are remembered.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt::Display;

use super::MetainfoError;
use super::read_info::not;
use crate::torrent::bencode::Value;

/// The names of a torrent that are not UTF-8: their bytes, by what is written for them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct OddNames(BTreeMap<String, Box<[u8]>>);

impl OddNames {
    /// Reads a name.
    pub fn read<'a>(
        &mut self,
        value: Value<'a>,
        at: &dyn Display,
    ) -> Result<Cow<'a, str>, MetainfoError> {
        let bytes = value.bytes().ok_or_else(|| not(at, "a string"))?;
        if let Ok(text) = str::from_utf8(bytes) {
            return Ok(Cow::Borrowed(text));
        }
        let mut text = String::new();
        for chunk in bytes.utf8_chunks() {
            text += chunk.valid();
            chunk.invalid().iter().for_each(|byte| text += &format!("%{byte:02X}"));
        }
        self.0.insert(text.clone(), bytes.into());
        Ok(Cow::Owned(text))
    }

    /// Returns the bytes of a path as the torrent has them.
    pub fn bytes_of(&self, path: &str) -> Vec<u8> {
        let names = path.split('/');
        let names = names.map(|name| self.0.get(name).map_or(name.as_bytes(), |odd| odd));
        names.collect::<Vec<_>>().join(&b'/')
    }

    pub fn count(&self) -> usize {
        self.0.len()
    }
}
