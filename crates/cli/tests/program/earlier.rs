//! What earlier versions left is gone on with: files, folders and torrents that were half-way, orders that a
//! server has kept, what is remembered of transfers and routes, and followed datasets.
//!
//! `fixtures/make` has left it, with the program of that version; the data is made again here.

use std::fs;
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, UNIX_EPOCH};

use rustix::fs::{AtFlags, CWD, StatxFlags, statx};
use serde_json::Value;
use swath_netlab::faulty::{Content, Server};

use crate::support::serve::Served;
use crate::support::trees::assert_same;
use crate::support::{Home, until};

/// The versions whose leftovers are kept.
const VERSIONS: [&str; 1] = ["0.1.0"];

/// The lines that count to this number.
fn lines(last: u32) -> String {
    (1..=last).map(|line| format!("{line}\n")).collect()
}

/// The tree of the fixtures, as its server has it.
fn plant(home: &Home, folder: &str) {
    let files = [
        ("wide.txt", lines(600_000)),
        ("sub/one.txt", lines(9000)),
        ("sub/two.txt", "two\n".into()),
    ];
    for (name, text) in files {
        let path = home.write(&format!("{folder}/{name}"), text);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        set_time(&path);
    }
    for name in ["sub", ""] {
        let path = home.path(folder).join(name);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        set_time(&path);
    }
}

fn set_time(path: &Path) {
    let time = UNIX_EPOCH + Duration::from_secs(1_700_000_000);
    fs::File::open(path).unwrap().set_modified(time).unwrap();
}

fn fixture(version: &str, name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/program/fixtures").join(version).join(name)
}

/// Puts a fixture there.
fn put(home: &Home, version: &str, name: &str, path: &str) {
    home.write(path, fs::read(fixture(version, name)).unwrap());
}

/// A partial folder with all of the tree in it, and the mark that a copy has left beside it.
fn plant_partial(home: &Home, part: &str) {
    plant(home, part);
    fs::set_permissions(home.path(part), fs::Permissions::from_mode(0o700)).unwrap();
    let mark = home.write(&part.replace(".part", ".mark"), "");
    let place = |path: &Path| {
        let wanted = StatxFlags::INO | StatxFlags::BTIME;
        let found = statx(CWD, path, AtFlags::empty(), wanted).unwrap();
        match found.stx_mask & StatxFlags::BTIME.bits() {
            0 => found.stx_ino.to_string(),
            _ => {
                let made = found.stx_btime;
                format!("{} made {}.{:09}", found.stx_ino, made.tv_sec, made.tv_nsec)
            }
        }
    };
    let (folder, own) = (place(&home.path(part)), place(&mark));
    let first = "the folder beside this file was made by swath cp";
    fs::write(&mark, format!("{first}\nfolder {folder}\nmark {own}\n")).unwrap();
}

/// A home with the tree in `top/tree`.
fn home() -> Home {
    let home = Home::new();
    plant(&home, "top/tree");
    home
}

fn serve(home: &Home) -> Served {
    home.serve(&["top", "--anonymous", "--plain"])
}

/// How many bytes a command fetched, and went on from.
fn bytes_of(ran: &crate::support::Ran) -> (u64, u64) {
    let of = |line: &str| serde_json::from_str::<Value>(line).unwrap();
    let out = ran.code_is(0).out();
    let end = out.lines().map(of).find(|event| event["event"] == "finished").expect("an end");
    let bytes = |name: &str| end[name].as_u64().unwrap();
    (bytes("fetched_bytes"), bytes("resumed_bytes"))
}

#[test]
fn files_folders_and_torrents_that_were_half_way_go_on() {
    for version in VERSIONS {
        let home = home();
        let server = serve(&home);
        let wide = lines(600_000);
        home.write("wide.txt.swath.part", &wide);
        put(&home, version, "get.journal", "wide.txt.swath");
        let (fetched, resumed) =
            bytes_of(&home.run(["get", "--json", &server.at("/tree/wide.txt")]));
        assert!(resumed >= 1 << 20 && fetched < wide.len() as u64, "{fetched} {resumed}");
        assert!(home.read("wide.txt") == wide.as_bytes());

        plant_partial(&home, "copy.swath.part");
        put(&home, version, "copy.journal", "copy.swath");
        put(&home, version, "copy.index", "copy.swath.index");
        let (fetched, resumed) =
            bytes_of(&home.run(["cp", "--json", &server.at("/tree/"), "copy/"]));
        assert!(resumed >= 1 << 20 && fetched < wide.len() as u64, "{fetched} {resumed}");
        assert_same(&home.path("top/tree"), &home.path("copy"));

        plant_partial(&home, "torrent/tree.swath.part");
        put(&home, version, "torrent.journal", "torrent/tree.swath");
        put(&home, version, "torrent.index", "torrent/tree.swath.index");
        put(&home, version, "tree.torrent", "tree.torrent");
        let get = ["get", "--json", "tree.torrent", &server.at("/"), "-d", "torrent", "--no-peers"];
        let (fetched, resumed) = bytes_of(&home.run(get));
        assert!(resumed >= 1 << 20 && fetched < wide.len() as u64, "{fetched} {resumed}");
        assert!(home.read("torrent/tree/wide.txt") == wide.as_bytes());
    }
}

