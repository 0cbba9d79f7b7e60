//! Against nginx, plain and over TLS. Skipped where nginx is not installed.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::support::driver::download;
use crate::support::{Bench, content, options};
use swath_model::{Pool, Range};
use swath_netlab::reserve_port;
use swath_source::{HttpSource, Net, NetOptions, Trust, probe};
use url::Url;

/// A running nginx with a folder of its own.
struct Nginx {
    folder: tempfile::TempDir,
    child: Child,
    plain: u16,
    tls: u16,
}

impl Drop for Nginx {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// nginx serving `files`; `None` if there is none.
fn nginx(files: &[(&str, Vec<u8>)], extra: &str) -> Option<Nginx> {
    let binary = ["/usr/sbin/nginx", "/usr/local/sbin/nginx", "/usr/bin/nginx"]
        .into_iter()
        .find(|path| Path::new(path).exists());
    let Some(binary) = binary else {
        println!("skipped: nginx is not installed");
        return None;
    };
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).display().to_string();
    std::fs::create_dir(at("www")).unwrap();
    for (name, data) in files {
        std::fs::write(folder.path().join("www").join(name), data).unwrap();
    }
    certificates(folder.path());
    let (plain, tls) = (reserve_port(), reserve_port());
    let temporary: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .map(|kind| format!("{kind}_temp_path {};\n", at(kind)))
        .concat();
    let user = if std::fs::metadata("/root")
        .is_ok_and(|_| std::env::var("HOME").as_deref() == Ok("/root"))
    {
        "user root;"
    } else {
        ""
    };
    let config = format!(
        "daemon off; master_process off; {user} pid {}; error_log {} warn;
         events {{ worker_connections 128; }}
         http {{ access_log off; sendfile on; {temporary}
           server {{ listen 127.0.0.1:{plain}; root {}; {extra} }}
           server {{ listen 127.0.0.1:{tls} ssl http2; root {};
             ssl_certificate {}; ssl_certificate_key {}; }} }}",
        at("pid"),
        at("error.log"),
        at("www"),
        at("www"),
        at("cert.pem"),
        at("key.pem"),
    );
    std::fs::write(at("nginx.conf"), config).unwrap();
    let child = Command::new(binary)
        .args(["-c", &at("nginx.conf"), "-e", &at("error.log"), "-p", &at("")])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let server = Nginx { folder, child, plain, tls };
    for _ in 0..1800 {
        if std::net::TcpStream::connect(("127.0.0.1", tls)).is_ok() {
            return Some(server);
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    let log = std::fs::read_to_string(server.folder.path().join("error.log")).unwrap_or_default();
    panic!("nginx does not start: {log}");
}

/// An authority and a certificate for localhost signed by it.
fn certificates(folder: &Path) {
    use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
    let ca_key = KeyPair::generate().unwrap();
    let mut ca = CertificateParams::new(Vec::<String>::new()).unwrap();
    ca.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let ca_certificate = ca.self_signed(&ca_key).unwrap();
    let key = KeyPair::generate().unwrap();
    let leaf =
        CertificateParams::new(vec!["localhost".to_owned(), "127.0.0.1".to_owned()]).unwrap();
    let leaf = leaf.signed_by(&key, &Issuer::new(ca, ca_key)).unwrap();
    std::fs::write(folder.join("ca.pem"), ca_certificate.pem()).unwrap();
    std::fs::write(folder.join("cert.pem"), leaf.pem()).unwrap();
    std::fs::write(folder.join("key.pem"), key.serialize_pem()).unwrap();
}

const SIZE: u64 = 700_001;

#[tokio::test]
async fn files_arrive_plain_and_over_tls_by_both_kinds_of_lane() {
    let files = [
        ("f.bin", content(Range::new(0, SIZE))),
        ("empty.bin", vec![]),
        ("one.bin", content(Range::new(0, 1))),
    ];
    let Some(server) = nginx(&files, "") else { return };
    let ca_files = vec![server.folder.path().join("ca.pem")];
    for fallback_only in [false, true] {
        let net = Net::new(NetOptions { ca_files: ca_files.clone(), fallback_only, ..options() })
            .unwrap();
        for base in [
            format!("http://127.0.0.1:{}", server.plain),
            format!("https://localhost:{}", server.tls),
        ] {
            for (name, data) in &files {
                let url = Url::parse(&format!("{base}/{name}")).unwrap();
                let outcome = download(&HttpSource::new(&net, url, Trust::Named)).await;
                assert!(outcome.is(data), "{base}/{name}: {:?}", outcome.errors);
                assert_eq!(outcome.facts[0].size_bytes, Some(data.len() as u64));
            }
        }
    }
}

#[tokio::test]
async fn connection_limits_are_honoured() {
    let files = [("f.bin", content(Range::new(0, SIZE)))];
    let Some(server) = nginx(&files, "keepalive_requests 3;") else { return };
    let net = Net::new(options()).unwrap();
    let url = Url::parse(&format!("http://127.0.0.1:{}/f.bin", server.plain)).unwrap();
    let outcome = download(&HttpSource::new(&net, url, Trust::Named)).await;
    assert!(outcome.is(&files[0].1) && outcome.errors.is_empty(), "{:?}", outcome.errors);
}

#[tokio::test]
async fn many_swaths_at_once_over_tls() {
    let files = [("f.bin", content(Range::new(0, SIZE)))];
    let Some(server) = nginx(&files, "") else { return };
    let ca_files = vec![server.folder.path().join("ca.pem")];
    let net = Net::new(NetOptions { ca_files, ..options() }).unwrap();
    let url = Url::parse(&format!("https://localhost:{}/f.bin", server.tls)).unwrap();
    let mut bench = Bench::on(HttpSource::new(&net, url, Trust::Named), Pool::new(3, 8192));
    for number in 0..30 {
        bench.fetch(number, number * 20_000, (number + 1) * 20_000);
    }
    let story = bench.settled(30).await;
    for number in 0..30 {
        assert!(
            story.delivered(number, Range::new(number * 20_000, (number + 1) * 20_000)),
            "swath {number}"
        );
    }
}

#[tokio::test]
async fn a_probe_sees_http_2() {
    let Some(server) = nginx(&[("f.bin", vec![7; 1000])], "") else { return };
    let ca_files = vec![server.folder.path().join("ca.pem")];
    let net = Net::new(NetOptions { ca_files, ..options() }).unwrap();
    let url = Url::parse(&format!("https://localhost:{}/f.bin", server.tls)).unwrap();
    let report = probe(&net, &url, Trust::Named).await.unwrap();
    assert_eq!(report.http, ["HTTP/2", "HTTP/1.1"]);
    assert_eq!(
        (report.facts.size_bytes, report.facts.ranges, report.pipelines),
        (Some(1000), true, Some(true))
    );
    assert!(report.facts.server.unwrap().starts_with("nginx"));
}
