//! What proves a file: digests, pieces, those that are wrong themselves; and where it must not come
//! without proof.

use swath_netlab::faulty::{
    Algorithm, Behaviour, Content, DigestField, MetalinkFile, Server, metalink,
};
use swath_transfer::GetError;
use swath_transfer::observe::Verified;

use crate::fetching::{FILE, Fetch, Place, building, held, odd, release};
use crate::support::{LONG, sha256};

const SIZE: u64 = 3_000_017;
const PIECE: u64 = 262_144;

fn honest(content: &Content) -> Server {
    building(content).start().unwrap()
}

/// A Metalink of the content with SHA-256 pieces and these digests of the whole.
fn described(content: &Content, servers: &[&Server], digests: &[Algorithm], piece: u64) -> String {
    let urls: Vec<String> = servers.iter().map(|server| server.url(FILE)).collect();
    let piece_bytes = Some(piece);
    metalink(&[MetalinkFile { name: "data.bin", content, urls: &urls, digests, piece_bytes }])
}

/// The digest of the content's piece from `start` on.
fn piece_hex(content: &Content, start: u64, length: u64) -> String {
    let end = (start + length).min(content.size_bytes());
    Content::bytes(content.read(start, end)).digest_hex(Algorithm::Sha256)
}

/// The same fetch to a file and to a stream.
fn both(fetch: impl Fn() -> Fetch, place: &Place) -> [Fetch; 2] {
    [fetch().named(place, "x"), fetch().into_stream()]
}

#[tokio::test(flavor = "multi_thread")]
async fn right_pieces_do_not_hide_a_wrong_digest_of_the_whole() {
    // What a user gives, and what the Metalink says itself: strong pieces made both be ignored.
    let content = Content::random(1, SIZE);
    let (source, place) = (honest(&content), Place::new());
    let text = described(&content, &[&source], &[], PIECE);
    let wrong = format!("sha-256:{}", "0".repeat(64));
    let ran = place.metalink(&text).digest(&wrong).run().await;
    ran.is_wrong().tells(&[&wrong, "each piece is right by its own digest"]);
    place.lacks("data.bin");
    let right = format!("md5:{}", content.digest_hex(Algorithm::Md5));
    let ran = place.metalink(&text).digest(&right).run().await;
    ran.is_whole().tells(&["12 pieces by sha-256, the whole by md5"]);
    place.holds_only("data.bin", &content);
    let other = Place::new();
    let hex = content.digest_hex(Algorithm::Sha256);
    let text = described(&content, &[&source], &[Algorithm::Sha256], PIECE);
    let text = text.replace(&hex, &"1".repeat(64));
    for fetch in both(|| other.metalink(&text), &other) {
        fetch.run().await.is_wrong().tells(&["contradict each other"]);
        other.lacks("x");
    }
    // The user and the Metalink cannot both be right: nothing needs to be fetched to know that.
    let before = source.sent_bytes();
    let ran = other.metalink(&text).digest(&format!("sha-256:{hex}")).run().await;
    assert!(matches!(ran.error(), GetError::Contradiction { .. }), "{ran:?}");
    ran.tells(&["two digests contradict each other", &hex, &"1".repeat(64)]);
    assert_eq!(source.sent_bytes(), before);
}

#[tokio::test(flavor = "multi_thread")]
async fn each_digest_that_is_given_is_checked() {
    let content = Content::random(2, SIZE);
    let (source, place) = (honest(&content), Place::new());
    let right =
        |algorithm: Algorithm| format!("{}:{}", algorithm.name(), content.digest_hex(algorithm));
    let (sha256, md5) = (right(Algorithm::Sha256), right(Algorithm::Md5));
    let wrong = format!("md5:{}", "0".repeat(32));
    for fetch in both(|| place.of(&[&source]).digest(&sha256).digest(&wrong), &place) {
        fetch.run().await.is_wrong().tells(&[&wrong, &md5]);
        place.lacks("x");
    }
    let ran = place.of(&[&source]).digest(&md5).digest(&sha256).run().await;
    ran.is_whole().tells(&["sha-256 and md5"]);
    place.holds("data.bin", &content);
}

