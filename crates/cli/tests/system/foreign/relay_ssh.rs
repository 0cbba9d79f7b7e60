//! Copies by ssh beside relays that the configuration names.

use std::net::TcpListener;

use crate::support::Home;
use crate::support::ssh::{machine, own_folder};

#[test]
fn copies_by_ssh_use_no_relay() {
    // With a route that is named in the configuration every copy failed: the relay was to ask for a server
    // that is nowhere. With the others it was asked about that server.
    let home = Home::new();
    let relay = TcpListener::bind("127.0.0.1:0").unwrap();
    let named = format!("http://{}", relay.local_addr().unwrap());
    home.write("tree/one", "of one\n");
    home.write("tree/below/two", "of two\n");
    let Some(machine) = machine(&home, &own_folder()) else { return };
    let there = format!("box:{}", home.work().display());
    for (at, route) in [named.as_str(), "auto", "multi", "widest"].into_iter().enumerate() {
        let config = format!("relays = [\"{named}\"]\nroute = \"{route}\"");
        home.write("config.toml", config);
        let copies = |from: &str, to: &str, is_typed: bool| {
            let typed: &[&str] = if is_typed { &["--route", route] } else { &[] };
            let swath = home.swath([&["cp", from, to][..], typed].concat());
            let swath = swath.env("SWATH_CONFIG", "config.toml").env("SWATH_SSH", &machine.ssh);
            let ran = swath.env("PATH", "/usr/bin:/bin").run();
            ran.code_is(0).never_says(&["relay", "warning"]);
        };
        copies("tree/", &format!("{there}/sent{at}"), true);
        copies(&format!("{there}/tree/"), &format!("come{at}"), false);
        assert_eq!(home.read(&format!("sent{at}/one")), b"of one\n");
        assert_eq!(home.read(&format!("come{at}/below/two")), b"of two\n");
    }
    // It was never connected to.
    relay.set_nonblocking(true).unwrap();
    assert!(relay.accept().is_err());
}
