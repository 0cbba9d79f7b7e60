//! WebDAV (RFC 4918), class 1 without `PROPPATCH`: what file managers and grid tools need.
//!
//! `PROPFIND` reads, with the rules of `GET`. `MKCOL`, `DELETE`, `MOVE` and `COPY` within this server
//! write, with the rules of `PUT`. `COPY` from or to other servers is not here.

mod change;
mod propfind;

use swath_formats::scope::Act;
use swath_store::tree::Root;

use super::Site;
use super::folders::Resolved;
use super::rights::Rights;
use crate::client::Client;
use crate::http::{Head, Make, Response, Target};

/// A request that is answered here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verb {
    Propfind,
    Mkcol,
    Delete,
    Move,
    Copy,
}

impl Verb {
    /// What a request asks for, if it is one of these.
    pub fn of(head: &Head, scheme: &str) -> Option<Verb> {
        match head.method.as_str() {
            "PROPFIND" => Some(Verb::Propfind),
            "MKCOL" => Some(Verb::Mkcol),
            "DELETE" => Some(Verb::Delete),
            "MOVE" => Some(Verb::Move),
            // What has to be compared with a digest is copied as if it came from elsewhere.
            "COPY" if head.field("digest").or(head.field("repr-digest")).is_none() => {
                let other = match (head.field("source"), head.field("destination")) {
                    (Some(other), None) | (None, Some(other)) => other,
                    _ => return None,
                };
                is_here(other, head, scheme).then_some(Verb::Copy)
            }
            _ => None,
        }
    }

    /// Whether it changes something.
    pub fn changes(self) -> bool {
        self != Verb::Propfind
    }
}

/// Answers a request.
pub(super) async fn respond(
    site: &Site,
    verb: Verb,
    head: &Head,
    rights: Rights,
    client: Client,
    body: &mut dyn Make,
) -> Response {
    if verb == Verb::Propfind {
        return propfind::propfind(site, head, &rights, client, body).await;
    }
    if site.receive.is_none() {
        return Response::text(403, "this server changes nothing (it was started without --write)");
    }
    if !rights.may_write_somewhere() {
        return rights.refusal(Act::Create);
    }
    if body.length() != Some(0) {
        return Response::text(415, "this request has no body");
    }
    if head.field("if").is_some() {
        return Response::text(412, "nothing is locked here");
    }
    let repeated = ["destination", "source", "overwrite", "depth"];
    if let Some(name) = repeated.iter().find(|name| head.fields(name).nth(1).is_some()) {
        return Response::text(400, format!("the field '{name}' is repeated"));
    }
    let changed = match verb {
        Verb::Mkcol if !rights.may_make_folder(&head.target.path) => {
            Err(rights.refusal(Act::Create))
        }
        Verb::Mkcol => change::mkcol(site, head, &rights).await,
        Verb::Delete if !rights.may_modify(&head.target.path) => Err(rights.refusal(Act::Modify)),
        Verb::Delete => change::delete(site, head, &rights).await,
        Verb::Copy if head.field("source").is_some() => match address(site, head, "source") {
            Ok(from) => change::to(site, head, (&from, &head.target), true, &rights).await,
            Err(refusal) => Err(refusal),
        },
        _ => match address(site, head, "destination") {
            Ok(to) => {
                let is_copy = verb == Verb::Copy;
                change::to(site, head, (&head.target, &to), is_copy, &rights).await
            }
            Err(refusal) => Err(refusal),
        },
    };
    changed.unwrap_or_else(|refusal| refusal)
}

/// What is at the other end, by the field that names it.
fn address(site: &Site, head: &Head, field: &str) -> Result<Target, Response> {
    let Some(value) = head.field(field) else {
        return Err(Response::text(400, format!("the field '{field}' is missing")));
    };
    if !is_here(value, head, site.scheme) {
        return Err(Response::text(502, format!("the {field} is on another server")));
    }
    Target::parse(value).map_err(|error| Response::text(400, format!("{field}: {error}")))
}

