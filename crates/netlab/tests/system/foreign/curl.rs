//! The faulty servers as a grown-up client sees them. Skipped without curl.

use std::process::Command;

use swath_netlab::faulty::{Behaviour, Certificate, Content, Server, ca_pem};

/// Returns whether curl is here, and says so if not.
fn has_curl() -> bool {
    let is_here = Command::new("curl").arg("--version").output().is_ok();
    if !is_here {
        println!("skipped: curl is not installed");
    }
    is_here
}

/// Runs curl; answers its exit code and what it wrote.
fn curl(arguments: &[&str]) -> (i32, Vec<u8>) {
    let output = Command::new("curl")
        .args(["--silent", "--max-time", "90", "--noproxy", "*"])
        .args(arguments)
        .output()
        .expect("curl");
    (output.status.code().unwrap_or(-1), output.stdout)
}

fn content() -> Content {
    Content::random(11, 3_000_000)
}

fn server(behaviour: Behaviour) -> Server {
    Server::builder().file("/f", content()).behaviour(behaviour).start().unwrap()
}

#[test]
fn whole_files_ranges_and_resumption() {
    if !has_curl() {
        return;
    }
    let server = Server::builder().file("/f", content()).start().unwrap();
    let url = server.url("/f");
    assert!(curl(&[&url]) == (0, content().read(0, 3_000_000)));
    assert!(curl(&["--range", "5-9", &url]) == (0, content().read(5, 10)));
    assert!(curl(&["--range", "-9", &url]) == (0, content().read(2_999_991, 3_000_000)));
    // Two URLs on one connection.
    assert_eq!(curl(&[&url, &url]).1.len(), 6_000_000);
    assert_eq!(server.connections(), 4);
}

#[test]
fn framing_that_only_a_parser_can_undo() {
    if !has_curl() {
        return;
    }
    let whole = (0, content().read(0, 3_000_000));
    let unusual = [
        Behaviour::Chunked { chunk_bytes: 100_000 },
        Behaviour::CloseDelimited,
        Behaviour::Http10,
        Behaviour::Junk100,
    ];
    for behaviour in unusual {
        let server = server(behaviour.clone());
        assert!(curl(&[&server.url("/f")]) == whole, "{behaviour:?}");
        assert!(curl(&[&server.url("/f"), "--range", "7-8"]).1 == whole.1[7..9], "{behaviour:?}");
    }
    let server = server(Behaviour::Gzip);
    assert!(curl(&["--compressed", &server.url("/f")]) == whole);
    assert!(curl(&[&server.url("/f")]).1.starts_with(&[0x1f, 0x8b]));
}

#[test]
fn curls_own_words_for_what_went_wrong() {
    if !has_curl() {
        return;
    }
    let cases = [
        // CURLE_PARTIAL_FILE
        (Behaviour::Truncate { after_bytes: 1000 }, 18),
        // CURLE_RECV_ERROR
        (Behaviour::Drop { after_bytes: 1000, reset: true }, 56),
        // CURLE_GOT_NOTHING
        (Behaviour::Unanswered { reset: false }, 52),
        // CURLE_TOO_MANY_REDIRECTS
        (Behaviour::RedirectLoop { status: 307 }, 47),
        // CURLE_HTTP_RETURNED_ERROR
        (Behaviour::status(404), 22),
        // CURLE_UNSUPPORTED_PROTOCOL: no HTTP at all
        (Behaviour::GarbageStatus("SSH-2.0-OpenSSH".into()), 1),
    ];
    for (behaviour, code) in cases {
        let server = server(behaviour.clone());
        let arguments = ["--fail", "--location", "--max-redirs", "5", &server.url("/f")];
        assert_eq!(curl(&arguments).0, code, "{behaviour:?}");
    }
    let server = server(Behaviour::NoRanges);
    server.die();
    // CURLE_COULDNT_CONNECT
    assert_eq!(curl(&[&server.url("/f")]).0, 7);
}

#[test]
fn certificates_are_right_wrong_or_old() {
    if !has_curl() {
        return;
    }
    let ca = std::env::temp_dir().join(format!("netlab-ca-{}.pem", std::process::id()));
    std::fs::write(&ca, ca_pem().unwrap()).unwrap();
    let ca_path = ca.to_str().unwrap();
    // CURLE_PEER_FAILED_VERIFICATION
    for (certificate, code) in
        [(Certificate::Valid, 0), (Certificate::WrongName, 60), (Certificate::Expired, 60)]
    {
        let server = Server::builder().file("/f", content()).tls(certificate).start().unwrap();
        for url in [server.url("/f"), server.url_as("localhost", "/f")] {
            let (exit, body) = curl(&["--cacert", ca_path, &url]);
            assert_eq!(exit, code, "{certificate:?} {url}");
            if code == 0 {
                assert!(body == content().read(0, 3_000_000));
            }
        }
        // Without the authority nothing is right; without checks everything is.
        assert_eq!(curl(&[&server.url("/f")]).0, 60);
        assert_eq!(curl(&["--insecure", "--range", "0-9", &server.url("/f")]).1.len(), 10);
    }
    let server = Server::builder().file("/f", content()).tls(Certificate::Valid).start().unwrap();
    server.set(Behaviour::Truncate { after_bytes: 1000 });
    let (exit, body) = curl(&["--cacert", ca_path, &server.url("/f")]);
    assert!(exit == 18 || exit == 56, "{exit}");
    assert_eq!(body.len(), 1000);
    std::fs::remove_file(&ca).unwrap();
}
