//! Lists of files to fetch, in aria2's input format.
//!
//! One file per line, its mirrors separated by tabs; lines that begin with white space carry
//! options of the file above (`  out=NAME`, `  dir=FOLDER`, `  checksum=sha-256=HEX`,
//! `  header=NAME: VALUE`, `  allow-overwrite=true`); `#` begins a comment line. `List` reads one
//! file at a time, so a list of any length costs no memory, and a mistake in one file does not end
//! the list. A file is returned only after the last of its options was read: a checksum may follow
//! an unreadable line.

use std::io::{self, BufRead, Read};

use swath_model::digest::{Digest, DigestError};
use swath_model::path::{PathError, SafePath};
use url::Url;

use crate::mirror_url::{MirrorUrlError, mirror_url};
use crate::text::shown;

/// One file of a list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Item {
    /// The line of its mirrors, from 1.
    pub line: u64,
    /// Its mirrors as listed; at least one.
    pub mirrors: Vec<Url>,
    /// `out`: its path below the folder.
    pub out: Option<SafePath>,
    /// `dir`: its folder, as written in the list.
    pub dir: Option<String>,
    /// `checksum`: digests of the whole file.
    pub digests: Vec<Digest>,
    /// `header`: headers for requests to its mirrors, as (name, value).
    pub headers: Vec<(String, String)>,
    /// `allow-overwrite`: replace an existing file.
    pub overwrite: bool,
    /// Mirrors that cannot be fetched, and why.
    pub skipped: Vec<(String, MirrorUrlError)>,
    /// Names of unknown options, to be reported.
    pub unknown_options: Vec<String>,
}

/// Why a file of the list cannot be fetched, and the line. Reading continues with the next file,
/// except after [`ListProblem::Read`].
#[derive(Debug, thiserror::Error)]
#[error("line {line}: {problem}")]
pub struct ListError {
    /// The line.
    pub line: u64,
    /// The problem.
    pub problem: ListProblem,
}

/// The problem of a line.
#[derive(Debug, thiserror::Error)]
pub enum ListProblem {
    /// The list cannot be read.
    #[error("cannot be read: {0}")]
    Read(io::Error),
    /// A line is too long.
    #[error("longer than {LINE_BYTES_MAX} bytes")]
    TooLong,
    /// A line is not UTF-8.
    #[error("not UTF-8")]
    NotUtf8,
    /// No mirror of the file can be fetched.
    #[error("{text:?}: {reason}")]
    NoMirror {
        /// The first of them, shortened.
        text: String,
        /// Why it cannot be fetched.
        reason: MirrorUrlError,
    },
    /// Addresses that blanks separate.
    #[error(
        "several addresses on one line, the mirrors of one file, are separated by tabs, not by blanks"
    )]
    Blanks,
    /// Too many lines of one option.
    #[error("more than {max} lines '{option}' for one file")]
    TooMany {
        /// The option.
        option: &'static str,
        /// The limit.
        max: usize,
    },
    /// An option before any file.
    #[error("an option (a line that begins with a space) belongs below a file")]
    NoFile,
    /// An option without `=`.
    #[error("an option is written NAME=VALUE")]
    Option,
    /// `out` is not a safe name.
    #[error("the name {name:?} is refused: {why}")]
    Out {
        /// The name, shortened.
        name: String,
        /// Why it is refused.
        why: PathError,
    },
    /// `header` is malformed.
    #[error("a header is written header=NAME: VALUE")]
    Header,
    /// `checksum` cannot be parsed.
    #[error("checksum: {0}")]
    Checksum(#[from] DigestError),
}

/// An iterator over the files of a list.
pub struct List<R> {
    input: R,
    line: u64,
    bytes: Vec<u8>,
    /// The file whose options are being read.
    pending: Option<Result<Item, ListError>>,
    ended: bool,
}

impl<R: BufRead> List<R> {
    /// Returns a reader of `input`.
    pub fn new(input: R) -> List<R> {
        List { input, line: 0, bytes: Vec::new(), pending: None, ended: false }
    }

