//! Torrents and magnet links: whom they may lead to, and what of them is used.

use swath_formats::torrent::Metainfo;
use swath_formats::torrent::metainfo::{Builder, Kind, NewFile};
use swath_jobs::{Address, GetFrom, JobEvent, Note, TorrentAt};
use swath_model::digest::{Algorithm, Hasher};
use swath_model::path::SafePath;
use swath_netlab::faulty::{Content, Server};
use swath_source::LaneError;
use swath_swarm::AnnounceError;

use crate::fetching::{FILE, Place, building, held, sent};

const SIZE: u64 = 600_001;
const PIECE: u64 = 64 << 10;

/// A torrent of `data.bin`, before it is written.
fn torrent(content: &Content) -> Builder {
    let name = SafePath::new("data.bin").unwrap();
    let mut builder = Builder::new(Kind::V1, name.clone(), PIECE);
    builder.is_single_file = true;
    builder.files = vec![NewFile::new(name, content.size_bytes())];
    builder.pieces_v1 = pieces(&content.read(0, content.size_bytes()));
    builder
}

fn pieces(bytes: &[u8]) -> Vec<u8> {
    let pieces = bytes.chunks(PIECE as usize);
    pieces.flat_map(|it| Hasher::digest(Algorithm::Sha1, it).as_bytes().to_vec()).collect()
}

/// A server with a metafile.
fn beside(metafile: Vec<u8>) -> Server {
    Server::builder().file("/x.torrent", Content::bytes(metafile)).start().unwrap()
}

fn of(torrent: TorrentAt) -> GetFrom {
    GetFrom::Torrent { torrent, mirrors: Vec::new() }
}

