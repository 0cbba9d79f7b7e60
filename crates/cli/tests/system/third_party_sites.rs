//! Copies between servers at emulated sites: needs root, who makes them.

use std::fs;
use std::path::Path;
use std::time::Duration;

use swath_netlab::mesh::{Mesh, MeshLink, MeshSpec, SiteSpec};
use swath_netlab::wan::{LabError, Shape};

use crate::support::Home;
use crate::support::serve::Served;
use crate::support::trees::bytes;
use crate::third_party_servers::{args, at, fingerprint};

/// Two sites with a slow link between them, and a relay with fast links to both. `None` without root.
fn sites() -> Option<Mesh> {
    let shape = |mbit: u64| Shape::new(mbit * 1_000_000, Duration::from_millis(2));
    let link = |near, far, mbit| MeshLink { near, far, down: shape(mbit), up: shape(mbit) };
    let spec = MeshSpec {
        sites: ["a", "b", "relay", "here"].map(SiteSpec::new).to_vec(),
        links: vec![link(A, B, 4), link(A, RELAY, 200), link(RELAY, B, 200), link(HERE, B, 10)],
        seed: 1,
        has_offload: true,
    };
    match Mesh::start(spec) {
        Ok(mesh) => Some(mesh),
        Err(LabError::NeedsRoot) => {
            println!("skipped: needs root");
            None
        }
        Err(error) if !Path::new("/dev/net/tun").exists() => {
            println!("skipped: {error}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn relays_of_the_destination_shorten_its_way() {
    let home = Home::new();
    home.write("a/ds/large", bytes(1, 12_000_000));
    fs::create_dir(home.path("b")).unwrap();
    let Some(mesh) = sites() else { return };
    let at_site = |site: usize, args: &[&str]| {
        let mut swath = home.swath(args);
        mesh.site(site).confine(swath.command());
        swath
    };
    let listen = |site: usize| format!("{}:8470", mesh.address(site));
    let serve = |site: usize, args: &[&str]| {
        let listen = listen(site);
        let all = [&["serve", "--listen", &listen][..], args].concat();
        Served::of(at_site(site, &all), args)
    };
    let all = "10.79.0.0/24";
    let a = serve(A, &["a"]);
    let (near, known) = (listen(RELAY), fingerprint(&a));
    let usual = ["relay", "--plain", "--clients", all, "--upstream", all];
    let relay = [&usual[..], &["--listen", &near, "--fingerprint", &known]].concat();
    let relay = Served::of(at_site(RELAY, &relay), &["--token-file"]);
    let more = ["--third-party-from", all, "--third-party-relay", &relay.named()];
    let b = serve(B, &[&["b", "--write", "--third-party"][..], &more].concat());
    let command = args(&[&a, &b], &[at(&a, "ds/"), at(&b, "copy/")]);
    let command: Vec<&str> = command.iter().map(String::as_str).collect();
    let copied = at_site(HERE, &command).run();
    // The direct way alone would take 24 seconds.
    copied.code_is(0).says(&[&format!("by {}", mesh.address(RELAY)), "verified by the checksum"]);
    copied.never_says(&["through this machine"]);
    assert!(home.read("b/copy/large") == bytes(1, 12_000_000));
}

const A: usize = 0;

const B: usize = 1;

const RELAY: usize = 2;

const HERE: usize = 3;
