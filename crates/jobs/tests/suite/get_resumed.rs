//! A second run meets other mirrors, other versions, other digests: what an earlier run left is
//! taken over where it is of the same file, and neither mixed into another nor thrown away.

use std::time::Duration;

use swath_netlab::faulty::{Behaviour, Content, MetalinkFile, RangeLie, Server, metalink};
use swath_transfer::GetError;

use crate::fetching::{
    FILE, Fetch, Place, building, done_bytes, held, lose, odd, over_one, release, sent, stuck,
    stuck_each,
};
use crate::support::sha256;

const SIZE: u64 = 8_000_001;

/// What the first mirror has sent when it falls silent, and what is there for sure when it is stopped.
const CUT: u64 = 5_000_000;
const LEFT: u64 = 4_000_000;

fn honest(content: &Content) -> Server {
    building(content).start().unwrap()
}

/// Runs until the only mirror has fallen silent half-way, and is stopped then.
async fn begun(place: &Place, content: &Content, change: impl FnOnce(Fetch) -> Fetch) {
    let source = stuck(content, CUT);
    let ran = change(place.of(&[&source])).stopped_after(LEFT).run().await;
    assert!(matches!(ran.error(), GetError::Stopped) && ran.kept().bytes > 0, "{ran:?}");
}

/// A later version of the file, with another time and another tag.
fn newer(content: &Content) -> Server {
    let server = honest(content);
    server.replace(FILE, content.clone());
    server
}

/// The second run named another mirror, whose file had changed: the first half of the old file
/// and the second half of the new one got the final name, without a word.
#[tokio::test(flavor = "multi_thread")]
async fn an_old_and_a_new_version_are_not_joined_though_the_mirror_is_another() {
    let (old, new) = (Content::random(6, SIZE), Content::random(66, SIZE));
    let place = Place::new();
    begun(&place, &old, |it| it).await;
    let ran = place.of(&[&newer(&new)]).run().await;
    ran.is_whole().tells(&["warning: starting again", "another content"]);
    place.holds_only("data.bin", &new);
}

