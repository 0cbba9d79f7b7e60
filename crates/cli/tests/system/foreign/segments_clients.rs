//! Torrents of `swath publish --segment` with the clients of others: to them each segment is a file.

use std::fs;
use std::time::Duration;

use crate::support::Home;
use crate::support::clients::has_peers;
use crate::support::seed::leecher;
use crate::support::torrent::arrives;
use crate::support::trees::bytes;
use swath_netlab::reserve_port;

const MIB: usize = 1 << 20;
const KINDS: [&str; 3] = ["v1", "v2", "hybrid"];

/// A file of three segments and a bit.
fn with_file() -> Home {
    let home = Home::new();
    home.write("survey.h5", bytes(1, 3 * MIB + 7_001));
    home
}

impl Home {
    /// Makes `pub/NAME.torrent` of `path`, with segments of 1 MiB; returns what was printed.
    fn segmented(&self, path: &str, kind: &str, more: &[&str]) -> String {
        let args = ["publish", path, "-o", "pub", "--segment", "1MiB", "--piece", "64KiB"];
        let kind = ["--torrent", kind, "--only", "torrent", "--replace"];
        self.run(args.iter().chain(&kind).chain(more)).code_is(0).out()
    }

    /// The file is there as one, and nothing else.
    #[track_caller]
    fn has_survey(&self, folder: &str) {
        assert!(self.read(&format!("{folder}/survey.h5")) == self.read("survey.h5"), "{folder}");
        assert_eq!(self.names_in(folder), ["survey.h5"], "nothing else is left");
    }

    /// Waits until a client has the segments of a file in the folder of its name.
    #[track_caller]
    fn segments_arrive(&self, file: &str, folder: &str) {
        let name = file.rsplit('/').next().unwrap();
        for (number, segment) in self.read(file).chunks(MIB).enumerate() {
            arrives(&self.path(format!("{folder}/{name}.{number:03}")), segment);
        }
    }
}

#[test]
fn other_clients_get_segments_of_the_file_and_seed_them() {
    let home = with_file();
    for kind in KINDS {
        home.segmented("survey.h5", kind, &[]);
        let torrent = home.path("pub/survey.h5.torrent");
        let seeding = home.seed(&["pub/survey.h5.torrent", "--data", "."]);
        seeding.says("verified survey.h5: 49 of 49 pieces are right");
        let folder = format!("theirs-{kind}");
        let client = leecher(&home.path(&folder), &torrent, false, Some(seeding.port));
        let Some(client) = client else { return };
        home.segments_arrive("survey.h5", &format!("{folder}/survey.h5"));
        client.says("complete");
        drop((client, seeding));
        // Their folder is as good as the file.
        let seeding = home.seed(&["pub/survey.h5.torrent", "--data", &folder]);
        seeding.says("verified survey.h5: 49 of 49 pieces are right");
        let (peer, to) = (format!("127.0.0.1:{}", seeding.port), format!("ours-{kind}"));
        home.run(["get", "pub/survey.h5.torrent", "-d", &to, "--peer", &peer]).code_is(0);
        home.has_survey(&to);
    }
}

#[test]
fn transmission_gets_segments_from_the_file() {
    let home = with_file();
    let tracker = home.track(&[]);
    home.segmented("survey.h5", "v1", &["--tracker", &tracker.url, "--private"]);
    fs::copy(home.path("pub/survey.h5.torrent"), home.path("survey.h5.torrent")).unwrap();
    let Some(_client) = home.transmission("survey.h5", "theirs") else { return };
    // It connects to nobody of this machine itself.
    has_peers(&tracker, 1);
    let _seeding = home.seed(&["survey.h5.torrent"]);
    home.segments_arrive("survey.h5", "theirs/survey.h5");
}

#[test]
fn aria2_gets_segments_from_a_mirror_of_them() {
    let home = with_file();
    fs::create_dir_all(home.path("parts/survey.h5")).unwrap();
    for (number, segment) in home.read("survey.h5").chunks(MIB).enumerate() {
        home.write(&format!("parts/survey.h5/survey.h5.{number:03}"), segment);
    }
    let server = home.serve(&["parts", "--anonymous", "--plain"]);
    // It does not see the mirror that has none.
    let mirrors = ["--segment-mirror", &server.at("survey.h5/"), "--mirror", &server.at("none")];
    home.segmented("survey.h5", "v1", &mirrors);
    let torrent = home.path("pub/survey.h5.torrent").display().to_string();
    let Some(_client) = home.aria2(&torrent, "theirs", &[]) else { return };
    home.segments_arrive("survey.h5", "theirs/survey.h5");
}

#[test]
fn what_was_fetched_by_a_magnet_link_is_seeded_to_libtorrent() {
    let home = with_file();
    let tracker = home.track(&[]);
    let said = home.segmented("survey.h5", "hybrid", &["--tracker", &tracker.url]);
    let link = said.split_whitespace().find(|word| word.starts_with("magnet:")).unwrap();
    let first = home.seed(&["pub/survey.h5.torrent", "--data", "."]);
    first.says("announced to ");
    let port = reserve_port();
    let listen = format!("127.0.0.1:{port}");
    let get = ["get", link, "-d", "one", "--keep-seeding", "--listen", &listen];
    let running = home.swath(get).limit(Duration::from_secs(180)).start();
    home.wait_for_bytes("one/survey.h5", 3 * MIB as u64 + 7_001);
    drop(first);
    let torrent = home.path("pub/survey.h5.torrent");
    let client = leecher(&home.path("theirs"), &torrent, false, Some(port));
    let Some(_client) = client else { return };
    home.segments_arrive("survey.h5", "theirs/survey.h5");
    running.signal(2);
    running.wait().code_is(0);
}

/// Files that are no longer than a segment are not split.
#[test]
fn libtorrent_gets_a_folder_with_segments_and_is_a_mirror_of_them() {
    let home = Home::new();
    fs::create_dir_all(home.path("run7/deep")).unwrap();
    home.write("run7/a.txt", bytes(1, 70_001));
    home.write("run7/deep/big.h5", bytes(2, 2 * MIB + 30_000));
    home.write("run7/z", bytes(3, MIB));
    for kind in KINDS {
        home.segmented("run7", kind, &[]);
        let to = |what: &str| format!("{kind}-{what}");
        let seeding = home.seed(&["pub/run7.torrent", "--data", "."]);
        let torrent = home.path("pub/run7.torrent");
        let client = leecher(&home.path(to("theirs")), &torrent, false, Some(seeding.port));
        let Some(client) = client else { return };
        home.segments_arrive("run7/deep/big.h5", &to("theirs/run7/deep/big.h5"));
        client.says("complete");
        assert!(home.read(&to("theirs/run7/z")) == home.read("run7/z"), "not split");
        drop(client);
        let theirs = home.serve(&[&to("theirs"), "--anonymous", "--plain"]);
        home.segmented("run7", kind, &["--segment-mirror", &theirs.at("run7/")]);
        home.run(["get", "pub/run7.torrent", "-d", &to("joined")]).code_is(0);
        for name in ["a.txt", "deep/big.h5", "z"] {
            let there = home.read(&format!("{kind}-joined/run7/{name}"));
            assert!(there == home.read(&format!("run7/{name}")), "{kind} {name}");
        }
        home.run(["verify", &to("theirs"), "--torrent", "pub/run7.torrent"]).code_is(0);
    }
}
