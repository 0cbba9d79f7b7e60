//! `swath serve --allow`: the option, and what its own clients make of a refusal. (Who is let in by which
//! network is tested in the suite of the crate `serve`.)

use std::net::{Ipv6Addr, TcpListener};

use crate::support::Home;

fn home() -> Home {
    let home = Home::new();
    home.write("tree/a.txt", "alpha\n");
    home
}

#[test]
fn the_loopback_address_of_the_newer_kind_is_one_like_others() {
    if TcpListener::bind((Ipv6Addr::LOCALHOST, 0)).is_err() {
        println!("skipped: this machine has no ::1");
        return;
    }
    // The whole way, by the program's own clients.
    let home = home();
    let args = ["tree", "--anonymous", "--plain", "--allow", "::1"];
    let server = home.serve_at("[::1]:0", &args);
    assert!(server.url.starts_with("http://[::1]:"), "{}", server.url);
    home.run(["get", &server.at("a.txt"), "-o", "got", "--quiet"]).code_is(0);
    assert_eq!(home.read("got"), b"alpha\n");
    home.run(["cp", &server.url, "copy/", "--quiet"]).code_is(0);
    assert_eq!(home.read("copy/a.txt"), b"alpha\n");
}

#[test]
fn who_is_not_allowed_copies_nothing_with_the_right_token_either() {
    let home = home();
    let args = ["tree", "--write", "--plain", "--allow", "192.0.2.0/24"];
    let server = home.serve(&args);
    home.write("token", server.token());
    let copied = home.run(["cp", &server.url, "copy/", "--bearer-file", "token"]);
    copied.code_is(7).says(&["403"]);
    home.run(["cp", "tree/", &server.at("new/"), "--bearer-file", "token"])
        .code_is(5)
        .says(&["403"]);
    assert!(!home.exists("copy") && !home.exists("tree/new"));
    // Several networks may stand in one option.
    let args = ["tree", "--anonymous", "--plain", "--allow", "192.0.2.0/24,127.0.0.1"];
    home.run(["ls", &home.serve(&args).url]).code_is(0);
}

#[test]
fn what_is_no_network_is_refused_before_anybody_is_let_in() {
    let home = home();
    for wrong in ["", "127.0.0.1/33", "::1/129", "localhost", "127.0.0.0/", "10/8"] {
        let served = home.run(["serve", "tree", "--anonymous", "--allow", wrong]);
        served.code_is(2).says(&["is not an address block"]);
    }
}
