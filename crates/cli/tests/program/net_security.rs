//! What must never happen: a secret shown or sent to others, an unprotected detour, a certificate
//! taken on trust.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use swath_netlab::reserve_port;

use crate::support::Home;
use crate::support::net::{FILE, building, honest, server, sha256, url};
use swath_netlab::faulty::{
    Algorithm, Behaviour, Certificate, Content, Log, MetalinkFile, Server, ca_pem, metalink,
    self_signed_pem,
};

const SECRET: &str = "s3cr3t-hush";

fn content() -> Content {
    Content::random(1, 1_000_003)
}

fn secure(certificate: Certificate) -> Server {
    building(&content()).tls(certificate).start().unwrap()
}

#[test]
fn certificates_that_cannot_be_trusted_are_refused() {
    let home = Home::new();
    let ca = home.write("../ca.pem", ca_pem().unwrap());
    let ca = ca.to_str().unwrap();
    for certificate in [Certificate::Valid, Certificate::WrongName, Certificate::Expired] {
        let server = secure(certificate);
        home.run(["get", &url(&server)]).code_is(7).says(&[
            "no secure connection",
            &url(&server),
            "--insecure accepts any certificate",
        ]);
        assert!(home.names().is_empty(), "{:?}", home.names());
        let ran = home.run(["get", &url(&server), "--ca", ca]);
        match certificate {
            Certificate::Valid => {
                let unknown = home.run(["get", &url(&server), "--overwrite"]);
                unknown.code_is(7).says(&["no authority known here", "--ca FILE trusts"]);
                ran.code_is(0)
            }
            Certificate::WrongName => {
                ran.code_is(7).says(&["not trusted: it is for wrong.example"])
            }
            _ => ran.code_is(7).says(&["not trusted: it has expired", "days ago"]),
        };
        home.run(["get", &url(&server), "--insecure", "--overwrite"]).code_is(0);
        home.holds_only("data.bin", &content());
        std::fs::remove_file(home.path("data.bin")).unwrap();
    }
    home.run(["get", "https://127.0.0.1:1/x", "--ca", "/no/such.pem"])
        .code_is(6)
        .says(&["/no/such.pem"]);
}

#[test]
fn a_self_signed_certificate_is_trusted_where_it_was_given() {
    let home = Home::new();
    let other = home.write("../other.pem", ca_pem().unwrap());
    let own = home.write("../own.pem", self_signed_pem().unwrap());
    let server = secure(Certificate::SelfSigned);
    let with = |ca: &std::path::Path, address: &str| {
        home.run(["get", address, "--overwrite", "--ca", ca.to_str().unwrap()])
    };
    let named = server.url_as("localhost", FILE);
    with(&own, &named).code_is(0);
    home.holds_only("data.bin", &content());
    with(&other, &named).code_is(7).says(&["its certificate is not trusted"]);
    // It is trusted for what it says it is, not for everybody.
    with(&own, &url(&server))
        .code_is(7)
        .says(&["its certificate is not trusted: it is for localhost"]);
    with(&own, &url(&secure(Certificate::Valid))).code_is(7).says(&["no authority known here"]);
}

#[test]
fn a_given_fingerprint_always_counts() {
    let home = Home::new();
    let server = secure(Certificate::Valid);
    let other = format!("sha-256:{}", "1f".repeat(32));
    let ran = home.run(["get", &url(&server), "--fingerprint", &other]);
    ran.code_is(7)
        .says(&["not the one given: it is another server"])
        .never_says(&["--insecure", "--ca"]);
    let both = home.run(["get", &url(&server), "--fingerprint", &other, "--insecure"]);
    both.code_is(2).says(&["--insecure", "cannot be used with", "--fingerprint"]);
    // Of one server it may be given in the configuration.
    let site = server.url("").trim_end_matches('/').to_owned();
    home.write("c.toml", format!("[hosts.\"{site}\"]\nfingerprint = \"{other}\"\n"));
    let key = format!("X-Key: {SECRET}");
    let get = ["get", &url(&server), "--insecure", "--header", &key];
    let ran = home.swath(get).env("SWATH_CONFIG", home.path("c.toml")).run();
    ran.code_is(7).says(&["it is another server"]).never_says(&["--insecure"]);
    assert!(server.log().records.is_empty(), "it was asked for nothing");
}

