//! Who fetches: swath over routes of its own choice or over a given one, and others.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::relay::RelayKind;
use crate::machine::find_program;

/// A client with its settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Client {
    /// swath without relays.
    Direct,
    /// swath over the widest route, which it is told.
    Widest,
    /// swath that chooses, and knows nothing at first.
    Cold,
    /// swath that chooses, and remembers an earlier transfer.
    Warm,
    /// swath that chooses, and remembers wrong rates only.
    BadMemory,
    /// swath over one route at a time beside direct, which remembers wrong rates only.
    BadMemoryOne,
    /// swath over several routes at once, which remembers an earlier transfer.
    Multi,
    /// swath over several routes at once, which knows nothing at first.
    MultiCold,
    /// curl from the source.
    Curl,
    /// curl through swath's relays of the widest route, all in one URL.
    CurlChain,
    /// curl through nginx at each site of the widest route.
    NginxChain,
}

/// What a client finds before it starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Memory {
    /// Nothing.
    None,
    /// What an earlier transfer has learnt.
    Right,
    /// The same edges with other edges' rates.
    Wrong,
}

/// What there is to fetch, and what to call relays.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// At the source.
    pub url: &'a str,
    /// `http://ADDRESS:PORT` of every relay.
    pub relays: &'a [String],
    /// Those of the widest route, from the receiver toward the source.
    pub widest: &'a [String],
    /// The folder for the file.
    pub folder: &'a Path,
    /// Name of the file in it.
    pub file: &'a str,
}

impl Client {
    /// Every client, in the order of tables.
    pub const ALL: [Client; 11] = [
        Client::Direct,
        Client::Widest,
        Client::Cold,
        Client::Warm,
        Client::BadMemory,
        Client::BadMemoryOne,
        Client::Multi,
        Client::MultiCold,
        Client::Curl,
        Client::CurlChain,
        Client::NginxChain,
    ];

    /// Name on the command line, in tables and pictures.
    pub fn name(self) -> &'static str {
        match self {
            Client::Direct => "direct",
            Client::Widest => "widest",
            Client::Cold => "cold",
            Client::Warm => "warm",
            Client::BadMemory => "bad-memory",
            Client::BadMemoryOne => "bad-memory-one",
            Client::Multi => "multi",
            Client::MultiCold => "multi-cold",
            Client::Curl => "curl",
            Client::CurlChain => "curl-chain",
            Client::NginxChain => "nginx-chain",
        }
    }

    /// The client of this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|client| client.name() == name)
    }

    /// What it remembers.
    pub fn memory(self) -> Memory {
        match self {
            Client::Warm | Client::Multi => Memory::Right,
            Client::BadMemory | Client::BadMemoryOne => Memory::Wrong,
            _ => Memory::None,
        }
    }

    /// The relays that take part.
    pub fn relay(self) -> Option<RelayKind> {
        match self {
            Client::Direct | Client::Curl => None,
            Client::NginxChain => Some(RelayKind::Nginx),
            _ => Some(RelayKind::Swath { cache: false }),
        }
    }

    /// Whether it is the client that decides by which ways it fetches.
    pub fn chooses(self) -> bool {
        !matches!(self.relay(), None | Some(RelayKind::Nginx))
            && !matches!(self, Client::Widest | Client::CurlChain)
    }

    /// The program, if it is there.
    pub fn program(self, swath: &Path) -> Option<PathBuf> {
        match self {
            Client::Curl | Client::CurlChain | Client::NginxChain => find_program("curl"),
            _ => Some(swath.to_owned()).filter(|path| path.is_file()),
        }
    }

    /// The call.
    pub fn command(self, program: &Path, request: &Request<'_>) -> Command {
        let Request { url, relays, widest, folder, file } = *request;
        let mut command = Command::new(program);
        match self {
            Client::Curl | Client::CurlChain | Client::NginxChain => {
                let through = if self == Client::Curl { &[] } else { widest };
                command.args(["-q", "-s", "-f", "-o"]).arg(folder.join(file));
                command.arg(chain(through, url));
                return command;
            }
            _ => command.args(["get", url]),
        };
        if self != Client::Direct {
            command.args(relays.iter().flat_map(|relay| ["--relay", relay]));
        }
        match self {
            Client::Direct => {}
            Client::Widest => {
                let route = if widest.is_empty() { "direct".to_owned() } else { widest.join(",") };
                command.args(["--route", &route]);
            }
            Client::BadMemoryOne => {
                command.args(["--route", "widest"]);
            }
            Client::Multi | Client::MultiCold => {
                command.args(["--route", "multi"]);
            }
            _ => {
                command.args(["--route", "auto"]);
            }
        }
        command.arg("-d").arg(folder).args(["-o", file, "--overwrite", "--json"]);
        command
    }
}

/// A URL that leads through relays, from the receiver toward the source: each strips its own part.
pub fn chain(relays: &[String], url: &str) -> String {
    let mut whole = String::new();
    for relay in relays {
        whole.push_str(relay);
        whole.push_str("/relay/");
    }
    whole + url
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tool::as_typed;

    #[test]
    fn names_are_unique_and_found() {
        for client in Client::ALL {
            assert_eq!(Client::named(client.name()), Some(client));
        }
        assert_eq!(Client::named("wget"), None);
    }

    #[test]
    fn every_client_is_called_with_its_routes() {
        let relays = ["http://1:8471".to_owned(), "http://2:8471".to_owned()];
        let request = Request {
            url: "http://s/f",
            relays: &relays,
            widest: &relays[1..],
            folder: Path::new("/out"),
            file: "f",
        };
        let typed = |client: Client| as_typed(&client.command(Path::new("/bin/x"), &request));
        let end = "-d /out -o f --overwrite --json";
        let all = "--relay http://1:8471 --relay http://2:8471";
        assert_eq!(typed(Client::Direct), format!("x get http://s/f {end}"));
        assert_eq!(typed(Client::Cold), format!("x get http://s/f {all} --route auto {end}"));
        assert_eq!(typed(Client::Multi), format!("x get http://s/f {all} --route multi {end}"));
        let fixed = format!("x get http://s/f {all} --route http://2:8471 {end}");
        assert_eq!(typed(Client::Widest), fixed);
        assert_eq!(typed(Client::Curl), "x -q -s -f -o /out/f http://s/f");
        let through = "x -q -s -f -o /out/f http://2:8471/relay/http://s/f";
        assert_eq!(typed(Client::CurlChain), through);
    }
}
