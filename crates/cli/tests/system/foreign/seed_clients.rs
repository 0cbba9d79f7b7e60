//! `swath seed` with the clients and trackers of others.

use std::fs;
use std::net::TcpStream;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::support::Home;
use crate::support::seed::leecher;
use crate::support::torrent::{Client, arrives, make};
use crate::support::trees::bytes;
use swath_netlab::reserve_port;

/// A folder of three files, the second of them empty, and a file.
fn with_data() -> Home {
    let home = Home::new();
    fs::create_dir(home.path("run7")).unwrap();
    home.write("run7/a.h5", bytes(1, 1_300_001));
    home.write("run7/b", "");
    home.write("run7/c.txt", bytes(2, 77_777));
    home.write("data.bin", bytes(3, 2_000_003));
    home
}

#[test]
fn libtorrent_fetches_torrents_of_every_kind() {
    let home = with_data();
    let tracker = home.track(&[]);
    let udp = tracker.url.replace("http://", "udp://");
    for (at, kind) in ["v1", "v2", "hybrid"].into_iter().enumerate() {
        let trackers = if at == 1 { &udp } else { &tracker.url };
        home.publish_torrent("run7", kind, &[trackers], &["--force", "--piece", "64KiB"]);
        let seeding = home.seed(&["run7.torrent"]);
        seeding.says("verified run7: ");
        seeding.says("run7: announced to ");
        let folder = format!("got-{kind}");
        let torrent = home.path("run7.torrent");
        let Some(client) = leecher(&home.path(&folder), &torrent, false, None) else { return };
        run7_arrives(&home, &folder);
        client.says("complete");
        drop(client);
        seeding.signal(15);
        let (code, said) = seeding.wait();
        assert_eq!(code, Some(0), "{said}");
        assert!(said.contains("run7: sent 1.") && said.contains("to 1 address in "), "{said}");
    }
}

#[test]
fn a_private_torrent_is_served_to_peers_of_its_tracker() {
    let home = with_data();
    let tracker = home.track(&[]);
    home.publish_torrent("data.bin", "hybrid", &[&tracker.url], &["--private"]);
    let seeding = home.seed(&["data.bin.torrent", "--peer", "127.0.0.1:1"]);
    seeding.says("data.bin is private: --peer is ignored");
    seeding.says("announced to ");
    let torrent = home.path("data.bin.torrent");
    let Some(_client) = leecher(&home.path("got"), &torrent, false, None) else { return };
    arrives(&home.path("got/data.bin"), &home.read("data.bin"));
}

#[test]
fn encryption_is_spoken_where_a_peer_demands_it() {
    let home = with_data();
    home.publish_torrent("data.bin", "v1", &[], &[]);
    let torrent = home.path("data.bin.torrent");
    for (args, encrypts) in [(&[][..], true), (&["--require-encryption"], true)] {
        let seeding = home.seed(&[&["data.bin.torrent"], args].concat());
        let _ = fs::remove_dir_all(home.path("got"));
        let client = leecher(&home.path("got"), &torrent, encrypts, Some(seeding.port));
        let Some(_client) = client else { return };
        arrives(&home.path("got/data.bin"), &home.read("data.bin"));
    }
}

/// Debian's tracker, which tracks listed torrents only.
fn opentracker(home: &Home, info_hashes: &[String]) -> Option<(Client, String)> {
    use std::os::unix::fs::PermissionsExt as _;
    let folder = home.path("tracker");
    fs::create_dir(&folder).unwrap();
    // It runs as nobody.
    for path in [home.home(), home.work(), folder.clone()] {
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    }
    let list: String = info_hashes.iter().map(|hash| format!("{hash}\n")).collect();
    fs::write(folder.join("whitelist"), list).unwrap();
    let port = reserve_port();
    let text = port.to_string();
    let args = ["-i", "127.0.0.1", "-p", &text, "-P", &text, "-d", ".", "-w", "whitelist"];
    let client = Client::start(&folder, "opentracker", "opentracker", &args)?;
    let began = Instant::now();
    while TcpStream::connect(("127.0.0.1", port)).is_err() {
        assert!(began.elapsed() < Duration::from_secs(20), "{}", client.said());
        std::thread::sleep(Duration::from_millis(50));
    }
    // Before it has read its list it refuses.
    std::thread::sleep(Duration::from_secs(1));
    Some((client, format!("127.0.0.1:{port}")))
}