    fn error(&self, problem: ListProblem) -> ListError {
        ListError { line: self.line, problem }
    }

    /// Reads the next line into `bytes`; returns false at the end.
    fn read_line(&mut self) -> Result<bool, ListProblem> {
        self.bytes.clear();
        self.line += 1;
        let mut limited = (&mut self.input).take(LINE_BYTES_MAX as u64 + 1);
        match limited.read_until(b'\n', &mut self.bytes) {
            Ok(0) => return Ok(false),
            Ok(_) => {}
            Err(error) => return Err(ListProblem::Read(error)),
        }
        if self.bytes.last() == Some(&b'\n') {
            self.bytes.pop();
        } else if self.bytes.len() > LINE_BYTES_MAX {
            self.skip_line().map_err(ListProblem::Read)?;
            return Err(ListProblem::TooLong);
        }
        if self.bytes.last() == Some(&b'\r') {
            self.bytes.pop();
        }
        Ok(true)
    }

    /// Skips the rest of a line.
    fn skip_line(&mut self) -> io::Result<()> {
        loop {
            let available = self.input.fill_buf()?;
            let end = available.iter().position(|byte| *byte == b'\n');
            let taken = end.map_or(available.len(), |end| end + 1);
            let is_over = end.is_some() || available.is_empty();
            self.input.consume(taken);
            if is_over {
                return Ok(());
            }
        }
    }

    /// Handles the line in `bytes`; returns the file above it if a new one begins here.
    fn handle_line(&mut self) -> Option<Result<Item, ListError>> {
        let line = self.line;
        if line == 1 && self.bytes.starts_with(BYTE_ORDER_MARK) {
            self.bytes.drain(..BYTE_ORDER_MARK.len());
        }
        if is_comment(&self.bytes) {
            return None;
        }
        if !self.bytes.starts_with(b" ") && !self.bytes.starts_with(b"\t") {
            let item = match str::from_utf8(&self.bytes) {
                Ok(text) => mirrors(text, line),
                Err(_) => Err(ListProblem::NotUtf8),
            };
            let item = item.map_err(|problem| self.error(problem));
            return self.pending.replace(item);
        }
        let problem = match &mut self.pending {
            None => return Some(Err(self.error(ListProblem::NoFile))),
            // The file failed already; skip its options.
            Some(Err(_)) => return None,
            Some(Ok(item)) => match str::from_utf8(&self.bytes) {
                Ok(text) => option(item, text.trim()).err(),
                Err(_) if !is_known_option(&self.bytes) => {
                    item.unknown(&self.bytes);
                    None
                }
                Err(_) => Some(ListProblem::NotUtf8),
            },
        };
        if let Some(problem) = problem {
            self.pending = Some(Err(self.error(problem)));
        }
        None
    }

    /// Handles a line whose beginning is in `bytes`.
    fn handle_long_line(&mut self) -> Option<Result<Item, ListError>> {
        let error = self.error(ListProblem::TooLong);
        if is_comment(&self.bytes) {
            return None;
        }
        if !self.bytes.starts_with(b" ") && !self.bytes.starts_with(b"\t") {
            return self.pending.replace(Err(error));
        }
        match &mut self.pending {
            None => return Some(Err(error)),
            Some(Err(_)) => {}
            Some(Ok(item)) if !is_known_option(&self.bytes) => item.unknown(&self.bytes),
            Some(Ok(_)) => self.pending = Some(Err(error)),
        }
        None
    }
}

impl<R: BufRead> Iterator for List<R> {
    type Item = Result<Item, ListError>;

    fn next(&mut self) -> Option<Self::Item> {
        while !self.ended {
            let done = match self.read_line() {
                Ok(true) => self.handle_line(),
                Ok(false) => {
                    self.ended = true;
                    self.pending.take()
                }
                Err(ListProblem::TooLong) => self.handle_long_line(),
                // Its further options are unknown, so the file above is not returned.
                Err(problem) => {
                    self.ended = true;
                    self.pending = None;
                    Some(Err(self.error(problem)))
                }
            };
            if done.is_some() {
                return done;
            }
        }
        self.pending.take()
    }
}

