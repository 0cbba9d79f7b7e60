//! `swath serve --issuer`: an issuer whose keys the server fetches, and copies with its tokens. (What tokens
//! open, and what those that prove nothing are told, is tested in the suite of the crate `serve`.)

use std::fs;
use std::time::SystemTime;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use jsonwebtoken::{Algorithm, EncodingKey, Header, encode};
use serde_json::{Value, json};
use swath_netlab::reserve_port;
use swath_serve::Identity;

use crate::support::serve::Served;
use crate::support::trees::bytes;
use crate::support::{Home, until};

/// A key of an issuer, with its name.
struct Key {
    id: &'static str,
    key: EncodingKey,
    public: Value,
}

impl Key {
    /// A key of the curve P-256. It comes with a certificate, which nobody needs but for its public half.
    fn new(id: &'static str) -> Key {
        let pem = Identity::make_pem(vec!["key.example".to_owned()]).unwrap();
        let key = EncodingKey::from_ec_der(&der_of(&pem, "PRIVATE KEY"));
        let certificate = der_of(&pem, "CERTIFICATE");
        let at = certificate.windows(POINT_FOLLOWS.len()).position(|part| part == POINT_FOLLOWS);
        let at = at.expect("a key of this curve") + POINT_FOLLOWS.len();
        let [x, y] =
            [at, at + 32].map(|from| URL_SAFE_NO_PAD.encode(&certificate[from..from + 32]));
        Key { id, key, public: json!({ "kty": "EC", "crv": "P-256", "x": x, "y": y }) }
    }

    fn jwk(&self) -> Value {
        with(self.public.clone(), "kid", json!(self.id))
    }

    fn sign(&self, claims: &Value) -> String {
        let header = Header { kid: Some(self.id.to_owned()), ..Header::new(Algorithm::ES256) };
        encode(&header, claims, &self.key).unwrap()
    }

    /// A good token of Ada with these scopes, as the WLCG has them.
    fn wlcg(&self, issuer: &str, scope: &str) -> String {
        self.sign(&claims(issuer, scope))
    }
}

/// What is between the lines of this name.
fn der_of(pem: &str, name: &str) -> Vec<u8> {
    let (_, after) = pem.split_once(&format!("-----BEGIN {name}-----")).unwrap();
    let (text, _) = after.split_once("-----END").unwrap();
    STANDARD.decode(text.split_whitespace().collect::<String>()).unwrap()
}

fn in_seconds(seconds: i64) -> i64 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
    i64::try_from(now.as_secs()).unwrap() + seconds
}

fn claims(issuer: &str, scope: &str) -> Value {
    json!({
        "iss": issuer, "sub": "ada", "aud": "https://wlcg.cern.ch/jwt/v1/any", "scope": scope,
        "wlcg.ver": "1.0", "iat": in_seconds(0), "nbf": in_seconds(0), "exp": in_seconds(600),
    })
}

fn with(mut claims: Value, name: &str, value: Value) -> Value {
    claims[name] = value;
    claims
}

/// A server by https that describes an issuer and shows its keys, with the certificate `host.pem`.
struct Issuer {
    _served: Served,
    name: String,
}

impl Issuer {
    fn start(home: &Home, keys: &[&Key]) -> Issuer {
        Issuer::start_at(home, reserve_port(), keys)
    }

    fn start_at(home: &Home, port: u16, keys: &[&Key]) -> Issuer {
        let name = format!("https://localhost:{port}/");
        if !home.exists("host.pem") {
            home.write("host.pem", Identity::make_pem(vec!["localhost".to_owned()]).unwrap());
        }
        let about = json!({ "issuer": name, "jwks_uri": format!("{name}keys.json") });
        home.write("iam/.well-known/openid-configuration", about.to_string());
        Issuer::shows(home, keys);
        let tls = ["iam", "--anonymous", "--tls-cert", "host.pem", "--tls-key", "host.pem"];
        Issuer { _served: home.serve_at(&format!("127.0.0.1:{port}"), &tls), name }
    }

    fn shows(home: &Home, keys: &[&Key]) {
        let keys: Vec<Value> = keys.iter().map(|key| key.jwk()).collect();
        home.write("iam/keys.json", json!({ "keys": keys }).to_string());
    }
}

