//! Who may read and write: tokens, how they are shown, and when they end. Time is a parameter.

use std::net::SocketAddr;
use std::time::{Duration, SystemTime};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use swath_serve::http::Response;
use swath_serve::{Access, Rights, Token, Who, new_token, read_tokens};

use crate::support::{Tree, auth};

fn at(time_s: u64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(time_s)
}

fn token(secret: &str, may_write: bool, until_s: Option<u64>) -> Token {
    Token { secret: secret.to_owned(), may_write, expires: until_s.map(at) }
}

fn here() -> SocketAddr {
    "127.0.0.1:1".parse().unwrap()
}

fn check(access: &Access, shown: &str, now_s: u64) -> Result<Rights, Response> {
    access.check_shown(Some(shown), here(), at(now_s))
}

/// The status of the refusal; 200 without one.
fn status(access: &Access, shown: &str, now_s: u64) -> u16 {
    check(access, shown, now_s).map_or_else(|refusal| refusal.status, |_| 200)
}

#[test]
fn a_token_is_shown_as_a_bearer_or_as_the_password_of_anybody() {
    let access = Access::new(vec![token("secret", false, None)], Vec::new());
    let basic = |text: &str| format!("Basic {}", STANDARD.encode(text));
    for (shown, expected) in [
        ("Bearer secret".to_owned(), 200),
        ("bearer  secret ".to_owned(), 200),
        (basic("anybody:secret"), 200),
        (basic(":secret"), 200),
        ("Bearer secre".to_owned(), 401),
        ("Bearer secret2".to_owned(), 401),
        ("Bearer".to_owned(), 401),
        ("Bearer ".to_owned(), 401),
        ("secret".to_owned(), 401),
        ("Digest secret".to_owned(), 401),
        (basic("secret"), 401),
        (basic("secret:anybody"), 401),
        (basic("a:b:secret"), 401),
        ("Basic !!!".to_owned(), 401),
        (String::new(), 401),
    ] {
        assert_eq!(status(&access, &shown, 0), expected, "{shown:?}");
    }
    assert!(access.check_shown(None, here(), at(0)).is_err_and(|refusal| refusal.status == 401));
}

#[test]
fn a_refusal_says_what_is_wrong_where_programs_look() {
    let access = Access::new(vec![token("old", false, Some(10))], Vec::new());
    let challenge = |shown: Option<&str>| {
        let refusal = access.check_shown(shown, here(), at(10)).err().unwrap();
        let field = refusal.fields.iter().find(|(name, _)| *name == "www-authenticate");
        field.unwrap().1.clone()
    };
    // Nobody is told that what was not shown is wrong (RFC 6750, section 3.1).
    assert_eq!(challenge(None), "Bearer realm=\"swath\", Basic realm=\"swath\"");
    assert!(challenge(Some("Bearer old")).contains("error_description=\"this token has expired\""));
    assert!(challenge(Some("Bearer x")).contains("error=\"invalid_token\""));
}

#[test]
fn a_token_opens_until_it_ends() {
    let tokens = vec![token("reads", false, Some(100)), token("writes", true, None)];
    let access = Access::new(tokens, Vec::new());
    for (now_s, expected) in [(0, 200), (99, 200), (100, 401), (101, 401)] {
        assert_eq!(status(&access, "Bearer reads", now_s), expected, "{now_s}");
        assert_eq!(status(&access, "Bearer writes", now_s), 200);
    }
    let reads = check(&access, "Bearer reads", 0).ok().unwrap();
    assert!(reads.may_read(b"a") && !reads.may_create(b"a") && !reads.may_write_somewhere());
    let writes = check(&access, "Bearer writes", 0).ok().unwrap();
    assert!(writes.may_modify(b"a") && writes.may_make_folder(b"a/b"));
}

