//! Reads a Metalink one file at a time.
//!
//! This module walks through the XML and knows where elements may stand; `draft` knows the meaning
//! of a file's elements. Memory is that of one file and one XML event, both limited.

use std::io::BufRead;

use quick_xml::NsReader;
use quick_xml::escape::resolve_predefined_entity;
use quick_xml::events::{BytesRef, BytesStart, Event};
use quick_xml::name::ResolveResult;
use swath_model::path::SafePath;
use url::Url;

use super::draft::{Attributes, Draft};
use super::encoding::Decoded;
use super::guard::{Guard, Limit};
use super::tags::Tag;
use super::{
    File, Header, Metalink, MetalinkError, NAMESPACE, NAMESPACE_OWN, Origin, Problem, Refused,
    RefusedWhy,
};
use crate::mirror_url::mirror_url;
use crate::text::shown;

/// How to read.
#[derive(Clone, Debug)]
pub struct Options {
    /// Address of the document, against which relative addresses are resolved.
    pub base: Option<Url>,
    /// Size of the largest document.
    pub document_bytes_max: u64,
    /// Most files.
    pub files_max: u64,
}

impl Default for Options {
    /// Returns limits of 1 GiB and ten million files, which are read one by one.
    fn default() -> Options {
        Options { base: None, document_bytes_max: 1 << 30, files_max: 10_000_000 }
    }
}

/// Reads a whole Metalink with the default [`Options`].
///
/// # Errors
/// [`MetalinkError`] with the position and the problem.
pub fn parse(bytes: &[u8]) -> Result<Metalink, MetalinkError> {
    parse_with(bytes, Options::default())
}

/// Reads a whole Metalink.
///
/// # Errors
/// [`MetalinkError`] with the position and the problem.
pub fn parse_with(input: impl BufRead, options: Options) -> Result<Metalink, MetalinkError> {
    let mut reader = Reader::new(input, options);
    let files = reader.by_ref().collect::<Result<Vec<File>, MetalinkError>>()?;
    Ok(Metalink { header: reader.state.header, files, refused: reader.state.refused })
}

/// An iterator over the files of a Metalink. An error ends it; a refused file does not and is in
/// [`Reader::refused`].
pub struct Reader<R: BufRead> {
    xml: NsReader<Guard<Decoded<R>>>,
    buffer: Vec<u8>,
    state: State,
    ended: bool,
}

impl<R: BufRead> Reader<R> {
    /// Returns a reader of `input`.
    pub fn new(input: R, options: Options) -> Reader<R> {
        let mut xml =
            NsReader::from_reader(Guard::new(Decoded::new(input), options.document_bytes_max));
        let config = xml.config_mut();
        config.expand_empty_elements = true;
        // Older catalogues write signed addresses without escaping their '&'.
        config.allow_dangling_amp = true;
        let state = State { options, ..State::default() };
        Reader { xml, buffer: Vec::new(), state, ended: false }
    }

    /// Returns the facts about the document read so far; complete at the end.
    pub fn header(&self) -> &Header {
        &self.state.header
    }

    /// Returns the files skipped so far.
    pub fn refused(&self) -> &[Refused] {
        &self.state.refused
    }

    /// Handles one XML event.
    fn step(&mut self) -> Result<Step, Problem> {
        self.buffer.clear();
        self.xml.get_mut().next_event();
        let begins_line = self.xml.get_ref().line;
        let state = &mut self.state;
        match self.xml.read_resolved_event_into(&mut self.buffer) {
            Ok((namespace, Event::Start(start))) => {
                state.start(whose(&namespace), &start, begins_line)?;
            }
            Ok((_, Event::End(_))) => {
                let line = self.xml.get_mut().line;
                return state.end(line);
            }
            Ok((_, Event::Text(text))) => state.text(&text.xml10_content())?,
            Ok((_, Event::CData(text))) => state.text(&text.xml10_content())?,
            Ok((_, Event::GeneralRef(reference))) => state.text(&resolve(&reference))?,
            Ok((_, Event::DocType(_))) => return Err(Problem::DocumentType),
            Ok((_, Event::Eof)) if state.stack.is_empty() => {
                return Err(Problem::NotMetalink("it has no XML element".to_owned()));
            }
            Ok((_, Event::Eof)) => return Err(Problem::Truncated),
            Ok(_) => {}
            Err(error) => return Err(self.problem_of(error)),
        }
        Ok(Step::Inside)
    }

