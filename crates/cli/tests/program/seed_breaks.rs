//! `swath seed` with wrong data, refused peers and peers that misbehave.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use crate::support::Home;
use crate::support::seed::Seeding;
use crate::support::trees::bytes;

/// A file of 2 MB, published in pieces of 16 KiB.
fn with_torrent() -> Home {
    let home = Home::new();
    home.write("data.bin", bytes(3, 2_000_003));
    home.publish_torrent("data.bin", "v1", &[], &["--piece", "16KiB"]);
    home
}

/// The arguments of a fetch from this seeder into `got`.
fn get(peer: &str) -> [&str; 6] {
    ["get", "data.bin.torrent", "-d", "got", "--peer", peer]
}

fn address(seeding: &Seeding) -> String {
    format!("127.0.0.1:{}", seeding.port)
}

#[track_caller]
fn is_fetched(home: &Home) {
    assert!(home.read("got/data.bin") == home.read("data.bin"));
}

#[test]
fn a_wrong_piece_is_named_and_not_offered() {
    let home = with_torrent();
    let right = home.read("data.bin");
    let mut wrong = right.clone();
    wrong[20_000] ^= 1;
    home.write("bad/data.bin", &wrong);
    let seeding = home.seed(&["data.bin.torrent", "--data", "bad"]);
    seeding.says("warning: data.bin: 1 piece of data.bin is wrong: not offered");
    seeding.says("verified data.bin: 122 of 123 pieces are right");
    // All but the second piece arrives; another seeder completes it.
    let leecher = home.live(&get(&address(&seeding)));
    let has = |range: std::ops::Range<usize>| {
        fs::read(home.path("got/data.bin.swath.part"))
            .is_ok_and(|got| got.get(range.clone()) == right.get(range))
    };
    let began = Instant::now();
    while !(has(0..16_384) && has(32_768..right.len())) {
        assert!(began.elapsed() < LIMIT, "{}", leecher.said());
        std::thread::sleep(Duration::from_millis(20));
    }
    leecher.signal(2);
    let (code, said) = leecher.wait();
    assert_eq!(code, Some(130), "{said}");
    assert!(!said.contains("corrupt") && !home.exists("got/data.bin"), "{said}");
    let good = home.seed(&["data.bin.torrent"]);
    home.run(get(&address(&good))).code_is(0).says(&["from an earlier run"]);
    is_fetched(&home);
}

#[test]
fn data_that_is_not_there_is_said() {
    let home = with_torrent();
    fs::create_dir(home.path("empty")).unwrap();
    home.run(["seed", "data.bin.torrent", "--data", "empty", "--listen", "127.0.0.1:0"])
        .code_is(4)
        .says(&["cannot read data.bin: ", "nothing to seed", "--data DIR"]);
    home.run(["seed", "data.bin.torrent", "--data", "nowhere", "--listen", "127.0.0.1:0"])
        .code_is(6)
        .says(&["error: cannot read nowhere: "]);
    let seed = |args: &[&str]| home.run(["seed", "--listen", "127.0.0.1:0"].iter().chain(args));
    seed(&["nowhere.torrent"]).code_is(6).says(&["cannot read nowhere.torrent: "]);
    seed(&["empty"]).code_is(6).says(&["empty has no .torrent file"]);
    seed(&["data.bin"]).code_is(6).says(&["cannot read data.bin: "]);
    home.write("nobody", "# none\n");
    seed(&["data.bin.torrent", "--allow", "nobody"])
        .code_is(6)
        .says(&["cannot read networks from nobody: it has no network"]);
    home.run(["seed", "data.bin.torrent", "--tracker", "file:///x"])
        .code_is(2)
        .says(&["is not the address of a tracker"]);
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    home.run(["seed", "data.bin.torrent", "--listen", &address])
        .code_is(5)
        .says(&["cannot listen on 127.0.0.1:", "--listen ADDRESS"]);
}

