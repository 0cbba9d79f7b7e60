//! `COPY`: third-party copies of single files as the WLCG has them, ordered by curl.

use std::fs;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::support::Home;
use crate::support::serve::Served;
use crate::support::trees::bytes;
use crate::support::xrootd::Xrootd;

/// A server that copies from and to others on this machine.
fn copying(home: &Home, folder: &str, more: &[&str]) -> Served {
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

fn curl(server: &Served, path: &str, fields: &[&str]) -> Command {
    let mut curl = Command::new("curl");
    let token = format!("Authorization: Bearer {}", server.token());
    curl.args(["-sk", "-X", "COPY", "-H", &token, "-w", "%{http_code}"]);
    fields.iter().for_each(|field| _ = curl.args(["-H", field]));
    curl.arg(server.at(path));
    curl
}

fn copy(server: &Served, path: &str, fields: &[&str]) -> Answer {
    let ran = curl(server, path, fields).output().expect("curl runs");
    let text = String::from_utf8(ran.stdout).unwrap();
    let (body, status) = text.split_at(text.len() - 3);
    Answer { status: status.parse().unwrap(), body: body.to_owned() }
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
    let c = copying(&home, "c", &[]);
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
    copy(&b, "x", &[&from, "TransferHeaderHost: other"]).is_refused(400, "host");
    copy(&b, "x", &[&from, "Overwrite: maybe"]).is_refused(400, "T or F");
    copy(&b, "x", &[&from, "Digest: rot13=x"]).is_refused(400, "no digest that is known");
    fs::create_dir(home.path("p")).unwrap();
    let public = home.serve(&["p", "--write", "--third-party"]);
    copy(&public, "x", &[&from]).is_failure("refused to contact 127.0.0.1");
    let plain = home.serve(&["b", "--write"]);
    copy(&plain, "x", &[&from]).is_refused(403, "--third-party");
    home.write("tokens", "a-token-for-writing-only write\na-token-for-reading-only read\n");
    let args = ["--token-file", "tokens"];
    let two = copying(&home, "t", &args);
    let mut curl = Command::new("curl");
    let reading = "Authorization: Bearer a-token-for-reading-only";
    let ran =
        curl.args(["-sk", "-X", "COPY", "-H", reading, "-H", &from]).arg(two.at("x")).output();
    assert!(String::from_utf8(ran.unwrap().stdout).unwrap().contains("reading alone"));
    for folder in ["b", "p", "t"] {
        assert_eq!(home.names_in(folder), Vec::<String>::new());
    }
}

#[test]
fn closing_the_connection_cancels_the_copy() {
    let home = Home::new();
    let a = source(&home);
    let b = copying(&home, "b", &["--limit-rate", "200k"]);
    let from = format!("Source: {}", a.at("x.h5"));
    let mut client: Child =
        curl(&b, "x.h5", &[&from]).stdout(Stdio::null()).spawn().expect("curl runs");
    let began = Instant::now();
    let is_begun = || home.names_in("b").iter().any(|name| name.contains("x.h5"));
    while !is_begun() {
        assert!(began.elapsed() < Duration::from_secs(30), "it begins");
        std::thread::sleep(Duration::from_millis(20));
    }
    client.kill().unwrap();
    client.wait().unwrap();
    // All of it would take fifteen seconds.
    std::thread::sleep(Duration::from_secs(18));
    assert_eq!(home.names_in("b"), Vec::<String>::new(), "it has gone on, or left something");
}

fn adler32(bytes: &[u8]) -> u32 {
    let (mut low, mut high) = (1_u32, 0_u32);
    for byte in bytes {
        low = (low + u32::from(*byte)) % 65_521;
        high = (high + low) % 65_521;
    }
    high << 16 | low
}

/// What XRootD answers to COPY.
fn ask_xrootd(home: &Home, xrootd: &Xrootd, path: &str, fields: &[&str]) -> String {
    let mut curl = Command::new("curl");
    curl.args(["-s", "-X", "COPY", "-H", "Credential: none", "--cacert", "ca/ca.pem"]);
    fields.iter().for_each(|field| _ = curl.args(["-H", field]));
    let ran = curl.arg(format!("{}{path}", xrootd.url)).current_dir(home.work()).output().unwrap();
    String::from_utf8(ran.stdout).unwrap()
}

#[test]
fn files_go_both_ways_between_swath_and_xrootd() {
    let home = Home::new();
    let Some(xrootd) = Xrootd::start(&home, "x") else { return };
    home.write("x/data/x.h5", bytes(1, 3_000_001));
    let tls =
        ["--third-party-ca", "ca/ca.pem", "--tls-cert", "x/host.pem", "--tls-key", "x/host.key"];
    let b = copying(&home, "b", &tls);
    let here = |path: &str| b.at(path).replace("127.0.0.1", "localhost");
    let token = format!("TransferHeaderAuthorization: Bearer {}", b.token());
    let there = |path: &str| format!("{}{path}", xrootd.url);
    copy(&b, "pulled", &[&format!("Source: {}", there("x.h5"))]).is_success();
    assert!(home.read("b/pulled") == bytes(1, 3_000_001));
    copy(&b, "pulled", &[&format!("Destination: {}", there("pushed"))]).is_success();
    assert!(home.read("x/data/pushed") == bytes(1, 3_000_001));
    let source = format!("Source: {}", here("pulled"));
    let answer = ask_xrootd(&home, &xrootd, "from-swath", &[&source, &token]);
    assert!(answer.trim_end().ends_with("success: Created"), "{answer}");
    assert!(home.read("x/data/from-swath") == bytes(1, 3_000_001));
    let destination = format!("Destination: {}", here("new/by-xrootd"));
    let folder = home.path("b/new");
    fs::create_dir(folder).unwrap();
    let answer = ask_xrootd(&home, &xrootd, "x.h5", &[&destination, &token]);
    assert!(answer.trim_end().ends_with("success: Created"), "{answer}");
    assert!(home.read("b/new/by-xrootd") == bytes(1, 3_000_001));
}
