//! Tokens that an issuer has signed: what they open at a server, and what those that prove nothing are told.

use std::time::SystemTime;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use jsonwebtoken::jwk::Jwk;
use jsonwebtoken::{Algorithm, EncodingKey, Header, encode};
use rcgen::PublicKeyData as _;
use serde_json::{Value, json};
use swath_serve::{Access, Issuers, KeySet, TrustedIssuer};

use crate::support::{Answer, Served, Tree};

const ISSUER: &str = "https://iam.example/";

/// A key of an issuer, with its name.
struct Key {
    id: &'static str,
    pair: rcgen::KeyPair,
}

impl Key {
    fn new(id: &'static str) -> Key {
        Key { id, pair: rcgen::KeyPair::generate().unwrap() }
    }

    fn jwk(&self) -> Value {
        let point = self.pair.der_bytes();
        let [x, y] = [&point[1..33], &point[33..]].map(|half| URL_SAFE_NO_PAD.encode(half));
        json!({ "kty": "EC", "crv": "P-256", "kid": self.id, "x": x, "y": y })
    }

    fn sign(&self, claims: &Value) -> String {
        let header = Header { kid: Some(self.id.to_owned()), ..Header::new(Algorithm::ES256) };
        let key = EncodingKey::from_ec_der(&self.pair.serialize_der());
        encode(&header, claims, &key).unwrap()
    }

    /// A good token of Ada with these scopes, as the WLCG has them.
    fn wlcg(&self, scope: &str) -> String {
        self.sign(&claims(scope))
    }
}

fn keys(of: &[&Key]) -> KeySet {
    let keys: Vec<Value> = of.iter().map(|key| key.jwk()).collect();
    KeySet::read(json!({ "keys": keys }).to_string().as_bytes()).unwrap()
}

fn in_seconds(seconds: i64) -> i64 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
    i64::try_from(now.as_secs()).unwrap() + seconds
}

fn claims(scope: &str) -> Value {
    json!({
        "iss": ISSUER, "sub": "ada", "aud": "https://wlcg.cern.ch/jwt/v1/any", "scope": scope,
        "wlcg.ver": "1.0", "iat": in_seconds(-600), "nbf": in_seconds(-600),
        "exp": in_seconds(86_400),
    })
}

fn with(mut claims: Value, name: &str, value: Value) -> Value {
    claims[name] = value;
    claims
}

/// A server of `data` that takes files and trusts the issuer, with these keys of it if it has any.
fn serve(tree: &Tree, base_path: &str, keys: Option<KeySet>) -> (Served, Issuers) {
    tree.folder("data");
    let trusted =
        TrustedIssuer { issuer: ISSUER.to_owned(), base_path: base_path.to_owned(), keys };
    let issuers = Issuers::new(vec![trusted], vec!["https://here.example".to_owned()]);
    let access = Access::default().with_issuers(issuers.clone());
    // Its own tokens are none, so that those of the issuer are all there are.
    let plan = tree.plan(&["data"]).writes().with(|site| site.access = access);
    (plan.without_tokens().start(), issuers)
}

fn ask(server: &Served, token: &str, request: &str) -> Answer {
    server.ask(&format!("{request} HTTP/1.1\r\nAuthorization: Bearer {token}"))
}

fn get(server: &Served, token: &str, path: &str) -> u16 {
    ask(server, token, &format!("GET /{path}")).status()
}

fn put(server: &Served, token: &str, path: &str) -> Answer {
    let shown = format!("Authorization: Bearer {token}\r\nContent-Length: 3");
    server.ask_with(&format!("PUT /{path} HTTP/1.1\r\n{shown}"), b"new")
}

