//! What a user is told when a server, a proxy or swath itself refuses, and what is not a refusal.

use crate::support::Home;
use crate::support::net::{honest, server, url};
use swath_netlab::faulty::{Behaviour, Content};

fn content() -> Content {
    Content::random(1, 3_000_011)
}

#[test]
fn who_denied_and_what_was_shown_there_is_told() {
    let home = Home::new();
    let content = content();
    let locked = server(&content, Behaviour::RequireAuthorization("Bearer right".to_owned()));
    let door = server(&content, Behaviour::redirect(url(&locked)));
    let token = |token: &str| home.swath(["get", &url(&door)]).env("BEARER_TOKEN", token);
    // The token is for the door and not for whom it points to.
    let to = format!("the redirect's target {} answered 401 Unauthorized", url(&locked));
    token("right")
        .run()
        .code_is(7)
        .says(&[&to, "your credentials were not sent, as they are for another host"]);
    home.run(["get", &url(&door)]).code_is(7).says(&[&to, "no credentials were sent"]);
    home.run(["probe", &url(&door)]).code_is(7);
    home.swath(["get", &url(&locked)])
        .env("BEARER_TOKEN", "wrong")
        .run()
        .code_is(7)
        .says(&["the server answered 401 Unauthorized; the credentials sent are not good enough"])
        .never_says(&["wrong"]);
}

#[test]
fn tokens_and_logins_that_cannot_be_used_are_told() {
    let home = Home::new();
    let open = honest(&content());
    let get = || home.swath(["get", &url(&open), "--overwrite"]);
    get()
        .env("BEARER_TOKEN", "two words")
        .run()
        .code_is(0)
        .says(&["warning: BEARER_TOKEN holds no token"])
        .never_says(&["two words"]);
    get()
        .env("BEARER_TOKEN_FILE", "/nowhere/token")
        .run()
        .code_is(0)
        .says(&["warning: cannot read the token in /nowhere/token: "]);
    get()
        .env("NETRC", "/nowhere/netrc")
        .run()
        .code_is(6)
        .says(&["cannot read the logins in /nowhere/netrc"]);
    std::fs::write(home.home().join(".netrc"), b"machine h login \xff password p\n").unwrap();
    get().run().code_is(0).says(&["warning: the logins in ", "is not UTF-8"]);
}

#[test]
fn headers_replace_what_swath_sends_or_are_refused() {
    let home = Home::new();
    let server = honest(&content());
    let get = |header: &str| home.run(["get", &url(&server), "--overwrite", "--header", header]);
    get("User-Agent: me").code_is(0);
    for record in &server.log().records {
        assert_eq!(record.header("user-agent"), Some("me"));
    }
    get("Range: bytes=0-3").code_is(2).says(&["the header Range cannot be set"]);
    get("Host: other").code_is(2).says(&["the header Host cannot be set"]);
    get("X: a\r\nY: b").code_is(2);
}

#[test]
fn a_proxy_that_cannot_be_used_is_not_passed_by() {
    let home = Home::new();
    let server = honest(&content());
    home.swath(["get", &url(&server)])
        .env("http_proxy", "ht!tp://me:hush@y")
        .run()
        .code_is(6)
        .says(&["the proxy in http_proxy cannot be used"])
        .never_says(&["hush"]);
    assert!(server.log().is_empty(), "nobody was contacted");
}

#[test]
fn the_reason_is_shown_while_nothing_comes() {
    let home = Home::new();
    let broken = server(&content(), Behaviour::status(500).first(2));
    home.run(["get", &url(&broken)])
        .code_is(0)
        .says(&["data.bin: the server answered 500 Internal Server Error; trying again"]);
}