    fn problem_of(&mut self, error: quick_xml::Error) -> Problem {
        if let Some(limit) = self.xml.get_mut().hit {
            return Problem::Limit(limit);
        }
        if let Some(name) = self.xml.get_mut().unknown_encoding() {
            return Problem::Encoding(name.to_owned());
        }
        match error {
            quick_xml::Error::Io(error) => Problem::Read(error.to_string()),
            quick_xml::Error::Syntax(_) if self.state.stack.is_empty() => {
                Problem::NotMetalink("it is not XML".to_owned())
            }
            quick_xml::Error::Syntax(_) => Problem::Truncated,
            error => Problem::Xml(shown(&error.to_string(), SHOWN_CHARS)),
        }
    }

    fn located(&mut self, problem: Problem) -> MetalinkError {
        let element = self.state.stack.last().map_or("", |tag| tag.name());
        let byte = match problem {
            // The parser reports a position only for its own rules.
            Problem::Xml(_) if self.xml.error_position() > 0 => self.xml.error_position(),
            _ => self.xml.buffer_position(),
        };
        MetalinkError { line: self.xml.get_mut().line, byte, element, problem }
    }
}

impl<R: BufRead> Iterator for Reader<R> {
    type Item = Result<File, MetalinkError>;

    fn next(&mut self) -> Option<Self::Item> {
        while !self.ended {
            match self.step() {
                Ok(Step::Inside) => {}
                Ok(Step::File(file)) => return Some(Ok(*file)),
                Ok(Step::End) => self.ended = true,
                Err(problem) => {
                    self.ended = true;
                    return Some(Err(self.located(problem)));
                }
            }
        }
        None
    }
}

/// The result of an event.
enum Step {
    Inside,
    File(Box<File>),
    End,
}

/// Everything except the XML parser, which lends out its events.
#[derive(Default)]
struct State {
    options: Options,
    header: Header,
    stack: Vec<Tag>,
    attributes: Attributes,
    text: String,
    draft: Option<Draft>,
    files: u64,
    refused: Vec<Refused>,
}

impl State {
    fn start(&mut self, whose: Whose, start: &BytesStart, line: u64) -> Result<(), Problem> {
        let local = start.local_name();
        let tag = match self.stack.last() {
            _ if self.stack.len() >= DEPTH_MAX => {
                return Err(Problem::Limit(Limit::Depth(DEPTH_MAX)));
            }
            None if whose == Whose::Metalink && local.as_ref() == "metalink" => Tag::Root,
            None => {
                let name = shown(start.name().as_ref(), SHOWN_CHARS);
                return Err(Problem::NotMetalink(format!("its first element is <{name}>")));
            }
            Some(parent) => match whose {
                Whose::Metalink => parent.child(local.as_ref()),
                Whose::Own => parent.own_child(local.as_ref()),
                Whose::Other => Tag::Other,
            },
        };
        self.stack.push(tag);
        if tag == Tag::Other {
            return Ok(());
        }
        self.text.clear();
        let attributes = Attributes::read(start)?;
        match tag {
            Tag::Root => self.root(&attributes),
            Tag::File => self.file(&attributes, line)?,
            Tag::Pieces => {
                if let Some(draft) = &mut self.draft {
                    draft.pieces_start(&attributes);
                }
            }
            _ => {}
        }
        self.attributes = attributes;
        Ok(())
    }

    /// Reads attributes of the root that Metalink 4 has as elements.
    fn root(&mut self, attributes: &Attributes) {
        self.header.generator = attributes.shown("generator");
        let dynamic = attributes.get("type") == Some("dynamic");
        self.set_origin(attributes.get("origin"), dynamic);
    }

    fn file(&mut self, attributes: &Attributes, line: u64) -> Result<(), Problem> {
        self.files += 1;
        if self.files > self.options.files_max {
            return Err(Problem::Limit(Limit::Files(self.options.files_max)));
        }
        let Some(name) = attributes.get("name") else {
            self.refuse(String::new(), line, RefusedWhy::NoName);
            return Ok(());
        };
        match SafePath::new(name) {
            // A name that is not text must not be taken for another one.
            _ if name.contains(char::REPLACEMENT_CHARACTER) => {
                self.refuse(shown(name, SHOWN_CHARS), line, RefusedWhy::NotText);
            }
            Ok(name) => self.draft = Some(Draft::new(File::new(name))),
            Err(why) => self.refuse(shown(name, SHOWN_CHARS), line, RefusedWhy::Name(why)),
        }
        Ok(())
    }

