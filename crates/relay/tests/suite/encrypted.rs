//! A relay that encrypts: the same as without, where the kernel cannot move bytes by itself.

use std::io::Write as _;
use std::net::TcpStream;
use std::sync::Arc;

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use swath_netlab::faulty::Content;
use swath_relay::RelayOptions;
use swath_serve::{Identity, Tls};

use crate::support::{
    FILE, Relay, Told, caching, connect, head_of, honest, lending, options, to_end, told, until,
    url, whole,
};

type Stream = StreamOwned<ClientConnection, TcpStream>;

/// A relay with a certificate for 127.0.0.1, and who trusts it.
struct Encrypted {
    relay: Relay,
    trust: Arc<ClientConfig>,
}

impl Encrypted {
    fn start(options: RelayOptions) -> Encrypted {
        let pem = Identity::make_pem(vec!["127.0.0.1".to_owned()]).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("relay.pem");
        std::fs::write(&file, &pem).unwrap();
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(pem.as_bytes()).unwrap()).unwrap();
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let trust =
            ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        let trust = trust.unwrap().with_root_certificates(roots).with_no_client_auth();
        let tls = Tls::Files { certificates: file.clone(), key: file };
        let relay = Relay::with(options, tls, 1000);
        Encrypted { relay, trust: Arc::new(trust) }
    }

    fn connect(&self) -> Stream {
        let name = ServerName::try_from("127.0.0.1").unwrap();
        let client = ClientConnection::new(Arc::clone(&self.trust), name).unwrap();
        StreamOwned::new(client, connect(self.relay.address))
    }

    fn ask(&self, method: &str, target: &str, fields: &str, body: &[u8]) -> Told {
        let length = match method {
            "PUT" => format!("Content-Length: {}\r\n", body.len()),
            _ => String::new(),
        };
        let head = format!("{method} {target} HTTP/1.0\r\nHost: r\r\n{length}{fields}\r\n");
        told(self.connect(), &[head.as_bytes(), body].concat())
    }

    fn get(&self, url: &str) -> Told {
        self.ask("GET", &format!("/relay/{url}"), "", b"")
    }
}

#[test]
fn what_is_passed_on_is_the_same_encrypted() {
    let content = Content::random(1, 1_000_003);
    let origin = honest(&content);
    let relay = Encrypted::start(options());
    assert!(relay.get(&url(&origin)).is(200).body == whole(&content));
    let part = relay.ask("GET", &format!("/relay/{}", url(&origin)), "Range: bytes=5-9\r\n", b"");
    assert!(part.is(206).body == content.read(5, 10));
}

#[test]
fn what_is_kept_is_the_same_encrypted() {
    let folder = tempfile::tempdir().unwrap();
    let content = Content::random(1, 1_000_003);
    let origin = honest(&content);
    let relay = Encrypted::start(caching(folder.path()));
    for _ in 0..2 {
        assert!(relay.get(&url(&origin)).is(200).body == whole(&content));
    }
    assert_eq!(origin.log().sent_bytes(FILE), content.size_bytes());
}

#[test]
fn what_is_stored_is_the_same_encrypted() {
    let content = Content::random(1, 1_000_003);
    let relay = Encrypted::start(lending(4 << 20));
    let made = relay.ask("POST", "/depot?size=1000003&lease=600", "", b"").is(201).json();
    let path = |name: &str| made[name].as_str().unwrap().to_owned();
    relay.ask("PUT", &path("write"), "", &whole(&content)).is(204);
    assert!(relay.ask("GET", &path("read"), "", b"").is(200).body == whole(&content));
}

#[test]
fn a_tunnel_through_an_encrypted_connection_is_noted_with_its_bytes() {
    // Ends of encrypted connections are often errors, and then it noted 0 bytes.
    let content = Content::random(1, 300_000);
    let origin = honest(&content);
    let relay = Encrypted::start(options());
    let mut stream = relay.connect();
    let end = origin.address();
    write!(stream, "CONNECT {end} HTTP/1.1\r\nHost: {end}\r\n\r\n").unwrap();
    assert!(head_of(&mut stream).unwrap().starts_with("HTTP/1.1 200 "));
    write!(stream, "GET {FILE} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").unwrap();
    assert!(to_end(&mut stream).ends_with(&whole(&content)));
    // Without a word of TLS.
    drop(stream.sock);
    until("it is noted", || !relay.relay.noted().is_empty());
    let noted = &relay.relay.noted()[0];
    assert!(noted.method == "CONNECT" && noted.bytes > 300_000, "{noted:?}");
}

#[test]
fn whoever_does_not_encrypt_is_told_that_this_relay_does() {
    let origin = honest(&Content::random(1, 1000));
    let relay = Encrypted::start(options()).relay;
    let told = relay.get(&url(&origin), "");
    assert!((300..500).contains(&told.status), "{told:?}");
    assert!(
        told.head.contains("https://") || told.text().to_lowercase().contains("https"),
        "{told:?}"
    );
    assert!(origin.log().is_empty());
}
