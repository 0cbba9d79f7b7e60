//! `swath serve` that cannot begin: each reason has its exit code.

use std::net::TcpListener;

use crate::support::Home;

#[test]
fn why_a_server_does_not_stand_is_seen_by_its_exit_code() {
    let home = Home::new();
    home.write("tree/file", "x");
    home.write("other/tree/file", "x");
    home.write("file", "x");
    home.write("tokens", "one two three\n");
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = taken.local_addr().unwrap().to_string();
    let at = ["--listen", "127.0.0.1:0"];
    for (args, code, words) in [
        (&["tree", "other/tree"][..], 2, "two of the folders are called 'tree'"),
        (&["tree", "--tls-cert", "none.pem", "--tls-key", "file"], 4, "cannot use none.pem"),
        (&["tree", "--tls-cert", "file", "--tls-key", "file"], 4, "no certificate in it"),
        (&["tree", "--plain", "--listen", &taken], 5, "cannot listen at 127.0.0.1:"),
        (&["tree", "--plain", "--congestion", "no-such"], 2, "--congestion no-such: the kernel"),
        (&["tree", "--plain", "--log", "none/log"], 5, "cannot write to none/log"),
        (&["none", "--plain"], 6, "cannot serve none: No such file"),
        (&["file", "--plain"], 6, "cannot serve file: Not a directory"),
        (&["tree", "--plain", "--token-file", "none"], 6, "cannot read tokens from none"),
        (&["tree", "--plain", "--token-file", "tokens"], 6, "line 1 is no token"),
    ] {
        let ran = home.run(["serve"].iter().chain(&at).chain(args));
        ran.code_is(code).says(&[words]);
        assert!(ran.stdout.is_empty(), "{ran}");
    }
}