/// A server of the folder `data` that trusts this issuer.
fn serve(home: &Home, issuer: &str, more: &[&str]) -> Served {
    fs::create_dir_all(home.path("data")).unwrap();
    let all = ["serve", "--listen", "127.0.0.1:0", "data", "--plain", "--issuer", issuer];
    let swath = home.swath(all.iter().chain(more)).env("SSL_CERT_FILE", home.path("host.pem"));
    Served::of(swath, more)
}

/// What is answered to a request: the status, and all of it as text.
fn ask(server: &Served, token: &str, request: &str) -> (u16, String) {
    let text = server.answer_to(&format!("{request} HTTP/1.1\r\nAuthorization: Bearer {token}"));
    let status = text.split_whitespace().nth(1).and_then(|status| status.parse().ok());
    (status.unwrap_or(0), text)
}

fn get(server: &Served, token: &str, path: &str) -> u16 {
    ask(server, token, &format!("GET /{path}")).0
}

#[test]
fn a_folder_is_copied_with_a_token_that_reads_it_and_no_log_holds_the_token() {
    let home = Home::new();
    let key = Key::new("one");
    let issuer = Issuer::start(&home, &[&key]);
    for path in ["a/x", "a/sub/y", "ab", "b/x"] {
        home.write(&format!("data/{path}"), path);
    }
    let server = serve(&home, &issuer.name, &["--log", "log"]);
    assert!(server.words.contains(&format!("token        of {}", issuer.name)), "{}", server.words);
    let token = key.wlcg(&issuer.name, "openid storage.read:/a");
    assert_eq!((get(&server, &token, "a/x"), get(&server, &token, "b/x")), (200, 403));
    home.write("bearer", &token);
    let copy = |from: &str| {
        let (from, to) = (server.at(from), format!("copy-{}/", from.replace('/', "-")));
        home.run(["cp", &from, &to, "--bearer-file", "bearer"])
    };
    copy("a/").code_is(0);
    assert_eq!(home.read("copy-a-/sub/y"), b"a/sub/y");
    copy("b/").says(&["do not permit reading here"]);
    let log = String::from_utf8(home.read("log")).unwrap();
    let parts: Vec<&str> = token.split('.').collect();
    assert!(parts.iter().all(|part| !log.contains(part)), "a token is in the log");
}

#[test]
fn who_may_create_replaces_nothing() {
    let home = Home::new();
    let key = Key::new("one");
    let issuer = Issuer::start(&home, &[&key]);
    let server = serve(&home, &issuer.name, &["--write"]);
    home.write("file", "new");
    fs::create_dir(home.path("data/a")).unwrap();
    home.write("tree/sub/z", bytes(1, 70_000));
    home.write("creates", key.wlcg(&issuer.name, "storage.create:/a"));
    home.write("modifies", key.wlcg(&issuer.name, "storage.modify:/a"));
    let send = |from: &str, to: &str, token: &str| {
        home.run(["cp", from, &server.at(to), "--bearer-file", token])
    };
    send("tree/", "a/tree/", "creates").code_is(0);
    assert!(home.read("data/a/tree/sub/z") == bytes(1, 70_000));
    home.write("tree/sub/z", bytes(2, 70_000));
    send("tree/", "a/tree/", "creates").says(&["do not permit replacing"]);
    assert!(home.read("data/a/tree/sub/z") == bytes(1, 70_000));
    send("tree/", "b/", "creates").says(&["do not permit writing here"]);
    send("tree/", "a/tree/", "modifies").code_is(0);
    assert!(home.read("data/a/tree/sub/z") == bytes(2, 70_000));
    send("file", "a/new", "creates").code_is(0);
    home.write("file", "other");
    assert_ne!(send("file", "a/new", "creates").code(), 0);
    assert_eq!(home.read("data/a/new"), b"new");
}

