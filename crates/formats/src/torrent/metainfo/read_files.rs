//! Reads the files of an info dictionary: the list of v1, the tree of v2, and both of a hybrid.

use std::borrow::Cow;
use std::fmt::{self, Display};

use swath_model::digest::sha256_tree::MerkleHash;
use swath_model::path::{SafePath, visible};

use super::layout::{added, sorted_paths};
use super::odd_names::OddNames;
use super::read_info::{fields, missing, name_error, not, optional_int, required};
use super::{File, Kind, Layout, MetainfoError, NameError, What};
use crate::torrent::bencode::{Token, Value};

/// The files of the v1 part, with their places in the virtual file.
pub(super) struct V1Files {
    files: Vec<File>,
    /// The length of the virtual file, with all padding.
    total_bytes: u64,
}

/// Reads `files`, or the single file that the info dictionary itself describes.
pub(super) fn v1_files(
    info: Value<'_>,
    files: Option<Value<'_>>,
    name: &SafePath,
    path_budget: usize,
    odd_names: &mut OddNames,
) -> Result<V1Files, MetainfoError> {
    let mut found = V1Files { files: Vec::new(), total_bytes: 0 };
    let Some(list) = files else {
        let path = |_, _: &mut _| Ok(Some(name.clone()));
        let total_bytes = &mut found.total_bytes;
        if let Some(file) = v1_file(info, &"info", total_bytes, &mut OddNames::default(), path)? {
            found.files.push(file);
        }
        return Ok(found);
    };
    let mut paths = PathBudget::new(path_budget);
    for (number, entry) in list.list().ok_or_else(|| not("files", "a list"))?.enumerate() {
        let at = format_args!("files[{number}]");
        let total_bytes = &mut found.total_bytes;
        let file = v1_file(entry, &at, total_bytes, odd_names, |is_padding, odd_names| {
            let [path, path_utf8] = fields(entry, &at, [b"path", b"path.utf-8"])?;
            if is_padding {
                return Ok(None);
            }
            let at = format_args!("{at}.path");
            let path = components(required(path_utf8.or(path), &at)?, &at, odd_names)?;
            // BitComet marks its pad files by their name only.
            if path.file_name().starts_with("_____padding_file_") {
                return Ok(None);
            }
            paths.spend(&path, &at)?;
            Ok(Some(path))
        })?;
        let number = u32::try_from(number).unwrap_or(u32::MAX);
        found.files.extend(file.map(|file| File { number, ..file }));
    }
    if found.files.is_empty() {
        return Err(MetainfoError::NoFiles);
    }
    sorted_paths(found.files.len(), |file| found.files[file].path.as_str())?;
    Ok(found)
}

/// Reads one entry of `files`; `None` if it is a pad file, for which `path` returns `None`.
fn v1_file(
    entry: Value<'_>,
    at: &dyn Display,
    total_bytes: &mut u64,
    odd_names: &mut OddNames,
    path: impl FnOnce(bool, &mut OddNames) -> Result<Option<SafePath>, MetainfoError>,
) -> Result<Option<File>, MetainfoError> {
    let [length, attr, target] = fields(entry, at, [b"length", b"attr", b"symlink path"])?;
    let attributes = Attributes::of(attr);
    let length_bytes = attributes.length(length, &format_args!("{at}.length"))?;
    let offset = *total_bytes;
    *total_bytes = added(offset, length_bytes, || format!("{at}.length"))?;
    let Some(path) = path(attributes.is_padding, odd_names)? else { return Ok(None) };
    let symlink = attributes.symlink(target, at, odd_names)?;
    let Attributes { is_executable, is_hidden, .. } = attributes;
    Ok(Some(File {
        path,
        length_bytes,
        number: 0,
        offset,
        pieces_root: None,
        is_executable,
        is_hidden,
        symlink,
    }))
}