#[test]
fn opentracker_leads_others_to_the_seeder() {
    let home = with_data();
    // The info-hash does not depend on the trackers.
    let Some(hash) = make(&home, "data.bin", &["http://127.0.0.1:1/announce"]) else { return };
    let Some((_tracker, address)) = opentracker(&home, &[hash]) else { return };
    for scheme in ["http", "udp"] {
        let url = format!("{scheme}://{address}/announce");
        fs::remove_file(home.path("data.bin.torrent")).unwrap();
        make(&home, "data.bin", &[&url]).unwrap();
        let seeding = home.seed(&["data.bin.torrent"]);
        seeding.says("data.bin: announced to ");
        let folder = home.path(format!("got-{scheme}"));
        fs::create_dir(&folder).unwrap();
        let torrent = home.path("data.bin.torrent");
        // aria2 asks by UDP only with its distributed hash table.
        let client = match scheme {
            "http" => aria2(&folder, &torrent),
            _ => leecher(&folder, &torrent, false, None),
        };
        let Some(_client) = client else { return };
        arrives(&folder.join("data.bin"), &home.read("data.bin"));
        assert!(!seeding.said().contains("warning"), "{}", seeding.said());
    }
}

/// aria2, which knows nobody but the tracker, and leaves as soon as it has everything.
fn aria2(folder: &Path, torrent: &Path) -> Option<Client> {
    let args = [
        "--enable-dht=false",
        "--enable-dht6=false",
        "--bt-enable-lpd=false",
        "--enable-peer-exchange=false",
        "--seed-time=0",
        "--file-allocation=none",
        "--bt-tracker-connect-timeout=5",
        "--log=-",
        "--log-level=info",
        torrent.to_str().unwrap(),
    ];
    Client::start(folder, "aria2", "aria2c", &args)
}

#[test]
fn several_torrents_and_leechers_share_one_port() {
    let home = with_data();
    let tracker = home.track(&[]);
    home.publish_torrent("run7", "v1", &[&tracker.url], &["--piece", "16KiB", "-o", "pub"]);
    home.publish_torrent("data.bin", "v1", &[&tracker.url], &["--piece", "16KiB", "-o", "pub"]);
    let seeding = home.seed(&["pub", "--data", "."]);
    seeding.says("data.bin: announced to ");
    seeding.says("run7: announced to ");
    let mut clients = Vec::new();
    for number in 0..3 {
        for torrent in ["run7", "data.bin"] {
            let folder = home.path(format!("got{number}-{torrent}"));
            fs::create_dir(&folder).unwrap();
            let torrent = home.path(format!("pub/{torrent}.torrent"));
            let Some(client) = aria2(&folder, &torrent) else { return };
            clients.push(client);
        }
    }
    for number in 0..3 {
        run7_arrives(&home, &format!("got{number}-run7"));
        let got = home.path(format!("got{number}-data.bin/data.bin"));
        arrives(&got, &home.read("data.bin"));
    }
    drop(clients);
    seeding.signal(2);
    let (code, said) = seeding.wait();
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("of 2 torrents to "), "{said}");
}

#[test]
fn a_seeder_that_was_killed_goes_on_after_its_restart() {
    let home = with_data();
    let tracker = home.track(&[]);
    home.publish_torrent("data.bin", "v1", &[&tracker.url], &["--piece", "16KiB"]);
    let seeding = home.seed(&["data.bin.torrent", "--max-upload", "300k"]);
    seeding.says("announced to ");
    let address = format!("127.0.0.1:{}", seeding.port);
    let torrent = home.path("data.bin.torrent");
    let Some(_client) = leecher(&home.path("got"), &torrent, false, None) else { return };
    let began = Instant::now();
    while !home.exists("got/data.bin") {
        assert!(began.elapsed() < Duration::from_secs(60), "{}", seeding.said());
        std::thread::sleep(Duration::from_millis(20));
    }
    std::thread::sleep(Duration::from_secs(1));
    seeding.signal(9);
    assert_eq!(seeding.wait().0, None);
    let _seeding = home.seed_at(&address, &["data.bin.torrent"]);
    arrives(&home.path("got/data.bin"), &home.read("data.bin"));
}

/// Waits until the files of `run7` are below `folder`.
#[track_caller]
fn run7_arrives(home: &Home, folder: &str) {
    for name in ["a.h5", "c.txt"] {
        arrives(&home.path(folder).join("run7").join(name), &home.read(&format!("run7/{name}")));
    }
}