#[test]
fn keys_change_and_an_issuer_may_be_away() {
    let home = Home::new();
    let (one, two) = (Key::new("one"), Key::new("two"));
    home.write("data/x", "x");
    let port = reserve_port();
    // It makes the certificate.
    let issuer = Issuer::start_at(&home, port, &[&one]);
    let name = issuer.name.clone();
    drop(issuer);
    let server = serve(&home, &name, &[]);
    server.says("cannot fetch the keys of https://localhost");
    let first = one.wlcg(&name, "storage.read:/");
    let (status, text) = ask(&server, &first, "GET /x");
    assert!(status == 503 && text.to_lowercase().contains("retry-after"), "{text}");
    let issuer = Issuer::start_at(&home, port, &[&one]);
    server.signal(libc::SIGHUP);
    server.says("reloaded: the issuers");
    assert_eq!(get(&server, &first, "x"), 200);
    // A new key is found when it is used for the first time; the old one ends.
    Issuer::shows(&home, &[&two]);
    let second = two.wlcg(&name, "storage.read:/");
    server.signal(libc::SIGHUP);
    server.says("reloaded: the issuers");
    assert_eq!(get(&server, &second, "x"), 200);
    assert_eq!(get(&server, &first, "x"), 401);
    // The last keys count while it is away.
    drop(issuer);
    server.signal(libc::SIGHUP);
    server.says("cannot fetch the keys");
    assert_eq!(get(&server, &second, "x"), 200);
}

#[test]
fn a_new_key_is_found_without_a_signal() {
    let home = Home::new();
    let (one, two) = (Key::new("one"), Key::new("two"));
    home.write("data/x", "x");
    let issuer = Issuer::start(&home, &[&one]);
    let server = serve(&home, &issuer.name, &[]);
    assert_eq!(get(&server, &one.wlcg(&issuer.name, "storage.read:/"), "x"), 200);
    Issuer::shows(&home, &[&one, &two]);
    // It is asked for when it is used for the first time. An answer does not wait for it for long.
    let second = two.wlcg(&issuer.name, "storage.read:/");
    until("the new key is found", || get(&server, &second, "x") == 200);
}

#[test]
fn a_file_names_an_issuer_its_keys_and_where_its_paths_begin() {
    let home = Home::new();
    let (key, next) = (Key::new("one"), Key::new("next"));
    home.write("data/cms/x", "x");
    home.write("data/x", "x");
    home.write("tokens", "a-token-of-this-server\n");
    let name = "https://scitokens.example";
    let write = |keys: &[&Key]| {
        let keys: Vec<Value> = keys.iter().map(|key| key.jwk()).collect();
        let file = json!({ "issuer": name, "base_path": "/cms", "keys": keys });
        home.write("issuer.json", file.to_string());
    };
    write(&[&key]);
    let server =
        serve(&home, "issuer.json", &["--token-file", "tokens", "--audience", "cms-storage"]);
    let scitoken = |aud: Value| json!({ "iss": name, "aud": aud, "ver": "scitoken:2.0", "scope": "read:/", "exp": in_seconds(600) });
    let token = key.sign(&scitoken(json!("ANY")));
    assert_eq!((get(&server, &token, "cms/x"), get(&server, &token, "x")), (200, 403));
    assert_eq!(get(&server, &key.sign(&scitoken(json!("cms-storage"))), "cms/x"), 200);
    assert_eq!(get(&server, &key.sign(&scitoken(json!("other"))), "cms/x"), 401);
    // With an audience of its own the address is none.
    let address = server.url.trim_end_matches('/');
    assert_eq!(get(&server, &key.sign(&scitoken(json!(address))), "cms/x"), 401);
    assert_eq!(get(&server, "a-token-of-this-server", "x"), 200);
    write(&[&next]);
    server.signal(libc::SIGHUP);
    server.says("reloaded: the issuers");
    assert_eq!(get(&server, &token, "cms/x"), 401);
    assert_eq!(get(&server, &next.sign(&scitoken(json!("ANY"))), "cms/x"), 200);
    home.write("issuer.json", "{");
    server.signal(libc::SIGHUP);
    server.says("keeping the old issuers: cannot read the issuer in issuer.json");
    assert_eq!(get(&server, &next.sign(&scitoken(json!("ANY"))), "cms/x"), 200);
    home.run(["serve", "data", "--issuer", "issuer.json"]).code_is(6).says(&["issuer.json"]);
    home.run(["serve", "data", "--issuer", "http://i.example/"]).code_is(2).says(&["https"]);
}