#[test]
fn a_token_reads_what_its_scopes_name_and_no_path_leads_elsewhere() {
    let (tree, key) = (Tree::new(), Key::new("one"));
    for path in ["a/x", "a/sub/y", "ab", "b/x"] {
        tree.write(&format!("data/{path}"), path);
    }
    let (server, _) = serve(&tree, "/", Some(keys(&[&key])));
    let token = key.wlcg("openid storage.read:/a");
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
    ask(&server, &token, "GET /b/x").has(&["error=\"insufficient_scope\""]);
    put(&server, &token, "a/new").is(403);
    let odd = key.wlcg("storage.read:/a/../b storage.read:/../a storage.read:a");
    assert_eq!((get(&server, &odd, "b/x"), get(&server, &odd, "a/x")), (403, 403));
    assert_eq!(get(&server, "", "a/x"), 401);
}

#[test]
fn who_may_create_replaces_nothing() {
    let (tree, key) = (Tree::new(), Key::new("one"));
    tree.folder("data/a");
    let (server, _) = serve(&tree, "/", Some(keys(&[&key])));
    let (creates, modifies) = (key.wlcg("storage.create:/a"), key.wlcg("storage.modify:/a"));
    put(&server, &creates, "a/x").is(201);
    put(&server, &creates, "a/x").is(403).has(&["insufficient_scope"]);
    put(&server, &modifies, "a/x").is(204);
    put(&server, &modifies, "a/y").is(201);
    put(&server, &creates, "b").is(403);
    put(&server, &modifies, "ab").is(403);
    // It sees what has become of what it sends.
    ask(&server, &creates, "HEAD /a/x").is(200);
    assert_eq!(get(&server, &creates, "a/x"), 403);
    // Nor does it remove or rename anything.
    ask(&server, &creates, "DELETE /a/x").is(403);
    ask(&server, &creates, "MKCOL /a/sub").is(201);
    ask(&server, &modifies, "DELETE /a/x").is(204);
    assert_eq!(tree.names_in("data/a"), ["sub", "y"]);
}

/// The path that is opened decides, not the one that is asked for.
#[test]
fn a_link_leads_no_further_than_the_scopes_of_a_token() {
    let (tree, key) = (Tree::new(), Key::new("one"));
    for path in ["a/sub/y", "b/secret"] {
        tree.write(&format!("data/{path}"), "0123456789");
    }
    for (link, target) in
        [("a/in", "sub/y"), ("a/out", "../b/secret"), ("a/folder", "../b"), ("b/in", "../a/sub/y")]
    {
        tree.link(target, &format!("data/{link}"));
    }
    let trusted = TrustedIssuer {
        issuer: ISSUER.to_owned(),
        base_path: "/".to_owned(),
        keys: Some(keys(&[&key])),
    };
    let issuers = Issuers::new(vec![trusted], vec!["https://here.example".to_owned()]);
    let access = Access::default().with_issuers(issuers);
    let plan = tree.plan(&["data"]).writes().with(|site| site.access = access);
    let server = plan.without_tokens().follows_links().start();
    let (reads, all) = (key.wlcg("storage.read:/a"), key.wlcg("storage.read:/"));
    for path in ["a/in", "a/in?metalink", "a/folder/in", "a/sub/"] {
        assert_eq!(get(&server, &reads, path), 200, "{path}");
    }
    for path in ["a/out", "a/out?metalink", "a/folder/", "a/folder/secret", "a/folder/?format=json"]
    {
        assert_eq!((get(&server, &reads, path), get(&server, &all, path)), (404, 200), "{path}");
    }
    for (request, field) in [
        ("HEAD /a/out", "Accept: */*"),
        ("GET /a/out", "Range: bytes=0-3"),
        ("HEAD /a/out", "Want-Repr-Digest: sha-256=1"),
        ("PROPFIND /a/folder/", "Depth: 1"),
    ] {
        let shown = format!("Authorization: Bearer {reads}\r\n{field}");
        server.ask(&format!("{request} HTTP/1.1\r\n{shown}")).is(404);
    }
    // Nor do pages and datasets tell what is there.
    let listed = |token: &str| ask(&server, token, "GET /a/?format=json").text();
    for (token, in_kind, out_kind) in [(&reads, "file", "link"), (&all, "file", "file")] {
        let text = listed(token);
        for (name, kind) in [("in", in_kind), ("out", out_kind)] {
            assert!(text.contains(&format!("\"name\":\"{name}\",\"kind\":\"{kind}\"")), "{text}");
        }
    }
    let shown = format!("Authorization: Bearer {reads}");
    let deep = server.ask(&format!("PROPFIND /a/ HTTP/1.1\r\nDepth: 1\r\n{shown}"));
    deep.is(207).has(&["/a/in"]).has_not(&["/a/out"]);
    assert_eq!(get(&server, &reads, "a/?swath=index"), 200);
}

