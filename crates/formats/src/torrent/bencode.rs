//! Bencoding (BEP 3): integers, byte strings, lists and dictionaries.
//!
//! Reading checks the whole input once, without recursion and without an allocation that grows with
//! the input; a [`Value`] is then the span of bytes in which it stands, so that an info-hash is
//! always computed over the bytes as they came. What is malformed is refused. What is only not
//! canonical (unsorted keys, leading zeros) is accepted, and the first such [`Deviation`] is
//! reported: the caller decides. Iterating over a list or dictionary costs a pass over its bytes;
//! [`Cursor`] walks deep trees in one pass.
//!
//! [`Writer`] writes the canonical form only.

/// One bencoded item, checked to be well-formed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Value<'a> {
    raw: &'a [u8],
}

/// The result of [`read`].
#[derive(Clone, Copy, Debug)]
pub struct Parsed<'a> {
    /// The first value of the input.
    pub value: Value<'a>,
    /// The bytes behind it.
    pub rest: &'a [u8],
    /// The first place where the value is not canonical.
    pub deviation: Option<Deviation>,
}

impl Parsed<'_> {
    /// Returns whether decoding and encoding the input would yield the same bytes.
    pub fn is_canonical(&self) -> bool {
        self.deviation.is_none() && self.rest.is_empty()
    }
}

/// Reads the first value of `input`.
///
/// # Errors
/// [`BencodeError`] if that is malformed, ends early, is nested deeper than [`DEPTH_MAX`], or has an
/// integer beyond 64 bits.
pub fn read(input: &[u8]) -> Result<Parsed<'_>, BencodeError> {
    let mut open: Vec<Open> = Vec::new();
    let mut deviation = None;
    let mut at = 0;
    loop {
        let token = scan(input, at)?;
        deviation = deviation.or(token.deviation.map(|kind| Deviation { byte: at, kind }));
        if let Some(Open::Key { previous }) = open.last_mut() {
            match token.kind {
                Token::Bytes(key) => {
                    let kind = previous.and_then(|previous| match key.cmp(previous) {
                        std::cmp::Ordering::Less => Some(DeviationKind::UnsortedKeys),
                        std::cmp::Ordering::Equal => Some(DeviationKind::DuplicateKey),
                        std::cmp::Ordering::Greater => None,
                    });
                    deviation = deviation.or(kind.map(|kind| Deviation { byte: at, kind }));
                    replace_last(&mut open, Open::Value { key });
                    at = token.end;
                    continue;
                }
                Token::End => {}
                _ => return Err(BencodeError::Key { byte: at }),
            }
        }
        match token.kind {
            Token::List | Token::Dict if open.len() == DEPTH_MAX => {
                return Err(BencodeError::Depth { byte: at });
            }
            Token::List => open.push(Open::List),
            Token::Dict => open.push(Open::Key { previous: None }),
            Token::End => match open.pop() {
                Some(Open::List | Open::Key { .. }) => {}
                Some(Open::Value { .. }) | None => return Err(BencodeError::End { byte: at }),
            },
            Token::Int(_) | Token::Bytes(_) => {}
        }
        at = token.end;
        if matches!(token.kind, Token::List | Token::Dict) {
            continue;
        }
        // A value is complete.
        match open.last() {
            None => {
                let (raw, rest) = input.split_at(at);
                return Ok(Parsed { value: Value { raw }, rest, deviation });
            }
            Some(&Open::Value { key }) => {
                replace_last(&mut open, Open::Key { previous: Some(key) });
            }
            Some(_) => {}
        }
    }
}

/// A container whose end has not come, and what may come next.
enum Open<'a> {
    List,
    Key { previous: Option<&'a [u8]> },
    Value { key: &'a [u8] },
}

fn replace_last<'a>(open: &mut [Open<'a>], new: Open<'a>) {
    if let Some(last) = open.last_mut() {
        *last = new;
    }
}