#[test]
fn a_token_for_one_name_orders_nothing_else_in_its_folder() {
    let home = Home::new();
    let key = Key::new("one");
    let issuer = Issuer::start(&home, &[&key]);
    for name in ["x", "y"] {
        home.write(&format!("a/{name}"), "new");
    }
    let source = home.serve(&["a", "--anonymous", "--plain"]);
    let third_party = ["--write", "--third-party", "--third-party-from", "127.0.0.0/8"];
    let server = serve(&home, &issuer.name, &third_party);
    for name in ["x", "y", "z"] {
        home.write(&format!("data/in/{name}"), "old");
    }
    let order = |scope: &str, job: &str, query: &str, from: &str| {
        let token = key.wlcg(&issuer.name, scope);
        let sources = format!(r#"{{"sources":[{{"url":"{}"}}]}}"#, source.at(from));
        let path = format!("/in/?swath=fetch&job={job}{query}");
        let fields = format!(
            "Host: h\r\nConnection: close\r\nAuthorization: Bearer {token}\r\nContent-Length: {}",
            sources.len()
        );
        let answer =
            server.raw(format!("POST {path} HTTP/1.1\r\n{fields}\r\n\r\n{sources}").as_bytes());
        String::from_utf8_lossy(&answer)[9..12].parse::<u16>().unwrap()
    };
    let one = "storage.modify:/in/x";
    // All of a folder under the name of one file, and without that name.
    assert_eq!(order(one, "j1", "&single=x&delete=yes&empty=yes", ""), 400);
    assert_eq!(order(one, "j2", "&delete=yes&empty=yes", ""), 403);
    let read = || ["x", "y", "z"].map(|name| home.read(&format!("data/in/{name}")));
    assert_eq!(read(), [b"old", b"old", b"old"]);
    // The file itself, and nothing that is not there.
    assert_eq!(order(one, "j3", "&single=x", "x"), 200);
    assert_eq!(read(), [b"new", b"old", b"old"]);
}

#[test]
fn copies_between_servers_are_those_of_a_subject() {
    let home = Home::new();
    let key = Key::new("one");
    let issuer = Issuer::start(&home, &[&key]);
    home.write("a/x.h5", bytes(1, 300_001));
    let source = home.serve(&["a", "--anonymous", "--plain"]);
    let third_party = ["--write", "--third-party", "--third-party-from", "127.0.0.0/8"];
    let server = serve(&home, &issuer.name, &third_party);
    let from = format!("Source: {}", source.at("x.h5"));
    let copy = |scope: &str, path: &str, field: &str| {
        let token = key.wlcg(&issuer.name, scope);
        let fields = format!("Authorization: Bearer {token}\r\n{field}");
        let text = server.answer_to(&format!("COPY /{path} HTTP/1.1\r\n{fields}"));
        (text[9..12].parse::<u16>().unwrap(), text)
    };
    let (status, text) = copy("storage.create:/in", "in/x.h5", &from);
    assert!(status == 202 && text.contains("success: Created"), "{text}");
    assert!(home.read("data/in/x.h5") == bytes(1, 300_001));
    assert_eq!(copy("storage.create:/in", "in/x.h5", &from).0, 403);
    assert_eq!(copy("storage.modify:/in", "in/x.h5", &from).0, 202);
    assert_eq!(copy("storage.modify:/in", "out/x.h5", &from).0, 403);
    assert_eq!(copy("storage.read:/", "in/y", &from).0, 403);
    // Where nobody listens.
    let to = format!("Destination: https://127.0.0.1:{}/x", reserve_port());
    assert_eq!(copy("storage.modify:/", "in/x.h5", &to).0, 403);
    assert_eq!(copy("storage.read:/in", "in/x.h5", &to).0, 202);
    // A job is found with another token of the same subject, and not by others.
    let jobs = |subject: &str| {
        let claims = claims(&issuer.name, "storage.modify:/in storage.create:/unused");
        home.write("bearer", key.sign(&with(claims, "sub", json!(subject))));
        home.run(["jobs", &server.url, "--bearer-file", "bearer"]).out()
    };
    // In the address it is for that server alone.
    let token = key.wlcg(&issuer.name, "storage.modify:/in");
    let to = server.at("in/tree/").replace("://", &format!("://x:{token}@"));
    home.run(["cp", &source.url, &to]).code_is(0);
    assert!(home.read("data/in/tree/x.h5") == bytes(1, 300_001));
    assert!(jobs("ada").contains("/in/tree"), "{}", jobs("ada"));
    assert!(!jobs("grace").contains("/in/tree"));
}

/// What is before the public point in a certificate: the names of the curve and of its kind of key, and that
/// 65 bytes follow, of which the first says that both coordinates do.
const POINT_FOLLOWS: &[u8] = b"\x06\x08\x2a\x86\x48\xce\x3d\x03\x01\x07\x03\x42\x00\x04";
