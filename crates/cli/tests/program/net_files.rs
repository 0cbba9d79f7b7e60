//! `swath get` from files of this machine, alone and beside servers.

use std::fs;

use swath_netlab::faulty::{Behaviour, Content};

use crate::support::Home;
use crate::support::net::{FILE, server, sha256, url};

const SIZE: u64 = 4_000_037;

fn file_url(home: &Home, name: &str) -> String {
    format!("file://{}", home.path(name).display())
}

#[test]
fn a_file_of_this_machine_is_a_mirror_like_others() {
    let home = Home::new();
    let content = Content::random(1, SIZE);
    home.write("kept/data.bin", content.read(0, SIZE));
    let far = server(&content, Behaviour::rate(2_000_000));
    let here = file_url(&home, "kept/data.bin");
    let ran = home.run(["get", &url(&far), &here, "--digest", &sha256(&content)]);
    ran.code_is(0).says(&["2 sources", "verified by sha-256"]);
    home.holds("data.bin", &content);
    // Again it is there, by its size and time.
    home.run(["get", &here]).code_is(0).says(&["already complete"]);
    // What is wrong with it is its own fault.
    let mut wrong = content.read(0, SIZE);
    wrong.iter_mut().step_by(4096).for_each(|byte| *byte ^= 1);
    fs::write(home.path("kept/data.bin"), wrong).unwrap();
    let args = ["get", &url(&far), &here, "--digest", &sha256(&content), "--overwrite"];
    home.run(args).code_is(0).says(&["not used: it delivered corrupt data"]);
    home.holds("data.bin", &content);
}

#[test]
fn what_cannot_be_read_here_is_told_apart_and_nobody_else_names_it() {
    let home = Home::new();
    home.write("secret", "of this machine");
    for (name, why) in [("nothing", "No such file"), ("", "no ordinary file")] {
        let ran = home.run(["get", &file_url(&home, name), "-o", "x"]);
        ran.code_is(7).says(&["cannot be read", why]);
    }
    home.run(["get", "file://host/x"]).code_is(2).says(&["file:///PATH"]);
    // A redirect and a Metalink lead to no file of this machine.
    let secret = file_url(&home, "secret");
    let away = server(&Content::random(1, 15), Behaviour::redirect(secret.clone()));
    home.run(["get", &url(&away), "-o", "x"]).code_is(7).never_says(&["of this machine"]);
    let metalink = format!(
        "<metalink xmlns=\"urn:ietf:params:xml:ns:metalink\"><file name=\"x\"><size>15</size>\
         <url>{secret}</url></file></metalink>"
    );
    home.write("x.meta4", metalink);
    assert_ne!(home.run(["get", "x.meta4"]).code(), 0);
    assert!(!home.exists("x"), "{:?} and {FILE}", home.names());
}