impl<'a> Value<'a> {
    /// Returns the bytes in which it stands.
    pub fn raw(self) -> &'a [u8] {
        self.raw
    }

    /// Returns the integer, `None` for another kind of value.
    pub fn int(self) -> Option<i64> {
        match scan(self.raw, 0).ok()?.kind {
            Token::Int(value) => Some(value),
            _ => None,
        }
    }

    /// Returns the byte string, `None` for another kind of value.
    pub fn bytes(self) -> Option<&'a [u8]> {
        match scan(self.raw, 0).ok()?.kind {
            Token::Bytes(bytes) => Some(bytes),
            _ => None,
        }
    }

    /// Returns the byte string if it is UTF-8.
    pub fn text(self) -> Option<&'a str> {
        str::from_utf8(self.bytes()?).ok()
    }

    /// Returns the values of a list, `None` for another kind of value.
    pub fn list(self) -> Option<impl Iterator<Item = Value<'a>>> {
        let mut inside = self.inside(b'l')?;
        Some(std::iter::from_fn(move || inside.value()))
    }

    /// Returns the keys and values of a dictionary, in the order of the input, `None` for another
    /// kind of value.
    pub fn dict(self) -> Option<impl Iterator<Item = (&'a [u8], Value<'a>)>> {
        let mut inside = self.inside(b'd')?;
        Some(std::iter::from_fn(move || Some((inside.value()?.bytes()?, inside.value()?))))
    }

    /// Returns the first value with this key of a dictionary.
    pub fn get(self, key: &[u8]) -> Option<Value<'a>> {
        self.dict()?.find(|(found, _)| *found == key).map(|(_, value)| value)
    }

    /// Returns a cursor before its first byte.
    pub fn cursor(self) -> Cursor<'a> {
        Cursor { rest: self.raw }
    }

    fn inside(self, kind: u8) -> Option<Cursor<'a>> {
        let (first, rest) = self.raw.split_first()?;
        (*first == kind).then_some(Cursor { rest })
    }
}

impl std::fmt::Debug for Value<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "Value({} bytes: {})",
            self.raw.len(),
            self.raw[..self.raw.len().min(40)].escape_ascii()
        )
    }
}

/// A place in a value, from which its tokens are read in one pass.
#[derive(Clone, Copy)]
pub struct Cursor<'a> {
    rest: &'a [u8],
}

impl<'a> Cursor<'a> {
    /// Returns the next token and steps behind it; `None` at the end of the value.
    pub fn token(&mut self) -> Option<Token<'a>> {
        let token = scan(self.rest, 0).ok()?;
        self.rest = self.rest.get(token.end..)?;
        Some(token.kind)
    }

    /// Returns the next whole value and steps behind it; `None` if there is none before the end of
    /// the list or dictionary.
    pub fn value(&mut self) -> Option<Value<'a>> {
        let mut depth = 0usize;
        let mut end = 0;
        loop {
            let token = scan(self.rest, end).ok()?;
            end = token.end;
            match token.kind {
                Token::List | Token::Dict => depth += 1,
                Token::End => depth = depth.checked_sub(1)?,
                Token::Int(_) | Token::Bytes(_) => {}
            }
            if depth == 0 {
                let (raw, rest) = self.rest.split_at(end);
                self.rest = rest;
                return Some(Value { raw });
            }
        }
    }
}

/// The smallest unit of bencoding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Token<'a> {
    /// An integer.
    Int(i64),
    /// A byte string, which may be a key.
    Bytes(&'a [u8]),
    /// The begin of a list.
    List,
    /// The begin of a dictionary.
    Dict,
    /// The end of a list or dictionary.
    End,
}

struct Scanned<'a> {
    kind: Token<'a>,
    end: usize,
    deviation: Option<DeviationKind>,
}

