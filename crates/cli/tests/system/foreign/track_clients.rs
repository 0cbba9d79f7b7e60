//! `swath track` with the clients of others.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::support::Home;
use crate::support::seed::Tracking;
use crate::support::serve::reserved_address;
use crate::support::torrent::{Client, arrives, make};
use crate::support::trees::bytes;
use swath_netlab::reserve_port;

/// One MiB as `data.bin`, and a folder for whoever fetches it.
fn with_data() -> (Home, Vec<u8>) {
    let home = Home::new();
    let data = bytes(7, 1 << 20);
    home.write("data.bin", &data);
    fs::create_dir(home.path("got")).unwrap();
    (home, data)
}

/// aria2, which knows nobody but the tracker.
fn aria2(folder: &Path, torrent: &Path) -> Option<Client> {
    let torrent = torrent.to_str().unwrap();
    let args = [
        "--enable-dht=false",
        "--enable-dht6=false",
        "--bt-enable-lpd=false",
        "--enable-peer-exchange=false",
        "--seed-time=5",
        "--file-allocation=none",
        "--check-integrity=true",
        "--bt-tracker-connect-timeout=5",
        "--log=-",
        "--log-level=info",
        torrent,
    ];
    Client::start(folder, "aria2", "aria2c", &args)
}

#[test]
fn clients_find_each_other_by_http() {
    let (home, data) = with_data();
    let tracker = Tracking::start(&home, "127.0.0.1:0", &[]);
    tracker.served.says("anybody may use this tracker");
    if make(&home, "data.bin", &[&tracker.served.url]).is_none() {
        return;
    }
    let torrent = home.path("data.bin.torrent");
    let Some(seeder) = Client::libtorrent(&home.work(), "seeder", &torrent) else { return };
    seeder.says("tracker_reply_alert");
    tracker.has_peers(1);
    let Some(_leecher) = aria2(&home.path("got"), &torrent) else { return };
    arrives(&home.path("got/data.bin"), &data);
    tracker.has_peers(2);
    assert!(tracker.get("/").contains("2 peers"));
}

#[test]
fn transmission_seeds_to_others() {
    let (home, data) = with_data();
    let tracker = Tracking::start(&home, "127.0.0.1:0", &[]);
    if make(&home, "data.bin", &[&tracker.served.url]).is_none() {
        return;
    }
    let torrent = home.path("data.bin.torrent");
    let port = reserve_port();
    let (port, work) = (port.to_string(), home.work());
    // Not `-v`: it ends if it looks at itself between two verifications.
    let args = ["-M", "-p", &port, "-g", "config", "-w", work.to_str().unwrap()];
    let args = [&args[..], &[torrent.to_str().unwrap()]].concat();
    let Some(seeder) = Client::start(&work, "seeder", "transmission-cli", &args) else { return };
    tracker.has_peers_or(1, || seeder.said());
    let Some(_leecher) = aria2(&home.path("got"), &torrent) else { return };
    arrives(&home.path("got/data.bin"), &data);
}

#[test]
fn clients_find_each_other_by_udp() {
    let (home, data) = with_data();
    let tracker = Tracking::start(&home, "127.0.0.1:0", &[]);
    if make(&home, "data.bin", &[&tracker.udp()]).is_none() {
        return;
    }
    let torrent = home.path("data.bin.torrent");
    let Some(seeder) = Client::libtorrent(&home.work(), "seeder", &torrent) else { return };
    seeder.says("tracker_reply_alert");
    let Some(leecher) = Client::libtorrent(&home.path("got"), "leecher", &torrent) else { return };
    leecher.says("complete");
    arrives(&home.path("got/data.bin"), &data);
    let metrics = tracker.get("/metrics");
    assert!(metrics.contains("swath_tracker_refused_total{reason=\"torrent\"} 0"), "{metrics}");
}

#[test]
fn a_swarm_survives_the_death_of_its_tracker() {
    let (home, data) = with_data();
    let address = reserved_address();
    let tracker = Tracking::start(&home, &address, &["--state", "peers"]);
    if make(&home, "data.bin", &[&tracker.served.url]).is_none() {
        return;
    }
    let torrent = home.path("data.bin.torrent");
    let saved = || home.path("peers").metadata().map_or(0, |it| it.len());
    let empty = saved();
    let Some(seeder) = Client::libtorrent(&home.work(), "seeder", &torrent) else { return };
    seeder.says("tracker_reply_alert");
    let began = Instant::now();
    while saved() <= empty {
        assert!(began.elapsed() < Duration::from_secs(30), "the peers are not saved");
        std::thread::sleep(Duration::from_millis(50));
    }
    tracker.served.signal(9);
    assert_eq!(tracker.served.wait(), None);
    let tracker = Tracking::start(&home, &address, &["--state", "peers"]);
    tracker.served.says("restored 1 peer of the last run");
    // The seeder does not announce itself again before half an hour is over.
    let Some(_leecher) = aria2(&home.path("got"), &torrent) else { return };
    arrives(&home.path("got/data.bin"), &data);
    tracker.served.signal(15);
    assert_eq!(tracker.served.wait(), Some(0));
}