#[test]
fn a_server_without_tls_is_told_so() {
    let home = Home::new();
    // As nginx and Apache answer what they cannot read.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("https://{}/x", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        while let Ok((mut stream, _)) = listener.accept() {
            let _ = stream.read(&mut [0; 4096]);
            let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n");
        }
    });
    home.run(["get", &address]).code_is(7).says(&["it does not speak TLS there"]);
}

#[test]
fn a_connection_closed_before_encryption_is_agreed_upon_is_tried_again() {
    // A server that ended just then closed it properly; the transfer was over, although the one that
    // stood in its place a moment later had the file.
    let home = Home::new();
    let server = secure(Certificate::Valid);
    let behind = server.address();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("https://{}/data.bin", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for (count, stream) in listener.incoming().enumerate() {
            let mut client = stream.unwrap();
            if count < 3 {
                let _ = client.read(&mut [0; 4096]);
                continue;
            }
            let mut server = TcpStream::connect(behind).unwrap();
            let (mut from, mut to) = (client.try_clone().unwrap(), server.try_clone().unwrap());
            std::thread::spawn(move || std::io::copy(&mut from, &mut to));
            std::thread::spawn(move || std::io::copy(&mut server, &mut client));
        }
    });
    home.run(["get", &address, "--insecure"]).code_is(0);
    home.holds_only("data.bin", &content());
}

#[test]
fn a_header_that_is_none_is_not_shown() {
    let home = Home::new();
    for header in [
        SECRET.to_owned(),
        format!("X y: {SECRET}"),
        format!("X: {SECRET}\u{1}"),
        format!("Authorization Bearer {SECRET}:x"),
    ] {
        let ran = home.run(["get", "http://127.0.0.1:1/x", "--header", &header]);
        ran.code_is(2).says(&["--header"]).never_says(&[SECRET]);
    }
}

#[test]
fn a_redirect_from_https_to_http_is_refused() {
    let home = Home::new();
    let ca = home.write("../ca.pem", ca_pem().unwrap());
    let plain = honest(&content());
    let secure = secure(Certificate::Valid);
    secure.set(Behaviour::redirect(url(&plain)));
    let ran = home.run(["get", &url(&secure), "--ca", ca.to_str().unwrap()]);
    ran.code_is(7).says(&["refused a redirect from https to unprotected http", &url(&secure)]);
    assert!(plain.log().is_empty(), "nobody asked the other one");
}

#[test]
fn a_redirect_loop_ends() {
    let home = Home::new();
    let odd = server(&content(), Behaviour::RedirectLoop { status: 302 });
    home.run(["get", &url(&odd)]).code_is(7).says(&["the redirects never end", &url(&odd)]);
}

/// Whether any request carried the secret, in whatever form.
fn carries(log: &Log) -> bool {
    log.records.iter().any(|record| {
        record.has_credentials()
            || record.target.contains(SECRET)
            || record.headers.iter().any(|(_, value)| value.contains(SECRET))
    })
}

#[test]
fn a_redirect_to_another_host_drops_credentials() {
    let content = content();
    let other = honest(&content);
    let first = server(&content, Behaviour::redirect(url(&other)));
    let home = Home::new();
    home.write("../token", SECRET);
    let with_login = url(&first).replace("http://", &format!("http://me:{SECRET}@"));
    let bearer = ["--bearer-file".to_owned(), "../token".to_owned()];
    let header = ["--header".to_owned(), format!("X-Api-Key: {SECRET}")];
    let own = ["--header".to_owned(), format!("Authorization: Token {SECRET}")];
    for (address, more) in
        [(url(&first), &bearer[..]), (url(&first), &header), (url(&first), &own), (with_login, &[])]
    {
        first.clear_log();
        other.clear_log();
        let mut args = vec!["get".to_owned(), address, "--overwrite".to_owned()];
        args.extend_from_slice(more);
        let ran = home.run(&args);
        ran.code_is(0);
        assert!(carries(&first.log()), "the first one got it:\n{ran}");
        assert!(!other.log().is_empty() && !carries(&other.log()), "the other one did not:\n{ran}");
        ran.never_says(&[SECRET, "me:"]);
    }
    home.write("../home/.netrc", format!("machine 127.0.0.1 login me password {SECRET}\n"));
    let by_name = first.url_as("localhost", FILE);
    first.clear_log();
    home.run(["get", &by_name, "--overwrite"]).code_is(0).never_says(&[SECRET]);
    assert!(!carries(&first.log()), "localhost is not 127.0.0.1");
}

