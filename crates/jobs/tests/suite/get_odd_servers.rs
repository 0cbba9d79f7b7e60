//! Files from servers that people met and that other programs get along with: they confuse parts with
//! wholes, refuse ranges, name another version in each answer, and send what is hardly HTTP.

use swath_jobs::{FileCounts, Outcome};
use swath_netlab::faulty::{
    Algorithm, Behaviour, Certificate, Content, DigestField, Fresh, RangeLie, Record, Rule, Server,
    When,
};

use crate::fetching::{Place, Ran, building, odd, over_one};
use crate::support::sha256;

/// Longer than the first request, and not a multiple of anything.
const SIZE: u64 = 9_000_011;

fn content() -> Content {
    Content::random(3, SIZE)
}

/// The file must come whole from this server alone, without a digest.
async fn comes(rules: Vec<Rule>) -> (Server, Ran) {
    let (content, place) = (content(), Place::new());
    let server = odd(&content, rules);
    let ran = place.of(&[&server]).run().await;
    ran.is_whole();
    place.holds_only("data.bin", &content);
    (server, ran)
}

/// Seafile's file server honoured ranges with the status 200: swath took the first 4 MB of 30 MB for
/// the file and gave them its name. A part says that it is one, whatever its status.
#[tokio::test(flavor = "multi_thread")]
async fn a_part_with_status_200_is_not_the_file() {
    comes(vec![Behaviour::PartsWith200.into()]).await;
    // Without the total it is a part all the same, and so is one that nobody asked for.
    for lie in [RangeLie::UnknownTotal, RangeLie::AlwaysFirst(1000)] {
        comes(vec![Behaviour::PartsWith200.into(), Behaviour::ContentRange(lie).into()]).await;
    }
}

/// Parts that are not what was asked for, say nothing of what they are, or say that the file ends with
/// them: the whole file is asked for, as curl would.
#[tokio::test(flavor = "multi_thread")]
async fn parts_that_cannot_be_used_are_not_asked_for_again() {
    for lie in [
        RangeLie::Header(1),
        RangeLie::Both(1),
        RangeLie::Missing,
        RangeLie::Garbage,
        RangeLie::OwnEnd,
        RangeLie::AlwaysFirst(1 << 20),
    ] {
        let (server, _) = comes(vec![Behaviour::ContentRange(lie).into()]).await;
        let records = server.log().records;
        let is_whole =
            |record: &&Record| record.method == "GET" && record.header("range").is_none();
        let whole = records.iter().filter(is_whole).count();
        // Another lane may have been opened before the lie showed.
        let most = if lie == RangeLie::AlwaysFirst(1 << 20) { 3 } else { 1 };
        assert!((1..=most).contains(&whole), "{lie:?}: {whole}");
    }
}

/// The size that such a part tells holds for what comes instead of it.
#[tokio::test(flavor = "multi_thread")]
async fn a_whole_that_is_shorter_than_its_parts_said_is_not_the_file() {
    let (content, place) = (content(), Place::new());
    let cut = Content::bytes(content.read(0, 1000));
    let rules = [
        Behaviour::ContentRange(RangeLie::Both(1)).when(When::Ranged),
        Behaviour::ChangeAfter { bytes: 1, content: cut }.into(),
    ];
    let server = odd(&content, rules);
    place.of(&[&server]).timeout_s(3).run().await.is_unusable();
    place.lacks("data.bin");
}

/// Firewalls, scripts and some content networks answer any request with `Range` as if it were an
/// attack. Nothing else is wrong with them.
#[tokio::test(flavor = "multi_thread")]
async fn who_refuses_every_range_is_asked_without_one() {
    for code in [400, 403, 405, 406, 412, 416, 500, 501] {
        let (server, _) = comes(vec![Behaviour::status(code).when(When::Ranged)]).await;
        let records = server.log().records;
        let ranged = records.iter().filter(|record| record.header("range").is_some()).count();
        // A 405 may mean the wish for a digest, as a 500, which may pass, too.
        let expected = match code {
            405 => 2,
            500 => 3,
            _ => 1,
        };
        assert_eq!(ranged, expected, "{code}");
    }
    // Whoever refuses everything is not asked more often for that.
    let place = Place::new();
    let closed = odd(&content(), [Behaviour::status(403)]);
    place.of(&[&closed]).run().await.is_unusable().tells(&["403"]);
    assert_eq!(closed.log().len(), 2);
}

