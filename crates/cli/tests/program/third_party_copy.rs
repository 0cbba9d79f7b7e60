//! `COPY`: third-party copies of single files as the WLCG has them.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use crate::support::Home;
use crate::support::serve::Served;
use crate::support::trees::bytes;
use crate::third_party_servers::until;

/// A server that copies from and to others on this machine, without encryption.
fn copying(home: &Home, folder: &str, more: &[&str]) -> Served {
    let plain = [more, &["--plain"]].concat();
    encrypting(home, folder, &plain)
}

/// A server that copies from and to others on this machine.
fn encrypting(home: &Home, folder: &str, more: &[&str]) -> Served {
    fs::create_dir_all(home.path(folder)).unwrap();
    let args = [folder, "--write", "--third-party", "--third-party-from", "127.0.0.0/8"];
    home.serve(&[&args[..], more].concat())
}

fn source(home: &Home) -> Served {
    home.write("a/x.h5", bytes(1, 3_000_001));
    home.serve(&["a", "--anonymous", "--plain"])
}

/// What a server answers to COPY: the status, and the body.
struct Answer {
    status: u16,
    body: String,
}

fn authorized(token: &str, fields: &[&str]) -> String {
    let token = format!("Authorization: Bearer {token}");
    [&[token.as_str()], fields].concat().iter().map(|field| format!("{field}\r\n")).collect()
}

fn copy(server: &Served, path: &str, fields: &[&str]) -> Answer {
    let told = server.ask("COPY", &format!("/{path}"), &authorized(server.token(), fields), b"");
    Answer { status: told.status, body: told.text() }
}

impl Answer {
    #[track_caller]
    fn is_success(&self) {
        assert_eq!(self.status, 202, "{}", self.body);
        // Markers at the beginning and at the end, also of what takes no time.
        assert!(self.body.matches("Perf Marker\nTimestamp: ").count() >= 2, "{}", self.body);
        assert_eq!(self.body.lines().last(), Some("success: Created"), "{}", self.body);
    }

    #[track_caller]
    fn is_failure(&self, words: &str) {
        assert_eq!(self.status, 202, "{}", self.body);
        let last = self.body.lines().last().unwrap();
        assert!(last.starts_with("failure: ") && last.contains(words), "{last}");
    }

    #[track_caller]
    fn is_refused(&self, status: u16, words: &str) {
        assert_eq!(self.status, status, "{}", self.body);
        assert!(self.body.contains(words), "{}", self.body);
    }
}

#[test]
fn a_file_is_pulled_and_verified() {
    let home = Home::new();
    let a = source(&home);
    let b = copying(&home, "b", &[]);
    let from = format!("Source: {}", a.at("x.h5"));
    let pulled = copy(&b, "new/x.h5", &[&from]);
    pulled.is_success();
    assert!(pulled.body.contains("Stripe Bytes Transferred: 3000001\n"), "{}", pulled.body);
    let source = a.url.split('/').nth(2).unwrap();
    let remote = format!("RemoteConnections: tcp:{source}\nEnd\n");
    assert!(pulled.body.contains(&remote), "{}", pulled.body);
    assert!(home.read("b/new/x.h5") == bytes(1, 3_000_001));
    home.write("b/other", "another file");
    copy(&b, "other", &[&from, "Overwrite: F"]).is_refused(412, "a file of this name is there");
    assert_eq!(home.read("b/other"), b"another file");
    copy(&b, "other", &[&from, "Overwrite: T"]).is_success();
    assert!(home.read("b/other") == bytes(1, 3_000_001));
    // The digest that the client knows decides.
    let right = format!("Digest: adler32={:08x}", adler32(&bytes(1, 3_000_001)));
    copy(&b, "checked", &[&from, &right]).is_success();
    copy(&b, "wrong", &[&from, "Digest: adler32=00000001"]).is_failure("digest");
    assert!(!home.exists("b/wrong"), "no wrong byte under a final name");
    copy(&b, "none", &[&format!("Source: {}", a.at("none"))]).is_failure("404");
    assert!(!home.exists("b/none"), "not even an empty file");
    assert_eq!(home.names_in("b"), ["checked", "new", "other"], "nothing is left");
}

