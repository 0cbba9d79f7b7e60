//! Trust on first use, as in ssh: the user may trust a server with a self-signed certificate.
//! `known_servers` in the state folder lists trusted servers, one per line: `HOST:PORT sha-256:HEX`.
//!
//! Nothing is trusted silently, or without a terminal to ask on. A listed server with another
//! certificate is refused, unless an authority signed that one.

use std::fs::{self, File};
use std::io::{self, BufRead as _, ErrorKind, IsTerminal as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::Command;

use swath_source::{HostPattern, ServerAccess, UnknownServers};
use url::Url;

use crate::args::{Net, fingerprint};
use crate::exit::{Exit, warn};
use crate::identity::state_folder;
use crate::say;

/// The servers of a command, kept until it ends.
pub struct TrustPrompt {
    urls: Vec<Url>,
    unknown: UnknownServers,
    /// The user has chosen how to trust servers, or must not be asked.
    is_settled: bool,
}

impl TrustPrompt {
    /// Returns the servers of these places; `is_quiet` forbids questions.
    pub fn of<'p>(
        places: impl IntoIterator<Item = &'p String>,
        net: &Net,
        is_quiet: bool,
    ) -> TrustPrompt {
        let urls = places.into_iter().filter_map(|place| Url::parse(place).ok());
        TrustPrompt {
            urls: urls.filter(|url| url.scheme() == "https").collect(),
            unknown: net.unknown.clone(),
            is_settled: is_quiet || net.insecure || !net.fingerprint.is_empty(),
        }
    }

    /// After a command that ended with `exit`: warns of changed certificates, and offers to trust unknown
    /// servers. If the user trusts one, the command runs again.
    pub fn settle(self, exit: Exit) -> Exit {
        if !matches!(exit, Exit::Sources | Exit::Incomplete | Exit::Some) {
            return exit;
        }
        let known = known();
        let mut trusts = false;
        for url in &self.urls {
            let site = site(url);
            let host = url.host_str().unwrap_or_default().trim_matches(['[', ']']);
            let shown = self.unknown.all().into_iter().rev().find(|it| it.host == host);
            let Some(shown) = shown else { continue };
            // It is not known which of them has shown it.
            let is_alike = |other: &Url| other.host() == url.host() && other.port() != url.port();
            if self.urls.iter().any(is_alike) {
                continue;
            }
            let listed = known.iter().find(|it| it.servers.is_of(url));
            match listed.and_then(|it| it.fingerprint) {
                Some(listed) if listed != shown.fingerprint => changed(&site, &shown.fingerprint),
                Some(_) => {}
                None if self.is_settled || !can_ask() => {}
                None => trusts |= ask(&site, &shown.fingerprint),
            }
        }
        if trusts { again(exit) } else { exit }
    }
}

fn changed(site: &str, fingerprint: &swath_model::digest::Digest) {
    let list = path().unwrap_or_default();
    warn(&format!(
        "THE CERTIFICATE OF {site} HAS CHANGED and is not trusted. Someone may be intercepting the \
         connection, or the server has a new identity (swath serve --new-identity)."
    ));
    say::err(&format!(
        "  the new fingerprint is {fingerprint}; if the owner confirms it, remove the line of {site} from {}",
        list.display()
    ));
}

fn can_ask() -> bool {
    io::stdin().is_terminal() && io::stderr().is_terminal() && path().is_some()
}

/// Asks whether to trust a server, and saves the answer.
fn ask(site: &str, fingerprint: &swath_model::digest::Digest) -> bool {
    say::err_lines(&format!(
        "\nno authority signed the certificate of {site}; its fingerprint is\n  {fingerprint}\n\
         Compare it with the fingerprint that 'swath serve' printed."
    ));
    let _ = write!(io::stderr(), "Trust this server from now on (yes/no)? ");
    let mut answer = String::new();
    let is_read = io::stdin().lock().read_line(&mut answer).is_ok();
    if !is_read || !answer.trim().eq_ignore_ascii_case("yes") {
        return false;
    }
    match add(site, &fingerprint.to_string()) {
        Ok(path) => {
            say::err(&format!("added {site} to {}", path.display()));
            true
        }
        Err(error) => {
            warn(&format!("cannot save {site} as trusted: {error}"));
            false
        }
    }
}

/// Runs the same command again, in place of this process.
fn again(exit: Exit) -> Exit {
    let error = match std::env::current_exe() {
        Ok(program) => Command::new(program).args(std::env::args_os().skip(1)).exec(),
        Err(error) => error,
    };
    warn(&format!("cannot run the command again: {error}; please run it yourself"));
    exit
}

/// Returns the servers that the user trusts.
pub fn known() -> Vec<ServerAccess> {
    let Some(path) = path() else { return Vec::new() };
    let text = match fs::read_to_string(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == ErrorKind::NotFound => return Vec::new(),
        Err(error) => {
            warn(&format!("cannot read the servers in {}: {error}", path.display()));
            return Vec::new();
        }
    };
    let mut servers = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let line = line.split('#').next().unwrap_or_default().trim();
        if line.is_empty() {
            continue;
        }
        match server(line) {
            Some(server) => servers.push(server),
            // A bad line does not affect the others.
            None => warn(&format!(
                "{} line {}: ignored: not HOST:PORT sha-256:HEX",
                path.display(),
                number + 1
            )),
        }
    }
    servers
}

fn server(line: &str) -> Option<ServerAccess> {
    let (site, print) = line.split_once(char::is_whitespace)?;
    let url = Url::parse(&format!("https://{site}/")).ok()?;
    let is_site = url.path() == "/" && url.username().is_empty() && url.query().is_none();
    let fingerprint = Some(fingerprint(print.trim()).ok().filter(|_| is_site)?);
    Some(ServerAccess { fingerprint, ..ServerAccess::to(HostPattern::of(&url)?) })
}

fn add(site: &str, print: &str) -> io::Result<PathBuf> {
    let path = path().ok_or_else(|| io::Error::other("there is no state folder (SWATH_STATE)"))?;
    if let Some(folder) = path.parent() {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    }
    let mut file = File::options().append(true).create(true).mode(0o600).open(&path)?;
    file.write_all(format!("{site} {print}\n").as_bytes())?;
    Ok(path)
}

fn site(url: &Url) -> String {
    let host = url.host_str().unwrap_or_default();
    format!("{host}:{}", url.port_or_known_default().unwrap_or(443))
}

fn path() -> Option<PathBuf> {
    state_folder().map(|folder| folder.join("known_servers"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_servers_or_nothing() {
        let print = format!("sha-256:{}", "1f".repeat(32));
        for (site, wanted) in [("h:8470", "https://h:8470"), ("[::1]:9", "https://[::1]:9")] {
            let read = server(&format!("{site} {print}")).unwrap();
            assert!(read.servers.is_of(&Url::parse(wanted).unwrap()));
            assert!(read.fingerprint.is_some() && read.token.is_none());
        }
        for odd in ["h:8470", "h:8470 1f", "h/x sha-256:00", "u@h:1 ", "", "h:99999 sha-256:00"] {
            assert!(server(odd).is_none(), "{odd}");
        }
    }
}