#[tokio::test(flavor = "multi_thread")]
async fn changed_at_the_source_between_two_runs() {
    let (old, new) = (Content::random(6, SIZE), Content::random(66, SIZE));
    let place = Place::new();
    let source = odd(&old, [stuck_each(CUT)]);
    let ran = over_one(place.of(&[&source])).stopped_after(LEFT).run().await;
    assert!(ran.kept().bytes > 0, "{ran:?}");
    source.clear();
    source.replace(FILE, new.clone());
    let ran = place.of(&[&source]).run().await;
    ran.is_whole().tells(&["warning: "]);
    place.holds_only("data.bin", &new);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_same_version_from_another_mirror_goes_on_whatever_its_tags() {
    let content = Content::random(6, SIZE);
    let place = Place::new();
    begun(&place, &content, |it| it).await;
    let other = odd(&content, [Behaviour::Etag("\"of-its-own\"".into())]);
    let ran = place.of(&[&other]).run().await;
    assert!(ran.summary().resumed_bytes > 0);
    place.holds_only("data.bin", &content);
    assert!(sent(&other) < 6_000_000, "{} bytes were sent", sent(&other));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_nothing_proves_to_be_of_the_same_file_is_not_gone_on_with() {
    let content = Content::random(6, SIZE);
    for has_digest in [false, true] {
        let place = Place::new();
        begun(&place, &content, |it| it).await;
        let silent = odd(&content, [Behaviour::NoValidators]);
        let fetch = place.of(&[&silent]);
        let ran = if has_digest { fetch.digest(&sha256(&content)) } else { fetch }.run().await;
        ran.is_whole();
        place.holds_only("data.bin", &content);
        if !has_digest {
            ran.tells(&["starting again", "nothing proves", "a digest would"]);
        }
        assert_eq!(ran.summary().resumed_bytes > 0, has_digest);
        assert_eq!(sent(&silent) < 6_000_000, has_digest, "{ran:?}");
    }
}

/// A re-released dataset: the same name and size, pieces of another length. The pieces that the
/// first Metalink had verified counted as verified for the second.
#[tokio::test(flavor = "multi_thread")]
async fn what_one_metalink_verified_another_one_verifies_again() {
    let (old, new) = (Content::random(6, SIZE), Content::random(66, SIZE));
    let place = Place::new();
    let document = |content: &Content, server: &Server, piece_bytes| {
        metalink(&[MetalinkFile {
            name: "data.bin",
            content,
            urls: &[server.url(FILE)],
            digests: &[],
            piece_bytes: Some(piece_bytes),
        }])
    };
    let first = stuck(&old, CUT);
    let ran = place.metalink(document(&old, &first, 262_144)).stopped_after(LEFT).run().await;
    assert!(ran.kept().bytes > 0, "{ran:?}");
    let second = newer(&new);
    place.metalink(document(&new, &second, 524_288)).run().await.is_whole();
    place.holds_only("data.bin", &new);
}

/// Whoever answered first decided: a mirror of another size, or a portal's page, cost all that an
/// earlier run had left, though the digest told that it was of the file wanted.
#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_mirror_that_answers_first_costs_nothing_of_what_is_left() {
    let content = Content::random(6, SIZE);
    let digest = sha256(&content);
    for has_digest in [true, false] {
        let with = |fetch: Fetch| if has_digest { fetch.digest(&digest) } else { fetch };
        for page in [false, true] {
            let place = Place::new();
            begun(&place, &content, with).await;
            let wrong = match page {
                true => odd(&content, [Behaviour::HtmlPage]),
                false => honest(&Content::random(7, SIZE + 1_000_000)),
            };
            let right = held(&content);
            // The right one answers once the wrong one has.
            let (from, to) = (wrong.handle(), right.handle());
            let releases = std::thread::spawn(move || {
                let has_answered = |from: &swath_netlab::faulty::Handle| {
                    from.log().records.iter().any(|record| record.sent_bytes > 0)
                };
                assert!(from.wait_until(crate::support::LONG, has_answered));
                release(&to);
            });
            let ran = with(place.of(&[&wrong, &right])).run().await;
            releases.join().unwrap();
            assert!(ran.summary().resumed_bytes > 0, "{ran:?}");
            ran.never_tells(&["starting again"]);
            place.holds_only("data.bin", &content);
            assert!(sent(&right) < 6_000_000, "{} bytes were sent", sent(&right));
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn where_only_wrong_mirrors_answer_what_a_digest_vouches_for_is_kept() {
    let content = Content::random(6, SIZE);
    let digest = sha256(&content);
    let place = Place::new();
    begun(&place, &content, |it| it.digest(&digest)).await;
    let wrong = honest(&Content::random(7, SIZE + 1_000_000));
    let ran = place.of(&[&wrong]).digest(&digest).run().await;
    ran.is_incomplete().tells(&["an earlier run began another version", "--no-resume"]);
    let ran = place.of(&[&honest(&content)]).digest(&digest).run().await;
    assert!(ran.summary().resumed_bytes > 0);
    place.holds_only("data.bin", &content);
}

#[tokio::test(flavor = "multi_thread")]
async fn with_no_mirror_up_what_is_kept_is_told_all_the_same() {
    let content = Content::random(6, SIZE);
    let place = Place::new();
    begun(&place, &content, |it| it).await;
    let gone = honest(&content);
    gone.die();
    assert!(place.of(&[&gone]).timeout_s(2).run().await.is_incomplete().kept().bytes > 0);
}

/// A mistyped digest used to cost the whole download.
#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_digest_costs_nothing_once_it_is_put_right() {
    let content = Content::random(6, SIZE);
    let wrong = format!("sha-256:{}", "0".repeat(64));
    for mirrors in 1..=2 {
        let place = Place::new();
        let servers: Vec<Server> = (0..mirrors).map(|_| honest(&content)).collect();
        let all: Vec<&Server> = servers.iter().collect();
        for _ in 0..2 {
            let ran = place.of(&all).digest(&wrong).run().await;
            ran.is_wrong().tells(&["the digest does not match"]);
            assert_eq!(ran.kept().bytes, SIZE);
            place.lacks("data.bin");
        }
        servers.iter().for_each(|server| server.clear_log());
        let ran = place.of(&all).digest(&sha256(&content)).run().await;
        assert!(ran.summary().resumed_bytes > 0);
        place.holds_only("data.bin", &content);
        let sent: u64 = servers.iter().map(|server| sent(server)).sum();
        // The first request is made before it is known that nothing is missing.
        assert!(sent < 6_000_000, "{sent} bytes were sent");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_liar_delivered_another_mirror_puts_right_in_the_next_run() {
    let content = Content::random(6, SIZE);
    let digest = sha256(&content);
    let place = Place::new();
    let liar = odd(&content, [Behaviour::CorruptByte { at: 3_000_000 }]);
    assert!(place.of(&[&liar]).digest(&digest).run().await.is_wrong().kept().bytes > 0);
    let ran = place.of(&[&honest(&content)]).digest(&digest).run().await;
    let delivered = format!("{} delivered", liar.url(FILE));
    ran.is_whole().tells(&[&delivered, "replaced, and the digest is right"]);
    place.holds_only("data.bin", &content);
}

/// One mirror that claims more bytes than the disk has, or than any file has, and answers first.
#[tokio::test(flavor = "multi_thread")]
async fn an_absurd_size_leaves_its_teller_out_and_not_the_file() {
    let content = Content::random(6, SIZE);
    let digest = sha256(&content);
    for by in [1 << 60, i64::MAX - SIZE as i64] {
        for has_digest in [true, false] {
            let place = Place::new();
            let liar = odd(&content, [Behaviour::ContentRange(RangeLie::Total(by))]);
            let others = [honest(&content), honest(&content)];
            // A mere hint: it ends the same whoever is first.
            for other in &others {
                other.add(Behaviour::FirstByteDelay(Duration::from_millis(100)));
            }
            let fetch = place.of(&[&liar, &others[0], &others[1]]);
            if has_digest { fetch.digest(&digest) } else { fetch }.run().await.is_whole();
            place.holds_only("data.bin", &content);
            // Alone it is told for what it is.
            let ran = place.of(&[&liar]).named(&place, "alone").run().await;
            assert!(
                matches!(
                    ran.error(),
                    GetError::Open(_) | GetError::DiskFull { .. } | GetError::Exhausted { .. }
                ),
                "{ran:?}"
            );
            assert_eq!(place.names(), ["data.bin"]);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_of_unknown_length_begins_again_when_it_was_stopped() {
    // It was told to go on from what was kept, and refused to, for ever.
    let content = Content::random(7, 4_000_037);
    let stall = stuck_each(2_000_000);
    let chunked = Behaviour::Chunked { chunk_bytes: 10_000 };
    let source = odd(&content, [Behaviour::NoRanges, chunked, stall.clone()]);
    let place = Place::new();
    let fetch = || place.of(&[&source]).digest(&sha256(&content));
    assert!(matches!(fetch().stopped_after(500_000).run().await.error(), GetError::Stopped));
    source.unset(&stall);
    fetch().run().await.is_whole();
    place.holds_only("data.bin", &content);
}

/// The mirrors are lost one after the other; a further one delivers the rest, and only that.
#[tokio::test(flavor = "multi_thread")]
async fn all_mirrors_lost_then_another_one_delivers_the_rest() {
    let content = Content::random(6, 12_000_001);
    for has_digest in [false, true] {
        let place = Place::new();
        let with = |fetch: Fetch| if has_digest { fetch.digest(&sha256(&content)) } else { fetch };
        let lost = [stuck(&content, 4_000_000), stuck(&content, 4_000_000)];
        // Both are gone once nearly all has come that they ever send.
        let handles = [lost[0].handle(), lost[1].handle()];
        let nearly_all = |event: &_| done_bytes(event) > 6_000_000;
        let fetch = with(place.of(&[&lost[0], &lost[1]]));
        let ran = fetch.at(nearly_all, move |_| handles.iter().for_each(lose)).run().await;
        ran.is_incomplete().tells(&[&lost[0].url(FILE), &lost[1].url(FILE)]);
        place.lacks("data.bin");
        let other = honest(&content);
        let ran = with(place.of(&[&other])).run().await;
        assert!(ran.summary().resumed_bytes > 0, "{ran:?}");
        place.holds_only("data.bin", &content);
        let sent = sent(&other);
        assert!(
            (3_000_000..7_000_000).contains(&sent),
            "only the rest is fetched, not {sent} bytes"
        );
    }
}