#[test]
fn whoever_can_still_write_is_known_by_the_token_with_which_it_began() {
    let access = Access::new(vec![token("one", true, Some(100))], Vec::new());
    let who = check(&access, "Bearer one", 0).ok().unwrap().who;
    assert!(access.may_still_write(who, at(99)) && !access.may_still_write(who, at(100)));
    access.set_tokens(vec![token("one", false, None)]);
    assert!(!access.may_still_write(who, at(0)), "it reads only now");
    access.set_tokens(vec![token("two", true, None)]);
    assert!(!access.may_still_write(who, at(0)), "another one does not stand for it");
    access.set_tokens(vec![token("two", true, None), token("one", true, None)]);
    assert!(access.may_still_write(who, at(1 << 30)), "the same again, without an end");
    assert!(!access.may_still_write(Who::default(), at(0)));
}

#[test]
fn who_takes_the_last_token_out_lets_nobody_in() {
    // A file without any left all old ones good: who revoked everything revoked nothing.
    let access = Access::new(vec![token("one", false, None)], Vec::new());
    let clone = access.clone();
    access.set_tokens(Vec::new());
    for access in [&access, &clone] {
        assert!(!access.asks_for_nothing());
        assert_eq!(status(access, "Bearer one", 0), 401);
        assert_eq!(status(access, "Bearer ", 0), 401, "and an empty one is none");
    }
    assert!(Access::default().asks_for_nothing());
}

#[test]
fn tokens_that_change_hold_for_the_next_request_of_an_open_connection() {
    let tree = Tree::of(&[("tree/a", "alpha\n")]);
    let server = tree.plan(&["tree"]).writes().start();
    let request = format!("HEAD /a HTTP/1.1\r\nHost: h\r\n{}\r\n\r\n", auth());
    let mut tcp = server.connect();
    for (tokens, expected) in [
        (None, "200"),
        (Some(vec![token("another", true, None)]), "401"),
        (Some(vec![token(crate::support::TOKEN, false, None)]), "200"),
    ] {
        if let Some(tokens) = tokens {
            server.access.set_tokens(tokens);
        }
        std::io::Write::write_all(&mut tcp, request.as_bytes()).unwrap();
        let head = crate::support::head_of(&mut tcp);
        assert_eq!(&head[9..12], expected, "{head}");
    }
}

#[test]
fn networks_come_before_tokens() {
    let networks = vec!["192.0.2.0/24".parse().unwrap()];
    let access = Access::new(vec![token("one", true, None)], networks);
    for (peer, shown, expected) in [
        ("192.0.2.7:1", "Bearer one", 200),
        ("192.0.2.7:1", "Bearer x", 401),
        ("[::ffff:192.0.2.7]:1", "Bearer one", 200),
        // Whether it is right is not told.
        ("198.51.100.1:1", "Bearer one", 403),
        ("198.51.100.1:1", "Bearer x", 403),
    ] {
        let found = access.check_shown(Some(shown), peer.parse().unwrap(), at(0));
        let status = found.map_or_else(|refusal| refusal.status, |_| 200);
        assert_eq!(status, expected, "{peer} {shown}");
    }
}

#[test]
fn no_secret_is_in_what_is_shown_of_tokens() {
    let one = token("hidden", true, None);
    let access = Access::new(vec![one.clone()], Vec::new());
    let who = check(&access, "Bearer hidden", 0).ok().unwrap().who;
    for shown in [format!("{one:?}"), format!("{access:?}"), format!("{who:?} {who}")] {
        assert!(!shown.contains("hidden"), "{shown}");
    }
    let tree = Tree::of(&[("tokens", "fine\nhidden words more\n")]);
    let error = read_tokens(&tree.path("tokens")).unwrap_err().to_string();
    assert!(error.starts_with("line 2 ") && !error.contains("hidden"), "{error}");
}

#[test]
fn tokens_that_are_made_are_all_others_and_need_no_quotes() {
    let mut all: Vec<String> = (0..500).map(|_| new_token()).collect();
    for token in &all {
        assert!(token.len() == 32 && !token.starts_with('-'), "{token}");
        assert!(token.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte)));
    }
    all.sort();
    all.dedup();
    assert_eq!(all.len(), 500);
}