#[test]
fn data_that_changes_is_not_offered_any_more() {
    let home = with_torrent();
    let seeding = home.seed(&["data.bin.torrent"]);
    let mut wrong = home.read("data.bin");
    wrong[5] ^= 1;
    home.write("data.bin", &wrong);
    let leecher = home.live(&get(&address(&seeding)));
    seeding.says("data.bin has been changed: not offered any more");
    leecher.signal(2);
    let (code, said) = leecher.wait();
    assert_eq!(code, Some(130), "{said}");
    // Neither was taken for the other's enemy: with another seeder it goes on.
    assert!(!said.contains("corrupt"), "{said}");
    assert!(!seeding.said().contains("not let in"), "{}", seeding.said());
    wrong[5] ^= 1;
    home.write("data.bin", &wrong);
    let good = home.seed(&["data.bin.torrent"]);
    home.run(get(&address(&good))).code_is(0);
    is_fetched(&home);
}

#[test]
fn only_allowed_peers_are_served() {
    let home = with_torrent();
    home.write("institutes", "192.0.2.0/24 # the lab\n");
    let seeding = home.seed(&["data.bin.torrent", "--allow", "institutes"]);
    let mut tcp = TcpStream::connect(("127.0.0.1", seeding.port)).unwrap();
    tcp.set_read_timeout(Some(LIMIT)).unwrap();
    // It is closed without a word, and without waiting for a handshake.
    assert_eq!(tcp.read(&mut [0; 10]).unwrap_or(0), 0);
    drop(seeding);
    let seeding = home.seed(&["data.bin.torrent", "--allow", "institutes,127.0.0.0/8"]);
    home.run(get(&address(&seeding))).code_is(0);
    is_fetched(&home);
}

/// The handshake of a peer that speaks no extensions, with this last byte of its id.
fn handshake(home: &Home, id: u8) -> Vec<u8> {
    let metafile = home.read("data.bin.torrent");
    let info = swath_formats::torrent::Metainfo::read(&metafile).unwrap().info;
    let mut bytes = b"\x13BitTorrent protocol\0\0\0\0\0\0\0\0".to_vec();
    bytes.extend(info.hash_v1().unwrap().0);
    bytes.extend([b'x'; 19]);
    bytes.push(id);
    bytes
}

#[test]
fn peers_that_flood_or_stall_do_not_harm_others() {
    let home = with_torrent();
    let seeding = home.seed(&["data.bin.torrent"]);
    let at = ("127.0.0.1", seeding.port);
    // Some say nothing; some have a slot, ask and do not read; one sends rubbish.
    let silent: Vec<_> = (0..10).map(|_| TcpStream::connect(at).unwrap()).collect();
    let mut stalled = Vec::new();
    for id in 0..6 {
        let mut tcp = TcpStream::connect(at).unwrap();
        tcp.write_all(&handshake(&home, id)).unwrap();
        tcp.write_all(&[0, 0, 0, 1, 2]).unwrap();
        for piece in 0..100_u32 {
            let mut request = vec![0, 0, 0, 13, 6];
            request.extend(piece.to_be_bytes());
            request.extend(0_u32.to_be_bytes());
            request.extend(16_384_u32.to_be_bytes());
            tcp.write_all(&request).unwrap();
        }
        stalled.push(tcp);
    }
    home.run(get(&address(&seeding))).code_is(0);
    is_fetched(&home);
    // A message that is longer than any: the peer is banned, with its address.
    let mut tcp = TcpStream::connect(at).unwrap();
    tcp.set_read_timeout(Some(LIMIT)).unwrap();
    tcp.write_all(&handshake(&home, 99)).unwrap();
    tcp.write_all(&[0xff; 64]).unwrap();
    while tcp.read(&mut [0; 4096]).unwrap_or(0) > 0 {}
    seeding.says("warning: no peer at 127.0.0.1 is let in for an hour: ");
    assert_eq!(TcpStream::connect(at).unwrap().read(&mut [0; 10]).unwrap_or(0), 0);
    drop((silent, stalled));
    seeding.signal(15);
    assert_eq!(seeding.wait().0, Some(0));
}

/// Long, because other work may keep the machine busy.
const LIMIT: Duration = Duration::from_secs(90);