impl Item {
    /// Notes an unknown option.
    fn unknown(&mut self, line: &[u8]) {
        if self.unknown_options.len() < OPTIONS_MAX {
            self.unknown_options.push(shown(&String::from_utf8_lossy(name_in(line)), SHOWN_CHARS));
        }
    }
}

/// Returns whether a line has only white space, or begins with `#`.
fn is_comment(line: &[u8]) -> bool {
    let text = line.trim_ascii_start();
    text.is_empty() || text.starts_with(b"#")
}

/// Returns the text before the `=` of an option's line.
fn name_in(line: &[u8]) -> &[u8] {
    line.split(|byte| *byte == b'=').next().unwrap_or_default().trim_ascii()
}

/// Returns whether the option of this line is known. Without `=` it may have been any.
fn is_known_option(line: &[u8]) -> bool {
    let name = name_in(line);
    !line.contains(&b'=') || OPTIONS.iter().any(|known| name.eq_ignore_ascii_case(known.as_bytes()))
}

fn mirrors(text: &str, line: u64) -> Result<Item, ListProblem> {
    let mut item = Item { line, ..Item::default() };
    for address in text.split('\t').filter(|address| !address.trim().is_empty()) {
        // A blank within an address is none that servers know, but people write it.
        if address.split_whitespace().skip(1).any(|word| word.contains("://")) {
            return Err(ListProblem::Blanks);
        }
        match mirror_url(address, None) {
            Ok(url) if item.mirrors.contains(&url) => {}
            Ok(url) => item.mirrors.push(url),
            Err(reason) => item.skipped.push((shown(address, SHOWN_CHARS), reason)),
        }
        if item.mirrors.len() + item.skipped.len() >= MIRRORS_MAX {
            break;
        }
    }
    if !item.mirrors.is_empty() {
        return Ok(item);
    }
    let (text, reason) = item
        .skipped
        .into_iter()
        .next()
        .unwrap_or_else(|| (shown(text, SHOWN_CHARS), url::ParseError::EmptyHost.into()));
    Err(ListProblem::NoMirror { text, reason })
}

fn option(item: &mut Item, text: &str) -> Result<(), ListProblem> {
    let (name, value) = text.split_once('=').ok_or(ListProblem::Option)?;
    let value = value.trim();
    match name.trim().to_ascii_lowercase().as_str() {
        "out" => {
            let safe = SafePath::new(value);
            let refused = |why| ListProblem::Out { name: shown(value, SHOWN_CHARS), why };
            item.out = Some(safe.map_err(refused)?);
        }
        "dir" => item.dir = Some(value.to_owned()).filter(|dir| !dir.is_empty()),
        "checksum" => {
            if item.digests.len() >= DIGESTS_MAX {
                return Err(ListProblem::TooMany { option: "checksum", max: DIGESTS_MAX });
            }
            item.digests.push(value.parse()?);
        }
        "header" => {
            if item.headers.len() >= HEADERS_MAX {
                return Err(ListProblem::TooMany { option: "header", max: HEADERS_MAX });
            }
            item.headers.push(header(value).ok_or(ListProblem::Header)?);
        }
        "allow-overwrite" => item.overwrite = value == "true",
        _ => item.unknown(text.as_bytes()),
    }
    Ok(())
}

/// Parses `NAME: VALUE`, without characters that could begin another line.
fn header(text: &str) -> Option<(String, String)> {
    let (name, value) = text.split_once(':')?;
    let (name, value) = (name.trim(), value.trim());
    let fits = !name.is_empty()
        && name.bytes().all(|byte| byte.is_ascii_graphic())
        && !value.contains(char::is_control);
    fits.then(|| (name.to_owned(), value.to_owned()))
}

