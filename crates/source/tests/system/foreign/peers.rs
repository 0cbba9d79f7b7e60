//! The BitTorrent programs of others, as seeders and as leechers.

use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use swath_formats::peer::WireInfoHash;
use swath_formats::torrent::metainfo::Kind;
use swath_formats::torrent::{InfoHash, Metainfo};
use swath_source::Trust;
use swath_source::peer::{
    EncryptionPolicy, Identity, MetadataRequest, PeerSource, dial, fetch_metadata,
};
use tempfile::TempDir;

use crate::support::content;
use crate::support::driver::download;
use crate::torrents::Made;
use swath_netlab::reserve_port;

const KINDS: [(Kind, &str); 3] = [(Kind::V1, "v1"), (Kind::V2, "v2"), (Kind::Hybrid, "hybrid")];
/// Clients may wait for half a minute before they try something again.
const LIMIT: Duration = Duration::from_secs(90);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn libtorrent_seeds() {
    for (kind, name) in KINDS {
        for encryption in ["any", "forced"] {
            let data = Data::new();
            let Some(seeder) = data.libtorrent_seeder(name, encryption) else { return };
            let metainfo = data.metainfo();
            assert_eq!(metainfo.info.kind(), kind);
            let leecher = Made::default().side(&metainfo);
            let source = PeerSource::at(&leecher.torrent, seeder.address, Trust::Named);
            let outcome = download(&source).await;
            let expected = data.content(&metainfo);
            assert!(outcome.is(&expected), "{name}, {encryption}: {:?}", outcome.errors);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn libtorrent_leeches() {
    for (kind, name) in KINDS {
        for encryption in ["any", "forced"] {
            let data = Data::new();
            if data.libtorrent_seeder(name, encryption).is_none() {
                return;
            }
            let metainfo = data.metainfo();
            let side = Made::seeder(&data.space(&metainfo)).side(&metainfo);
            let address = side.listen_as(policy(encryption), |peer| peer.unchoke()).await;
            let got = TempDir::new().unwrap();
            let args = ["leech", data.torrent_path(), encryption, &address.port().to_string()];
            let leecher = Python::start(got.path(), &args).unwrap();
            leecher.says("complete").await;
            data.is_in(got.path(), &metainfo, &format!("{kind:?}, {encryption}"));
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn libtorrent_leeches_by_magnet_links() {
    for (_, name) in KINDS {
        let data = Data::new();
        if data.libtorrent_seeder(name, "any").is_none() {
            return;
        }
        let metainfo = data.metainfo();
        let side = Made::seeder(&data.space(&metainfo)).side(&metainfo);
        let port = side.listen().await.port().to_string();
        let v1 = metainfo.info.hash_v1().map(|hash| format!("urn:btih:{hash}"));
        let v2 = metainfo.info.hash_v2().map(|hash| format!("urn:btmh:1220{hash}"));
        for topic in [v1, v2].into_iter().flatten() {
            let got = TempDir::new().unwrap();
            let link = format!("magnet:?xt={topic}");
            let leecher = Python::start(got.path(), &["magnet", &link, "any", &port]).unwrap();
            leecher.says("complete").await;
            data.is_in(got.path(), &metainfo, &link);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn libtorrent_leeches_from_what_is_rate_limited() {
    let data = Data::new();
    if data.libtorrent_seeder("v1", "any").is_none() {
        return;
    }
    let metainfo = data.metainfo();
    let made = Made::seeder(&data.space(&metainfo));
    let side = Made { upload_bytes_per_s: Some(1_500_000), ..made }.side(&metainfo);
    let address = side.listen().await;
    let got = TempDir::new().unwrap();
    let args = ["leech", data.torrent_path(), "any", &address.port().to_string()];
    let begin = Instant::now();
    let leecher = Python::start(got.path(), &args).unwrap();
    leecher.says("complete").await;
    let least = Duration::from_secs_f64(metainfo.info.total_bytes() as f64 / 1_500_000.0 * 0.9);
    assert!(begin.elapsed() >= least, "{:?} instead of {least:?}", begin.elapsed());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn metadata_comes_from_libtorrent() {
    for (_, name) in KINDS {
        let data = Data::new();
        let Some(seeder) = data.libtorrent_seeder(name, "forced") else { return };
        let metainfo = data.metainfo();
        let info = &metainfo.info;
        let v1 = info.hash_v1().map(InfoHash::V1);
        for info_hash in v1.into_iter().chain(info.hash_v2().map(InfoHash::V2)) {
            let request = MetadataRequest {
                info_hash,
                identity: Identity::new(None),
                trust: Trust::Named,
                encryption: EncryptionPolicy::PlainFirst,
            };
            let net = swath_source::Net::new(swath_source::NetOptions::default()).unwrap();
            let fetched = fetch_metadata(&net, None, seeder.address, request).await;
            let metadata = fetched.unwrap_or_else(|error| panic!("{name}, {info_hash:?}: {error}"));
            assert_eq!(&metadata.info, info, "{name}, {}", WireInfoHash::from(info_hash));
            if name == "v2" {
                assert_eq!(metadata.proof(), metainfo.proof());
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn transmission_seeds() {
    let data = Data::new();
    let torrent = data.torrent_path();
    let folder = data.folder.path().to_str().unwrap();
    // Nobody answers there; without a tracker it makes no private torrent.
    let tracker = "http://127.0.0.1:9/announce";
    let made = Command::new("transmission-create")
        .args(["-p", "-t", tracker, "-o", torrent, &format!("{folder}/data")])
        .output();
    let Ok(made) = made else {
        println!("skipped: transmission-create is not installed");
        return;
    };
    assert!(made.status.success(), "{made:?}");
    let port = reserve_port();
    let config = data.folder.path().join("config");
    std::fs::create_dir(&config).unwrap();
    let settings = "{\"dht-enabled\": false, \"lpd-enabled\": false, \"utp-enabled\": false}\n";
    std::fs::write(config.join("settings.json"), settings).unwrap();
    let child = Command::new("transmission-cli")
        .args([
            "-M",
            "-p",
            &port.to_string(),
            "-g",
            config.to_str().unwrap(),
            "-w",
            folder,
            torrent,
        ])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .env("HOME", folder)
        .spawn();
    let Ok(child) = child else {
        println!("skipped: transmission-cli is not installed");
        return;
    };
    let _seeder = Program(child);
    let metainfo = data.metainfo();
    let leecher = Made::default().side(&metainfo);
    let address = SocketAddr::from(([127, 0, 0, 1], port));
    // It verifies its files first, and gives slots at intervals only.
    let begin = Instant::now();
    loop {
        assert!(begin.elapsed() < 3 * LIMIT, "nothing came");
        tokio::time::sleep(Duration::from_millis(200)).await;
        let Ok(peer) = dial(&leecher.torrent, address, Trust::Named).await else { continue };
        while !peer.is_closed() && peer.status().is_choking_us && begin.elapsed() < 3 * LIMIT {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        let source = PeerSource::of(&leecher.torrent, peer, Trust::Named);
        if download(&source).await.is(&data.content(&metainfo)) {
            return;
        }
    }
}

fn policy(encryption: &str) -> EncryptionPolicy {
    match encryption {
        "forced" => EncryptionPolicy::Require,
        _ => EncryptionPolicy::PlainFirst,
    }
}

/// Files for a torrent.
struct Data {
    folder: TempDir,
    torrent: String,
}

struct Seeder {
    address: SocketAddr,
    _program: Python,
}

impl Data {
    fn new() -> Data {
        let folder = TempDir::new().unwrap();
        let files = folder.path().join("data");
        std::fs::create_dir(&files).unwrap();
        let bytes = content(swath_model::Range::new(0, 4_000_000));
        for (name, size) in [("a", 1_500_001), ("empty", 0), ("m", 7), ("z.bin", 3_333_333)] {
            std::fs::write(files.join(name), &bytes[..size]).unwrap();
        }
        let torrent = folder.path().join("data.torrent").to_str().unwrap().to_owned();
        Data { folder, torrent }
    }

    fn torrent_path(&self) -> &str {
        &self.torrent
    }

    /// Makes the metafile and seeds; `None`, with a message, where Python has no such library.
    fn libtorrent_seeder(&self, kind: &str, encryption: &str) -> Option<Seeder> {
        let args = ["seed", self.torrent_path(), encryption, kind];
        let program = Python::start(self.folder.path(), &args)?;
        let port = program.waits_for("seeds at ");
        let address = SocketAddr::from(([127, 0, 0, 1], port.trim().parse().unwrap()));
        Some(Seeder { address, _program: program })
    }

    fn metainfo(&self) -> Arc<Metainfo> {
        let bytes = std::fs::read(self.torrent_path()).unwrap();
        Arc::new(Metainfo::read(&bytes).unwrap())
    }

    /// All files are copied there, or will be: libtorrent is complete before all is on the disk.
    fn is_in(&self, folder: &Path, metainfo: &Metainfo, what: &str) {
        for file in metainfo.info.files() {
            let path = format!("data/{}", file.path);
            let wanted = std::fs::read(self.folder.path().join(&path)).unwrap();
            let begin = Instant::now();
            while std::fs::read(folder.join(&path)).ok().as_ref() != Some(&wanted) {
                assert!(begin.elapsed() < LIMIT, "{what}: {path}");
                std::thread::sleep(Duration::from_millis(50));
            }
        }
    }

    /// All files end to end.
    fn content(&self, metainfo: &Metainfo) -> Vec<u8> {
        let read = |path| std::fs::read(self.folder.path().join("data").join(path)).unwrap();
        metainfo.info.files().iter().flat_map(|file| read(file.path.to_string())).collect()
    }

    /// The piece space.
    fn space(&self, metainfo: &Metainfo) -> Vec<u8> {
        let mut space = vec![0; metainfo.info.total_bytes() as usize];
        for file in metainfo.info.files() {
            let path = self.folder.path().join("data").join(file.path.to_string());
            let bytes = std::fs::read(path).unwrap();
            space[file.offset as usize..][..bytes.len()].copy_from_slice(&bytes);
        }
        space
    }
}

/// A program that runs until it is dropped.
struct Program(Child);

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// libtorrent, by its Python library.
struct Python {
    _program: Program,
    log: std::path::PathBuf,
}

impl Python {
    fn start(folder: &Path, args: &[&str]) -> Option<Python> {
        let import = Command::new("python3").args(["-c", "import libtorrent"]).output();
        if !import.is_ok_and(|ran| ran.status.success()) {
            println!("skipped: Python has no libtorrent");
            return None;
        }
        let log = folder.join("log");
        let out = std::fs::File::create(&log).unwrap();
        let child = Command::new("python3")
            .args(["-W", "ignore", "-u", "-c", SCRIPT])
            .args(args)
            .current_dir(folder)
            .stdin(Stdio::null())
            .stdout(out.try_clone().unwrap())
            .stderr(out)
            .spawn()
            .unwrap();
        Some(Python { _program: Program(child), log })
    }

    fn said(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Waits for a line that begins so; returns its rest.
    fn waits_for(&self, words: &str) -> String {
        let begin = Instant::now();
        loop {
            let said = self.said();
            let whole = said.rsplit_once('\n').map_or("", |it| it.0);
            if let Some(rest) = whole.lines().find_map(|line| line.strip_prefix(words)) {
                return rest.to_owned();
            }
            assert!(begin.elapsed() < LIMIT, "{words:?} is missing: {said}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    async fn says(&self, words: &str) {
        let begin = Instant::now();
        while !self.said().contains(words) {
            assert!(begin.elapsed() < LIMIT, "{words:?} is missing: {}", self.said());
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

/// `seed TORRENT any|forced v1|v2|hybrid` makes a torrent of the folder `data` and seeds it;
/// `leech TORRENT any|forced PORT` fetches it from a peer, `magnet LINK any|forced PORT` the metafile
/// as well.
const SCRIPT: &str = r"
import sys, time, libtorrent as lt
role, torrent, encryption, last = sys.argv[1:5]
settings = {'listen_interfaces': '127.0.0.1:0', 'enable_dht': False, 'enable_lsd': False,
    'enable_upnp': False, 'enable_natpmp': False, 'enable_incoming_utp': False,
    'enable_outgoing_utp': False, 'allow_multiple_connections_per_ip': True,
    'alert_mask': lt.alert.category_t.peer_notification | lt.alert.category_t.error_notification}
if encryption == 'forced':
    settings.update({'in_enc_policy': 0, 'out_enc_policy': 0, 'allowed_enc_level': 2})
session = lt.session(settings)
if role == 'seed':
    kinds = {'v1': lt.create_torrent.v1_only, 'v2': lt.create_torrent.v2_only, 'hybrid': 0}
    made = lt.create_torrent(lt.list_files('data'), 32768, kinds[last])
    lt.set_piece_hashes(made, '.')
    with open(torrent, 'wb') as file:
        file.write(lt.bencode(made.generate()))
if role == 'magnet':
    wanted = lt.parse_magnet_uri(torrent)
    wanted.save_path = '.'
    handle = session.add_torrent(wanted)
else:
    handle = session.add_torrent({'ti': lt.torrent_info(torrent), 'save_path': '.'})
while role == 'seed' and not handle.status().is_seeding:
    time.sleep(0.02)
if role == 'seed':
    print('seeds at', session.listen_port())
else:
    handle.connect_peer(('127.0.0.1', int(last)))
was_complete = False
while True:
    for alert in session.pop_alerts():
        print(type(alert).__name__, alert.message())
    if role != 'seed' and handle.status().is_seeding and not was_complete:
        was_complete = True
        print('complete')
    time.sleep(0.02)
";