/// What two files have shown of a host holds for the others of the list.
#[tokio::test(flavor = "multi_thread")]
async fn a_host_that_refuses_ranges_is_not_asked_for_them_for_every_file() {
    let place = Place::new();
    let file = |number| Content::random(number, 5000);
    let builder = (0..12).fold(Server::builder(), |it, n| it.file(&format!("/f{n}"), file(n)));
    let server = builder.behaviour(Behaviour::status(403).when(When::Ranged)).start().unwrap();
    let list: String = (0..12).map(|n| server.url(&format!("/f{n}")) + "\n").collect();
    let ran = place.list(list).get(|get| get.files_at_once = Some(1)).run().await;
    let all = FileCounts { complete: 12, ..FileCounts::default() };
    assert!(matches!(ran.ended, Ok(Outcome::Files(files)) if files == all), "{ran:?}");
    (0..12).for_each(|n| place.holds(&format!("f{n}"), &file(n)));
    assert_eq!(server.log().len(), 12 + 2);
}

/// An object store answers 416 to any range of an object of no bytes, and says no size.
#[tokio::test(flavor = "multi_thread")]
async fn an_empty_file_whose_ranges_are_refused_comes() {
    let empty = Content::bytes(Vec::new());
    for code in [416, 400, 501] {
        let place = Place::new();
        let server = odd(&empty, [Behaviour::status(code).when(When::Ranged)]);
        place.of(&[&server]).run().await.is_whole();
        place.holds_only("data.bin", &empty);
    }
}

/// `Content-Encoding: none` and its like change nothing, and the user hears of it once.
#[tokio::test(flavor = "multi_thread")]
async fn an_encoding_that_is_none_is_none() {
    for token in ["none", "binary", "UTF-8", "aws-chunked"] {
        let (_, ran) = comes(vec![Behaviour::header("Content-Encoding", token).into()]).await;
        ran.tells(&["warning: ", token]);
    }
    // A compression stays one: what is stored packed comes only where a digest says that it is meant.
    let (content, place) = (content(), Place::new());
    let packed = odd(&content, [Behaviour::header("Content-Encoding", "gzip")]);
    place.of(&[&packed]).run().await.is_unusable().tells(&["encoded as gzip"]);
    place.of(&[&packed]).digest(&sha256(&content)).run().await.is_whole();
    place.holds_only("data.bin", &content);
}

/// Google's store unpacks a packed object for whoever wants it plain, and sends the digest of the
/// packed one along.
#[tokio::test(flavor = "multi_thread")]
async fn the_digest_of_a_stored_object_does_not_prove_its_unpacked_bytes() {
    let (field, algorithm) = (DigestField::Digest, Algorithm::Md5);
    let wrong = Behaviour::DigestHeader { field, algorithm, right: false };
    let stored = Behaviour::header("X-Goog-Stored-Content-Encoding", "gzip");
    let (_, ran) = comes(vec![wrong.into(), stored.into(), Behaviour::NoRanges.into()]).await;
    ran.tells(&["warning: ", "digest"]);
}

/// A balancer makes another tag for each answer: with a digest that is its own affair, today and when
/// the same command is given again.
#[tokio::test(flavor = "multi_thread")]
async fn tags_of_each_answer_do_no_harm_where_a_digest_proves() {
    let (content, place) = (content(), Place::new());
    let server = odd(&content, [Behaviour::PerAnswer(Fresh::Both)]);
    let ran = place.of(&[&server]).digest(&sha256(&content)).run().await;
    assert_eq!(ran.summary().wasted_bytes, 0);
    place.holds_only("data.bin", &content);
}

/// Servers behind one name: Apache's tags hold the inode, so that two of them never agree, and each
/// writes the time as it likes.
#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_is_one_source_where_its_times_agree() {
    let tag = |number| Behaviour::Etag(format!("\"inode-{number}\""));
    let (_, ran) = comes(vec![tag(1).into(), tag(2).when(When::EveryNth(2))]).await;
    ran.never_tells(&["changed", "another version"]);
    comes(vec![tag(1).into(), tag(2).when(When::EveryNth(2)), tag(3).when(When::EveryNth(3))])
        .await;
    comes(vec![Behaviour::PerAnswer(Fresh::Etag).into()]).await;
    let time = |text: &str| Behaviour::Modified(text.to_owned());
    comes(vec![
        Behaviour::HeaderLine("X-Notation: two".to_owned()).into(),
        Behaviour::Etag("W/\"same\"".to_owned()).into(),
        time("Sun, 06 Nov 1994 08:49:37 GMT").into(),
        time("Sunday, 06-Nov-94 08:49:37 GMT").when(When::EveryNth(2)),
        time("1994-11-06T08:49:37Z").when(When::EveryNth(3)),
    ])
    .await;
}

