//! Relays with certificates that they made themselves: known by their fingerprints, which the
//! configuration names, and trusted of them alone.

use std::fs;

use crate::support::net::{honest, url};
use crate::support::relay::Ear;
use crate::support::serve::{FINGERPRINT, Served};
use crate::support::{Home, Ran};
use swath_netlab::faulty::Content;

const SIZE: u64 = 3_000_017;

fn relay(home: &Home, more: &[&str]) -> Served {
    home.tls_relay(&[&["--clients", "127.0.0.0/8"], more].concat())
}

fn print(relay: &Served) -> String {
    let print = relay.words.lines().find_map(|line| line.strip_prefix(FINGERPRINT));
    print.unwrap().trim().to_owned()
}

/// The configuration names these relays, with these fingerprints, and a route over them.
fn configure(home: &Home, relays: &[(&str, &str)]) {
    let file = home.home().join(".config/swath/config.toml");
    fs::create_dir_all(file.parent().unwrap()).unwrap();
    let one = |(url, print): &(&str, &str)| match print.is_empty() {
        true => format!("  \"{url}\",\n"),
        false => format!("  {{ url = \"{url}\", fingerprint = \"{print}\" }},\n"),
    };
    let list: String = relays.iter().map(one).collect();
    let route: Vec<&str> = relays.iter().map(|(url, _)| *url).collect();
    fs::write(file, format!("relays = [\n{list}]\nroute = \"{}\"\n", route.join(","))).unwrap();
}

fn get(home: &Home, from: &str, more: &[&str]) -> Ran {
    home.run([&["get", from, "-o", "got", "--overwrite"], more].concat())
}

#[test]
fn the_configuration_says_by_which_certificate_a_relay_is_known() {
    // Whoever followed the five minutes of the manual had a relay that nobody trusted.
    let home = Home::new();
    let content = Content::random(81, SIZE);
    let origin = honest(&content);
    let from = url(&origin);
    let relay = relay(&home, &[]);
    let (named, print) = (relay.named(), print(&relay));
    for more in [&[][..], &["--end-to-end"], &["--relay", &named, "--route", &named]] {
        configure(&home, &[(&named, &print)]);
        get(&home, &from, more).code_is(0);
        home.holds("got", &content);
        configure(&home, &[(&named, "")]);
        let ran = get(&home, &from, more);
        ran.code_is(7).says(&["certificate is not trusted", "to trust a relay, set fingerprint next to its url in the configuration; 'swath relay' prints it"]);
        let other = format!("sha-256:{}", "1f".repeat(32));
        configure(&home, &[(&named, &other)]);
        get(&home, &from, more).code_is(7).says(&["not the one given"]);
    }
}

#[test]
fn what_a_relay_is_known_by_is_trusted_of_nobody_else() {
    // A relay that carries a connection could otherwise be its other end.
    let home = Home::new();
    let origin = honest(&Content::random(82, SIZE));
    let relay = relay(&home, &[]);
    // It shows the relay's certificate at another address.
    let other = Ear::before(relay.address(), |_| {});
    let secure = other.url().replace("http:", "https:");
    let from = format!("{secure}/relay/{}", url(&origin));
    configure(&home, &[(&relay.named(), &print(&relay))]);
    for more in [&["--route", "direct"][..], &["--end-to-end"]] {
        let ran = get(&home, &from, more);
        ran.code_is(7).says(&["certificate is not trusted"]);
        home.lacks("got");
    }
    // It is the right one by itself.
    get(&home, &from, &["--route", "direct", "--fingerprint", &print(&relay)]).code_is(0);
}

#[test]
fn a_relay_that_does_not_trust_the_next_one_is_told_apart_from_us() {
    // "--ca FILE trusts an authority" was said, and did nothing.
    let home = Home::new();
    let content = Content::random(83, SIZE);
    let origin = honest(&content);
    let far = relay(&home, &[]);
    let strict = relay(&home, &[]);
    let trusting = relay(&home, &["--fingerprint", &print(&far)]);
    let two = |near: &Served| {
        configure(&home, &[(&near.named(), &print(near)), (&far.named(), &print(&far))]);
        get(&home, &url(&origin), &[])
    };
    two(&trusting).code_is(0);
    home.holds("got", &content);
    let ran = two(&strict);
    ran.code_is(7).says(&[
        "passes nothing on: ",
        "certificate is not trusted",
        "the relay does not trust the next server: its operator must set --fingerprint or --ca of 'swath relay'",
        "--fingerprint or --ca of 'swath relay'",
    ]);
    ran.never_says(&["--insecure", "--ca FILE", "to trust a relay, set fingerprint next to its url in the configuration; 'swath relay' prints it"]);
}

#[test]
fn stage_says_whose_certificate_is_not_trusted_and_by_whom() {
    // Ten seconds of "0 B/s", and no word on what could be done.
    let home = Home::new();
    let content = Content::random(84, SIZE);
    home.write("data/data.bin", content.read(0, SIZE));
    let origin = home.serve(&["data", "--anonymous"]);
    let trusts = ["--fingerprint", &print(&origin)];
    let depot = ["--depot", "depot", "--depot-size", "20M", "--log", "relay.log"];
    let relay = relay(&home, &depot);
    let (named, own) = (relay.named(), print(&relay));
    let (from, meta4) = (origin.at("data.bin"), "staged.meta4");
    let args = ["stage", &from, "--at", &named, "--for", "1h", "-o", meta4, "--fingerprint"];
    let known = "to trust a relay, use --fingerprint, or set fingerprint next to its url in the configuration; 'swath relay' prints it";
    home.run([&args[..], &[trusts[1]]].concat()).code_is(7).says(&["is not trusted", known]);
    let ran = home.run([&args[..], &[trusts[1], "--fingerprint", &own]].concat());
    ran.code_is(7).says(&[
        "certificate is not trusted",
        "the relay does not trust the source: its operator must set --fingerprint or --ca of 'swath relay'",
        "--fingerprint or --ca of 'swath relay'",
    ]);
    ran.never_says(&[known]);
    // It is left at once: nothing is asked for again and again.
    let asked = String::from_utf8(home.read("relay.log")).unwrap().matches("\"POST /depot").count();
    assert!(asked < 6, "{asked}");
    drop(relay);
    let relay = self::relay(&home, &[&depot[..], &trusts].concat());
    let (named, own) = (relay.named(), print(&relay));
    let args = ["stage", &from, "--at", &named, "--for", "1h", "-o", meta4, "--fingerprint"];
    home.run([&args[..], &[trusts[1], "--fingerprint", &own]].concat()).code_is(0);
    let status = home.run(["stage", "status", meta4]);
    assert!(status.code_is(7).says(&[known]).out().contains("is not trusted"), "{status}");
    home.run(["stage", "status", meta4, "--fingerprint", &own]).code_is(0);
}
