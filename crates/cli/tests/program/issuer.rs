//! `swath serve --issuer`: tokens that an issuer has signed, asked with by curl and by swath.

use std::fs;
use std::process::Command;
use std::time::SystemTime;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jsonwebtoken::jwk::Jwk;
use jsonwebtoken::{Algorithm, EncodingKey, Header, encode};
use serde_json::{Value, json};

use crate::support::Home;
use crate::support::serve::Served;
use crate::support::trees::bytes;
use swath_netlab::free_port;

/// A key of an issuer, with its name.
struct Key {
    id: &'static str,
    algorithm: Algorithm,
    key: EncodingKey,
    public: Value,
}

fn openssl(home: &Home, args: &str) {
    let ran = Command::new("openssl").args(args.split(' ')).current_dir(home.work()).output();
    let ran = ran.expect("openssl runs");
    assert!(ran.status.success(), "{args}: {}", String::from_utf8_lossy(&ran.stderr));
}

impl Key {
    fn rsa(home: &Home, id: &'static str) -> Key {
        openssl(home, &format!("genrsa -traditional -out {id}.pem 2048"));
        openssl(home, &format!("rsa -in {id}.pem -traditional -outform DER -out {id}.der"));
        let key = EncodingKey::from_rsa_der(&home.read(&format!("{id}.der")));
        let jwk = Jwk::from_encoding_key(&key, Algorithm::RS256).unwrap();
        Key { id, algorithm: Algorithm::RS256, key, public: serde_json::to_value(jwk).unwrap() }
    }

    fn ec(home: &Home, id: &'static str) -> Key {
        let how = "-algorithm EC -pkeyopt ec_paramgen_curve:P-256";
        openssl(home, &format!("genpkey {how} -out {id}.pem"));
        openssl(home, &format!("pkcs8 -topk8 -nocrypt -in {id}.pem -outform DER -out {id}.der"));
        let key = EncodingKey::from_ec_der(&home.read(&format!("{id}.der")));
        openssl(home, &format!("pkey -in {id}.pem -pubout -outform DER -out {id}.pub"));
        // The two coordinates are the end of it.
        let about = home.read(&format!("{id}.pub"));
        let point = &about[about.len() - 64..];
        let [x, y] = [&point[..32], &point[32..]].map(|half| URL_SAFE_NO_PAD.encode(half));
        let public = json!({ "kty": "EC", "crv": "P-256", "x": x, "y": y });
        Key { id, algorithm: Algorithm::ES256, key, public }
    }

    fn jwk(&self) -> Value {
        with(self.public.clone(), "kid", json!(self.id))
    }

    fn sign(&self, claims: &Value) -> String {
        let header = Header { kid: Some(self.id.to_owned()), ..Header::new(self.algorithm) };
        encode(&header, claims, &self.key).unwrap()
    }

    /// A good token of Ada with these scopes, as the WLCG has them.
    fn wlcg(&self, issuer: &str, scope: &str) -> String {
        self.sign(&claims(issuer, scope))
    }
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

/// A server by https that describes an issuer and shows its keys, with a certificate of an authority whose
/// certificate is `ca.pem`.
struct Issuer {
    _served: Served,
    name: String,
}

impl Issuer {
    fn start(home: &Home, keys: &[&Key]) -> Issuer {
        Issuer::start_at(home, free_port(), keys)
    }