/// A file that is made for each request has the time of the request: it comes in one answer.
#[tokio::test(flavor = "multi_thread")]
async fn where_no_two_answers_agree_one_answer_is_the_file() {
    for fresh in [Fresh::Modified, Fresh::Both] {
        let (server, ran) = comes(vec![Behaviour::PerAnswer(fresh).into()]).await;
        ran.tells(&["another version of the file in each answer"]);
        let records = server.log().records;
        let is_whole =
            |record: &&Record| record.method == "GET" && record.header("range").is_none();
        let whole = records.iter().filter(is_whole).count();
        assert_eq!(whole, 1, "{fresh:?}");
    }
    // Cut short, it is begun again, and never put together of two answers.
    let (_, ran) = comes(vec![
        Behaviour::PerAnswer(Fresh::Modified).into(),
        Behaviour::Drop { after_bytes: 5_000_000, reset: false }.when(When::First(8)),
    ])
    .await;
    ran.tells(&["starting again"]);
}

/// A script prints its warnings among the header lines.
#[tokio::test(flavor = "multi_thread")]
async fn a_header_line_that_is_none_is_passed_over_and_named() {
    for line in ["PHP Warning:  Unknown: mcrypt.so in Unknown", "X Powered By: x", "debug output"] {
        let (_, ran) = comes(vec![Behaviour::HeaderLine(line.to_owned()).into()]).await;
        ran.tells(&["warning: ", &line[..12]]);
    }
    comes(vec![Behaviour::LoneLineFeeds.into()]).await;
    let server = odd(&content(), [Behaviour::HeaderLine("Content-Length 12".to_owned())]);
    let ran = Place::new().of(&[&server]).run().await;
    ran.is_unusable().tells(&["Content-Length 12"]);
    assert_eq!(server.log().len(), 1, "it is final");
}

/// What never spoke HTTP will not at the next try: an address of another service ends at once.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_no_http_ends_after_one_try_with_its_words() {
    let ssh = odd(&content(), [Behaviour::GarbageStatus("SSH-2.0-OpenSSH_9.6".to_owned())]);
    let ran = Place::new().of(&[&ssh]).run().await;
    ran.is_unusable().tells(&["SSH-2.0-OpenSSH_9.6"]);
    assert_eq!(ssh.log().len(), 1);
}

/// 202: the file is being fetched from a tape. 203: something on the way may have changed it, which the
/// user's digest decides. Neither is final.
#[tokio::test(flavor = "multi_thread")]
async fn statuses_that_are_not_final() {
    let (server, _) = comes(vec![Behaviour::busy(202, 1).when(When::First(2))]).await;
    assert!(server.log().len() >= 3);
}

/// Old servers close TLS without a word, and send no length: only a digest can tell whether that was
/// all, and there is one.
#[tokio::test(flavor = "multi_thread")]
async fn a_cut_at_the_end_is_the_end_if_the_digest_says_so() {
    let (content, place) = (content(), Place::new());
    let digest = sha256(&content);
    let cut = |after_bytes| {
        let server = building(&content)
            .behaviour(Behaviour::CloseDelimited)
            .behaviour(Behaviour::NoRanges)
            .behaviour(Behaviour::Drop { after_bytes, reset: false });
        server.tls(Certificate::Valid).start().unwrap()
    };
    let of = |server: &Server| {
        place.of(&[server]).digest(&digest).with(|spec| spec.network.insecure = true)
    };
    let whole = cut(SIZE);
    of(&whole).run().await.is_whole();
    place.holds_only("data.bin", &content);
    assert_eq!(whole.log().len(), 1, "it was believed at once");
    // A cut in the middle is none, however often it comes.
    let ran = of(&cut(SIZE / 2)).named(&place, "half").timeout_s(3).run().await;
    ran.error();
    place.lacks("half");
}