/// Returns the token that begins at byte `at`.
fn scan(input: &[u8], at: usize) -> Result<Scanned<'_>, BencodeError> {
    let plain = |kind| Ok(Scanned { kind, end: at + 1, deviation: None });
    match input.get(at) {
        None => Err(BencodeError::Truncated),
        Some(b'l') => plain(Token::List),
        Some(b'd') => plain(Token::Dict),
        Some(b'e') => plain(Token::End),
        Some(b'i') => {
            let is_negative = input.get(at + 1) == Some(&b'-');
            let begin = at + 1 + usize::from(is_negative);
            let (value, end, mut deviation) = digits(input, begin, b'e')?;
            let value = i64::try_from(value).map_err(|_| BencodeError::Overflow { byte: at })?;
            if is_negative && value == 0 {
                deviation = Some(DeviationKind::LeadingZero);
            }
            let value = if is_negative { -value } else { value };
            Ok(Scanned { kind: Token::Int(value), end, deviation })
        }
        Some(b'0'..=b'9') => {
            let (length, begin, deviation) = digits(input, at, b':')?;
            let length = usize::try_from(length).map_err(|_| BencodeError::Truncated)?;
            let end = begin.checked_add(length).ok_or(BencodeError::Truncated)?;
            let bytes = input.get(begin..end).ok_or(BencodeError::Truncated)?;
            Ok(Scanned { kind: Token::Bytes(bytes), end, deviation })
        }
        Some(_) => Err(BencodeError::Syntax { byte: at }),
    }
}

/// Returns a number, the place behind the byte that ends it, and whether it has leading zeros.
fn digits(
    input: &[u8],
    begin: usize,
    ends_with: u8,
) -> Result<(u64, usize, Option<DeviationKind>), BencodeError> {
    let mut value = 0u64;
    let mut at = begin;
    loop {
        match input.get(at) {
            None => return Err(BencodeError::Truncated),
            Some(digit @ b'0'..=b'9') => {
                value = value
                    .checked_mul(10)
                    .and_then(|value| value.checked_add(u64::from(digit - b'0')))
                    .ok_or(BencodeError::Overflow { byte: begin })?;
            }
            Some(end) if *end == ends_with && at > begin => {
                let is_padded = input[begin] == b'0' && at > begin + 1;
                return Ok((value, at + 1, is_padded.then_some(DeviationKind::LeadingZero)));
            }
            Some(_) => return Err(BencodeError::Syntax { byte: at }),
        }
        at += 1;
    }
}

/// A place where a value is not canonical, though understood.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("byte {byte}: {kind}")]
pub struct Deviation {
    /// Its place in the input, from 0.
    pub byte: usize,
    /// What it is.
    pub kind: DeviationKind,
}

/// A form that is understood though BEP 3 forbids it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DeviationKind {
    /// A key that is less than the one before it.
    #[error("the keys of a dictionary are not sorted")]
    UnsortedKeys,
    /// The same key twice in succession.
    #[error("a dictionary has the same key twice")]
    DuplicateKey,
    /// A number with leading zeros, or a negative zero.
    #[error("a number has leading zeros")]
    LeadingZero,
}

/// Why bytes are not bencoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BencodeError {
    /// The input ends within a value.
    #[error("it ends in the middle of a value")]
    Truncated,
    /// A byte that cannot stand there.
    #[error("byte {byte} does not fit there")]
    Syntax {
        /// Its place, from 0.
        byte: usize,
    },
    /// A key that is not a byte string.
    #[error("byte {byte}: a key is not a string")]
    Key {
        /// Its place.
        byte: usize,
    },
    /// An end where nothing is open, or a key without a value.
    #[error("byte {byte}: something ends too early")]
    End {
        /// Its place.
        byte: usize,
    },
    /// A number beyond 64 bits.
    #[error("byte {byte}: the number is too large")]
    Overflow {
        /// Its place.
        byte: usize,
    },
    /// Too many lists and dictionaries within each other.
    #[error("byte {byte}: values are nested more than {DEPTH_MAX} deep")]
    Depth {
        /// The place of the one too deep.
        byte: usize,
    },
}

/// Writes bencoded values front to back.
///
/// A dictionary's keys must be written in ascending order, each with one value behind it.
#[derive(Clone, Debug, Default)]
pub struct Writer {
    out: Vec<u8>,
}

impl Writer {
    /// Returns a writer of nothing yet.
    pub fn new() -> Writer {
        Writer::default()
    }

