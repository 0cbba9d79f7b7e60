//! The text that a server prints when it is ready.
//!
//! On a terminal it includes a command for the other machine, with the token. In the journal of
//! systemd, which others may read, the token is omitted.

use std::io::{self, IsTerminal as _};
use std::net::IpAddr;
use std::path::Path;

use swath_serve::Server;
use url::Url;

use super::args::Serve;
use super::machine;
use super::swarm::InSwarm;
use crate::identity::Token;
use crate::{link, say};

/// Returns the text.
pub fn of(
    args: &Serve,
    server: &Server,
    host: &str,
    token: Option<&Token>,
    issuers: &[String],
    swarm: Option<&InSwarm>,
) -> String {
    let folders: Vec<String> = args.folders.iter().map(|path| path.display().to_string()).collect();
    let how = if args.write { "read and write" } else { "read-only" };
    let mut text = format!("serving {} ({how})\n", folders.join(", "));
    let urls = machine::urls(&server.addresses(), server.identity().is_some(), host);
    for url in &urls {
        text.push_str(&format!("  {url}\n"));
    }
    let fingerprint = server.identity().map(|identity| identity.fingerprint());
    if let Some(fingerprint) = &fingerprint {
        text.push_str(&format!("fingerprint  sha-256:{}\n", fingerprint.to_hex()));
    }
    if let Some(swarm) = swarm {
        text.push_str(&swarm.words(&urls));
    }
    match token {
        Some(Token { kept_at: Some(path), .. }) if is_journal() => {
            text.push_str(&format!("token        kept in {}\n", path.display()));
        }
        Some(token) => text.push_str(&format!("token        {}\n", token.secret)),
        None if args.anonymous => text.push_str("token        none needed\n"),
        None => issuers.iter().for_each(|it| text.push_str(&format!("token        of {it}\n"))),
    }
    if !io::stdout().is_terminal() {
        return text;
    }
    let Some(url) = best(&urls) else { return text };
    let secret = token.map(|token| token.secret.as_str());
    let mut command = format!("swath cp {url} {}", destination(args));
    if let Some(fingerprint) = &fingerprint {
        command.push_str(&format!(" --fingerprint {fingerprint}"));
    }
    match secret {
        Some(secret) => command.push_str(&format!(" --token {secret}")),
        None if args.anonymous => {}
        None => command.push_str(" --token TOKEN"),
    }
    text.push_str(&format!("\nto copy it, run this on the other machine:\n  {command}\n"));
    if fingerprint.is_some() {
        let link = link::link(&url, secret, fingerprint.as_ref());
        text.push_str(&format!(
            "or use this link with 'swath get', 'cp', 'ls' or 'du':\n  '{link}'\n"
        ));
        if args.qr {
            text.push_str(&code(&link));
        }
    }
    text
}

/// Returns the most widely usable address: a full name, an IP address, or the bare name.
fn best(urls: &[String]) -> Option<Url> {
    let urls: Vec<Url> = urls.iter().filter_map(|url| Url::parse(url).ok()).collect();
    let is_name = |url: &&Url| url.domain().is_some_and(|name| name.contains('.'));
    let address = |url: &Url| url.host_str()?.trim_matches(['[', ']']).parse::<IpAddr>().ok();
    let is_there = |url: &&Url| address(url).is_some_and(|ip| !ip.is_loopback());
    let is_old = |url: &&Url| address(url).is_some_and(|ip| ip.is_ipv4() && !ip.is_loopback());
    let mut found = urls.iter().find(is_name).or_else(|| urls.iter().find(is_old));
    found = found.or_else(|| urls.iter().find(is_there)).or_else(|| urls.first());
    found.cloned()
}

/// Returns the destination for the printed command: one folder keeps its name; several have theirs.
fn destination(args: &Serve) -> String {
    let [folder] = &args.served()[..] else { return "./".to_owned() };
    let own = || std::fs::canonicalize(&folder.path).ok()?.file_name().map(ToOwned::to_owned);
    match folder.name.clone().or_else(own) {
        Some(name) => say::word(Path::new(&format!("./{}/", name.to_string_lossy()))),
        None => "./".to_owned(),
    }
}

/// Whether standard output is the journal of systemd.
fn is_journal() -> bool {
    use std::os::fd::AsFd as _;
    let Ok(told) = std::env::var("JOURNAL_STREAM") else { return false };
    let own = rustix::fs::fstat(io::stdout().as_fd());
    own.is_ok_and(|it| told == format!("{}:{}", it.st_dev, it.st_ino))
}

/// Returns a QR code of half blocks, dark on light in any terminal colours.
fn code(link: &str) -> String {
    use qrcodegen::{QrCode, QrCodeEcc};
    let Ok(code) = QrCode::encode_text(link, QrCodeEcc::Low) else { return String::new() };
    let size = code.size();
    let is_light = |x: i32, y: i32| !code.get_module(x, y);
    let mut text = String::from("\n");
    let mut y = -QUIET;
    while y < size + QUIET {
        // Scanners need black on white.
        text.push_str("\x1b[30;107m");
        for x in -QUIET..size + QUIET {
            text.push(match (is_light(x, y), is_light(x, y + 1)) {
                (true, true) => ' ',
                (true, false) => '\u{2584}',
                (false, true) => '\u{2580}',
                (false, false) => '\u{2588}',
            });
        }
        text.push_str("\x1b[0m\n");
        y += 2;
    }
    text
}

/// Light border in modules: the standard has four, scanners need two.
const QUIET: i32 = 2;