#[test]
fn netrc_answers_who_asks() {
    let content = content();
    // "me:s3cr3t-hush" in base64.
    let wanted = Behaviour::RequireAuthorization("Basic bWU6czNjcjN0LWh1c2g=".to_owned());
    let guarded = server(&content, wanted);
    let home = Home::new();
    home.run(["get", &url(&guarded)]).code_is(7).says(&["401", &url(&guarded)]);
    home.write("../home/.netrc", format!("machine other.example login x password y\nmachine 127.0.0.1\n  login me\n  password {SECRET}\n"));
    home.run(["get", &url(&guarded)]).code_is(0).never_says(&[SECRET]);
    home.holds_only("data.bin", &content);
}

#[test]
fn bearer_tokens_are_found_in_the_order_of_the_wlcg() {
    let content = content();
    let source = honest(&content);
    let home = Home::new();
    let seen = |ran: &crate::support::Ran| {
        ran.code_is(0).never_says(&["token-"]);
        let log = source.log();
        let value = log.records[0].header("authorization").map(str::to_owned);
        source.clear_log();
        value
    };
    let get = || home.swath(["get", &url(&source), "--overwrite"]);
    let runtime = home.home();
    // SAFETY: no preconditions.
    let uid = unsafe { libc::geteuid() };
    std::fs::write(runtime.join(format!("bt_u{uid}")), "token-runtime\n").unwrap();
    let by_file = home.write("../by-file", "  token-file \n");
    let given = home.write("../given", "token-given");
    let bearer = |token: &str| Some(format!("Bearer {token}"));
    let get = || get().env("XDG_RUNTIME_DIR", &runtime);
    assert_eq!(seen(&get().run()), bearer("token-runtime"));
    let get = || get().env("BEARER_TOKEN_FILE", &by_file);
    assert_eq!(seen(&get().run()), bearer("token-file"));
    let get = || get().env("BEARER_TOKEN", "token-env");
    assert_eq!(seen(&get().run()), bearer("token-env"));
    assert_eq!(seen(&get().arg("--bearer-file").arg(&given).run()), bearer("token-given"));
    home.run(["get", &url(&source), "--bearer-file", "/no/token"]).code_is(6).says(&["/no/token"]);
}

#[test]
fn secrets_are_never_shown() {
    let content = content();
    let good = honest(&content);
    let gone = server(&content, Behaviour::status(404));
    let home = Home::new();
    let dress = |address: String| {
        format!("{}?sig={SECRET}", address.replace("http://", &format!("http://me:{SECRET}@")))
    };
    for mode in ["--json", "--quiet", "--overwrite"] {
        let ran = home
            .swath(["get", &dress(url(&good)), &dress(url(&gone)), mode, "--overwrite"])
            .arg("--report")
            .arg("../report.html")
            .env("RUST_LOG", "trace");
        let ran = ran.run();
        let code = ran.code();
        assert!(code == 0 || (mode == "--overwrite" && code == 2), "{ran}");
        ran.never_says(&[SECRET]);
    }
    home.run(["get", &dress(url(&gone))])
        .code_is(if home.exists("data.bin") { 5 } else { 7 })
        .never_says(&[SECRET]);
    home.run(["get", &dress(url(&gone)), "-o", "x"]).code_is(7).never_says(&[SECRET]);
    home.run(["probe", &dress(url(&good)), &dress(url(&gone))]).code_is(0).never_says(&[SECRET]);
    home.run(["probe", "--json", &dress(url(&good)), &dress(url(&gone))])
        .code_is(0)
        .never_says(&[SECRET]);
    home.run(["get", &format!("ftp://me:{SECRET}@x/y")]).code_is(2).never_says(&[SECRET]);
    home.run(["get", &format!("http://me:{SECRET}@[bad/y")]).code_is(2).never_says(&[SECRET]);
    let report = std::fs::read_to_string(home.path("../report.html")).unwrap();
    assert!(!report.contains(SECRET));
}

/// A proxy: passes CONNECT on, and answers requests with absolute addresses by asking.
fn proxy() -> (u16, Arc<Mutex<Vec<String>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let seen = Arc::new(Mutex::new(Vec::new()));
    let lines = Arc::clone(&seen);
    std::thread::spawn(move || {
        for client in listener.incoming().flatten() {
            let lines = Arc::clone(&lines);
            std::thread::spawn(move || serve(client, &lines));
        }
    });
    (port, seen)
}