    /// Writes an integer.
    pub fn int(&mut self, value: u64) -> &mut Writer {
        self.out.extend_from_slice(format!("i{value}e").as_bytes());
        self
    }

    /// Writes a byte string, which may be a key.
    pub fn bytes(&mut self, bytes: &[u8]) -> &mut Writer {
        self.out.extend_from_slice(format!("{}:", bytes.len()).as_bytes());
        self.raw(bytes)
    }

    /// Writes a text.
    pub fn text(&mut self, text: &str) -> &mut Writer {
        self.bytes(text.as_bytes())
    }

    /// Begins a list.
    pub fn list(&mut self) -> &mut Writer {
        self.raw(b"l")
    }

    /// Begins a dictionary.
    pub fn dict(&mut self) -> &mut Writer {
        self.raw(b"d")
    }

    /// Ends a list or dictionary.
    pub fn end(&mut self) -> &mut Writer {
        self.raw(b"e")
    }

    /// Writes bytes that are bencoded already.
    pub fn raw(&mut self, bencoded: &[u8]) -> &mut Writer {
        self.out.extend_from_slice(bencoded);
        self
    }

    /// Returns what was written.
    pub fn finish(self) -> Vec<u8> {
        self.out
    }
}

/// As deep as libtorrent reads. A file tree (BEP 52) needs a level for each folder, and four more.
pub const DEPTH_MAX: usize = 100;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_examples_of_bep_3_are_read() {
        let input = b"d3:cow3:moo4:spaml1:a1:be4:wikii-3eetail";
        let parsed = read(input).unwrap();
        assert_eq!(parsed.rest, b"tail");
        assert_eq!(parsed.deviation, None);
        let dict = parsed.value;
        assert_eq!(dict.raw().len(), input.len() - 4);
        assert_eq!(dict.get(b"cow").unwrap().text(), Some("moo"));
        assert_eq!(dict.get(b"wiki").unwrap().int(), Some(-3));
        let list = dict.get(b"spam").unwrap();
        assert_eq!(list.raw(), b"l1:a1:be");
        let items: Vec<_> = list.list().unwrap().filter_map(Value::bytes).collect();
        assert_eq!(items, [b"a", b"b"]);
        assert!(dict.get(b"none").is_none() && list.dict().is_none() && list.int().is_none());
    }

    #[test]
    fn what_is_not_canonical_is_read_and_reported() {
        use DeviationKind::*;
        for (input, kind, byte) in [
            (&b"d1:bi1e1:ai2ee"[..], UnsortedKeys, 7),
            (b"d1:ai1e1:ai2ee", DuplicateKey, 7),
            (b"li007ee", LeadingZero, 1),
            (b"i-0e", LeadingZero, 0),
            (b"03:abc", LeadingZero, 0),
        ] {
            let parsed = read(input).unwrap();
            assert_eq!(
                parsed.deviation,
                Some(Deviation { byte, kind }),
                "{}",
                input.escape_ascii()
            );
            assert!(!parsed.is_canonical() && parsed.rest.is_empty());
        }
        // Keys are sorted as bytes, and only those of the same dictionary are compared.
        let sorted = b"d1:Bd1:z0:e1:ad0:0:1:b0:ee";
        assert!(read(sorted).unwrap().is_canonical());
        assert!(!read(b"i1ei2e").unwrap().is_canonical());
    }

    #[test]
    fn what_is_malformed_is_refused() {
        use BencodeError::*;
        for (input, error) in [
            (&b""[..], Truncated),
            (b"d", Truncated),
            (b"i12", Truncated),
            (b"5:abcd", Truncated),
            (b"99999999999999999999:", Overflow { byte: 0 }),
            (b"18446744073709551615:a", Truncated),
            (b"i9223372036854775808e", Overflow { byte: 0 }),
            (b"ie", Syntax { byte: 1 }),
            (b"i-e", Syntax { byte: 2 }),
            (b"i+1e", Syntax { byte: 1 }),
            (b"i1.5e", Syntax { byte: 2 }),
            (b"x", Syntax { byte: 0 }),
            (b"-1:a", Syntax { byte: 0 }),
            (b"e", End { byte: 0 }),
            (b"d1:ae", End { byte: 4 }),
            (b"di1ei2ee", Key { byte: 1 }),
            (b"dlei2ee", Key { byte: 1 }),
        ] {
            assert_eq!(read(input).unwrap_err(), error, "{}", input.escape_ascii());
        }
        assert_eq!(read(b"i9223372036854775807e").unwrap().value.int(), Some(i64::MAX));
        let deep = |depth: usize| [vec![b'l'; depth], vec![b'e'; depth]].concat();
        assert!(read(&deep(DEPTH_MAX)).is_ok());
        assert_eq!(read(&deep(DEPTH_MAX + 1)).unwrap_err(), Depth { byte: DEPTH_MAX });
        assert!(read(&vec![b'd'; 10_000_000]).is_err());
    }

    #[derive(Clone, Debug)]
    enum Tree {
        Int(i64),
        Bytes(Vec<u8>),
        List(Vec<Tree>),
        Dict(std::collections::BTreeMap<Vec<u8>, Tree>),
    }

    fn tree() -> impl Strategy<Value = Tree> {
        let bytes = || prop::collection::vec(any::<u8>(), 0..12);
        let leaf = prop_oneof![
            any::<i64>().prop_filter("no minimum", |i| *i != i64::MIN).prop_map(Tree::Int),
            bytes().prop_map(Tree::Bytes)
        ];
        leaf.prop_recursive(5, 60, 6, move |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..6).prop_map(Tree::List),
                prop::collection::btree_map(bytes(), inner, 0..6).prop_map(Tree::Dict),
            ]
        })
    }

    fn encode(tree: &Tree, out: &mut Writer) {
        match tree {
            Tree::Int(value) if *value < 0 => {
                out.raw(format!("i{value}e").as_bytes());
            }
            Tree::Int(value) => {
                out.int(value.unsigned_abs());
            }
            Tree::Bytes(bytes) => {
                out.bytes(bytes);
            }
            Tree::List(items) => {
                out.list();
                items.iter().for_each(|item| encode(item, out));
                out.end();
            }
            Tree::Dict(items) => {
                out.dict();
                for (key, item) in items {
                    out.bytes(key);
                    encode(item, out);
                }
                out.end();
            }
        }
    }

    fn same(tree: &Tree, value: Value<'_>) -> bool {
        match tree {
            Tree::Int(int) => value.int() == Some(*int),
            Tree::Bytes(bytes) => value.bytes() == Some(bytes),
            Tree::List(items) => {
                let found: Vec<_> = value.list().unwrap().collect();
                found.len() == items.len() && items.iter().zip(found).all(|(a, b)| same(a, b))
            }
            Tree::Dict(items) => {
                let found: Vec<_> = value.dict().unwrap().collect();
                found.len() == items.len()
                    && items.iter().zip(found).all(|((k, a), (l, b))| k == l && same(a, b))
            }
        }
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(tree in tree(), tail in prop::collection::vec(any::<u8>(), 0..5)) {
            let mut out = Writer::new();
            encode(&tree, &mut out);
            let mut bytes = out.finish();
            let end = bytes.len();
            bytes.extend(&tail);
            let parsed = read(&bytes).unwrap();
            prop_assert_eq!(parsed.value.raw().len(), end);
            prop_assert_eq!(parsed.rest, &tail);
            prop_assert_eq!(parsed.deviation, None);
            prop_assert!(same(&tree, parsed.value));
            // Cut anywhere, it is not whole.
            for cut in 0..end {
                prop_assert!(read(&bytes[..cut]).is_err());
            }
        }

        #[test]
        fn nothing_panics(input in "[ilde0-9:a-]{0,40}") {
            if let Ok(parsed) = read(input.as_bytes()) {
                let mut cursor = parsed.value.cursor();
                while cursor.token().is_some() {}
                prop_assert!(cursor.rest.is_empty());
            }
        }
    }
}