/// The index that a server sends for a tree is what it was.
#[test]
fn what_is_sent_for_a_tree_stays() {
    for version in VERSIONS {
        let home = home();
        let sent = serve(&home).raw(
            b"GET /tree/?swath=index HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
        );
        let before = fs::read(fixture(version, "wire.index")).unwrap();
        assert!(sent.windows(before.len()).any(|part| part == before), "{version}");
    }
}

#[test]
fn orders_that_a_server_has_kept_are_carried_out() {
    for version in VERSIONS {
        let home = home();
        let source = serve(&home);
        home.write("tokens", "secret write\n");
        fs::create_dir(home.path("store")).unwrap();
        let start = || {
            let from = ["--third-party", "--third-party-from", "127.0.0.0/8"];
            let args = ["store", "--write", "--plain", "--token-file", "tokens"];
            home.serve(&[&args[..], &from].concat())
        };
        // Which file it keeps its orders in, it tells by making it.
        drop(start());
        let kept = home.home().join(".local/state/swath/third-party");
        let of_jobs = |name: &String| name.starts_with("jobs-") && name.ends_with(".db");
        let names = fs::read_dir(&kept).unwrap().map(|it| it.unwrap().file_name().into_string());
        let name = names.map(Result::unwrap).find(of_jobs).expect("a file");
        fs::remove_dir_all(&kept).unwrap();
        fs::DirBuilder::new().mode(0o700).create(&kept).unwrap();
        let mut jobs = fs::read(fixture(version, "jobs.db")).unwrap();
        // The source was at another port: as many digits as this one.
        let before = fs::read_to_string(fixture(version, "jobs.source")).unwrap();
        let now = source.address().to_string();
        let before = before.trim();
        if before.len() != now.len() {
            println!("skipped: a port of another length");
            return;
        }
        for at in 0..jobs.len() - before.len() {
            if jobs[at..].starts_with(before.as_bytes()) {
                jobs[at..at + now.len()].copy_from_slice(now.as_bytes());
            }
        }
        fs::write(kept.join(&name), jobs).unwrap();
        fs::set_permissions(kept.join(&name), fs::Permissions::from_mode(0o600)).unwrap();
        let server = start();
        until("it is copied", || home.exists("store/copy/wide.txt"));
        assert_same(&home.path("top/tree"), &home.path("store/copy"));
        let (scheme, rest) = server.url.split_once("://").unwrap();
        let listed = home.run(["jobs", &format!("{scheme}://x:secret@{rest}")]);
        listed.code_is(0).shows(&["done", "/copy"]);
    }
}

#[test]
fn what_is_remembered_of_transfers_and_routes_is_read() {
    for version in VERSIONS {
        let home = Home::new();
        let state = home.home().join(".local/state/swath");
        fs::create_dir_all(&state).unwrap();
        for name in ["state.db", "history.db"] {
            fs::copy(fixture(version, name), state.join(name)).unwrap();
        }
        let rows = home.run(["history", "--json"]);
        let rows = rows.code_is(0).out();
        assert_eq!(rows.lines().count(), 3, "{rows}");
        let routes = home.run(["routes", "--json"]);
        assert!(routes.code_is(0).out().contains("127.0.0.1"), "{routes}");
        let names = fs::read_dir(&state).unwrap().map(|it| it.unwrap().file_name());
        let names: Vec<String> = names.map(|name| name.into_string().unwrap()).collect();
        assert!(!names.iter().any(|name| name.contains("damaged")), "{names:?}");
    }
}

#[test]
fn followed_datasets_are_known() {
    for version in VERSIONS {
        let home = home();
        let state: Value =
            serde_json::from_slice(&fs::read(fixture(version, "follow.json")).unwrap()).unwrap();
        let installed = &state["datasets"]["tree"];
        let (feed, hash) =
            (installed["feed"].as_str().unwrap(), installed["info_hash"].as_str().unwrap());
        let old = feed.strip_suffix("feed.rss").unwrap();
        // The publisher has the same torrent in a feed, and nothing else: no data is fetched.
        let server = Server::builder().file("/none", Content::bytes(*b"")).start().unwrap();
        let item = "<item><title>tree 1</title><category>tree</category><pubDate>Tue, 14 Nov 2023 22:13:20 GMT</pubDate><enclosure url=\"tree-1.torrent\" type=\"application/x-bittorrent\" length=\"1\"/></item>";
        server.put(
            "/feed.rss",
            Content::bytes(format!("<rss version=\"2.0\"><channel>{item}</channel></rss>")),
        );
        let torrent = fs::read(fixture(version, "follow.torrent")).unwrap();
        server.put("/tree-1.torrent", Content::bytes(torrent.clone()));
        plant(&home, "data/tree");
        let kept = state.to_string().replace(old, &server.url("/"));
        home.write("data/.swath-follow/state.json", kept);
        home.write(&format!("data/.swath-follow/{hash}.torrent"), torrent);
        let ran = home.run(["follow", &server.url("/feed.rss"), "-d", "data", "--once"]);
        ran.code_is(0).says(&["nothing new"]);
    }
}
