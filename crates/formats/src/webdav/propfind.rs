//! Reads the body of `PROPFIND` (RFC 4918, section 14.20).
//!
//! A body is refused if it is longer than a client needs: whatever it names is repeated for each
//! entry of a folder.

use quick_xml::NsReader;
use quick_xml::events::Event;
use quick_xml::name::ResolveResult;

use super::NAMESPACE;

/// Which properties a client asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Asked {
    /// All usual ones, and these.
    All(Vec<Name>),
    /// The names of all that there are.
    Names,
    /// These.
    Named(Vec<Name>),
}

/// The name of a property.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Name {
    /// Its namespace; empty without one.
    pub namespace: String,
    /// Its name there, which is one that XML allows.
    pub local: String,
}

/// Why a body cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PropfindError {
    /// The XML is broken at this byte.
    #[error("its XML is broken near byte {at}: {what}")]
    Xml {
        /// Where.
        at: u64,
        /// What the parser says.
        what: String,
    },
    /// It is not a `propfind` element with one of `prop`, `allprop` and `propname`.
    #[error("it is no propfind element with prop, allprop or propname")]
    NotPropfind,
    /// It has a document type, which can be used for attacks.
    #[error("it has a document type, which is refused")]
    DocumentType,
    /// The name of a property is no name.
    #[error("the name of a property is not valid")]
    Name,
    /// A limit.
    #[error("it has more than {0}")]
    TooLarge(&'static str),
}

/// Reads a body. An empty one asks for all properties.
///
/// # Errors
/// [`PropfindError`].
pub fn read(body: &[u8]) -> Result<Asked, PropfindError> {
    if body.iter().all(u8::is_ascii_whitespace) {
        return Ok(Asked::All(Vec::new()));
    }
    if body.len() > BODY_BYTES_MAX {
        return Err(PropfindError::TooLarge("64 KiB"));
    }
    let text = String::from_utf8_lossy(body);
    let mut xml = NsReader::from_str(&text);
    xml.config_mut().expand_empty_elements = true;
    let mut state = State::default();
    loop {
        let at = xml.buffer_position();
        let event = xml.read_resolved_event();
        match event.map_err(|error| PropfindError::Xml { at, what: error.to_string() })? {
            (namespace, Event::Start(start)) => {
                let namespace = match namespace {
                    ResolveResult::Bound(namespace) => namespace.0.to_owned(),
                    ResolveResult::Unbound => String::new(),
                    ResolveResult::Unknown(_) => return Err(PropfindError::Name),
                };
                let namespace = quick_xml::escape::unescape(&namespace)
                    .map_err(|error| PropfindError::Xml { at, what: error.to_string() })?;
                let local = start.local_name().as_ref().to_owned();
                state.start(Name { namespace: namespace.into_owned(), local })?;
            }
            (_, Event::End(_)) => _ = state.open.pop(),
            (_, Event::DocType(_)) => return Err(PropfindError::DocumentType),
            (_, Event::Eof) => return state.end(),
            _ => {}
        }
    }
}

#[derive(Default)]
struct State {
    /// The elements around the place; those that mean nothing here are `Other`.
    open: Vec<Element>,
    form: Option<Element>,
    named: Vec<Name>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Element {
    Propfind,
    Prop,
    AllProp,
    PropName,
    Include,
    Other,
}

impl State {
    fn start(&mut self, name: Name) -> Result<(), PropfindError> {
        let is_own = name.namespace == NAMESPACE;
        let element = match (self.open.as_slice(), name.local.as_str()) {
            ([], "propfind") if is_own => Element::Propfind,
            ([], _) => return Err(PropfindError::NotPropfind),
            ([Element::Propfind], "prop") if is_own => Element::Prop,
            ([Element::Propfind], "allprop") if is_own => Element::AllProp,
            ([Element::Propfind], "propname") if is_own => Element::PropName,
            ([Element::Propfind], "include") if is_own => Element::Include,
            ([Element::Propfind, Element::Prop | Element::Include], _) => {
                self.names(name)?;
                Element::Other
            }
            // What is unknown is passed over (RFC 4918, section 17).
            _ => Element::Other,
        };
        if matches!(element, Element::Prop | Element::AllProp | Element::PropName)
            && self.form.replace(element).is_some_and(|other| other != element)
        {
            return Err(PropfindError::NotPropfind);
        }
        if self.open.len() >= DEPTH_MAX {
            return Err(PropfindError::TooLarge("32 elements inside each other"));
        }
        self.open.push(element);
        Ok(())
    }

