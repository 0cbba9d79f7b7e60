//! Servers for tests of the program, and what to hold its files against.

use swath_netlab::faulty::{Algorithm, Behaviour, Builder, Content, Server};

use super::Home;

/// The path that most servers here serve.
pub const FILE: &str = "/data.bin";

/// An honest server of `content` at [`FILE`].
pub fn honest(content: &Content) -> Server {
    building(content).start().unwrap()
}

/// A server of `content` at [`FILE`] with one rule.
pub fn server(content: &Content, rule: impl Into<swath_netlab::faulty::Rule>) -> Server {
    building(content).behaviour(rule).start().unwrap()
}

/// A server of `content` at [`FILE`] that sends so many bytes a second.
pub fn slow(content: &Content, bytes_per_s: u64) -> Server {
    server(content, Behaviour::rate(bytes_per_s))
}

pub fn building(content: &Content) -> Builder {
    Server::builder().file(FILE, content.clone())
}

/// The URL of [`FILE`].
pub fn url(server: &Server) -> String {
    server.url(FILE)
}

/// `--digest` of the content.
pub fn sha256(content: &Content) -> String {
    format!("sha-256:{}", content.digest_hex(Algorithm::Sha256))
}

impl Home {
    /// The file must hold exactly this, and nothing else must lie beside it.
    #[track_caller]
    pub fn holds_only(&self, name: &str, content: &Content) {
        assert_eq!(self.names(), [name]);
        self.holds(name, content);
    }

    /// The file must hold exactly this.
    #[track_caller]
    pub fn holds(&self, name: &str, content: &Content) {
        let bytes = self.read(name);
        assert_eq!(bytes.len() as u64, content.size_bytes(), "size of {name}");
        let wanted = content.read(0, content.size_bytes());
        if let Some(at) = (0..bytes.len()).find(|&at| bytes[at] != wanted[at]) {
            panic!("{name} differs from byte {at} on");
        }
    }

    /// There must be no file of this name; what is kept for later has another one.
    #[track_caller]
    pub fn lacks(&self, name: &str) {
        assert!(!self.exists(name), "{name} must not be there: {:?}", self.names());
    }
}
