//! What `--timeout` limits, and what it does not: waiting for a source is one thing, holding it
//! up ourselves another.

use std::process::Stdio;
use std::time::Duration;

use crate::support::Home;
use crate::support::net::{honest, server, url};
use swath_netlab::faulty::{Behaviour, Content, Scope};

#[test]
fn a_reader_that_pauses_is_no_stall() {
    let content = Content::random(1, 3_000_011);
    let home = Home::new();
    let (one, two) = (honest(&content), honest(&content));
    let mut swath = home.swath(["get", &url(&one), &url(&two), "-o", "-", "--timeout", "1s"]);
    let mut child = swath.command().stderr(Stdio::null()).spawn().unwrap();
    // Longer than the time-out; the pipe holds 64 KiB meanwhile.
    std::thread::sleep(Duration::from_millis(2500));
    let mut out = Vec::new();
    std::io::Read::read_to_end(&mut child.stdout.take().unwrap(), &mut out).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0));
    assert_eq!(out, content.read(0, content.size_bytes()));
}

#[test]
fn a_comparison_that_is_not_answered_fails_nothing() {
    // All had come from the other mirror; as the silent one did not answer what a few blocks of it are
    // there, the transfer ended with "nothing arrived from any source".
    let content = Content::random(2, 3_000_017);
    let home = Home::new();
    let lasts = Duration::from_secs(600);
    let stall = Behaviour::Stall { after_bytes: 400_000, lasts, scope: Scope::Server };
    // Slow enough that the silent one has its part in it.
    let slow = Behaviour::ConnectionRate { bytes_per_s: 3_000_000 };
    let (hung, slow) = (server(&content, stall), server(&content, slow));
    home.run(["get", &url(&hung), &url(&slow), "--timeout", "1s"]).code_is(0);
    home.holds("data.bin", &content);
}