    fn names(&mut self, name: Name) -> Result<(), PropfindError> {
        if !is_name(&name.local) || name.namespace.chars().any(char::is_control) {
            return Err(PropfindError::Name);
        }
        if name.local.len() + name.namespace.len() > NAME_BYTES_MAX {
            return Err(PropfindError::TooLarge("256 bytes in a name"));
        }
        if self.named.len() >= NAMES_MAX {
            return Err(PropfindError::TooLarge("64 names of properties"));
        }
        if !self.named.contains(&name) {
            self.named.push(name);
        }
        Ok(())
    }

    fn end(self) -> Result<Asked, PropfindError> {
        match self.form {
            _ if !self.open.is_empty() => Err(PropfindError::NotPropfind),
            Some(Element::Prop) => Ok(Asked::Named(self.named)),
            Some(Element::AllProp) => Ok(Asked::All(self.named)),
            Some(Element::PropName) => Ok(Asked::Names),
            _ => Err(PropfindError::NotPropfind),
        }
    }
}

/// Returns whether it can stand as the name of an element. XML allows a few characters more.
fn is_name(name: &str) -> bool {
    let begins = name.starts_with(|c: char| c.is_alphabetic() || c == '_');
    begins && name.chars().all(|c| c.is_alphanumeric() || "-_.".contains(c))
}

/// A longer body is refused; those of known clients have less than 4 KiB.
pub const BODY_BYTES_MAX: usize = 64 << 10;
/// Most names of properties; clients name about twenty.
const NAMES_MAX: usize = 64;
/// Longest name with its namespace.
const NAME_BYTES_MAX: usize = 256;
/// Elements inside each other.
const DEPTH_MAX: usize = 32;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn name(namespace: &str, local: &str) -> Name {
        Name { namespace: namespace.to_owned(), local: local.to_owned() }
    }

    #[test]
    fn what_clients_ask_for_is_read() {
        let named = "<?xml version=\"1.0\"?><d:propfind xmlns:d='DAV:' xmlns:o=\"urn:o&amp;p\"><d:prop>\
                     <d:getcontentlength/><o:size> </o:size><plain/></d:prop></d:propfind>";
        let names =
            vec![name("DAV:", "getcontentlength"), name("urn:o&p", "size"), name("", "plain")];
        assert_eq!(read(named.as_bytes()), Ok(Asked::Named(names)));
        for all in ["", " \r\n", "<propfind xmlns='DAV:'><allprop/></propfind>"] {
            assert_eq!(read(all.as_bytes()), Ok(Asked::All(Vec::new())), "{all}");
        }
        let included = "<propfind xmlns='DAV:'><allprop/><include><quota-used-bytes/></include>\
                        <other xmlns='x'><prop/></other></propfind>";
        let names = vec![name("DAV:", "quota-used-bytes")];
        assert_eq!(read(included.as_bytes()), Ok(Asked::All(names)));
        let propname = "<D:propfind xmlns:D='DAV:'><D:propname/></D:propfind>";
        assert_eq!(read(propname.as_bytes()), Ok(Asked::Names));
    }

    #[test]
    fn what_is_none_is_refused() {
        let many: String = (0..65).map(|n| format!("<p{n}/>")).collect();
        let many = format!("<propfind xmlns='DAV:'><prop>{many}</prop></propfind>");
        let deep = format!("<propfind xmlns='DAV:'>{}", "<a>".repeat(40));
        let long = format!("<propfind xmlns='DAV:'><prop><{}/></prop></propfind>", "a".repeat(300));
        for body in [
            "nothing",
            "<propfind/>",
            "<propfind xmlns='DAV:'/>",
            "<propfind xmlns='DAV:'><allprop/><propname/></propfind>",
            "<propfind xmlns='DAV:'><allprop/>",
            "<propfind xmlns='DAV:'><prop><x:y/></prop></propfind>",
            "<propfind xmlns='DAV:'><prop><a\"b/></prop></propfind>",
            "<!DOCTYPE x [<!ENTITY e 'e'>]><propfind xmlns='DAV:'><allprop/></propfind>",
            "<multistatus xmlns='DAV:'/>",
            &many,
            &deep,
            &long,
            &" x".repeat(BODY_BYTES_MAX),
        ] {
            assert!(read(body.as_bytes()).is_err(), "{body}");
        }
    }

    proptest! {
        #[test]
        fn no_bytes_can_do_harm(bytes in prop::collection::vec(any::<u8>(), 0..300), text in "[<>/a:='\"& DAV]{0,60}") {
            let _ = read(&bytes);
            let _ = read(format!("<propfind xmlns='DAV:'><prop>{text}</prop></propfind>").as_bytes());
        }
    }
}
