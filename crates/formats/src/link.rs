//! The `Link` header (RFC 8288), as RFC 6249 uses it for mirrors.
//!
//! Reading is lenient: a malformed link is skipped and the next one is read, because one proxy's
//! mistake should not hide the other mirrors. Targets stay as written; the caller resolves them
//! against the address of the response.

/// A link with the parameters of mirrors.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Link {
    /// The target between `<` and `>`, maybe relative.
    pub target: String,
    /// Relation types in lower case: `duplicate`, `describedby`, …
    pub rel: Vec<String>,
    /// RFC 6249: 1 is best.
    pub pri: Option<u32>,
    /// RFC 6249: the country, as written.
    pub geo: Option<String>,
    /// The media type of the target.
    pub media_type: Option<String>,
    /// RFC 6249: preferred, which counts before `pri`.
    pub is_preferred: bool,
    /// RFC 6249: up to how many folders above the target the mirror has the same content.
    pub depth: Option<u32>,
}

impl Link {
    /// Returns whether the target is another copy of the same file.
    pub fn is_duplicate(&self) -> bool {
        self.has_rel("duplicate")
    }

    /// Returns whether the target is a Metalink that describes the file.
    pub fn is_metalink(&self) -> bool {
        self.has_rel("describedby")
            && self.media_type.as_deref().is_some_and(crate::metalink::is_media_type)
    }

    /// Returns whether this is one of its relation types.
    pub fn has_rel(&self, name: &str) -> bool {
        self.rel.iter().any(|rel| rel == name)
    }
}

/// Parses all links of one `Link` header. Call it for each header of that name.
pub fn parse(value: &str) -> Vec<Link> {
    let mut links = Vec::new();
    let mut rest = value;
    while links.len() < LINKS_MAX {
        rest = rest.trim_start_matches(|c: char| c == ',' || c.is_whitespace());
        if rest.is_empty() {
            break;
        }
        let target = rest.strip_prefix('<').and_then(|rest| rest.split_once('>'));
        let mut link = Link::default();
        let is_link = target.is_some();
        if let Some((target, after)) = target {
            link.target = target.trim().to_owned();
            rest = after;
        }
        rest = parameters(rest, &mut link);
        if is_link {
            links.push(link);
        }
    }
    links
}

/// Parses the parameters up to the comma that ends the link; returns the rest.
fn parameters<'a>(mut rest: &'a str, link: &mut Link) -> &'a str {
    loop {
        let name_end = rest.find(['=', ';', ',', '"']).unwrap_or(rest.len());
        let name = rest[..name_end].trim().to_ascii_lowercase();
        rest = &rest[name_end..];
        let mut value = None;
        if let Some(after) = rest.strip_prefix('=') {
            let (read, after) = parameter_value(after.trim_start());
            value = Some(read);
            rest = after;
        } else if rest.starts_with('"') {
            // Out of place; its commas separate nothing.
            rest = parameter_value(rest).1;
        }
        set(link, &name, value);
        // Text between the value and the next separator is ignored.
        rest = rest.trim_start_matches(|c| !matches!(c, ';' | ',' | '"' | '='));
        match rest.chars().next() {
            None => return "",
            Some(',') => return &rest[1..],
            Some(';') => rest = &rest[1..],
            _ => {}
        }
    }
}

/// Parses a quoted string or a token; returns it and the rest.
fn parameter_value(text: &str) -> (String, &str) {
    let Some(quoted) = text.strip_prefix('"') else {
        let end = text.find([';', ',']).unwrap_or(text.len());
        return (text[..end].trim().to_owned(), &text[end..]);
    };
    let mut value = String::new();
    let mut chars = quoted.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '"' => return (value, &quoted[at + 1..]),
            '\\' => value.extend(chars.next().map(|(_, c)| c)),
            c => value.push(c),
        }
    }
    // Without a closing quote it ends where a token would, so that later links remain.
    let end = quoted.find([';', ',']).unwrap_or(quoted.len());
    (quoted[..end].trim().to_owned(), &quoted[end..])
}