/// Behind a balancer one server is down and says so with status 200, or one cache has a copy that was
/// cut off: the others have the file.
#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_cannot_be_the_file_is_asked_for_again() {
    let short = Content::bytes(content().read(0, 1000));
    for stray in [vec![Behaviour::HtmlPage], vec![Behaviour::NoRanges, Behaviour::CloseDelimited]] {
        comes(stray.into_iter().map(|it| it.when(When::EveryNth(3))).collect()).await;
    }
    // If nothing else comes any more, that is an end, and not a file. Some has come by then, however
    // early the time-out is.
    let (content, place) = (content(), Place::new());
    let change = Behaviour::ChangeAfter { bytes: 4_000_000, content: short };
    place.of(&[&odd(&content, [change])]).timeout_s(5).run().await.error();
    place.lacks("data.bin");
    let server = odd(&content, [Behaviour::HtmlPage.after(1)]);
    let ran = place.of(&[&server]).named(&place, "page").timeout_s(5).run().await;
    ran.is_incomplete();
    place.lacks("page");
}

/// A host allows two connections and answers 403 to the third: of twenty files in a list eighteen were
/// given up. A file that is really forbidden still is.
#[tokio::test(flavor = "multi_thread")]
async fn a_refusal_of_one_connection_too_many_is_not_one_of_the_file() {
    let place = Place::new();
    let file = |number| Content::random(number, 1_500_000);
    let builder = (0..5).fold(Server::builder(), |it, n| it.file(&format!("/f{n}"), file(n)));
    // Connections are numbered as they come: the third to the fifth are one too many.
    let builder = builder.behaviour(Behaviour::ConnectionRate { bytes_per_s: 1_000_000 });
    let refused = |it: swath_netlab::faulty::Builder, number| {
        it.behaviour(Behaviour::status(403).when(When::Connection(number)))
    };
    let host = (2..5).fold(builder, refused).start().unwrap();
    let list: String = (0..5).map(|n| host.url(&format!("/f{n}")) + "\n").collect();
    let ran = place.list(list).get(|get| get.files_at_once = Some(5)).run().await;
    assert!(matches!(ran.ended, Ok(Outcome::Files(_))), "{ran:?}");
    (0..5).for_each(|n| place.holds(&format!("f{n}"), &file(n)));
    let forbidden = odd(&content(), [Behaviour::status(403)]);
    let ran = Place::new().of(&[&forbidden]).run().await;
    ran.is_unusable().tells(&["403"]);
    assert_eq!(forbidden.log().len(), 2, "with a range and without one");
}

/// Some firewalls close the connection on which they see a range.
#[tokio::test(flavor = "multi_thread")]
async fn who_hangs_up_on_ranges_is_asked_without_one() {
    comes(vec![Behaviour::Unanswered { reset: false }.when(When::Ranged)]).await;
}

/// A file was written anew and given its old time, and its server makes tags of size and time: what an
/// earlier run had left and the rest of the new one became one file, which neither of them was.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_left_is_compared_where_only_size_and_time_say_that_it_is_the_same() {
    let (old, new) = (Content::random(8, SIZE), Content::random(88, SIZE));
    let tag = Behaviour::Etag("\"size-and-time\"".to_owned());
    for (second, is_same) in [(&new, false), (&old, true)] {
        let place = Place::new();
        let cut = Behaviour::Drop { after_bytes: 5_000_000, reset: false };
        let first = odd(&old, [cut.into(), Behaviour::status(404).after(1), tag.clone().into()]);
        let ran = over_one(place.of(&[&first])).run().await;
        assert!(ran.is_incomplete().kept().bytes > 0, "{ran:?}");
        let ran = place.of(&[&odd(second, [tag.clone()])]).run().await;
        match is_same {
            true => ran.is_whole().never_tells(&["starting again"]),
            false => ran.is_whole().tells(&["warning: ", "differs from ", "starting again"]),
        };
        place.holds_only("data.bin", second);
    }
}

/// MirrorBrain lists hundreds of mirrors, each in a `Link` field of its own (RFC 6249): an answer of more
/// than 128 fields was refused, however short.
#[tokio::test(flavor = "multi_thread")]
async fn hundreds_of_link_fields_are_read() {
    let (content, place) = (content(), Place::new());
    let links = (0..500).map(|number| Behaviour::Header {
        name: "Link".to_owned(),
        value: format!(
            "<http://mirror{number}.invalid/pub/datasets/2025/{}/data.bin>; rel=duplicate; pri={number}; geo=de",
            "x".repeat(80)
        ),
    });
    let server = odd(&content, links);
    place.of(&[&server]).get(|get| get.discover = false).run().await.is_whole();
    place.holds_only("data.bin", &content);
}
