//! Trust on first use, as ssh has it: a server whose certificate no authority vouches for is shown to the
//! user, who may trust it from then on. `known_servers` in the state folder lists those servers, one a
//! line: `HOST:PORT sha-256:HEX`.
//!
//! Nothing is ever trusted silently, or where there is no terminal to ask on. A listed server that shows
//! another certificate is refused, unless an authority vouches for that one.

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

/// What a command was about, kept until it has ended.
pub struct Asked {
    urls: Vec<Url>,
    unknown: UnknownServers,
    /// The user has said by what servers are known, or cannot be asked.
    is_settled: bool,
}

impl Asked {
    /// Of a command for these places; `is_quiet` where nothing but its result may be printed.
    pub fn of<'p>(
        places: impl IntoIterator<Item = &'p String>,
        net: &Net,
        is_quiet: bool,
    ) -> Asked {
        let urls = places.into_iter().filter_map(|place| Url::parse(place).ok());
        Asked {
            urls: urls.filter(|url| url.scheme() == "https").collect(),
            unknown: net.unknown.clone(),
            is_settled: is_quiet || net.insecure || !net.fingerprint.is_empty(),
        }
    }

    /// After a command that ended with `exit`: says loudly which known servers have another
    /// certificate, and offers to trust unknown ones. If the user trusts one, the command begins again.
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
        "THE CERTIFICATE OF {site} HAS CHANGED: it is not the one that was trusted. Somebody may be \
         listening in, or the server was given a new identity (swath serve --new-identity)."
    ));
    say::err(&format!(
        "  it shows {fingerprint} now; if its owner confirms that, remove the line of {site} from {}",
        list.display()
    ));
}

fn can_ask() -> bool {
    io::stdin().is_terminal() && io::stderr().is_terminal() && path().is_some()
}

/// Asks whether to trust a server, and writes down that it is.
fn ask(site: &str, fingerprint: &swath_model::digest::Digest) -> bool {
    say::err_lines(&format!(
        "\nno authority vouches for the certificate of {site}; its fingerprint is\n  {fingerprint}\n\
         Compare it with the one that 'swath serve' has printed there."
    ));
    let _ = write!(io::stderr(), "Trust this server from now on (yes/no)? ");
    let mut answer = String::new();
    let is_read = io::stdin().lock().read_line(&mut answer).is_ok();
    if !is_read || !answer.trim().eq_ignore_ascii_case("yes") {
        return false;
    }
    match add(site, &fingerprint.to_string()) {
        Ok(path) => {
            say::err(&format!("{site} is listed in {}", path.display()));
            true
        }
        Err(error) => {
            warn(&format!("{site} cannot be listed as trusted: {error}"));
            false
        }
    }
}

/// Runs the same command once more, in place of this process.
fn again(exit: Exit) -> Exit {
    let error = match std::env::current_exe() {
        Ok(program) => Command::new(program).args(std::env::args_os().skip(1)).exec(),
        Err(error) => error,
    };
    warn(&format!("now the same command works, but it could not be started again: {error}"));
    exit
}

/// Returns the servers that the user trusts.
pub fn known() -> Vec<ServerAccess> {
    let Some(path) = path() else { return Vec::new() };
    let text = match fs::read_to_string(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == ErrorKind::NotFound => return Vec::new(),
        Err(error) => {
            warn(&format!("the servers in {} cannot be read: {error}", path.display()));
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
            // One bad line spoils only itself.
            None => warn(&format!(
                "{} line {}: this is no server (HOST:PORT sha-256:HEX), and is not used",
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
    let path = path().ok_or_else(|| io::Error::other("nothing may be remembered (SWATH_STATE)"))?;
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