fn serve(mut client: TcpStream, lines: &Mutex<Vec<String>>) -> Option<()> {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") {
        if client.read(&mut byte).ok()? == 0 {
            return None;
        }
        head.push(byte[0]);
    }
    let head = String::from_utf8(head).ok()?;
    let (first, rest) = head.split_once("\r\n")?;
    lines.lock().unwrap().push(first.to_owned());
    let mut words = first.split(' ');
    let (method, target) = (words.next()?, words.next()?);
    let mut server = if method == "CONNECT" {
        let server = TcpStream::connect(target).ok()?;
        client.write_all(b"HTTP/1.1 200 Connected\r\n\r\n").ok()?;
        server
    } else {
        let (host, path) = target.strip_prefix("http://")?.split_once('/')?;
        let mut server = TcpStream::connect(host).ok()?;
        // One answer a connection is enough of a proxy for a test.
        server
            .write_all(
                format!("{method} /{path} HTTP/1.1\r\nConnection: close\r\n{rest}").as_bytes(),
            )
            .ok()?;
        server
    };
    let (mut from_client, mut to_server) = (client.try_clone().ok()?, server.try_clone().ok()?);
    std::thread::spawn(move || {
        let _ = std::io::copy(&mut from_client, &mut to_server);
    });
    let _ = std::io::copy(&mut server, &mut client);
    let _ = client.shutdown(std::net::Shutdown::Both);
    Some(())
}

#[test]
fn proxies_of_the_environment_are_used() {
    let content = content();
    let home = Home::new();
    let ca = home.write("../ca.pem", ca_pem().unwrap());
    let (port, seen) = proxy();
    let address = format!("http://127.0.0.1:{port}");
    let secure = secure(Certificate::Valid);
    let args = ["get", &url(&secure), "--ca", ca.to_str().unwrap(), "--digest", &sha256(&content)];
    home.swath(args).env("https_proxy", &address).run().code_is(0);
    home.holds_only("data.bin", &content);
    assert!(seen.lock().unwrap().iter().any(|line| line.starts_with("CONNECT ")), "{seen:?}");
    seen.lock().unwrap().clear();
    let plain = honest(&content);
    home.swath(["get", &url(&plain), "-o", "two"]).env("http_proxy", &address).run().code_is(0);
    home.holds("two", &content);
    assert!(
        seen.lock().unwrap().iter().all(|line| line.starts_with("GET http://"))
            && !seen.lock().unwrap().is_empty(),
        "{seen:?}"
    );
    seen.lock().unwrap().clear();
    home.swath(["get", &url(&plain), "-o", "three"])
        .env("http_proxy", &address)
        .env("no_proxy", "127.0.0.1")
        .run()
        .code_is(0);
    assert!(seen.lock().unwrap().is_empty());
    let nobody = format!("127.0.0.1:{}", reserve_port());
    let ran = home
        .swath(["get", &url(&plain), "-o", "four", "--timeout", "8s"])
        .env("http_proxy", format!("http://{nobody}"))
        .run();
    ran.code_is(7).says(&[&nobody]);
}

#[test]
fn a_metalink_on_the_disk_sends_no_credentials_to_its_mirrors() {
    let home = Home::new();
    let mirror = honest(&content());
    let text = metalink(&[MetalinkFile {
        name: "data.bin",
        content: &content(),
        urls: &[url(&mirror)],
        digests: &[Algorithm::Sha256],
        piece_bytes: None,
    }]);
    home.write("../x.meta4", &text);
    let authorization = format!("Authorization: Bearer {SECRET}");
    home.run(["get", "../x.meta4", "--header", &authorization]).code_is(0);
    home.holds_only("data.bin", &content());
    assert!(!mirror.log().is_empty() && !carries(&mirror.log()), "the file may come from anywhere");
    // "There are none for it" was said of what was given.
    let wanted = Behaviour::RequireAuthorization(format!("Bearer {SECRET}"));
    let guarded = server(&content(), wanted);
    let text = metalink(&[MetalinkFile {
        name: "data.bin",
        content: &content(),
        urls: &[url(&guarded)],
        digests: &[Algorithm::Sha256],
        piece_bytes: None,
    }]);
    home.write("../y.meta4", &text);
    let get = ["get", "../y.meta4", "-o", "got"];
    let ran = home.run([&get[..], &["--header", &authorization]].concat());
    ran.code_is(7).says(&["not sent, as they are for addresses that you name yourself"]);
    home.run(get).code_is(7).says(&["there are none for it"]);
}
