//! `--end-to-end`: what relays carry without reading it, and what each of them hears meanwhile. An ear
//! in front of a relay hears all that this relay ever hears of us.

use std::fs;

use crate::support::depot::until;
use crate::support::net::{honest, url};
use crate::support::relay::{FIRST, SECOND, Two};
use swath_netlab::faulty::Content;

const SIZE: u64 = 3_000_017;

#[test]
fn each_relay_of_a_tunnel_is_shown_its_own_token_and_hears_of_no_other() {
    // The second relay answered 407: the first one asked it for a tunnel in its own name.
    let content = Content::random(41, SIZE);
    let origin = honest(&content);
    let from = url(&origin);
    for is_far_tls in [true, false] {
        let two = Two::new(is_far_tls);
        two.get(&from, "config.toml").code_is(0);
        two.home.holds("got", &content);
        // The ears hear: in the clear where the relay speaks no TLS.
        assert!(two.near.heard(FIRST) && two.near.heard("CONNECT "));
        assert!(
            two.far.heard("CONNECT ") != is_far_tls && two.far.heard("swath-pass: ") != is_far_tls
        );
        assert!(
            !two.near.heard(SECOND),
            "the first relay hears the second one's token ({is_far_tls})"
        );
        assert!(
            !two.far.heard(FIRST),
            "the second relay hears the first one's token ({is_far_tls})"
        );
        assert!(!two.far.heard("Proxy-Authorization"), "it went where the first relay reads along");
        // Nor does the first one hear where the way goes on, if the second speaks TLS.
        let end = from.trim_start_matches("http://").split('/').next().unwrap().to_owned();
        assert_eq!(two.near.heard(&format!("CONNECT {end} ")), !is_far_tls);
        for log in ["near.log", "far.log"] {
            let log = || fs::read_to_string(two.home.path(log)).unwrap();
            until("the tunnel is noted", || log().contains("CONNECT "));
            let log = log();
            assert!(log.contains("CONNECT ") && !log.contains("opens-the-"), "{log}");
        }
    }
}

#[test]
fn a_relay_of_a_tunnel_that_lacks_its_token_is_named() {
    let content = Content::random(42, SIZE);
    let origin = honest(&content);
    let two = Two::new(true);
    let whole = fs::read_to_string(two.home.path("config.toml")).unwrap();
    let (head, _) = whole
        .split_once(&format!(", token-file = \"{}\"", two.home.path(SECOND).display()))
        .unwrap();
    two.home.write("half.toml", format!("{head} }},\n]\n"));
    let far = two.far.url().replace("http://", "");
    two.get(&url(&origin), "half.toml").code_is(7).says(&[&far, "it lets others in"]);
    assert!(!two.near.heard(SECOND));
}