/// The known options.
const OPTIONS: [&str; 5] = ["out", "dir", "checksum", "header", "allow-overwrite"];
/// Written by some editors.
const BYTE_ORDER_MARK: &[u8] = "\u{feff}".as_bytes();
/// Room for a hundred long addresses.
const LINE_BYTES_MAX: usize = 1 << 20;
const MIRRORS_MAX: usize = 1_000;
const DIGESTS_MAX: usize = 16;
const HEADERS_MAX: usize = 64;
const OPTIONS_MAX: usize = 64;
const SHOWN_CHARS: usize = 120;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::io::BufReader;

    fn read(text: &str) -> Vec<Result<Item, String>> {
        List::new(text.as_bytes()).map(|item| item.map_err(|error| error.to_string())).collect()
    }

    #[test]
    fn aria2_lists_are_read() {
        let text = "\u{feff}# two files\r\nhttp://a.example/1\thttp://b.example/1\tftp://c.example/1\r\n  \
            out=sub/one\r\n\n  checksum=sha-1=a9993e364706816aba3e25717850c26c9cd0d89d\n\tdir=/data\n  \
            split=5\n  header=X-Key: a:b\n allow-overwrite=true\nhttps://a.example/2";
        let items = read(text);
        let [Ok(one), Ok(two)] = &items[..] else { panic!("{items:?}") };
        assert_eq!((one.line, one.mirrors.len()), (2, 2));
        assert_eq!(one.out.as_ref().unwrap().as_str(), "sub/one");
        assert_eq!(one.dir.as_deref(), Some("/data"));
        assert_eq!(one.digests.len(), 1);
        assert_eq!(one.unknown_options, ["split"]);
        assert_eq!(one.headers, [("X-Key".to_owned(), "a:b".to_owned())]);
        assert!(one.overwrite && !two.overwrite);
        assert_eq!(one.skipped[0].0, "ftp://c.example/1");
        assert_eq!((two.line, two.mirrors[0].as_str()), (10, "https://a.example/2"));
    }

    #[test]
    fn mistakes_name_their_line_and_do_not_end_the_list() {
        for (text, expected) in [
            ("  out=x\n", "line 1: an option (a line"),
            ("http://x/1\n  out=../x\n", "line 2: the name \"../x\" is refused: it contains '.'"),
            ("http://x/1\n  checksum=md5=12\n  dir=y\n", "line 2: checksum: a md5 digest has 32"),
            ("http://x/1\n  out\n", "line 2: an option is written"),
            ("http://x/1\n  header=X\n", "line 2: a header is written"),
            ("gsiftp://x/1\troot://y/1\n", "line 1: \"gsiftp://x/1\": 'gsiftp' is not supported"),
            ("not a url\n", "line 1: \"not a url\": it is not a URL"),
            // The blank became a part of the first address.
            ("http://x/1 http://y/1\n", "separated by tabs, not by blanks"),
            ("http://x/1\thttp://y/1  https://z/1\n", "separated by tabs, not by blanks"),
        ] {
            let items = read(&format!("{text}http://good.example/\n"));
            let errors: Vec<_> = items.iter().filter_map(|item| item.as_ref().err()).collect();
            assert!(errors.len() == 1 && errors[0].contains(expected), "{text}: {errors:?}");
            assert!(items.last().unwrap().is_ok());
        }
        let mut bytes = b"http://a/\nhttp://\xff/\nhttp://b/\n".to_vec();
        bytes.extend(vec![b'x'; LINE_BYTES_MAX + 5]);
        bytes.extend(b"\nhttp://c/");
        let items: Vec<_> = List::new(&bytes[..]).collect();
        assert_eq!(
            items.iter().map(Result::is_ok).collect::<Vec<_>>(),
            [true, false, true, false, true]
        );
        assert!(matches!(items[3], Err(ListError { line: 4, problem: ListProblem::TooLong })));
    }

    struct Failing;

    impl Read for Failing {
        fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
            Err(io::Error::other("gone"))
        }
    }

    #[test]
    fn a_read_error_ends_the_list_after_what_was_read_whole() {
        let input = BufReader::new("http://a/\nhttp://b/\n".as_bytes().chain(Failing));
        let items: Vec<_> = List::new(input).take(5).collect();
        // The checksum of the second file may have been on the line that could not be read.
        assert!(
            matches!(
                &items[..],
                [Ok(_), Err(ListError { line: 3, problem: ListProblem::Read(_) })]
            ),
            "{items:?}"
        );
    }

    /// A list from aria2 had one line in Latin-1 between an address and its checksum. The file was
    /// handed out at that line, so it was fetched without the checksum that stood below.
    #[test]
    fn no_line_hands_a_file_out_before_its_checksum() {
        let long = [b"  referer=http://x/".as_slice(), &vec![b'x'; LINE_BYTES_MAX]].concat();
        let long_comment = [b"#".as_slice(), &vec![b'x'; LINE_BYTES_MAX]].concat();
        let fatal = [b"  out=".as_slice(), &vec![b'x'; LINE_BYTES_MAX]].concat();
        let cases: [(&[u8], bool); 9] = [
            (b"# caf\xe9", true),
            (b"   # caf\xe9", true),
            (b"  referer=http://x/caf\xe9", true),
            (b"  re\xffferer=x", true),
            (&long, true),
            (&long_comment, true),
            (b"  out=caf\xe9.bin", false),
            (b"  caf\xe9", false),
            (&fatal, false),
        ];
        for (line, comes) in cases {
            let sum = b"\n  Checksum=md5=900150983cd24fb0d6963f7d28e17f72\nhttp://b/\n";
            let text = [b"http://a/\n".as_slice(), line, sum].concat();
            let items: Vec<_> = List::new(&text[..]).collect();
            assert_eq!(items.len(), 2, "{:?}", &line[..line.len().min(30)]);
            assert_eq!(items[0].is_ok(), comes, "{items:?}");
            assert!(items[0].as_ref().map_or(true, |item| item.digests.len() == 1));
            assert!(items[1].is_ok());
        }
    }

    #[test]
    fn no_checksum_is_passed_over_because_there_are_many() {
        let text = format!("http://a/\n{}", "  checksum=adler32=00000001\n".repeat(17));
        let items = read(&text);
        assert!(matches!(&items[..], [Err(why)] if why.contains("more than 16")), "{items:?}");
    }

    #[test]
    fn a_hundred_thousand_lines_stream() {
        let line = b"https://a.example/file\thttps://b.example/file\n  out=x\n";
        let input = (0..100_000).flat_map(|_| line.iter().copied());
        let input = BufReader::new(Bytes(input));
        assert_eq!(
            List::new(input).filter(|item| item.as_ref().unwrap().out.is_some()).count(),
            100_000
        );
    }

    struct Bytes<I>(I);

    impl<I: Iterator<Item = u8>> Read for Bytes<I> {
        fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
            let mut filled = 0;
            for (slot, byte) in out.iter_mut().zip(&mut self.0) {
                *slot = byte;
                filled += 1;
            }
            Ok(filled)
        }
    }

    proptest! {
        #[test]
        fn every_file_is_found(files in prop::collection::vec(
            (1..4usize, prop::option::of("[a-z]{1,5}"), 0..3usize), 0..10,
        )) {
            let mut text = String::new();
            for (number, (mirrors, out, blanks)) in files.iter().enumerate() {
                let all: Vec<_> = (0..*mirrors).map(|m| format!("http://m{m}.example/{number}")).collect();
                text.push_str(&all.join("\t"));
                text.push_str(&"\n# note\n".repeat(*blanks));
                if let Some(out) = out {
                    text.push_str(&format!("\n out={out}"));
                }
                text.push('\n');
            }
            let items = read(&text);
            prop_assert_eq!(items.len(), files.len());
            for (item, (mirrors, out, _)) in items.iter().zip(&files) {
                let item = item.as_ref().unwrap();
                prop_assert_eq!(item.mirrors.len(), *mirrors);
                prop_assert_eq!(item.out.as_ref().map(SafePath::as_str), out.as_deref());
            }
        }

        #[test]
        fn nothing_panics(bytes in prop::collection::vec(prop_oneof![Just(b'\n'), Just(b'\t'), Just(b' '), any::<u8>()], 0..60)) {
            for item in List::new(&bytes[..]) {
                let _ = item.map_err(|error| error.to_string());
            }
        }
    }
}