#[tokio::test(flavor = "multi_thread")]
async fn pieces_that_do_not_fit_a_file_of_unknown_size_are_found_at_its_end() {
    let content = Content::random(3, SIZE);
    let (source, place) = (honest(&content), Place::new());
    let sizeless = |text: String| text.replace(&format!("    <size>{SIZE}</size>\n"), "");
    let last = piece_hex(&content, SIZE / PIECE * PIECE, PIECE);
    let short = |text: String| text.replace(&format!("      <hash>{last}</hash>\n"), "");
    let text = sizeless(short(described(&content, &[&source], &[], PIECE)));
    place.metalink(text).run().await.tells(&["does not fit the piece digests"]).error();
    place.lacks("data.bin");
    // A digest of the whole proves it all the same.
    let proved = described(&content, &[&source], &[Algorithm::Sha256], PIECE);
    for text in [short(proved.clone()), sizeless(short(proved))] {
        let ran = place.metalink(text).overwrite().run().await;
        assert_eq!(ran.summary().verified, Verified::Digest);
        place.holds_only("data.bin", &content);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_that_ends_with_a_right_piece_too_early_is_not_the_file() {
    let content = Content::random(8, SIZE);
    let begun = Content::bytes(content.read(0, 2 * PIECE));
    let source = odd(&begun, [Behaviour::NoRanges, Behaviour::CloseDelimited]);
    let place = Place::new();
    let text = described(&content, &[&source], &[], PIECE);
    let text = text.replace(&format!("    <size>{SIZE}</size>\n"), "");
    for fetch in both(|| place.metalink(&text), &place) {
        let ran = fetch.run().await;
        assert!(matches!(ran.error(), GetError::Pieces(_)), "{ran:?}");
        ran.tells(&["does not fit the piece digests", "need 2 piece digests, there are 12"]);
        place.lacks("x");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_piece_digest_that_is_wrong_itself_accuses_nobody() {
    let content = Content::random(4, SIZE);
    let (one, two) = (honest(&content), honest(&content));
    let hex = piece_hex(&content, PIECE, PIECE);
    for (servers, words) in [
        (&[&one, &two][..], "all sources agree with one another"),
        (&[&one][..], "no second source to compare with"),
    ] {
        let place = Place::new();
        let text = described(&content, servers, &[], PIECE).replace(&hex, &"2".repeat(64));
        for fetch in both(|| place.metalink(&text), &place) {
            let ran = fetch.run().await;
            ran.is_wrong().tells(&[&hex, "bytes 262144–524288", words]);
            ran.never_tells(&["corrupt data"]);
            place.lacks("x");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn two_stale_mirrors_do_not_outvote_a_right_piece_digest() {
    let (new, old) = (Content::random(5, SIZE), Content::random(6, SIZE));
    let stale = [honest(&old), honest(&old)];
    let (right, place) = (held(&new), Place::new());
    let (from, to) = ([stale[0].handle(), stale[1].handle()], right.handle());
    let releases = std::thread::spawn(move || {
        let has_sent = |one: &swath_netlab::faulty::Handle| one.sent_bytes() > 0;
        assert!(from.iter().all(|one| one.wait_until(LONG, has_sent)), "both are asked");
        release(&to);
    });
    let text = described(&new, &[&stale[0], &stale[1], &right], &[], PIECE);
    let ran = place.metalink(text).run().await;
    releases.join().unwrap();
    ran.is_whole().never_tells(&[&format!("{} delivered", right.url(FILE))]);
    place.holds_only("data.bin", &new);
}

#[tokio::test(flavor = "multi_thread")]
async fn pieces_of_any_size_come_out_of_a_stream() {
    // A piece was hashed from its start for every block of it, and one that was larger than the
    // memory for buffers never came out at all.
    let content = Content::random(7, 30_000_001);
    let (source, place) = (honest(&content), Place::new());
    let fetch = |server: &Server, piece| {
        let text = described(&content, &[server], &[], piece);
        place.metalink(text).into_stream().with(|spec| spec.disk.memory_bytes = 10_000_000)
    };
    for (piece, words) in [(4 << 20, ""), (20 << 20, "each is written before it is proved")] {
        let ran = fetch(&source, piece).run().await;
        ran.is_whole().tells(&[words]);
        assert!(ran.output == content.read(0, 30_000_001), "pieces of {piece}");
    }
    let liar = odd(&content, [Behaviour::CorruptByte { at: 15_000_000 }]);
    let ran = fetch(&liar, 20 << 20).run().await;
    ran.is_wrong().tells(&["bytes 0–20971520 are wrong, and their beginning is written already"]);
    assert!(ran.output.len() < 20 << 20, "it ends before that piece does");
}

#[tokio::test(flavor = "multi_thread")]
async fn pieces_keep_wrong_bytes_out_of_a_stream() {
    let content = Content::random(1, 6_000_011);
    let liar = odd(&content, [Behaviour::CorruptBlocks { block_bytes: 300_000, every: 3 }]);
    let (good, place) = (honest(&content), Place::new());
    let text = described(&content, &[&liar, &good], &[], PIECE);
    let ran = place.metalink(text).into_stream().run().await;
    assert!(ran.is_whole().output == content.read(0, 6_000_011), "only good bytes were written");
}

#[tokio::test(flavor = "multi_thread")]
async fn streams_of_several_sources_are_in_order_and_proved() {
    let content = Content::random(1, 6_000_011);
    let place = Place::new();
    let rates = [3_000_000, 6_000_000, 9_000_000];
    let sources = rates.map(|rate| odd(&content, [Behaviour::rate(rate)]));
    let fetch = || place.of(&sources.each_ref()).into_stream();
    let ran = fetch().digest(&sha256(&content)).run().await;
    assert_eq!(ran.summary().verified, Verified::Digest);
    assert!(ran.output == content.read(0, 6_000_011), "in order");
    let ran = fetch().digest(&format!("sha-256:{}", "1".repeat(64))).run().await;
    ran.is_wrong().tells(&["the digest does not match"]);
    assert!(place.names().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_digest_can_be_required() {
    let content = Content::random(1, SIZE);
    let (source, place) = (honest(&content), Place::new());
    let required = |server: &Server| place.of(&[server]).get(|get| get.require_digest = true);
    let ran = required(&source).run().await;
    assert!(matches!(ran.error(), GetError::NoDigest), "{ran:?}");
    assert_eq!(place.names(), Vec::<String>::new());
    required(&source).digest(&sha256(&content)).run().await.is_whole();
    // A digest that the server tells will do, one that nobody tells of a file that is there will not.
    let (field, algorithm) = (DigestField::ReprDigest, Algorithm::Sha256);
    let telling = odd(&content, [Behaviour::DigestHeader { field, algorithm, right: true }]);
    required(&telling).overwrite().run().await.is_whole();
    let ran = required(&source).run().await;
    assert!(matches!(ran.error(), GetError::NoDigest | GetError::Present { .. }), "{ran:?}");
}
