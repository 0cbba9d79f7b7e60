//! Files from mirrors that disagree, lie, vanish or change, and what proves which is right.

use std::time::Duration;

use swath_jobs::JobEvent;
use swath_netlab::faulty::{
    Algorithm, Behaviour, Content, DigestField, MetalinkFile, Server, metalink,
};
use swath_transfer::GetError;
use swath_transfer::observe::{Event, SourceState, Verified};

use crate::fetching::{
    FILE, Place, building, held, is_out, odd, over_one, release, stuck, stuck_each,
};
use crate::support::{LONG, sha256};

const SIZE: u64 = 4_000_037;

fn honest(content: &Content) -> Server {
    building(content).start().unwrap()
}

/// A Metalink of the content at these servers, with SHA-256 pieces.
fn pieces(content: &Content, servers: &[&Server], digests: &[Algorithm]) -> String {
    let urls: Vec<String> = servers.iter().map(|server| server.url(FILE)).collect();
    let piece_bytes = Some(262_144);
    metalink(&[MetalinkFile { name: "data.bin", content, urls: &urls, digests, piece_bytes }])
}

/// Releases `to` once `from` has sent something of its file.
fn after(from: &Server, to: &[&Server]) -> std::thread::JoinHandle<()> {
    let from = from.handle();
    let to: Vec<_> = to.iter().map(|server| server.handle()).collect();
    std::thread::spawn(move || {
        let has_sent = |from: &swath_netlab::faulty::Handle| from.sent_bytes() > 0;
        assert!(from.wait_until(LONG, has_sent), "it is never asked");
        to.iter().for_each(release);
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn mirrors_of_other_sizes_or_versions_are_never_mixed_and_the_majority_wins() {
    let good = Content::random(1, SIZE);
    for bad in [Content::random(1, SIZE - 5), Content::random(2, SIZE)] {
        let place = Place::new();
        // The odd one answers first, and does not come to its end.
        let wrong = stuck(&bad, 1_000_000);
        wrong.replace(FILE, bad.clone());
        let others = [held(&good), held(&good)];
        let releases = after(&wrong, &[&others[0], &others[1]]);
        let ran = place.of(&[&wrong, &others[0], &others[1]]).run().await;
        releases.join().unwrap();
        ran.is_whole().tells(&[&format!("not using source 1 ({})", wrong.url(FILE))]);
        place.holds_only("data.bin", &good);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_digest_decides_between_two_versions() {
    let good = Content::random(1, SIZE);
    let place = Place::new();
    let (wrong, right) = (honest(&Content::random(1, SIZE + 9)), held(&good));
    let releases = after(&wrong, &[&right]);
    place.of(&[&wrong, &right]).digest(&sha256(&good)).run().await.is_whole();
    releases.join().unwrap();
    place.holds_only("data.bin", &good);
}

#[tokio::test(flavor = "multi_thread")]
async fn one_wrong_byte_with_pieces_is_found_named_and_healed() {
    let good = Content::random(7, 8_000_003);
    let place = Place::new();
    let liar = odd(&good, [Behaviour::CorruptBlocks { block_bytes: 250_000, every: 3 }]);
    let right = held(&good);
    // Who is right delivers nothing before the liar has been found out.
    let is_found = |event: &JobEvent| {
        let words = "does not match its digest";
        matches!(event, JobEvent::Transfer(Event::Note { text, .. }) if text.contains(words))
            || is_out(0)(event)
    };
    let fetch = place.metalink(pieces(&good, &[&liar, &right], &[Algorithm::Sha256]));
    let ran = fetch.releases(&right, is_found).run().await;
    ran.is_whole().tells(&[&liar.url(FILE), "delivered corrupt data"]);
    place.holds_only("data.bin", &good);
    ran.never_tells(&[&format!("{} delivered corrupt", right.url(FILE))]);
}

#[tokio::test(flavor = "multi_thread")]
async fn one_wrong_byte_with_a_digest_alone_is_found_named_and_healed() {
    let good = Content::random(8, 8_000_003);
    for at in [0, 4_000_000, 8_000_002] {
        let place = Place::new();
        // The right one has only its beginning to give until the liar has delivered the rest.
        let liar = odd(&good, [Behaviour::CorruptByte { at }]);
        let right = held(&good);
        let fetch = place.of(&[&liar, &right]).digest(&sha256(&good));
        let has_all = |event: &JobEvent| {
            crate::fetching::done_bytes(event) == 8_000_003
                || matches!(event, JobEvent::Transfer(Event::Progress(now)) if now.verified_bytes > 0)
        };
        let ran = fetch.releases(&right, has_all).run().await;
        ran.is_whole();
        place.holds_only("data.bin", &good);
        if ran.told().contains("does not match") {
            let delivered = format!("{} delivered", liar.url(FILE));
            ran.tells(&[&delivered, "replaced, and the digest is right"]);
        }
    }
}

/// With two mirrors both are in every dispute. About half of the runs tried the good one first,
/// never put its bytes back, and told that all sources agreed and the digest was wrong.
#[tokio::test(flavor = "multi_thread")]
async fn of_a_stale_and_a_good_mirror_the_good_one_wins_whoever_answers_first() {
    let (good, stale) = (Content::random(7, SIZE), Content::random(8, SIZE));
    for round in 0..4u64 {
        for stale_first in [true, false] {
            let place = Place::new();
            let rate = Behaviour::rate(6_000_000);
            let (old, right) = (odd(&stale, [rate.clone()]), odd(&good, [rate]));
            // Whoever is first, it ends the same.
            let late = if stale_first { &right } else { &old };
            late.add(Behaviour::FirstByteDelay(Duration::from_millis(20 * round)));
            let mut servers = [&old, &right];
            if !stale_first {
                servers.reverse();
            }
            let ran = place.of(&servers).digest(&sha256(&good)).run().await;
            ran.is_whole().never_tells(&["all sources agree"]);
            place.holds_only("data.bin", &good);
            if ran.told().contains("does not match") {
                ran.tells(&[&format!("{} delivered", old.url(FILE)), "the digest is right"]);
            }
        }
    }
}

/// Two stale mirrors agree with one another, and still the digest decides.
#[tokio::test(flavor = "multi_thread")]
async fn one_good_mirror_among_stale_ones_is_found_by_the_digest() {
    let (good, stale) = (Content::random(7, SIZE), Content::random(8, SIZE));
    let place = Place::new();
    let rate = || Behaviour::rate(6_000_000);
    let old = [odd(&stale, [rate()]), odd(&stale, [rate()])];
    let right = odd(&good, [rate()]);
    place.of(&[&old[0], &right, &old[1]]).digest(&sha256(&good)).run().await.is_whole();
    place.holds_only("data.bin", &good);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_an_agreement_rests_on_is_told() {
    let content = Content::random(5, SIZE);
    let place = Place::new();
    let tagged = |tag: &str| odd(&content, [Behaviour::Etag(format!("\"{tag}\""))]);
    for (one, other, words) in [
        (tagged("a"), tagged("a"), &["agree on size and version"][..]),
        (tagged("a"), tagged("b"), &["time of modification", "entity tags differ"]),
        (tagged("a"), odd(&content, [Behaviour::NoValidators]), &["agree on the size"]),
    ] {
        // The first one has not all to give before the second has been asked.
        one.set(Behaviour::rate(3_000_000));
        other.set(Behaviour::rate(3_000_000));
        let ran = place.of(&[&one, &other]).named(&place, "x").overwrite().run().await;
        assert_eq!(ran.summary().verified, Verified::None);
        ran.tells(words);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_single_source_that_corrupts_gets_no_file_into_place() {
    let good = Content::random(9, SIZE);
    let place = Place::new();
    let liar = odd(&good, [Behaviour::CorruptByte { at: 2_000_000 }]);
    let ran = place.of(&[&liar]).digest(&sha256(&good)).run().await;
    let hex = good.digest_hex(Algorithm::Sha256);
    ran.is_wrong().tells(&["the digest does not match", &hex, "no second source"]);
    place.lacks("data.bin");
    let ran = place.metalink(pieces(&good, &[&liar], &[])).run().await;
    ran.error();
    ran.tells(&[&liar.url(FILE), "does not match its digest", "no second source"]);
    place.lacks("data.bin");
    // Another mirror puts it right, and only what is missing is fetched from it.
    let right = honest(&good);
    let ran = place.metalink(pieces(&good, &[&right], &[])).run().await;
    assert!(ran.summary().resumed_bytes > 0, "{ran:?}");
    place.holds_only("data.bin", &good);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_digest_that_all_contradict_is_an_error_that_keeps_nothing_in_place() {
    let content = Content::random(4, SIZE);
    let place = Place::new();
    let wrong = format!("sha-256:{}", "0".repeat(64));
    let ran = place.of(&[&honest(&content), &honest(&content)]).digest(&wrong).run().await;
    ran.is_wrong().tells(&["the digest does not match", &wrong, "all sources agree"]);
    place.lacks("data.bin");
}

#[tokio::test(flavor = "multi_thread")]
async fn digests_that_servers_tell_are_checked() {
    let content = Content::random(5, SIZE);
    for field in [DigestField::Digest, DigestField::ReprDigest] {
        for right in [true, false] {
            let place = Place::new();
            let rule = Behaviour::DigestHeader { field, algorithm: Algorithm::Sha256, right };
            let ran = place.of(&[&odd(&content, [rule])]).run().await;
            ran.tells(&["sha-256"]);
            match right {
                true => assert_eq!(ran.summary().verified, Verified::Digest),
                false => _ = ran.is_wrong(),
            }
            assert_eq!(place.path("data.bin").exists(), right);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_contradicts_the_wanted_digest_is_left_out() {
    let content = Content::random(5, SIZE);
    let place = Place::new();
    let (field, algorithm) = (DigestField::Digest, Algorithm::Sha256);
    let wrong = odd(&content, [Behaviour::DigestHeader { field, algorithm, right: false }]);
    let good = held(&content);
    let fetch = place.of(&[&wrong, &good]).digest(&sha256(&content));
    fetch.releases(&good, is_out(0)).run().await.is_whole();
    place.holds_only("data.bin", &content);
}

#[tokio::test(flavor = "multi_thread")]
async fn changed_at_the_source_while_it_is_read() {
    let (old, new) = (Content::random(6, 8_000_001), Content::random(66, 8_000_001));
    let place = Place::new();
    // One connection after the other is cut, and at some point the file is another one.
    let source = odd(&old, [Behaviour::Truncate { after_bytes: 500_000 }]);
    let (handle, changed) = (source.handle(), new.clone());
    let some = |event: &JobEvent| crate::fetching::done_bytes(event) > 1_000_000;
    let fetch = over_one(place.of(&[&source])).at(some, move |_| {
        handle.replace(FILE, changed.clone());
    });
    source.add(Behaviour::rate(2_000_000));
    let ran = fetch.run().await;
    assert!(matches!(ran.error(), GetError::Exhausted { .. }), "{ran:?}");
    ran.tells(&["changed at the source", &source.url(FILE)]);
    place.lacks("data.bin");
    // The next run takes the new one, and nothing of the old.
    source.clear();
    place.of(&[&source]).run().await.is_whole();
    place.holds_only("data.bin", &new);
}

#[tokio::test(flavor = "multi_thread")]
async fn of_several_sources_one_changes() {
    let old = Content::random(6, 8_000_001);
    let place = Place::new();
    let fickle = odd(&old, [Behaviour::Truncate { after_bytes: 500_000 }]);
    fickle.add(Behaviour::rate(2_000_000));
    let steady = held(&old);
    let handle = fickle.handle();
    let changes = std::thread::spawn(move || {
        assert!(handle.wait_until(LONG, |it| it.sent_bytes() > 600_000));
        handle.replace(FILE, Content::random(66, 8_000_001));
    });
    let ran = place.of(&[&fickle, &steady]).releases(&steady, is_out(0)).run().await;
    changes.join().unwrap();
    ran.is_whole().tells(&["changed at the source", &fickle.url(FILE)]);
    place.holds_only("data.bin", &old);
}

/// The rest is nowhere else, so that it must be taken back.
#[tokio::test(flavor = "multi_thread")]
async fn one_of_several_dies_and_comes_back() {
    let content = Content::random(6, 12_000_001);
    let place = Place::new();
    let dying = odd(&content, [stuck_each(2_000_000)]);
    let steady = stuck(&content, 2_000_000);
    let handle = dying.handle();
    let returns = std::thread::spawn(move || {
        assert!(handle.wait_until(LONG, |it| it.sent_bytes() > 1_500_000));
        handle.die();
        handle.clear();
        let requests = handle.log().len();
        handle.revive();
        requests
    });
    let ran = place.of(&[&dying, &steady]).run().await;
    ran.is_whole();
    let requests = returns.join().unwrap();
    place.holds_only("data.bin", &content);
    assert!(dying.log().len() > requests, "it was taken back");
    let states = ran.events.iter().filter(|event| {
        matches!(event, JobEvent::Transfer(Event::Source { source: 0, state, .. })
            if *state == SourceState::Bad)
    });
    assert_eq!(states.count(), 0);
}

/// Of two mirrors with the same size and time one held other bytes: a mixture of both got the
/// file's name, and the transfer counted as complete.
#[tokio::test(flavor = "multi_thread")]
async fn two_mirrors_that_differ_end_without_a_file() {
    let (one, other) = (Content::random(1, SIZE), Content::random(2, SIZE));
    let rate = || Behaviour::rate(4_000_000);
    let (a, b) = (odd(&one, [rate()]), odd(&other, [rate()]));
    let place = Place::new();
    let ran = place.of(&[&a, &b]).run().await;
    assert!(matches!(ran.error(), GetError::Disagreement { .. }), "{ran:?}");
    ran.tells(&[&a.url(FILE), &b.url(FILE), "hold different bytes from byte"]);
    place.lacks("data.bin");
    // Nothing of the mixture counts later, be it with one of them alone or with the digest.
    place.of(&[&a]).run().await.is_whole();
    place.holds_only("data.bin", &one);
    std::fs::remove_file(place.path("data.bin")).unwrap();
    place.of(&[&a, &b]).digest(&sha256(&one)).run().await.is_whole();
    place.holds_only("data.bin", &one);
}

#[tokio::test(flavor = "multi_thread")]
async fn of_three_mirrors_the_one_that_differs_is_left_and_named() {
    let (good, wrong) = (Content::random(1, SIZE), Content::random(2, SIZE));
    let rate = || Behaviour::rate(3_000_000);
    let (a, b, c) = (odd(&good, [rate()]), odd(&wrong, [rate()]), odd(&good, [rate()]));
    let place = Place::new();
    let ran = place.of(&[&a, &b, &c]).run().await;
    place.holds_only("data.bin", &good);
    assert_eq!((ran.summary().verified, ran.summary().proved), (Verified::None, false));
    ran.tells(&[&format!("{} holds other bytes than two other mirrors", b.url(FILE))]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_redirector_may_choose_another_server_of_the_same_version() {
    // Entity tags are each server's own; another one was taken for a changed file.
    let content = Content::random(1, 3_000_011);
    let place = Place::new();
    let one = odd(&content, [Behaviour::die_after(1_000_000)]);
    let two = odd(&content, [Behaviour::Etag("\"another\"".to_owned())]);
    let door = building(&content)
        .behaviour_on(FILE, Behaviour::redirect(one.url(FILE)).first(1))
        .behaviour_on(FILE, Behaviour::redirect(two.url(FILE)).after(1))
        .start()
        .unwrap();
    let ran = over_one(place.of(&[&door])).run().await;
    ran.is_whole().never_tells(&["changed"]);
    place.holds_only("data.bin", &content);
}
