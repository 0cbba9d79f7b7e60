//! `swath://host:8470/run7/#token=…&fp=…`: the address of a folder or file on a swath server with its
//! token and fingerprint.
//!
//! A link is split before anything else sees it into a plain `https://` address and the access to that
//! server. So the part after `#` is never sent, logged, shown or stored. No message repeats it.

use crate::failure::Failure;
use swath_formats::percent;
use swath_model::digest::Digest;
use swath_model::path::SafePath;
use swath_source::{HostPattern, Secret, ServerAccess, is_token};
use url::Url;

use crate::args::{Net, fingerprint};
use crate::net::shown_text;

/// Replaces every link among `places` by its address, and adds its access to `net`. The error contains
/// no secret.
pub fn take_apart<'p>(
    places: impl IntoIterator<Item = &'p mut String>,
    net: &mut Net,
) -> Result<(), Failure> {
    for place in places {
        if !is_link(place) {
            continue;
        }
        let (url, access) =
            parse(place).map_err(|why| Failure::usage(format!("{}: {why}", shown_text(place))))?;
        *place = url.to_string();
        net.servers.push(access);
    }
    Ok(())
}

/// Returns the name under which the folder that a link leads to is copied: its own, or at the top that of
/// the server. `None` if the text is not a link to a folder.
pub fn folder_name(text: &str) -> Option<String> {
    let address = text.split(['?', '#']).next().unwrap_or_default();
    if !is_link(text) || !address.ends_with('/') && address[SCHEME.len()..].contains('/') {
        return None;
    }
    let (url, _) = parse(text).ok()?;
    let last = url.path_segments()?.rfind(|name| !name.is_empty()).unwrap_or_default();
    let own = SafePath::new(&percent::decode_text(last)).ok().map(|name| name.as_str().to_owned());
    let own = own.filter(|name| !name.contains('/'));
    own.or_else(|| Some(url.host_str()?.trim_matches(['[', ']']).to_owned()))
}

fn is_link(text: &str) -> bool {
    text.get(..SCHEME.len()).is_some_and(|scheme| scheme.eq_ignore_ascii_case(SCHEME))
}

fn parse(text: &str) -> Result<(Url, ServerAccess), &'static str> {
    let rest = &text[SCHEME.len()..];
    let (rest, fragment) = rest.split_once('#').unwrap_or((rest, ""));
    let address = "not a link to a swath server (swath://HOST/PATH/#token=…&fp=…)";
    let mut url = Url::parse(&format!("https://{rest}")).map_err(|_| address)?;
    if text.chars().any(char::is_control) || url.host().is_none() {
        return Err(address);
    }
    // A link without a port means the port of `swath serve`, not 443.
    let host_end = rest.find(['/', '?']).unwrap_or(rest.len());
    let names_port = rest[..host_end].rsplit_once(':').is_some_and(|(_, port)| {
        !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit())
    });
    if !names_port {
        url.set_port(Some(PORT)).map_err(|()| address)?;
    }
    let mut access = ServerAccess::to(HostPattern::of(&url).ok_or(address)?);
    access.is_for_this_run = true;
    for part in fragment.split('&').filter(|part| !part.is_empty()) {
        let (key, value) = part.split_once('=').unwrap_or((part, ""));
        let value = percent::decode_text(value);
        match key {
            "token" if is_token(&value) => access.token = Some(Secret::new(&value).into()),
            "token" => return Err("the token after '#' is incomplete or damaged"),
            "fp" => {
                let whole = if value.contains(':') { value } else { format!("sha-256:{value}") };
                let print = fingerprint(&whole);
                let damaged = "the fingerprint after '#' is incomplete or damaged";
                access.fingerprint = Some(print.map_err(|_| damaged)?);
            }
            _ => return Err("only 'token=' and 'fp=' are allowed after '#', separated by '&'"),
        }
    }
    Ok((url, access))
}

/// Returns the link for `url`, an `https://` address.
pub fn link(url: &Url, token: Option<&str>, fingerprint: Option<&Digest>) -> String {
    let address = url.as_str().strip_prefix("https").unwrap_or(url.as_str());
    let token = token.map(|token| format!("token={}", percent::encode(token.as_bytes())));
    let print = fingerprint.map(|digest| format!("fp={}", digest.to_hex()));
    let parts: Vec<String> = token.into_iter().chain(print).collect();
    let mark = if parts.is_empty() { "" } else { "#" };
    format!("swath{address}{mark}{}", parts.join("&"))
}

const SCHEME: &str = "swath://";
/// The default port of `swath serve`.
const PORT: u16 = 8470;

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;

    #[test]
    fn a_link_that_was_written_is_read_again() {
        let print = fingerprint(&format!("sha-256:{}", "1f".repeat(32))).unwrap();
        let url = Url::parse("https://[2001:db8::1]:9000/run%207/").unwrap();
        let text = link(&url, Some("a+b/c=&#"), Some(&print));
        let (read_url, read) = parse(&text).unwrap();
        assert_eq!((read_url, read.fingerprint), (url, Some(print)));
        assert_eq!(read.token.unwrap().now().expose(), "a+b/c=&#");
    }

    #[test]
    fn the_usual_port_is_that_of_serve() {
        for (text, wanted) in [
            ("swath://h/run7/", "https://h:8470/run7/"),
            ("SWATH://h:443/", "https://h/"),
            ("swath://[::1]", "https://[::1]:8470/"),
            ("swath://h:9/a?b=c:80", "https://h:9/a?b=c:80"),
            ("swath://h?b=c:80", "https://h:8470/?b=c:80"),
        ] {
            assert_eq!(parse(text).unwrap().0.as_str(), wanted);
        }
    }

    #[test]
    fn a_link_to_a_folder_has_a_name_to_copy_it_to() {
        for (text, name) in [
            ("swath://h:9/a/run%207/#token=x", Some("run 7")),
            ("swath://h.example:9/#token=x", Some("h.example")),
            ("swath://[::1]", Some("::1")),
            ("swath://h/..%2f/", Some("h")),
            ("swath://h/run7.h5#token=x", None),
            ("swath://h/#nonsense", None),
            ("https://h/a/", None),
        ] {
            assert_eq!(folder_name(text).as_deref(), name, "{text}");
        }
    }

    #[test]
    fn nothing_that_is_said_of_a_damaged_link_holds_its_secret() {
        let cli = crate::args::Cli::try_parse_from(["swath", "get", "http://h/f"]).unwrap();
        let crate::args::Command::Get(mut get) = cli.command else { panic!("another command") };
        let net = &mut get.transfer.net;
        for text in [
            "swath://h/#token=se cret",
            "swath://h/#secret",
            "swath://h/#fp=secret",
            "swath://#token=secret",
            "swath://u:secret@h:x/#token=secret",
        ] {
            let mut place = text.to_owned();
            let said = take_apart([&mut place], net).unwrap_err();
            assert!(
                !said.what.contains("secret") && !said.what.contains("se cret"),
                "{text}: {said}"
            );
        }
    }
}