#[test]
fn tokens_that_prove_nothing_open_nothing_and_are_told_why() {
    let (tree, key) = (Tree::of(&[("data/x", "x")]), Key::new("one"));
    let (server, _) = serve(&tree, "/", Some(keys(&[&key])));
    let good = claims("storage.read:/");
    let sign = |name: &str, value: Value| key.sign(&with(good.clone(), name, value));
    assert_eq!(get(&server, &key.sign(&good), "x"), 200);
    let own = sign("aud", json!(["other", "https://here.example"]));
    assert_eq!(get(&server, &own, "x"), 200);
    let secret = EncodingKey::from_secret(&key.pair.serialize_der());
    let header = Header { kid: Some("one".to_owned()), ..Header::new(Algorithm::HS256) };
    let by_secret = encode(&header, &good, &secret).unwrap();
    let signed = key.sign(&good);
    let (message, _) = signed.rsplit_once('.').unwrap();
    let none = {
        let claims = message.split_once('.').unwrap().1;
        // {"alg":"none"}
        format!("eyJhbGciOiJub25lIn0.{claims}.")
    };
    for (token, words) in [
        (sign("exp", json!(in_seconds(-100))), "this token has expired"),
        (sign("exp", Value::Null), "not a complete JWT"),
        (sign("nbf", json!(in_seconds(80_000))), "not valid yet"),
        (sign("aud", json!("https://other.example")), "issued for another server"),
        (sign("aud", Value::Null), "issued for another server"),
        (sign("iss", json!("https://other.example/")), "not trusted here"),
        (sign("iss", json!(ISSUER.trim_end_matches('/'))), "not trusted here"),
        (sign("wlcg.ver", Value::Null), "not a complete JWT"),
        (format!("{message}.AAAA"), "the signature of this token is wrong"),
        (Key::new("one").sign(&good), "the signature of this token is wrong"),
        (Key::new("two").sign(&good), "key that its issuer does not publish"),
        (none, "algorithm that is not accepted"),
        (by_secret, "algorithm that is not accepted"),
        ("eyJ.eyJ.x".to_owned(), "not known here"),
        ("..".to_owned(), "not known here"),
        ("x".repeat(15_000), "not known here"),
    ] {
        let answer = ask(&server, &token, "GET /x");
        answer.is(401).has(&["error=\"invalid_token\"", words]);
    }
}

#[test]
fn the_paths_of_an_issuer_begin_where_it_is_told() {
    let (tree, key) = (Tree::of(&[("data/cms/x", "x"), ("data/x", "x")]), Key::new("one"));
    let (server, _) = serve(&tree, "/cms", Some(keys(&[&key])));
    let token = key.wlcg("storage.read:/");
    assert_eq!((get(&server, &token, "cms/x"), get(&server, &token, "x")), (200, 403));
    let scitoken = json!({
        "iss": ISSUER, "aud": "ANY", "ver": "scitoken:2.0", "scope": "read:/x",
        "exp": in_seconds(86_400),
    });
    let token = key.sign(&scitoken);
    assert_eq!((get(&server, &token, "cms/x"), get(&server, &token, "cms/")), (200, 403));
    assert_eq!(get(&server, &token, "cms/../x"), 403);
}

