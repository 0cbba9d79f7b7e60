//! `swath get` from mirrors that disagree, lie, vanish or change.

use std::time::Duration;

use crate::support::Home;
use crate::support::net::{FILE, building, honest, server, sha256, slow, url};
use swath_netlab::faulty::{
    Algorithm, Behaviour, Content, DigestField, MetalinkFile, Server, metalink,
};

const SIZE: u64 = 4_000_037;

#[test]
fn mirrors_of_other_sizes_or_versions_are_never_mixed_and_the_majority_wins() {
    let good = Content::random(1, SIZE);
    for bad in [Content::random(1, SIZE - 5), Content::random(2, SIZE)] {
        let home = Home::new();
        // The odd one answers first.
        let odd = building(&bad).behaviour(Behaviour::rate(6_000_000)).start().unwrap();
        odd.replace(FILE, bad.clone());
        let others = [slow(&good, 2_000_000), slow(&good, 2_000_000)];
        for other in &others {
            other.add(Behaviour::FirstByteDelay(Duration::from_millis(100)));
        }
        let ran = home.run(["get", &url(&odd), &url(&others[0]), &url(&others[1])]);
        ran.code_is(0).says(&[&format!("not using source 1 ({})", url(&odd))]);
        home.holds_only("data.bin", &good);
    }
}

#[test]
fn the_minority_is_left_out_and_named() {
    let good = Content::random(1, SIZE);
    let home = Home::new();
    let others = [honest(&good), honest(&good)];
    let odd = server(
        &Content::random(1, SIZE + 9),
        Behaviour::FirstByteDelay(Duration::from_millis(100)),
    );
    for other in &others {
        other.set(Behaviour::rate(3_000_000));
    }
    let ran = home.run(["get", &url(&others[0]), &url(&others[1]), &url(&odd)]);
    ran.code_is(0).says(&[&url(&odd), "not using source 3", &format!("{}", SIZE + 9)]);
    home.holds_only("data.bin", &good);
    assert_eq!(odd.log().sent_bytes(FILE).min(SIZE), odd.log().sent_bytes(FILE));
}

#[test]
fn a_digest_decides_between_two_versions() {
    let good = Content::random(1, SIZE);
    let home = Home::new();
    let odd = honest(&Content::random(1, SIZE + 9));
    let right = slow(&good, 4_000_000);
    let ran = home.run(["get", &url(&odd), &url(&right), "--digest", &sha256(&good)]);
    assert!(ran.code() == 0, "{ran}");
    home.holds_only("data.bin", &good);
}

#[test]
fn one_wrong_byte_with_pieces_is_found_named_and_healed() {
    let good = Content::random(7, 8_000_003);
    let home = Home::new();
    let liar = building(&good)
        .behaviour(Behaviour::rate(8_000_000))
        .behaviour(Behaviour::CorruptBlocks { block_bytes: 250_000, every: 3 })
        .start()
        .unwrap();
    let right = slow(&good, 8_000_000);
    let urls = [url(&liar), url(&right)];
    let text = metalink(&[MetalinkFile {
        name: "data.bin",
        content: &good,
        urls: &urls,
        digests: &[Algorithm::Sha256],
        piece_bytes: Some(262_144),
    }]);
    home.write("../data.meta4", text);
    let ran = home.run(["get", "../data.meta4"]);
    ran.code_is(0).says(&[&url(&liar), "delivered corrupt data"]);
    home.holds_only("data.bin", &good);
    ran.never_says(&[&format!("{} delivered corrupt", url(&right))]);
}

#[test]
fn one_wrong_byte_with_a_digest_alone_is_found_named_and_healed() {
    let good = Content::random(8, 8_000_003);
    for at in [0, 4_000_000, 8_000_002] {
        let home = Home::new();
        // Whoever delivers that byte first, the liar is asked for it in time: it is much faster.
        let liar = server(&good, Behaviour::CorruptByte { at });
        let right = slow(&good, 4_000_000);
        right.add(Behaviour::FirstByteDelay(Duration::from_millis(100)));
        let ran = home.run(["get", &url(&liar), &url(&right), "--digest", &sha256(&good)]);
        ran.code_is(0);
        home.holds_only("data.bin", &good);
        if ran.stderr.contains("does not match") {
            ran.says(&[&format!("{} delivered", url(&liar)), "replaced, and the digest is right"]);
        }
    }
}

/// With two mirrors both are in every dispute. About half of the runs tried the good one first,
/// never put its bytes back, and told that all sources agreed and the digest was wrong.
#[test]
fn of_a_stale_and_a_good_mirror_the_good_one_wins_whoever_answers_first() {
    let (good, stale) = (Content::random(7, SIZE), Content::random(8, SIZE));
    for round in 0..4u64 {
        for stale_first in [true, false] {
            let home = Home::new();
            let (old, right) = (slow(&stale, 6_000_000), slow(&good, 6_000_000));
            let late = if stale_first { &right } else { &old };
            late.add(Behaviour::FirstByteDelay(Duration::from_millis(20 * round)));
            let mut urls = [url(&old), url(&right)];
            if !stale_first {
                urls.reverse();
            }
            let ran = home.run(["get", &urls[0], &urls[1], "--digest", &sha256(&good)]);
            ran.code_is(0).never_says(&["all sources agree"]);
            home.holds_only("data.bin", &good);
            if ran.stderr.contains("does not match") {
                ran.says(&[&format!("{} delivered", url(&old)), "the digest is right"]);
            }
        }
    }
}