/// Sets a parameter. The first of several values counts (RFC 8288, section 3).
fn set(link: &mut Link, name: &str, value: Option<String>) {
    match (name, value) {
        ("pref", _) => link.is_preferred = true,
        ("rel", Some(value)) if link.rel.is_empty() => {
            let types = value.split_ascii_whitespace().take(RELS_MAX);
            link.rel = types.map(str::to_ascii_lowercase).collect();
        }
        ("pri", Some(value)) if link.pri.is_none() => link.pri = value.parse().ok(),
        ("geo", Some(value)) if link.geo.is_none() => link.geo = Some(value),
        ("type", Some(value)) if link.media_type.is_none() => link.media_type = Some(value),
        ("depth", Some(value)) if link.depth.is_none() => link.depth = value.parse().ok(),
        _ => {}
    }
}

/// Limits the cost of a long header; headers rarely exceed 64 KiB.
const LINKS_MAX: usize = 1_000;
const RELS_MAX: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The quote of one proxy hid all mirrors behind it.
    #[test]
    fn an_open_quote_costs_one_link() {
        let links = parse("<http://a/>; rel=\"duplicate, <http://b/>; rel=duplicate; geo=de");
        let targets: Vec<_> = links.iter().map(|link| link.target.as_str()).collect();
        assert_eq!(targets, ["http://a/", "http://b/"]);
        assert!(links[1].is_duplicate());
    }

    #[test]
    fn rfc_6249_is_read() {
        let value = r#"<http://www2.example.com/example.ext>; rel=duplicate; pri=1; pref,
            <ftp://ftp.example.com/example.ext>; rel="duplicate"; pri=2; geo=gb; depth=1,
            <http://example.com/example.ext.torrent>;
              rel=describedby; type="application/x-bittorrent"; name="differentname.ext",
            </example.ext.meta4>; rel="describedby other"; type="application/metalink4+xml""#;
        let links = parse(value);
        assert_eq!(links.len(), 4);
        assert_eq!(links[0].target, "http://www2.example.com/example.ext");
        assert!(links[0].is_duplicate() && links[0].is_preferred && !links[0].is_metalink());
        assert_eq!(links[0].pri, Some(1));
        assert_eq!((links[1].geo.as_deref(), links[1].depth), (Some("gb"), Some(1)));
        assert!(!links[1].is_preferred);
        assert!(!links[2].is_metalink());
        assert_eq!(links[3].target, "/example.ext.meta4");
        assert!(links[3].is_metalink() && links[3].has_rel("other"));
    }

    #[test]
    fn commas_and_semicolons_inside_separate_nothing() {
        let links =
            parse(r#"<http://x/a,b;c>; title="a, <b>; \"rel=duplicate\""; rel=x,<d>;REL=Y"#);
        let seen: Vec<_> = links.iter().map(|l| (l.target.as_str(), l.rel.join(" "))).collect();
        assert_eq!(seen, [("http://x/a,b;c", "x".to_owned()), ("d", "y".to_owned())]);
    }

    #[test]
    fn malformed_links_do_not_hide_others() {
        for value in [
            "garbage, <a>; rel=duplicate",
            "gar\"ba,ge, <x\", <a>; rel=duplicate",
            ",, ,<a> ;; rel = duplicate ;",
            "<a>; rel=duplicate; rel=other; pri=x",
            "<a>; rel=\"duplicate",
        ] {
            let links = parse(value);
            assert_eq!(links.len(), 1, "{value}");
            assert!(links[0].target == "a" && links[0].is_duplicate(), "{value}: {links:?}");
            assert_eq!(links[0].pri, None);
        }
        assert!(parse("").is_empty() && parse("<").is_empty() && parse("=").is_empty());
        assert_eq!(parse(&"<a>,".repeat(5000)).len(), LINKS_MAX);
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(links in prop::collection::vec(
            ("[a-z/:,;=.]{0,9}", "[a-z]{1,5}", prop::option::of(1..9u32), "[a-z\"\\\\,;=<> ]{0,9}"), 0..6,
        )) {
            let mut value = String::new();
            for (target, rel, pri, title) in &links {
                let title = title.replace('\\', "\\\\").replace('"', "\\\"");
                value.push_str(&format!("<{target}>;title=\"{title}\"; rel={rel}"));
                if let Some(pri) = pri {
                    value.push_str(&format!(" ; pri={pri}"));
                }
                value.push_str(" , ");
            }
            let expected: Vec<Link> = links.iter().map(|(target, rel, pri, _)| Link {
                target: target.clone(), rel: vec![rel.clone()], pri: *pri, ..Link::default()
            }).collect();
            prop_assert_eq!(parse(&value), expected);
        }

        #[test]
        fn nothing_panics(value in "[<>;,=\"\\\\ relé]{0,40}") {
            parse(&value);
        }
    }
}