#[test]
fn keys_come_change_and_go_while_the_server_runs() {
    let tree = Tree::of(&[("data/x", "x")]);
    let (one, two) = (Key::new("one"), Key::new("two"));
    let (server, issuers) = serve(&tree, "/", None);
    let (first, second) = (one.wlcg("storage.read:/"), two.wlcg("storage.read:/"));
    // Somebody fetches the keys when they are asked for, and has no success at first.
    let fetches = issuers.clone();
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    let runtime = runtime.worker_threads(1).enable_all().build().unwrap();
    runtime.spawn(async move {
        fetches.asked(ISSUER).await;
        drop(fetches.fetching(ISSUER));
    });
    let refused = ask(&server, &first, "GET /x");
    assert!(refused.is(503).field("retry-after").is_some(), "{refused}");
    issuers.set_keys(ISSUER, Some(keys(&[&one])));
    assert_eq!(get(&server, &first, "x"), 200);
    issuers.set_keys(ISSUER, Some(keys(&[&two])));
    assert_eq!((get(&server, &first, "x"), get(&server, &second, "x")), (401, 200));
    issuers.set_keys(ISSUER, None);
    assert_eq!(get(&server, &second, "x"), 503);
}

#[test]
fn names_by_which_tokens_mean_this_server_change_at_once() {
    let (tree, key) = (Tree::of(&[("data/x", "x")]), Key::new("one"));
    let (server, issuers) = serve(&tree, "/", Some(keys(&[&key])));
    let token = key.sign(&with(claims("storage.read:/"), "aud", json!("https://new.example")));
    assert_eq!(get(&server, &token, "x"), 401);
    issuers.set_audiences(vec!["https://new.example".to_owned()]);
    assert_eq!(get(&server, &token, "x"), 200);
    issuers.set_trusted(Vec::new());
    assert_eq!(get(&server, &token, "x"), 401);
    assert!(issuers.names().is_empty());
}

/// The WLCG's issuers sign with RSA.
#[test]
fn tokens_that_are_signed_with_rsa_are_as_good() {
    let tree = Tree::of(&[("data/x", "x")]);
    let key = EncodingKey::from_rsa_der(&STANDARD.decode(RSA_KEY).unwrap());
    let public = Jwk::from_encoding_key(&key, Algorithm::RS256).unwrap();
    let mut public = with(serde_json::to_value(public).unwrap(), "kid", json!("rsa"));
    // It is not bound to one algorithm.
    public.as_object_mut().unwrap().remove("alg");
    let keys = KeySet::read(json!({ "keys": [public] }).to_string().as_bytes()).unwrap();
    let (server, _) = serve(&tree, "/", Some(keys));
    let header = |algorithm| Header { kid: Some("rsa".to_owned()), ..Header::new(algorithm) };
    let good = claims("storage.read:/");
    for algorithm in [Algorithm::RS256, Algorithm::PS384] {
        let token = encode(&header(algorithm), &good, &key).unwrap();
        assert_eq!(get(&server, &token, "x"), 200, "{algorithm:?}");
        let (message, signature) = token.rsplit_once('.').unwrap();
        let turned: String = signature.chars().rev().collect();
        assert_eq!(get(&server, &format!("{message}.{turned}"), "x"), 401);
    }
    // With a public key as a secret anybody could sign.
    let secret = EncodingKey::from_secret(&STANDARD.decode(RSA_KEY).unwrap());
    let token = encode(&header(Algorithm::HS256), &good, &secret).unwrap();
    assert_eq!(get(&server, &token, "x"), 401);
}