/// Whether a tracker was not asked because of where it is.
fn is_refused(event: &JobEvent) -> bool {
    matches!(
        event,
        JobEvent::Note(Note::TrackerFailed {
            error: AnnounceError::Net(LaneError::RefusedAddress { .. }),
            ..
        })
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn trackers_and_web_seeds_of_a_server_lead_to_no_network_but_its_own() {
    let content = Content::random(1, SIZE);
    for tracker in ["http://10.255.0.1:6969/announce", "udp://169.254.169.254:80/announce"] {
        let (seed, place) = (held(&content), Place::new());
        let mut metainfo: Metainfo = torrent(&content).build().unwrap();
        metainfo.trackers = vec![vec![tracker.parse().unwrap()]];
        let inside = "http://192.168.255.1/data.bin".parse().unwrap();
        metainfo.web_seeds = vec![inside, seed.url(FILE).parse().unwrap()];
        let first = beside(metainfo.write());
        let at = TorrentAt::Address(Address::new(first.url("/x.torrent")));
        let ran = place.from(of(at)).releases(&seed, is_refused).run().await;
        ran.is_whole().tells(&["192.168.255.1"]);
        place.holds_only("data.bin", &content);
    }
}

fn hash(metainfo: &Metainfo) -> String {
    metainfo.info.hash_v1().unwrap().to_string()
}

fn percent(url: &str) -> String {
    swath_formats::percent::encode(url.as_bytes()).replace('/', "%2F")
}

/// A link says where its torrent file is, and where the file: no tracker and no peer is needed.
#[tokio::test(flavor = "multi_thread")]
async fn a_link_with_the_torrent_beside_needs_no_peers() {
    let (content, other, place) =
        (Content::random(2, SIZE), Content::random(3, SIZE), Place::new());
    let seed = building(&content).start().unwrap();
    let (wanted, wrong) = (torrent(&content).build().unwrap(), torrent(&other).build().unwrap());
    let (right, wrong) = (beside(wanted.write()), beside(wrong.write()));
    let link = |metafiles: &[&Server]| {
        let xs: String = metafiles
            .iter()
            .map(|server| format!("&xs={}", percent(&server.url("/x.torrent"))))
            .collect();
        format!("magnet:?xt=urn:btih:{}{xs}&ws={}&kt=ice", hash(&wanted), percent(&seed.url(FILE)))
    };
    // The torrent of the first address has another info-hash.
    let ran = place.from(of(TorrentAt::Magnet(link(&[&wrong, &right])))).run().await;
    ran.is_whole().tells(&["kt", "ice"]);
    place.holds_only("data.bin", &content);
    assert!(sent(&seed) >= SIZE);
    let failed = place.from(of(TorrentAt::Magnet(link(&[&wrong])))).run().await;
    failed.tells(&["is that of another torrent"]);
    // The same link in an answer must not lead inside: here it does, because the user is here too.
    let place = Place::new();
    let title =
        "<rss><channel><item><title>run</title><enclosure type='application/x-bittorrent' url='";
    let feed =
        format!("{title}{}'/></item></channel></rss>", link(&[&right]).replace('&', "&amp;"));
    let feed = Server::builder().file("/feed.rss", Content::bytes(feed)).start().unwrap();
    let from = GetFrom::Feed { feed: Address::new(feed.url("/feed.rss")), dataset: None };
    place.from(from).run().await.is_whole();
    place.holds_only("data.bin", &content);
}

/// The error said only that no peer had sent the description.
#[tokio::test(flavor = "multi_thread")]
async fn a_dead_tracker_of_a_link_is_named_with_its_error() {
    let wanted: Metainfo = torrent(&Content::random(2, SIZE)).build().unwrap();
    let gone = swath_netlab::reserve_port();
    let tracker = format!("http://127.0.0.1:{}/announce", gone);
    let link = format!("magnet:?xt=urn:btih:{}&tr={}", hash(&wanted), percent(&tracker));
    let place = Place::new();
    let ran = place.from(of(TorrentAt::Magnet(link))).timeout_s(1).run().await;
    let told = ran.told();
    let error = told.lines().last().unwrap();
    let name = format!("127.0.0.1:{}", gone);
    assert!(error.contains("no peer has sent the description") && error.contains(&name), "{told}");
    assert!(error.contains("efused"), "{told}");
}

/// Names of Latin-1, as old programs wrote them, and a link that selects one file by its number.
#[tokio::test(flavor = "multi_thread")]
async fn odd_names_come_and_links_select() {
    let (one, two) = (Content::random(4, 100_000), Content::random(5, 70_000));
    let both = [&one, &two].map(|it| it.read(0, it.size_bytes())).concat();
    let mut out = swath_formats::torrent::bencode::Writer::new();
    out.dict().text("info").dict().text("files").list();
    for (name, content) in [(&b"Stra\xdfe.dat"[..], &one), (b"b.dat", &two)] {
        out.dict().text("length").int(content.size_bytes());
        out.text("path").list().bytes(name).end().end();
    }
    out.end().text("name").text("set").text("piece length").int(PIECE);
    out.text("pieces").bytes(&pieces(&both)).end().end();
    let metafile = out.finish();
    let metainfo = Metainfo::read(&metafile).unwrap();
    let seed = Server::builder()
        .file("/set/Stra%DFe.dat", one.clone())
        .file("/set/b.dat", two.clone())
        .file("/x.torrent", Content::bytes(metafile))
        .start()
        .unwrap();
    let link = |more: &str| {
        let (xs, ws) = (percent(&seed.url("/x.torrent")), percent(&seed.url("/")));
        TorrentAt::Magnet(format!("magnet:?xt=urn:btih:{}&xs={xs}&ws={ws}{more}", hash(&metainfo)))
    };
    let place = Place::new();
    place.from(of(link(""))).run().await.is_whole().tells(&["OddNames"]);
    place.holds("set/Stra%DFe.dat", &one);
    place.holds("set/b.dat", &two);
    let place = Place::new();
    place.from(of(link("&so=1"))).run().await.is_whole();
    place.holds("set/b.dat", &two);
    place.lacks("set/Stra%DFe.dat");
    let place = Place::new();
    place.from(of(link("&so=7"))).run().await.tells(&["no file of set matches"]);
}