/// Two stale mirrors agree with one another, and still the digest decides.
#[test]
fn one_good_mirror_among_stale_ones_is_found_by_the_digest() {
    let (good, stale) = (Content::random(7, SIZE), Content::random(8, SIZE));
    let home = Home::new();
    let old = [slow(&stale, 4_000_000), slow(&stale, 4_000_000)];
    let right = slow(&good, 4_000_000);
    let ran =
        home.run(["get", &url(&old[0]), &url(&right), &url(&old[1]), "--digest", &sha256(&good)]);
    ran.code_is(0);
    home.holds_only("data.bin", &good);
}

#[test]
fn what_an_agreement_rests_on_is_told() {
    let content = Content::random(5, SIZE);
    let home = Home::new();
    let tagged = |tag: &str| {
        let server = slow(&content, 3_000_000);
        server.add(Behaviour::Etag(format!("\"{tag}\"")));
        server
    };
    let told = |one: &Server, other: &Server, name: &str| {
        let ran = home.run(["get", &url(one), &url(other), "-o", name]);
        ran.code_is(0);
        ran
    };
    told(&tagged("a"), &tagged("a"), "same").says(&["NOT VERIFIED", "agree on size and version"]);
    told(&tagged("a"), &tagged("b"), "time").says(&["time of modification", "entity tags differ"]);
    let silent = slow(&content, 3_000_000);
    silent.add(Behaviour::NoValidators);
    told(&tagged("a"), &silent, "size").says(&["NOT VERIFIED", "agree on the size"]);
}

#[test]
fn a_single_source_that_corrupts_gets_no_file_into_place() {
    let good = Content::random(9, SIZE);
    let home = Home::new();
    let liar = server(&good, Behaviour::CorruptByte { at: 2_000_000 });
    let ran = home.run(["get", &url(&liar), "--digest", &sha256(&good)]);
    ran.code_is(4).says(&[
        "the digest does not match",
        &good.digest_hex(Algorithm::Sha256),
        "no second source",
    ]);
    home.lacks("data.bin");
    let urls = [url(&liar)];
    let text = metalink(&[MetalinkFile {
        name: "data.bin",
        content: &good,
        urls: &urls,
        digests: &[],
        piece_bytes: Some(262_144),
    }]);
    home.write("../data.meta4", text);
    let ran = home.run(["get", "../data.meta4"]);
    assert!(matches!(ran.code(), 3 | 4), "{ran}");
    ran.says(&[&url(&liar), "does not match its digest", "no second source"]);
    home.lacks("data.bin");
    // Another mirror puts it right, and only what is missing is fetched from it.
    let right = honest(&good);
    let urls = [url(&right)];
    let text = metalink(&[MetalinkFile {
        name: "data.bin",
        content: &good,
        urls: &urls,
        digests: &[],
        piece_bytes: Some(262_144),
    }]);
    home.write("../data.meta4", text);
    home.run(["get", "../data.meta4"]).code_is(0);
    home.holds_only("data.bin", &good);
}

#[test]
fn a_digest_that_all_contradict_is_an_error_that_keeps_nothing_in_place() {
    let content = Content::random(4, SIZE);
    let home = Home::new();
    let (one, two) = (honest(&content), honest(&content));
    let wrong = format!("sha-256:{}", "0".repeat(64));
    let ran = home.run(["get", &url(&one), &url(&two), "--digest", &wrong]);
    ran.code_is(4).says(&["the digest does not match", &wrong, "all sources agree"]);
    home.lacks("data.bin");
}

#[test]
fn digests_that_servers_tell_are_checked() {
    let content = Content::random(5, SIZE);
    for field in [DigestField::Digest, DigestField::ReprDigest] {
        for right in [true, false] {
            let home = Home::new();
            let rule = Behaviour::DigestHeader { field, algorithm: Algorithm::Sha256, right };
            let ran = home.run(["get", &url(&server(&content, rule))]);
            ran.code_is(if right { 0 } else { 4 }).says(&["sha-256"]);
            assert_eq!(home.exists("data.bin"), right);
        }
    }
}

#[test]
fn a_server_that_contradicts_the_wanted_digest_is_left_out() {
    let content = Content::random(5, SIZE);
    let home = Home::new();
    let rule = Behaviour::DigestHeader {
        field: DigestField::Digest,
        algorithm: Algorithm::Sha256,
        right: false,
    };
    let (odd, good) = (server(&content, rule), slow(&content, 3_000_000));
    let ran = home.run(["get", &url(&odd), &url(&good), "--digest", &sha256(&content)]);
    ran.code_is(0);
    home.holds_only("data.bin", &content);
}