/// Reads a file tree in one pass. Its dictionaries are canonical, so that no path occurs twice.
pub(super) fn v2_files(tree: Value<'_>, path_budget: usize) -> Result<Vec<File>, MetainfoError> {
    let mut cursor = tree.cursor();
    if cursor.token() != Some(Token::Dict) {
        return Err(not("file tree", "a dictionary"));
    }
    let mut files = Vec::new();
    let mut paths = PathBudget::new(path_budget);
    let mut path = String::new();
    // The lengths of the path before each folder that is open.
    let mut folders = Vec::new();
    loop {
        let name = match cursor.token() {
            Some(Token::Bytes(name)) => name,
            _ => match folders.pop() {
                Some(length) => {
                    path.truncate(length);
                    continue;
                }
                None => break,
            },
        };
        let length_before = path.len();
        if !path.is_empty() {
            path.push('/');
        }
        let refused = |why| MetainfoError::Name { at: InTree(&path).to_string(), why };
        let name = str::from_utf8(name).map_err(|_| refused(NameError::NotText))?;
        if name.contains('/') {
            return Err(refused(NameError::Slash));
        }
        if name.is_empty() {
            return Err(not(InTree(&path), "a file or a folder alone"));
        }
        path += name;
        if cursor.token() != Some(Token::Dict) {
            return Err(not(InTree(&path), "a dictionary"));
        }
        let mut inside = cursor;
        if inside.token() != Some(Token::Bytes(b"")) {
            folders.push(length_before);
            continue;
        }
        let properties = inside.value().ok_or_else(|| missing(InTree(&path)))?;
        if inside.token() != Some(Token::End) {
            return Err(not(InTree(&path), "a file or a folder alone"));
        }
        cursor = inside;
        let safe = SafePath::new(&path).map_err(|why| name_error(InTree(&path), why))?;
        paths.spend(&safe, &InTree(&path))?;
        let number = u32::try_from(files.len()).unwrap_or(u32::MAX);
        files.push(File { number, ..v2_file(safe, properties)? });
        path.truncate(length_before);
    }
    if files.is_empty() { Err(MetainfoError::NoFiles) } else { Ok(files) }
}

fn v2_file(path: SafePath, properties: Value<'_>) -> Result<File, MetainfoError> {
    let shown = InTree(path.as_str());
    let [length, root, attr, target] =
        fields(properties, &shown, [b"length", b"pieces root", b"attr", b"symlink path"])?;
    let attributes = Attributes::of(attr);
    if attributes.is_padding {
        return Err(not(format_args!("{shown}.attr"), "allowed to mark padding"));
    }
    let length_bytes = attributes.length(length, &format_args!("{shown}.length"))?;
    let symlink = attributes.symlink(target, &shown, &mut OddNames::default())?;
    // libtorrent 2.0.0 to 2.0.3 gave empty files a root of zeros.
    let pieces_root = match (length_bytes, root) {
        (0, _) => None,
        (_, root) => {
            let at = format_args!("{shown}.pieces root");
            let root =
                required(root, &at)?.bytes().and_then(|root| MerkleHash::try_from(root).ok());
            Some(root.ok_or_else(|| not(at, "a string of 32 bytes"))?)
        }
    };
    let Attributes { is_executable, is_hidden, .. } = attributes;
    Ok(File {
        path,
        length_bytes,
        number: 0,
        offset: 0,
        pieces_root,
        is_executable,
        is_hidden,
        symlink,
    })
}

/// Returns the files of both parts as one list, and the length of the virtual file.
pub(super) fn merged(
    v1: Option<V1Files>,
    v2: Option<Vec<File>>,
    piece_bytes: u64,
) -> Result<(Vec<File>, u64), MetainfoError> {
    let (v1, mut files) = match (v1, v2) {
        (Some(v1), None) => return Ok((v1.files, v1.total_bytes)),
        (None, None) => return Err(MetainfoError::NoFiles),
        (v1, Some(files)) => (v1, files),
    };
    // Without pad files both parts have the places that BEP 52 gives; the layout keeps the order.
    let lengths = files.iter().map(|file| (&file.path, file.length_bytes));
    let layout = Layout::new(Kind::V2, piece_bytes, lengths)?;
    for entry in layout.entries {
        if let What::File(number) = entry.what {
            files[number].offset = entry.offset;
        }
    }
    let Some(v1) = v1 else { return Ok((files, layout.total_bytes)) };
    let differ = |file: &File, what| MetainfoError::Hybrid {
        at: InTree(file.path.as_str()).to_string(),
        what,
    };
    for (file, other) in files.iter_mut().zip(&v1.files) {
        if file.path != other.path {
            return Err(differ(file, "the names or the order of the files"));
        }
        if file.length_bytes != other.length_bytes {
            return Err(differ(file, "its length"));
        }
        if file.symlink != other.symlink {
            return Err(differ(file, "the target of the link"));
        }
        if file.length_bytes > 0 && file.offset != other.offset {
            return Err(differ(file, "the padding before it"));
        }
        (file.offset, file.number) = (other.offset, other.number);
    }
    if files.len() != v1.files.len() {
        let at = "files".to_owned();
        return Err(MetainfoError::Hybrid { at, what: "the number of files" });
    }
    // The last file may be filled up to a whole piece, or not.
    if v1.total_bytes > layout.total_bytes.next_multiple_of(piece_bytes) {
        let at = "files".to_owned();
        return Err(MetainfoError::Hybrid { at, what: "the padding behind the last file" });
    }
    Ok((files, v1.total_bytes))
}

