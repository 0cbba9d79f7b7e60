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

/// A name ended in a dot, as many species do: all files of the Metalink were refused. Such names are
/// legal here; where one is a danger it costs no other file.
#[test]
fn one_name_of_a_metalink_costs_no_other_file() {
    let content = Content::random(2, 50_000);
    let source = honest(&content);
    let sum = sha256(&content).replace("sha-256:", "");
    let entry = |name: &str| {
        format!(
            "<file name=\"{name}\"><size>50000</size><hash type=\"sha-256\">{sum}</hash><url>{}</url></file>",
            url(&source)
        )
    };
    let long = "n".repeat(255);
    for (name, is_taken) in [
        ("Salmonella spp./reads.fq", true),
        (long.as_str(), true),
        ("notes ", true),
        ("a\\b", true),
        ("../evil", false),
        ("/etc/evil", false),
    ] {
        let home = Home::new();
        home.write(
            "x.meta4",
            format!(
                "<?xml version=\"1.0\"?><metalink xmlns=\"urn:ietf:params:xml:ns:metalink\">{}{}{}</metalink>",
                entry("first.bin"),
                entry(name),
                entry("last.bin")
            ),
        );
        let ran = home.swath(["get", "x.meta4", "-d", "out"]).run();
        ran.code_is(if is_taken { 0 } else { 8 });
        home.holds("out/first.bin", &content);
        home.holds("out/last.bin", &content);
        if is_taken {
            home.holds(&format!("out/{name}"), &content);
        } else {
            ran.says(&["evil", "its name is refused"]);
        }
    }
}

/// Windows tools write UTF-16, older catalogues ISO-8859-1.
#[test]
fn metalinks_in_other_encodings_are_read() {
    let content = Content::random(3, 50_000);
    let source = honest(&content);
    let text = |encoding: &str| {
        format!(
            "<?xml version=\"1.0\" encoding=\"{encoding}\"?>\n<metalink xmlns=\"urn:ietf:params:xml:ns:metalink\">\
             <file name=\"Größe.bin\"><url>{}</url></file></metalink>",
            url(&source)
        )
    };
    let latin: Vec<u8> =
        text("ISO-8859-1").chars().map(|c| u8::try_from(u32::from(c)).unwrap()).collect();
    let wide: Vec<u8> =
        format!("\u{feff}{}", text("UTF-16")).encode_utf16().flat_map(u16::to_le_bytes).collect();
    for bytes in [latin, wide] {
        let home = Home::new();
        home.write("x.meta4", bytes);
        home.swath(["get", "x.meta4"]).run().code_is(0);
        home.holds("Größe.bin", &content);
    }
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