    /// Skips the file whose element is open, and nothing else.
    fn refuse(&mut self, name: String, line: u64, why: RefusedWhy) {
        self.draft = None;
        self.refused.push(Refused { name, line, why });
    }

    fn text(&mut self, text: &str) -> Result<(), Problem> {
        match self.stack.last() {
            None if !text.trim().is_empty() => {
                Err(Problem::NotMetalink("it begins with text".to_owned()))
            }
            Some(tag) if tag.has_text() => {
                if self.text.len() + text.len() > TEXT_BYTES_MAX {
                    return Err(Problem::Limit(Limit::EventBytes(TEXT_BYTES_MAX as u64)));
                }
                self.text.push_str(text);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn end(&mut self, line: u64) -> Result<Step, Problem> {
        // The XML parser pairs the tags, so there is one.
        let Some(tag) = self.stack.pop() else { return Ok(Step::Inside) };
        let text = self.text.trim();
        match (tag, &mut self.draft) {
            (Tag::Root, _) => return Ok(Step::End),
            (Tag::Generator, _) => {
                self.header.generator = Some(shown(text, SHOWN_CHARS));
            }
            (Tag::Origin, _) => {
                let dynamic = self.attributes.get("dynamic") == Some("true");
                let text = text.to_owned();
                self.set_origin(Some(&text), dynamic);
            }
            (Tag::File, draft) => {
                if let Some(draft) = draft.take() {
                    return Ok(Step::File(Box::new(draft.finish(line))));
                }
            }
            (tag, Some(draft)) => {
                let base = self.options.base.as_ref();
                match draft.end(tag, &self.attributes, text, line, base) {
                    Err(Problem::Limit(limit)) => {
                        let name = draft.name().to_owned();
                        self.refuse(name, line, RefusedWhy::Limit(limit));
                    }
                    other => other?,
                }
            }
            (_, None) => {}
        }
        Ok(Step::Inside)
    }

    /// Sets the origin. An invalid one is not an error: it only says where a newer document may be.
    fn set_origin(&mut self, text: Option<&str>, dynamic: bool) {
        let url = text.and_then(|text| mirror_url(text, self.options.base.as_ref()).ok());
        if let Some(url) = url {
            self.header.origin = Some(Origin { url, dynamic });
        }
    }
}

/// The owner of an element's namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Whose {
    Metalink,
    /// Swath itself.
    Own,
    /// Another extension.
    Other,
}

/// Returns the owner of a namespace. No namespace counts as Metalink's, others are extensions.
fn whose(namespace: &ResolveResult) -> Whose {
    match namespace {
        ResolveResult::Bound(namespace) => match namespace.into_inner() {
            NAMESPACE => Whose::Metalink,
            NAMESPACE_OWN => Whose::Own,
            name if name.trim_end_matches('/') == NAMESPACE_3 => Whose::Metalink,
            _ => Whose::Other,
        },
        ResolveResult::Unbound => Whose::Metalink,
        ResolveResult::Unknown(_) => Whose::Other,
    }
}

/// Resolves XML's own entities. There are no others, as document types are refused. Older
/// catalogues do not escape the `&` of addresses, so it stands for itself.
fn resolve(reference: &BytesRef) -> String {
    let known = match reference.resolve_char_ref() {
        Ok(Some(c)) => Some(c.to_string()),
        Ok(None) => resolve_predefined_entity(reference).map(str::to_owned),
        Err(_) => None,
    };
    known.unwrap_or_else(|| format!("&{};", &**reference))
}

/// The namespace of Metalink 3, without its trailing slash.
const NAMESPACE_3: &str = "http://www.metalinker.org";
/// Most nested elements: Metalink has five levels; extensions may have some more.
const DEPTH_MAX: usize = 32;
/// Longest text of one element; addresses are the longest.
const TEXT_BYTES_MAX: usize = 64 * 1024;
/// Longest text from the document that is shown to users.
pub(super) const SHOWN_CHARS: usize = 120;