/// The attributes of BEP 47; unknown ones do not count.
struct Attributes {
    is_padding: bool,
    is_link: bool,
    is_executable: bool,
    is_hidden: bool,
}

impl Attributes {
    fn of(attr: Option<Value<'_>>) -> Attributes {
        let letters = attr.and_then(Value::bytes).unwrap_or_default();
        let has = |letter| letters.contains(&letter);
        Attributes {
            is_padding: has(b'p'),
            is_link: has(b'l'),
            is_executable: has(b'x'),
            is_hidden: has(b'h'),
        }
    }

    /// Returns the length of a file; that of a link is 0 and may be left out.
    fn length(&self, length: Option<Value<'_>>, at: &dyn Display) -> Result<u64, MetainfoError> {
        let length = match optional_int(length, at)? {
            Some(length) => length,
            None if self.is_link => 0,
            None => return Err(missing(at)),
        };
        match u64::try_from(length) {
            Ok(bytes) if bytes == 0 || !self.is_link => Ok(bytes),
            _ => Err(MetainfoError::Length { at: at.to_string(), found: length }),
        }
    }

    /// Returns the target of a link.
    fn symlink(
        &self,
        target: Option<Value<'_>>,
        at: &dyn Display,
        odd_names: &mut OddNames,
    ) -> Result<Option<SafePath>, MetainfoError> {
        if !self.is_link {
            return Ok(None);
        }
        let at = format_args!("{at}.symlink path");
        components(required(target, &at)?, &at, odd_names).map(Some)
    }
}

/// Limits the memory for paths: those of a tree can be many times as long as the tree.
struct PathBudget {
    left_bytes: usize,
}

impl PathBudget {
    fn new(metafile_bytes: usize) -> PathBudget {
        let left_bytes = metafile_bytes.saturating_mul(PATHS_PER_METAFILE) + PATHS_BYTES_FREE;
        PathBudget { left_bytes }
    }

    fn spend(&mut self, path: &SafePath, at: &dyn Display) -> Result<(), MetainfoError> {
        let left = self.left_bytes.checked_sub(path.as_str().len());
        self.left_bytes = left.ok_or_else(|| MetainfoError::Paths { at: at.to_string() })?;
        Ok(())
    }
}

/// Reads a path that is a list of names.
fn components(
    path: Value<'_>,
    at: &dyn Display,
    odd_names: &mut OddNames,
) -> Result<SafePath, MetainfoError> {
    let names = path.list().ok_or_else(|| not(at, "a list"))?;
    joined(names.map(|name| odd_names.read(name, at)), at)
}

/// Returns the path of these names, each of which must be a name.
pub(super) fn joined<'a>(
    names: impl IntoIterator<Item = Result<Cow<'a, str>, MetainfoError>>,
    at: &dyn Display,
) -> Result<SafePath, MetainfoError> {
    let mut path = String::new();
    for (number, name) in names.into_iter().enumerate() {
        let name = name?;
        if name.contains('/') {
            return Err(MetainfoError::Name { at: at.to_string(), why: NameError::Slash });
        }
        if number > 0 {
            path.push('/');
        }
        path += &name;
    }
    SafePath::new(&path).map_err(|why| name_error(at, why))
}

/// Tells where in the file tree a path is.
struct InTree<'a>(&'a str);

impl Display for InTree<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let cut = self.0.char_indices().nth(SHOWN_CHARS_MAX).map_or(self.0.len(), |(at, _)| at);
        write!(f, "file tree/{}", visible(&self.0[..cut]))
    }
}

/// Real trees stay below: an entry has some 80 bytes, and few paths have more than 200.
const PATHS_PER_METAFILE: usize = 8;
const PATHS_BYTES_FREE: usize = 1 << 20;
const SHOWN_CHARS_MAX: usize = 300;