#[test]
fn a_client_that_is_refused_shows_why() {
    let (home, _) = with_data();
    home.write("networks", "192.0.2.0/24 # the lab\n");
    home.write("torrents", format!("{} another one\n", "ab".repeat(20)));
    for (args, reason) in [
        (["--allow", "networks"], "this tracker does not answer your address"),
        (["--allow", "192.0.2.7"], "this tracker does not answer your address"),
        (["--whitelist", "torrents"], "this tracker does not track this torrent"),
    ] {
        let tracker = Tracking::start(&home, "127.0.0.1:0", &args);
        let trackers = [tracker.served.url.clone(), tracker.udp()];
        for address in &trackers {
            let _ = fs::remove_file(home.path("data.bin.torrent"));
            if make(&home, "data.bin", &[address]).is_none() {
                return;
            }
            let torrent = home.path("data.bin.torrent");
            let Some(client) = Client::libtorrent(&home.work(), "client", &torrent) else { return };
            client.says("tracker_error_alert");
            // The library shows the reason of HTTP alone: of UDP it takes the bytes before it.
            client.says(if address.starts_with("http") { reason } else { "failure message" });
        }
    }
}

#[test]
fn a_whitelist_and_passkeys_admit_their_own() {
    let (home, data) = with_data();
    let key = "0123456789abcdef-Ada";
    home.write("passkeys", format!("# ours\n{key} Ada\n"));
    home.write("torrents", "");
    let args = ["--passkeys", "passkeys", "--whitelist", "torrents", "--log", "log"];
    let tracker = Tracking::start(&home, "127.0.0.1:0", &args);
    let http = format!("http://{}/{key}/announce", tracker.address);
    let udp = format!("udp://{}/{key}/announce", tracker.address);
    let Some(hash) = make(&home, "data.bin", &[&http, &udp]) else { return };
    home.write("torrents", format!("{hash} data of run 7\n"));
    tracker.served.says("reloaded: 1 torrent, 1 passkey");
    let torrent = home.path("data.bin.torrent");
    let Some(seeder) = Client::libtorrent(&home.work(), "seeder", &torrent) else { return };
    seeder.says("udp://");
    seeder.says("tracker_reply_alert");
    assert!(!seeder.said().contains("tracker_error_alert"), "{}", seeder.said());
    let Some(leecher) = aria2(&home.path("got"), &torrent) else { return };
    arrives(&home.path("got/data.bin"), &data);
    let page = tracker.get(&format!("/{key}/"));
    assert!(page.contains("data of run 7") && page.contains(&hash), "{page}");
    assert!(tracker.get("/").contains("needs a passkey"));
    drop((seeder, leecher));
    tracker.served.signal(15);
    assert_eq!(tracker.served.wait(), Some(0));
    // Nowhere but in its own file, and where the user wrote it.
    let log = home.read("log");
    assert!(String::from_utf8_lossy(&log).contains("/-/announce?"));
    for kept in [log, fs::read(home.home().join(".local/state/swath/track/0.peers")).unwrap()] {
        assert!(!String::from_utf8_lossy(&kept).contains(key));
    }
}

#[test]
fn the_torrents_of_a_catalogue_are_tracked() {
    let (home, data) = with_data();
    fs::create_dir(home.path("catalogue")).unwrap();
    let tracker = Tracking::start(&home, "127.0.0.1:0", &["--catalogue", "catalogue"]);
    let Some(hash) = make(&home, "data.bin", &[&tracker.served.url]) else { return };
    let torrent = home.path("data.bin.torrent");
    let Some(early) = Client::libtorrent(&home.work(), "early", &torrent) else { return };
    early.says("this tracker does not track this torrent");
    drop(early);
    fs::copy(&torrent, home.path("catalogue/run-7.torrent")).unwrap();
    tracker.served.says("reloaded: 1 torrent");
    let Some(_seeder) = Client::libtorrent(&home.work(), "seeder", &torrent) else { return };
    tracker.has_peers(1);
    let stats = tracker.get("/stats.json");
    assert!(stats.contains("\"data.bin\"") && stats.contains(&hash), "{stats}");
    let Some(_leecher) = aria2(&home.path("got"), &torrent) else { return };
    arrives(&home.path("got/data.bin"), &data);
    // One that cannot be read changes nothing.
    home.write("catalogue/bad.torrent", "d4:info");
    tracker.served.says("keeping the old lists: cannot use catalogue/bad.torrent");
    tracker.has_peers(2);
}
