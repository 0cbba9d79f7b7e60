//! Reads XML documents as flat lists of elements, in bounded depth.

use quick_xml::escape::resolve_predefined_entity;
use quick_xml::events::Event;

/// Reads an XML document with this top element. `take` gets each element at its end: the name of the element
/// around it, its own name (both without namespaces), and the text before its end. `None` if it is not such a
/// document, or is nested deeper than any list.
pub(super) fn elements(
    document: &[u8],
    top: &str,
    mut take: impl FnMut(&str, &str, &str),
) -> Option<()> {
    let mut xml = quick_xml::Reader::from_reader(document);
    xml.config_mut().expand_empty_elements = true;
    let mut buffer = Vec::new();
    let mut open: Vec<String> = Vec::new();
    let mut text = String::new();
    loop {
        buffer.clear();
        match xml.read_event_into(&mut buffer).ok()? {
            Event::Start(start) => {
                let name = start.local_name().as_ref().to_owned();
                if open.len() >= DEPTH_MAX || open.is_empty() && name != top {
                    return None;
                }
                open.push(name);
                text.clear();
            }
            Event::Text(part) => text.push_str(&part.xml10_content()),
            Event::CData(part) => text.push_str(&part.xml10_content()),
            Event::GeneralRef(reference) => match reference.resolve_char_ref().ok()? {
                Some(char) => text.push(char),
                None => text.push_str(resolve_predefined_entity(&reference)?),
            },
            Event::End(_) => {
                let name = open.pop()?;
                let Some(within) = open.last() else { return Some(()) };
                take(within, &name, &text);
                text.clear();
            }
            Event::DocType(_) | Event::Eof => return None,
            _ => {}
        }
    }
}

const DEPTH_MAX: usize = 16;