/// Whether an address is one of this server, as the client knows it: an absolute path, or a URL with
/// the host that the request was sent to.
fn is_here(address: &str, head: &Head, scheme: &str) -> bool {
    let Some((its_scheme, rest)) = address.split_once("://") else {
        return address.starts_with('/') && !address.starts_with("//");
    };
    let port = |scheme: &str| match scheme.to_ascii_lowercase().as_str() {
        "http" | "dav" => Some(80),
        "https" | "davs" => Some(443),
        _ => None,
    };
    let its_host = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let host = head.field("host").unwrap_or_default();
    let (Some(its_port), Some(port)) = (port(its_scheme), port(scheme)) else { return false };
    // A proxy in front of this server may speak TLS, and then the host has no port.
    its_host.eq_ignore_ascii_case(host) || with_port(its_host, its_port) == with_port(host, port)
}

fn with_port(host: &str, port: u16) -> (String, u16) {
    let split = host.rsplit_once(':').and_then(|(name, port)| Some((name, port.parse().ok()?)));
    let (name, port) = split.unwrap_or((host, port));
    (name.to_ascii_lowercase(), port)
}

/// The folder and path that something is in; the folders themselves cannot be changed.
fn below(site: &Site, path: &[u8], rights: &Rights) -> Option<(Root, Vec<u8>)> {
    match site.folders.resolve(path, rights)? {
        Resolved::Below { root, path } if !path.is_empty() => Some((root, path.to_vec())),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_this_server_are_told_from_others() {
        let is_here = |address: &str, host: &str, scheme: &str| {
            let text = format!("MOVE /a HTTP/1.1\r\nHost: {host}\r\n\r\n");
            is_here(address, &Head::parse(text.as_bytes()).unwrap().unwrap().0, scheme)
        };
        for (address, host, scheme, expected) in [
            ("/b", "h:8470", "http", true),
            ("http://h:8470/b", "h:8470", "http", true),
            ("https://H:8470/b", "h:8470", "https", true),
            ("davs://h:8470/b", "h:8470", "https", true),
            ("http://h/b", "h:80", "http", true),
            ("https://h:443/b", "h", "https", true),
            ("https://h/b", "h", "http", true),
            ("http://[::1]:8470/b", "[::1]:8470", "http", true),
            ("http://[::1]/b", "[::1]", "http", true),
            ("http://h:8471/b", "h:8470", "http", false),
            ("http://other/b", "h", "http", false),
            ("http://h:8470@other/b", "h:8470", "http", false),
            ("http://h.other/b", "h", "http", false),
            ("ftp://h/b", "h", "http", false),
            ("//h/b", "h", "http", false),
            ("b", "h", "http", false),
        ] {
            assert_eq!(is_here(address, host, scheme), expected, "{address} {host}");
        }
    }

    #[test]
    fn a_copy_from_or_to_another_server_is_somebody_elses() {
        let verb = |request: &str| {
            let text = format!("{request}Host: h\r\n\r\n");
            Verb::of(&Head::parse(text.as_bytes()).unwrap().unwrap().0, "http")
        };
        assert_eq!(verb("COPY /a HTTP/1.1\r\nDestination: http://h/b\r\n"), Some(Verb::Copy));
        assert_eq!(verb("COPY /a HTTP/1.1\r\nDestination: http://o/b\r\n"), None);
        assert_eq!(verb("COPY /a HTTP/1.1\r\nSource: http://h/b\r\n"), Some(Verb::Copy));
        assert_eq!(verb("COPY /a HTTP/1.1\r\nSource: http://o/b\r\n"), None);
        assert_eq!(verb("COPY /a HTTP/1.1\r\nSource: /b\r\nDigest: adler32=1\r\n"), None);
        assert_eq!(verb("COPY /a HTTP/1.1\r\nSource: /b\r\nDestination: /c\r\n"), None);
        assert_eq!(verb("COPY /a HTTP/1.1\r\n"), None);
        assert_eq!(verb("PROPFIND /a HTTP/1.1\r\n"), Some(Verb::Propfind));
        assert_eq!(verb("LOCK /a HTTP/1.1\r\n"), None);
        assert!(!Verb::Propfind.changes() && Verb::Delete.changes());
    }
}
