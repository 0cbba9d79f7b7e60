//! `COPY`: third-party copies of single files as the WLCG has them, with XRootD at the other end, ordered
//! by curl.

use std::fs;
use std::process::Command;

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
