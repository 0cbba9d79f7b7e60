//! What `--timeout` limits, and what it does not: waiting for a source is one thing, holding it
//! up ourselves another.

use std::process::Stdio;
use std::time::Duration;

use crate::support::Home;
use crate::support::net::{honest, url};
use swath_netlab::faulty::Content;

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