/// A key that was made for this test and signs nothing else (PKCS #1, base64): no library here makes one.
const RSA_KEY: &str = "\
     MIIEogIBAAKCAQEA9ds7iywN9YXlRSO+5SjCFeJUH/RhUSClX8rsH4xG7zja9UWhrteI+b2JupW1Un6GqcAZ5ISKqnQk\
     NpenJP3PEdXAoYObUUScnJ5O7JsGhpbIJd2IM+EfMjYPmFPUct25G68GV1CCyXi5Jj7d+ACKkXxwc9mOYA0/quB3nw7h\
     KGIGE5rB019ZGh2lIs65Sdoy4mI1Ycq5/hXtH7Mgmjv8NXjdSd00do6iYBD6oOJ8HwAiAJ/QiQHm959znv/A2ihT5ERN\
     gIlnxz7sa43sXBhef42tQToIaVWtHliLDl9mN5qwrwsrRvkNUetwJWTcSz8h8P0V0XkES5fr0lkFPr8ROQIDAQABAoIB\
     AByKbschPh2ahZsZIzgHG0DfHVT4UbPRTmFodTDUYAe1WfXPN43Mh6I2Vp7Kclo5Rfi+zEKzAEX5ZZrQ0B6DOF6hqdMW\
     LBmrFWM5HYBqHr/RETsUFJOxNqXlkLnmQWt0QeDs2JeaSRSKZzQBaFM5/NwWzhck0lpkL1fu5vQYDhtZy4oGomBi1Lf3\
     OV41lo+ExjBDzvbUpNWOpa5SQKLAmZ7IbTfJKFoprJiMKQzdFgGioJOgpf1AYueH234k32OMqjFKKtxCtdPhtqiNwyT5\
     ZMPddrWF1kMSQDXqHXVH8Yu9HPzPRSHhtpo4LhybvYgUFlhlNBrX87UmbFVfhKycx+ECgYEA/iw0alGLzpoJAcMjEAja\
     Wgy7f5Z8P69Yy79w0Bj0ZccTu9Q5X/GdUePxp5GnHDivgMgiIFiwF97odEKE4eHVqIiLJk2EA4NWnMv4JOH4FHWJr5pB\
     YULDPrxJ0RTt8PkH1sLg4jfTu7L+jsV6kPKsE5slwzQifOQ/8oELAuNpiUsCgYEA95+41cpVHnX855CyxM8FCe1F09rM\
     VeSPhzth2EcXyzaakKDD2/HlgwSTj5fGLiR6ArnuJ8eowJAkdMukrbGonfe0+cJP4xnt4Ojs31fJSD89gs0LGYan2yFf\
     o6bjolgxHFkLQ14OsMgnA6t+0Lxju0Yb0JgWPb44bb/P9ZDaoQsCgYA31gQpuwJIf6Qs4+5G7nrxP0zNSYTABMgv8j1Z\
     KbI+zY3zPDribdSOkdGbay7Xz0gWtWBx1KnShKByMc65RIBIRr6yymKO1wJm7ZP0nkN+UxfNIMjuEdmMZZadvMhMoJht\
     QGBgsbzsxfSP7qfvQbA1mmagTEqrPwUhQ+HkX4rmowKBgAq7CS96jSW8xzDhvF16+yTq+1Oq75/pP68Ei8Drk8RioWAT\
     F2m4mdGLqTlXwmbNfdwQYpmmtVFi7bGCAajlQgFWcqlAGmYlAYH1lg43p6lR1ECO0iRRCYUddR+KY+LtH3OzCCHrOYe/\
     pLEsBVrWTxwWda4caRpT2+4lmcVyeYbxAoGAUo80oxXjcet+fuO2H56pCRqXla5DCV5qsFN/46xfB1Hr8oY3n2YdeQID\
     qAkDx0Vc3DTurSMZ20d+H8kCh7Y5Ov0lsIxva/fYNvPIsbrUqM/B4gpH1lBOC3IB1LhAd94ND5PYfvjdQfhM7KJBj97W\
     E2j/KgtmT3fj1t0leZ/k0RQ=";