    fn start_at(home: &Home, port: u16, keys: &[&Key]) -> Issuer {
        let name = format!("https://localhost:{port}/");
        if !home.exists("host.pem") {
            home.write("ext", "subjectAltName=DNS:localhost\n");
            for args in [
                "req -x509 -newkey rsa:2048 -nodes -keyout ca.key -out ca.pem -subj /CN=Test -days 2",
                "req -newkey rsa:2048 -nodes -keyout host.key -out host.csr -subj /CN=localhost",
                "x509 -req -in host.csr -CA ca.pem -CAkey ca.key -CAcreateserial -out host.pem -days 2 -extfile ext",
            ] {
                openssl(home, args);
            }
        }
        let about = json!({ "issuer": name, "jwks_uri": format!("{name}keys.json") });
        home.write("iam/.well-known/openid-configuration", about.to_string());
        Issuer::shows(home, keys);
        let tls = ["iam", "--anonymous", "--tls-cert", "host.pem", "--tls-key", "host.key"];
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
    let all = ["serve", "--listen", "127.0.0.1:0", "data", "--issuer", issuer];
    let swath = home.swath(all.iter().chain(more)).env("SSL_CERT_FILE", home.path("ca.pem"));
    Served::of(swath, more)
}

/// What is answered: the status, and the head and the body as text.
fn ask(server: &Served, token: &str, args: &[&str], path: &str) -> (u16, String) {
    let shown = format!("Authorization: Bearer {token}");
    let mut curl = Command::new("curl");
    curl.args(["-skgi", "--path-as-is", "--max-time", "60", "-H", &shown]).args(args);
    let ran = curl.arg(server.at(path)).output().expect("curl runs");
    let text = String::from_utf8_lossy(&ran.stdout).into_owned();
    let status = text.split_whitespace().nth(1).and_then(|status| status.parse().ok());
    (status.unwrap_or(0), text)
}

fn get(server: &Served, token: &str, path: &str) -> u16 {
    ask(server, token, &[], path).0
}

#[test]
fn a_token_reads_what_its_scopes_name_and_no_path_leads_elsewhere() {
    let home = Home::new();
    let key = Key::rsa(&home, "one");
    let issuer = Issuer::start(&home, &[&key]);
    for path in ["a/x", "a/sub/y", "ab", "b/x"] {
        home.write(&format!("data/{path}"), path);
    }
    let server = serve(&home, &issuer.name, &["--log", "log"]);
    assert!(server.words.contains(&format!("token        of {}", issuer.name)), "{}", server.words);
    let token = key.wlcg(&issuer.name, "openid storage.read:/a");
    for (path, expected) in [
        ("a/x", 200),
        ("a/sub/y", 200),
        ("a/", 200),
        ("a/?swath=index", 200),
        ("b/../a/x", 200),
        ("%61/x", 200),
        ("ab", 403),
        ("b/x", 403),
        ("", 403),
        ("?swath=index", 403),
        ("a/../b/x", 403),
        ("a/%2e%2e/b/x", 403),
        ("a/..%2fb/x", 400),
        ("a%2f..%2fb", 400),
        ("..", 400),
        ("metrics", 403),
        ("health", 200),
    ] {
        assert_eq!(get(&server, &token, path), expected, "{path}");
    }
    let (_, text) = ask(&server, &token, &[], "b/x");
    assert!(text.contains("error=\"insufficient_scope\""), "{text}");
    let upload = home.path("ca.pem").display().to_string();
    assert_eq!(ask(&server, &token, &["-T", &upload], "a/new").0, 403);
    let odd = key.wlcg(&issuer.name, "storage.read:/a/../b storage.read:/../a storage.read:a");
    assert_eq!((get(&server, &odd, "b/x"), get(&server, &odd, "a/x")), (403, 403));
    assert_eq!(get(&server, "", "a/x"), 401);
    // Whole folders too.
    home.write("bearer", &token);
    let fingerprint = fingerprint(&server);
    let copy = |from: &str| {
        let (from, to) = (server.at(from), from.replace('/', "-"));
        home.run([
            "cp",
            &from,
            &format!("copy-{to}/"),
            "--bearer-file",
            "bearer",
            "--fingerprint",
            &fingerprint,
        ])
    };
    copy("a/").code_is(0);
    assert_eq!(home.read("copy-a-/sub/y"), b"a/sub/y");
    copy("b/").says(&["do not permit reading here"]);
    let log = String::from_utf8(home.read("log")).unwrap();
    let parts: Vec<&str> = token.split('.').collect();
    assert!(parts.iter().all(|part| !log.contains(part)), "a token is in the log");
}

fn fingerprint(server: &Served) -> String {
    let line = server.words.lines().find(|line| line.starts_with("fingerprint")).unwrap();
    line.split_whitespace().last().unwrap().to_owned()
}

#[test]
fn who_may_create_replaces_nothing() {
    let home = Home::new();
    let key = Key::ec(&home, "one");
    let issuer = Issuer::start(&home, &[&key]);
    let server = serve(&home, &issuer.name, &["--write"]);
    let file = home.write("file", "new").display().to_string();
    fs::create_dir(home.path("data/a")).unwrap();
    let put = |token: &str, path: &str| ask(&server, token, &["-T", &file], path);
    let creates = key.wlcg(&issuer.name, "storage.create:/a");
    let modifies = key.wlcg(&issuer.name, "storage.modify:/a");
    assert_eq!(put(&creates, "a/x").0, 201);
    let (status, text) = put(&creates, "a/x");
    assert!(status == 403 && text.contains("insufficient_scope"), "{text}");
    assert_eq!(put(&modifies, "a/x").0, 204);
    assert_eq!(put(&modifies, "a/y").0, 201);
    assert_eq!(put(&creates, "b").0, 403);
    assert_eq!(put(&modifies, "ab").0, 403);
    // It sees what has become of what it sends.
    assert_eq!(ask(&server, &creates, &["-I"], "a/x").0, 200);
    assert_eq!(get(&server, &creates, "a/x"), 403);
    // Folders, and files by swath.
    home.write("tree/sub/z", bytes(1, 70_000));
    home.write("creates", &creates);
    home.write("modifies", &modifies);
    let fingerprint = fingerprint(&server);
    let send = |from: &str, to: &str, token: &str| {
        home.run([
            "cp",
            from,
            &server.at(to),
            "--bearer-file",
            token,
            "--fingerprint",
            &fingerprint,
        ])
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
fn tokens_that_prove_nothing_open_nothing_and_are_told_why() {
    let home = Home::new();
    let key = Key::rsa(&home, "one");
    let issuer = Issuer::start(&home, &[&key]);
    home.write("data/x", "x");
    let server = serve(&home, &issuer.name, &[]);
    let good = claims(&issuer.name, "storage.read:/");
    let sign = |name: &str, value: Value| key.sign(&with(good.clone(), name, value));
    assert_eq!(get(&server, &key.sign(&good), "x"), 200);
    assert_eq!(
        get(&server, &sign("aud", json!(["other", server.url.trim_end_matches('/')])), "x"),
        200
    );
    let secret = EncodingKey::from_secret(&home.read("one.pem"));
    let header = Header { kid: Some("one".to_owned()), ..Header::new(Algorithm::HS256) };
    let by_secret = encode(&header, &good, &secret).unwrap();
    let signed = key.sign(&good);
    let (message, _) = signed.rsplit_once('.').unwrap();
    let none = {
        let claims = message.split_once('.').unwrap().1;
        // {"alg":"none"}
        format!("eyJhbGciOiJub25lIn0.{claims}.")
    };
    let stranger = Key::rsa(&home, "stranger");
    for (token, words) in [
        (sign("exp", json!(in_seconds(-1))), "this token has expired"),
        (sign("exp", Value::Null), "not a complete JWT"),
        (sign("nbf", json!(in_seconds(100))), "not valid yet"),
        (sign("aud", json!("https://other.example")), "issued for another server"),
        (sign("aud", Value::Null), "issued for another server"),
        (sign("iss", json!("https://other.example/")), "not trusted here"),
        (sign("iss", json!(issuer.name.trim_end_matches('/'))), "not trusted here"),
        (sign("wlcg.ver", Value::Null), "not a complete JWT"),
        (format!("{message}.AAAA"), "the signature of this token is wrong"),
        (Key { id: "one", ..stranger }.sign(&good), "the signature of this token is wrong"),
        (
            Key { id: "two", ..Key::rsa(&home, "two") }.sign(&good),
            "key that its issuer does not publish",
        ),
        (none, "algorithm that is not accepted"),
        (by_secret, "algorithm that is not accepted"),
        ("eyJ.eyJ.x".to_owned(), "not known here"),
        ("..".to_owned(), "not known here"),
        ("x".repeat(15_000), "not known here"),
    ] {
        let (status, text) = ask(&server, &token, &[], "x");
        assert_eq!(status, 401, "{words}: {text}");
        assert!(
            text.contains("error=\"invalid_token\"") && text.contains(words),
            "{words}: {text}"
        );
    }
}

#[test]
fn keys_change_and_an_issuer_may_be_away() {
    let home = Home::new();
    let (one, two) = (Key::ec(&home, "one"), Key::rsa(&home, "two"));
    home.write("data/x", "x");
    let port = free_port();
    // It makes the certificates.
    let issuer = Issuer::start_at(&home, port, &[&one]);
    let name = issuer.name.clone();
    drop(issuer);
    let server = serve(&home, &name, &[]);
    server.says("cannot fetch the keys of https://localhost");
    let first = one.wlcg(&name, "storage.read:/");
    let (status, text) = ask(&server, &first, &[], "x");
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
    let (one, two) = (Key::ec(&home, "one"), Key::ec(&home, "two"));
    home.write("data/x", "x");
    let issuer = Issuer::start(&home, &[&one]);
    let server = serve(&home, &issuer.name, &[]);
    assert_eq!(get(&server, &one.wlcg(&issuer.name, "storage.read:/"), "x"), 200);
    Issuer::shows(&home, &[&one, &two]);
    assert_eq!(get(&server, &two.wlcg(&issuer.name, "storage.read:/"), "x"), 200);
}

#[test]
fn a_file_names_an_issuer_its_keys_and_where_its_paths_begin() {
    let home = Home::new();
    let (key, next) = (Key::ec(&home, "one"), Key::ec(&home, "next"));
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
fn copies_between_servers_are_those_of_a_subject() {
    let home = Home::new();
    let key = Key::ec(&home, "one");
    let issuer = Issuer::start(&home, &[&key]);
    home.write("a/x.h5", bytes(1, 300_001));
    let source = home.serve(&["a", "--anonymous", "--plain"]);
    let third_party = ["--write", "--third-party", "--third-party-from", "127.0.0.0/8"];
    let server = serve(&home, &issuer.name, &third_party);
    let from = format!("Source: {}", source.at("x.h5"));
    let copy = |scope: &str, path: &str, field: &str| {
        let token = key.wlcg(&issuer.name, scope);
        ask(&server, &token, &["-X", "COPY", "-H", field], path)
    };
    let (status, text) = copy("storage.create:/in", "in/x.h5", &from);
    assert!(status == 202 && text.trim_end().ends_with("success: Created"), "{text}");
    assert!(home.read("data/in/x.h5") == bytes(1, 300_001));
    assert_eq!(copy("storage.create:/in", "in/x.h5", &from).0, 403);
    assert_eq!(copy("storage.modify:/in", "in/x.h5", &from).0, 202);
    assert_eq!(copy("storage.modify:/in", "out/x.h5", &from).0, 403);
    assert_eq!(copy("storage.read:/", "in/y", &from).0, 403);
    let to = "Destination: https://127.0.0.1:9/x";
    assert_eq!(copy("storage.modify:/", "in/x.h5", to).0, 403);
    assert_eq!(copy("storage.read:/in", "in/x.h5", to).0, 202);
    // A job is found with another token of the same subject, and not by others.
    let jobs = |subject: &str| {
        let claims = claims(&issuer.name, "storage.modify:/in storage.create:/unused");
        home.write("bearer", key.sign(&with(claims, "sub", json!(subject))));
        let print = fingerprint(&server);
        home.run(["jobs", &server.url, "--bearer-file", "bearer", "--fingerprint", &print]).out()
    };
    // In the address it is for that server alone.
    let token = key.wlcg(&issuer.name, "storage.modify:/in");
    let print = fingerprint(&server);
    let to = server.at("in/tree/").replace("://", &format!("://x:{token}@"));
    home.run(["cp", &source.url, &to, "--fingerprint", &print]).code_is(0);
    assert!(home.read("data/in/tree/x.h5") == bytes(1, 300_001));
    assert!(jobs("ada").contains("/in/tree"), "{}", jobs("ada"));
    assert!(!jobs("grace").contains("/in/tree"));
}