#[test]
fn all_mirrors_lost_then_another_one_delivers_the_rest() {
    let content = Content::random(6, 12_000_001);
    for digest in [None, Some(sha256(&content))] {
        let home = Home::new();
        let dying: Vec<Server> = (0..2)
            .map(|_| {
                building(&content)
                    .behaviour(Behaviour::rate(6_000_000))
                    .behaviour(Behaviour::die_after(4_000_000))
                    .start()
                    .unwrap()
            })
            .collect();
        let more: Vec<String> =
            digest.iter().flat_map(|digest| ["--digest".to_owned(), digest.clone()]).collect();
        let mut args: Vec<String> = ["get", "--timeout", "4s"].map(str::to_owned).into();
        args.extend([url(&dying[0]), url(&dying[1])]);
        args.extend(more.clone());
        let ran = home.run(&args);
        ran.code_is(3).says(&[
            &url(&dying[0]),
            &url(&dying[1]),
            " in data.bin.swath.part: ",
            "the same command resumes from there, also with other mirrors",
        ]);
        home.lacks("data.bin");
        let other = honest(&content);
        let mut args = vec!["get".to_owned(), url(&other)];
        args.extend(more);
        let ran = home.run(&args);
        ran.code_is(0).says(&["from an earlier run"]);
        home.holds_only("data.bin", &content);
        let sent = other.log().sent_bytes(FILE);
        assert!(sent < 7_000_000, "only the rest was fetched, not {sent} bytes:\n{ran}");
        assert!(sent > 3_000_000, "{sent}");
    }
}

#[test]
fn changed_at_the_source_between_two_runs() {
    let old = Content::random(6, 8_000_001);
    let new = Content::random(66, 8_000_001);
    let home = Home::new();
    let source = building(&old)
        .behaviour(Behaviour::rate(6_000_000))
        .behaviour(Behaviour::die_after(3_000_000))
        .start()
        .unwrap();
    home.run(["get", &url(&source), "--timeout", "3s"]).code_is(3);
    source.clear();
    source.revive();
    source.replace(FILE, new.clone());
    let ran = home.run(["get", &url(&source)]);
    ran.code_is(0);
    home.holds_only("data.bin", &new);
    ran.says(&["warning"]);
}

#[test]
fn changed_at_the_source_while_it_is_read() {
    let old = Content::random(6, 8_000_001);
    let new = Content::random(66, 8_000_001);
    let home = Home::new();
    let source = building(&old)
        .behaviour(Behaviour::rate(4_000_000))
        .behaviour(Behaviour::Truncate { after_bytes: 500_000 })
        .start()
        .unwrap();
    let running = home.swath(["get", &url(&source)]).start();
    assert!(source.wait_until(Duration::from_secs(20), |s| s.sent_bytes() > 2_000_000));
    source.replace(FILE, new.clone());
    let ran = running.wait();
    assert!(matches!(ran.code(), 3 | 7), "{ran}");
    ran.says(&["changed at the source", &url(&source)]);
    // It was said to go on from there.
    ran.says(&[" in data.bin.swath.part: they are of the old version"]);
    ran.never_says(&["the same command resumes from there"]);
    home.lacks("data.bin");
    // The next run takes the new one, and nothing of the old.
    source.clear();
    home.run(["get", &url(&source)]).code_is(0);
    home.holds_only("data.bin", &new);
}

#[test]
fn of_several_sources_one_changes() {
    let old = Content::random(6, 8_000_001);
    let home = Home::new();
    let fickle = building(&old)
        .behaviour(Behaviour::rate(2_000_000))
        .behaviour(Behaviour::Truncate { after_bytes: 500_000 })
        .start()
        .unwrap();
    let steady = slow(&old, 2_000_000);
    let running = home.swath(["get", &url(&fickle), &url(&steady)]).start();
    assert!(fickle.wait_until(Duration::from_secs(20), |s| s.sent_bytes() > 600_000));
    fickle.replace(FILE, Content::random(66, 8_000_001));
    let ran = running.wait();
    ran.code_is(0).says(&["changed at the source", &url(&fickle)]);
    home.holds_only("data.bin", &old);
}

#[test]
fn one_of_several_dies_and_comes_back() {
    let content = Content::random(6, 12_000_001);
    let home = Home::new();
    let dying = slow(&content, 4_000_000);
    let steady = slow(&content, 1_500_000);
    let running = home.swath(["get", &url(&dying), &url(&steady)]).start();
    assert!(dying.wait_until(Duration::from_secs(20), |s| s.sent_bytes() > 1_500_000));
    dying.die();
    std::thread::sleep(Duration::from_millis(700));
    let before = dying.sent_bytes();
    dying.revive();
    running.wait().code_is(0);
    home.holds_only("data.bin", &content);
    assert!(dying.sent_bytes() > before, "it was taken back");
}
