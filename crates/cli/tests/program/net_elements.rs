//! One bad element of a list, a Metalink or a netrc file spoils itself alone, is named, and never
//! leads to less checking.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use crate::support::Home;
use crate::support::net::{honest, server, sha256, url};
use swath_netlab::faulty::{Behaviour, Content};

/// A list from aria2 had a line in Latin-1 between an address and its checksum: the file was fetched
/// and named without the checksum.
#[test]
fn a_line_that_is_no_text_does_not_cost_the_checksum_below_it() {
    let content = Content::random(1, 100_000);
    let source = honest(&content);
    let home = Home::new();
    let wrong = "0".repeat(64);
    let right = sha256(&content).replace("sha-256:", "");
    for (line, code) in [
        (b"# caf\xe9".as_slice(), 0),
        (b"  # caf\xe9".as_slice(), 0),
        (b"  referer=http://x/caf\xe9".as_slice(), 0),
        (b"  out=caf\xe9.bin".as_slice(), 6),
    ] {
        for (sum, code) in [(&wrong, if code == 0 { 4 } else { code }), (&right, code)] {
            let (above, below) = (url(&source), format!("\n  checksum=sha-256={sum}\n"));
            home.write("list", [above.as_bytes(), b"\n", line, below.as_bytes()].concat());
            home.swath(["get", "-i", "list", "-d", "out"]).run().code_is(code);
            let there =
                home.exists("out") && home.names_in("out").iter().any(|name| name == "data.bin");
            assert_eq!(there, code == 0, "{}", String::from_utf8_lossy(line));
            let _ = fs::remove_dir_all(home.path("out"));
        }
    }
}

/// A name of a Metalink that is a danger costs no other file, and is told.
#[test]
fn a_refused_name_of_a_metalink_is_told() {
    let content = Content::random(2, 50_000);
    let source = honest(&content);
    let entry = |name: &str| format!("<file name=\"{name}\"><url>{}</url></file>", url(&source));
    let home = Home::new();
    let files = entry("first.bin") + &entry("../evil") + &entry("last.bin");
    let namespace = "urn:ietf:params:xml:ns:metalink";
    home.write("x.meta4", format!("<metalink xmlns=\"{namespace}\">{files}</metalink>"));
    let ran = home.run(["get", "x.meta4", "-d", "out"]);
    ran.code_is(8).says(&["evil", "its name is refused"]);
    home.holds("out/first.bin", &content);
    home.holds("out/last.bin", &content);
}

/// Heroku's tools write `method interactive` into the file: the logins of all hosts were lost.
#[test]
fn a_word_of_another_program_costs_no_login() {
    let content = Content::random(4, 10_000);
    let source = server(&content, Behaviour::RequireAuthorization("Basic bWU6cHc=".to_owned()));
    let home = Home::new();
    let netrc = home.home().join(".netrc");
    fs::write(
        &netrc,
        "machine api.example\n  login x\n  password y\n  method interactive\n\
         machine 127.0.0.1\n  login me\n  password pw\n",
    )
    .unwrap();
    fs::set_permissions(&netrc, fs::Permissions::from_mode(0o600)).unwrap();
    home.swath(["get", &url(&source)]).run().code_is(0).says(&["line 4"]);
    home.holds("data.bin", &content);
}