#[test]
fn a_file_is_pushed_with_the_token_for_the_other_server() {
    let home = Home::new();
    let c = encrypting(&home, "c", &[]);
    let authority = home.path("../home/.local/state/swath/serve/identity.pem");
    let b = copying(&home, "b", &["--third-party-ca", authority.to_str().unwrap()]);
    home.write("b/x.h5", bytes(1, 3_000_001));
    let to = format!("Destination: {}", c.at("y.h5").replace("127.0.0.1", "localhost"));
    let token = format!("TransferHeaderAuthorization: Bearer {}", c.token());
    copy(&b, "x.h5", &[&to, &token]).is_success();
    assert!(home.read("c/y.h5") == bytes(1, 3_000_001));
    // Neither size and time nor anything else makes it keep what is there.
    home.write("b/x.h5", bytes(2, 3_000_001));
    let time = home.path("c/y.h5").metadata().unwrap().modified().unwrap();
    let changed = std::fs::File::options().write(true).open(home.path("b/x.h5")).unwrap();
    changed.set_modified(time).unwrap();
    copy(&b, "x.h5", &[&to, &token, "Overwrite: F"]).is_failure("412");
    assert!(home.read("c/y.h5") == bytes(1, 3_000_001));
    copy(&b, "x.h5", &[&to, &token]).is_success();
    assert!(home.read("c/y.h5") == bytes(2, 3_000_001));
    copy(&b, "x.h5", &[&to]).is_failure("401");
    copy(&b, "x.h5", &[&to, &token, "Digest: adler32=00000001"]).is_failure("another adler32");
    copy(&b, "none", &[&to, &token]).is_refused(404, "nothing");
    std::os::unix::fs::symlink("/etc/passwd", home.path("b/link")).unwrap();
    assert_ne!(copy(&b, "link", &[&to, &token]).status, 202);
}

#[test]
fn what_must_not_be_is_refused() {
    let home = Home::new();
    let a = source(&home);
    let from = format!("Source: {}", a.at("x.h5"));
    let b = copying(&home, "b", &[]);
    copy(&b, "x", &[]).is_refused(400, "one of Source and Destination");
    copy(&b, "x", &[&from, &from]).is_refused(400, "once");
    copy(&b, "x", &[&from, "Destination: https://c.example/"]).is_refused(400, "one of");
    copy(&b, "x/", &[&from]).is_refused(409, "a file needs a name");
    copy(&b, "x", &["Source: ftp://a.example/x"]).is_refused(400, "ftp");
    let token = "TransferHeaderAuthorization: Bearer secret";
    copy(&b, "x", &[&from, token]).is_refused(400, "not sent without encryption");
    for name in ["Cookie", "X-Api-Key", "Proxy-Authorization", "x-amz-security-token"] {
        let secret = format!("TransferHeader{name}: secret");
        copy(&b, "x", &[&from, &secret]).is_refused(400, "may hold a secret");
    }
    copy(&b, "x", &[&from, "TransferHeaderHost: other"]).is_refused(400, "host");
    copy(&b, "x", &[&from, "Overwrite: maybe"]).is_refused(400, "T or F");
    copy(&b, "x", &[&from, "Digest: rot13=x"]).is_refused(400, "no digest that is known");
    fs::create_dir(home.path("p")).unwrap();
    let public = home.serve(&["p", "--write", "--third-party", "--plain"]);
    copy(&public, "x", &[&from]).is_failure("refused to contact 127.0.0.1");
    let plain = home.serve(&["b", "--write", "--plain"]);
    copy(&plain, "x", &[&from]).is_refused(403, "--third-party");
    home.write("tokens", "a-token-for-writing-only write\na-token-for-reading-only read\n");
    let args = ["--token-file", "tokens"];
    let two = copying(&home, "t", &args);
    let reading = authorized("a-token-for-reading-only", &[&from]);
    let told = two.ask("COPY", "/x", &reading, b"").text();
    assert!(told.contains("reading alone"), "{told}");
    for folder in ["b", "p", "t"] {
        assert_eq!(home.names_in(folder), Vec::<String>::new());
    }
}

#[test]
fn closing_the_connection_cancels_the_copy() {
    let home = Home::new();
    let a = source(&home);
    // All of it would take five minutes.
    let b = copying(&home, "b", &["--limit-rate", "10k"]);
    let from = format!("Source: {}", a.at("x.h5"));
    let mut client = TcpStream::connect(b.address()).unwrap();
    let fields = authorized(b.token(), &[&from]);
    write!(client, "COPY /x.h5 HTTP/1.1\r\nHost: a\r\n{fields}\r\n").unwrap();
    let mut start = [0; 12];
    client.read_exact(&mut start).unwrap();
    assert_eq!(&start, b"HTTP/1.1 202");
    let is_begun = || home.names_in("b").iter().any(|name| name.contains("x.h5"));
    until("it begins", is_begun);
    drop(client);
    until("nothing is left of it", || home.names_in("b").is_empty());
}

fn adler32(bytes: &[u8]) -> u32 {
    let (mut low, mut high) = (1_u32, 0_u32);
    for byte in bytes {
        low = (low + u32::from(*byte)) % 65_521;
        high = (high + low) % 65_521;
    }
    high << 16 | low
}
