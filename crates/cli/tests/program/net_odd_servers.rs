//! `swath get` against servers that people met and that other programs get along with: they confuse
//! parts with wholes, refuse ranges, name another version in each answer, and send what is hardly HTTP.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use swath_netlab::faulty::{
    Algorithm, Behaviour, Certificate, Content, DigestField, Fresh, RangeLie, Rule, Server, When,
};

use crate::support::net::{building, server, sha256, url};
use crate::support::{Home, Ran};

/// Longer than the first request, and not a multiple of anything.
const SIZE: u64 = 9_000_011;

fn content() -> Content {
    Content::random(3, SIZE)
}

fn odd(content: &Content, rules: Vec<Rule>) -> Server {
    rules
        .into_iter()
        .fold(building(content), |server, rule| server.behaviour(rule))
        .start()
        .unwrap()
}

/// The file must come whole from this server alone, without a digest.
#[track_caller]
fn comes(rules: Vec<Rule>) -> (Server, Ran) {
    let content = content();
    let home = Home::new();
    let server = odd(&content, rules);
    let ran = home.run(["get", &url(&server)]);
    ran.code_is(0);
    home.holds_only("data.bin", &content);
    (server, ran)
}

/// Seafile's file server honoured ranges with the status 200: swath took the first 4 MB of 30 MB for
/// the file and gave them its name. A part says that it is one, whatever its status.
#[test]
fn a_part_with_status_200_is_not_the_file() {
    comes(vec![Behaviour::PartsWith200.into()]);
    // Without the total it is a part all the same, and so is one that nobody asked for.
    comes(vec![
        Behaviour::PartsWith200.into(),
        Behaviour::ContentRange(RangeLie::UnknownTotal).into(),
    ]);
    comes(vec![
        Behaviour::PartsWith200.into(),
        Behaviour::ContentRange(RangeLie::AlwaysFirst(1000)).into(),
    ]);
}

/// Parts that are not what was asked for, say nothing of what they are, or say that the file ends with
/// them: the whole file is asked for, as curl would.
#[test]
fn parts_that_cannot_be_used_are_not_asked_for_again() {
    for lie in [
        RangeLie::Header(1),
        RangeLie::Both(1),
        RangeLie::Missing,
        RangeLie::Garbage,
        RangeLie::OwnEnd,
        RangeLie::AlwaysFirst(1 << 20),
    ] {
        let (server, _) = comes(vec![Behaviour::ContentRange(lie).into()]);
        let records = server.handle().log().records;
        let whole = records.iter().filter(|record| record.header("range").is_none()).count();
        // Another lane may have been opened before the lie showed.
        let most = if lie == RangeLie::AlwaysFirst(1 << 20) { 3 } else { 1 };
        assert!((1..=most).contains(&whole), "{lie:?}: {whole}");
    }
}

/// The size that such a part tells holds for what comes instead of it.
#[test]
fn a_whole_that_is_shorter_than_its_parts_said_is_not_the_file() {
    let content = content();
    let home = Home::new();
    let cut = Content::bytes(content.read(0, 1000));
    let server = building(&content)
        .behaviour(Behaviour::ContentRange(RangeLie::Both(1)).when(When::Ranged))
        .behaviour(Behaviour::ChangeAfter { bytes: 1, content: cut })
        .start()
        .unwrap();
    home.run(["get", &url(&server), "--timeout", "3"]).code_is(7);
    home.lacks("data.bin");
}

/// Firewalls, scripts and some content networks answer any request with `Range` as if it were an
/// attack. Nothing else is wrong with them.
#[test]
fn who_refuses_every_range_is_asked_without_one() {
    for code in [400, 403, 405, 406, 412, 416, 500, 501] {
        let (server, ran) = comes(vec![Behaviour::status(code).when(When::Ranged)]);
        let records = server.handle().log().records;
        let ranged = records.iter().filter(|record| record.header("range").is_some()).count();
        // A 405 may mean the wish for a digest, as a 500, which may pass, too.
        let expected = match code {
            405 => 2,
            500 => 3,
            _ => 1,
        };
        assert_eq!(ranged, expected, "{code}");
        ran.never_says(&["error"]);
    }
    // Whoever refuses everything is not asked more often for that.
    let home = Home::new();
    let closed = server(&content(), Behaviour::status(403));
    home.run(["get", &url(&closed)]).code_is(7).says(&["403"]);
    assert_eq!(closed.handle().log().len(), 2);
}

/// What two files have shown of a host holds for the others of the list.
#[test]
fn a_host_that_refuses_ranges_is_not_asked_for_them_for_every_file() {
    let home = Home::new();
    let mut builder = Server::builder();
    let mut list = String::new();
    for number in 0..12 {
        builder = builder.file(&format!("/f{number}"), Content::random(number, 5000));
    }
    let server = builder.behaviour(Behaviour::status(403).when(When::Ranged)).start().unwrap();
    (0..12).for_each(|number| list += &format!("{}\n", server.url(&format!("/f{number}"))));
    std::fs::write(home.path("list"), list).unwrap();
    home.run(["get", "-i", "list", "-j", "1"]).code_is(0);
    for number in 0..12 {
        home.holds(&format!("f{number}"), &Content::random(number, 5000));
    }
    assert_eq!(server.handle().log().len(), 12 + 2);
}

/// An object store answers 416 to any range of an object of no bytes, and says no size.
#[test]
fn an_empty_file_whose_ranges_are_refused_comes() {
    let home = Home::new();
    let empty = Content::bytes(Vec::new());
    for code in [416, 400, 501] {
        let server = server(&empty, Behaviour::status(code).when(When::Ranged));
        home.run(["get", &url(&server), "--overwrite"]).code_is(0);
        home.holds_only("data.bin", &empty);
    }
}

/// `Content-Encoding: none` and its like change nothing, and the user hears of it once.
#[test]
fn an_encoding_that_is_none_is_none() {
    for token in ["none", "binary", "UTF-8", "aws-chunked"] {
        let (_, ran) = comes(vec![Behaviour::header("Content-Encoding", token).into()]);
        ran.says(&["warning", token]);
    }
    // A compression stays one: what is stored packed comes only where a digest says that it is meant.
    let content = content();
    let home = Home::new();
    let packed = server(&content, Behaviour::header("Content-Encoding", "gzip"));
    home.run(["get", &url(&packed)]).code_is(7).says(&["encoded as gzip"]);
    home.run(["get", &url(&packed), "--digest", &sha256(&content)]).code_is(0);
    home.holds_only("data.bin", &content);
}

/// Google's store unpacks a packed object for whoever wants it plain, and sends the digest of the
/// packed one along.
#[test]
fn the_digest_of_a_stored_object_does_not_prove_its_unpacked_bytes() {
    let wrong = Behaviour::DigestHeader {
        field: DigestField::Digest,
        algorithm: Algorithm::Md5,
        right: false,
    };
    let stored = Behaviour::header("X-Goog-Stored-Content-Encoding", "gzip");
    let rules = vec![wrong.into(), stored.into(), Behaviour::NoRanges.into()];
    let (_, ran) = comes(rules);
    ran.says(&["warning", "digest"]);
}

/// A balancer makes another tag for each answer: with a digest that is its own affair, today and when
/// the same command is given again.
#[test]
fn tags_of_each_answer_do_no_harm_where_a_digest_proves() {
    let content = content();
    let home = Home::new();
    let server = odd(
        &content,
        vec![Behaviour::PerAnswer(Fresh::Both).into(), Behaviour::rate(20_000_000).into()],
    );
    let digest = sha256(&content);
    home.run(["get", "-v", &url(&server), "--digest", &digest]).code_is(0).says(&["wasted 0 B"]);
    home.holds_only("data.bin", &content);
}

/// Servers behind one name: Apache's tags hold the inode, so that two of them never agree, and each
/// writes the time as it likes.
#[test]
fn a_cluster_is_one_source_where_its_times_agree() {
    let tag = |number| Behaviour::Etag(format!("\"inode-{number}\""));
    let (_, ran) = comes(vec![tag(1).into(), tag(2).when(When::EveryNth(2))]);
    ran.never_says(&["changed", "another version"]);
    comes(vec![tag(1).into(), tag(2).when(When::EveryNth(2)), tag(3).when(When::EveryNth(3))]);
    comes(vec![Behaviour::PerAnswer(Fresh::Etag).into()]);
    let time = |text: &str| Behaviour::Modified(text.to_owned());
    comes(vec![
        Behaviour::HeaderLine("X-Notation: two".to_owned()).into(),
        Behaviour::Etag("W/\"same\"".to_owned()).into(),
        time("Sun, 06 Nov 1994 08:49:37 GMT").into(),
        time("Sunday, 06-Nov-94 08:49:37 GMT").when(When::EveryNth(2)),
        time("1994-11-06T08:49:37Z").when(When::EveryNth(3)),
    ]);
}

/// A file that is made for each request has the time of the request: it comes in one answer.
#[test]
fn where_no_two_answers_agree_one_answer_is_the_file() {
    for fresh in [Fresh::Modified, Fresh::Both] {
        let (server, ran) = comes(vec![Behaviour::PerAnswer(fresh).into()]);
        ran.says(&["another version of the file in each answer"]);
        let records = server.handle().log().records;
        let whole = records.iter().filter(|record| record.header("range").is_none()).count();
        assert_eq!(whole, 1, "{fresh:?}");
    }
    // Cut short, it is begun again, and never put together of two answers.
    let (_, ran) = comes(vec![
        Behaviour::PerAnswer(Fresh::Modified).into(),
        Behaviour::Drop { after_bytes: 5_000_000, reset: false }.when(When::First(8)),
    ]);
    ran.says(&["starting again"]);
}

/// A script prints its warnings among the header lines.
#[test]
fn a_header_line_that_is_none_is_passed_over_and_named() {
    for line in ["PHP Warning:  Unknown: mcrypt.so in Unknown", "X Powered By: x", "debug output"] {
        let (_, ran) = comes(vec![Behaviour::HeaderLine(line.to_owned()).into()]);
        ran.says(&["warning", &line[..12]]);
    }
    comes(vec![Behaviour::LoneLineFeeds.into()]);
    let home = Home::new();
    let server = server(&content(), Behaviour::HeaderLine("Content-Length 12".to_owned()));
    home.run(["get", &url(&server)]).code_is(7).says(&["Content-Length 12"]);
    assert_eq!(server.handle().log().len(), 1, "it is final");
}

/// What never spoke HTTP will not at the next try: an address of another service ends at once.
#[test]
fn what_is_no_http_ends_after_one_try_with_its_words() {
    let home = Home::new();
    let ssh = server(&content(), Behaviour::GarbageStatus("SSH-2.0-OpenSSH_9.6".to_owned()));
    home.run(["get", &url(&ssh)]).code_is(7).says(&["SSH-2.0-OpenSSH_9.6"]);
    assert_eq!(ssh.handle().log().len(), 1);
}

/// 202: the file is being fetched from a tape. 203: something on the way may have changed it, which the
/// user's digest decides. Neither is final.
#[test]
fn statuses_that_are_not_final() {
    let (server, _) = comes(vec![Behaviour::busy(202, 1).when(When::First(2))]);
    assert!(server.handle().log().len() >= 3);
}

/// Old servers close TLS without a word, and send no length: only a digest can tell whether that was
/// all, and there is one.
#[test]
fn a_cut_at_the_end_is_the_end_if_the_digest_says_so() {
    let content = content();
    let home = Home::new();
    let cut = |after_bytes| {
        let server = building(&content)
            .behaviour(Behaviour::CloseDelimited)
            .behaviour(Behaviour::NoRanges)
            .behaviour(Behaviour::Drop { after_bytes, reset: false });
        server.tls(Certificate::Valid).start().unwrap()
    };
    let began = Instant::now();
    let whole = cut(SIZE);
    home.run(["get", &url(&whole), "--digest", &sha256(&content), "--insecure"]).code_is(0);
    home.holds_only("data.bin", &content);
    assert_eq!(whole.handle().log().len(), 1);
    assert!(began.elapsed() < Duration::from_secs(30));
    // A cut in the middle is none, however often it comes.
    let middle = cut(SIZE / 2);
    let args =
        ["get", &url(&middle), "--digest", &sha256(&content), "-o", "half", "--timeout", "3"];
    assert_ne!(home.run(args).code(), 0);
    home.lacks("half");
}

/// Behind a balancer one server is down and says so with status 200, or one cache has a copy that was
/// cut off: the others have the file.
#[test]
fn an_answer_that_cannot_be_the_file_is_asked_for_again() {
    let short = Content::bytes(content().read(0, 1000));
    for stray in [vec![Behaviour::HtmlPage], vec![Behaviour::NoRanges, Behaviour::CloseDelimited]] {
        let rules: Vec<Rule> = stray.into_iter().map(|it| it.when(When::EveryNth(3))).collect();
        comes(rules);
    }
    // If nothing else comes any more, that is an end, and not a file.
    let content = content();
    let home = Home::new();
    let server =
        odd(&content, vec![Behaviour::ChangeAfter { bytes: 4_000_000, content: short }.into()]);
    home.run(["get", &url(&server), "--timeout", "5"]).code_is(3);
    home.lacks("data.bin");
    let server = odd(&content, vec![Behaviour::HtmlPage.after(1)]);
    home.run(["get", &url(&server), "--timeout", "5", "-o", "page"]).code_is(3);
    home.lacks("page");
}

/// A host allows two connections and answers 403 to the third: of twenty files in a list eighteen were
/// given up. A file that is really forbidden still is.
#[test]
fn a_refusal_of_one_connection_too_many_is_not_one_of_the_file() {
    let home = Home::new();
    let mut builder = Server::builder();
    for number in 0..5 {
        builder = builder.file(&format!("/f{number}"), Content::random(number, 1_500_000));
    }
    // Connections are numbered as they come: the third to the fifth are one too many.
    let host = (2..5)
        .fold(
            builder.behaviour(Behaviour::ConnectionRate { bytes_per_s: 1_000_000 }),
            |it, number| it.behaviour(Behaviour::status(403).when(When::Connection(number))),
        )
        .start()
        .unwrap();
    let list: String = (0..5).map(|number| host.url(&format!("/f{number}")) + "\n").collect();
    std::fs::write(home.path("list"), list).unwrap();
    home.run(["get", "-i", "list", "-j", "5"]).code_is(0);
    for number in 0..5 {
        home.holds(&format!("f{number}"), &Content::random(number, 1_500_000));
    }
    let forbidden = server(&content(), Behaviour::status(403));
    home.run(["get", &url(&forbidden)]).code_is(7).says(&["403"]).never_says(&["trying again"]);
}

/// Some firewalls close the connection on which they see a range.
#[test]
fn who_hangs_up_on_ranges_is_asked_without_one() {
    comes(vec![Behaviour::Unanswered { reset: false }.when(When::Ranged)]);
}

/// `swath probe` tells what can be had of such a server.
#[test]
fn a_probe_does_not_depend_on_ranges_either() {
    let home = Home::new();
    for code in [400, 403, 416, 501] {
        let server = server(&content(), Behaviour::status(code).when(When::Ranged));
        let ran = home.run(["probe", &url(&server)]);
        ran.code_is(0);
        assert!(ran.out().contains("9.00 MB"), "{ran}");
    }
    let closed = server(&content(), Behaviour::status(404));
    home.run(["probe", &url(&closed)]).code_is(7);
}

/// A file was written anew and given its old time, and its server makes tags of size and time: what an
/// earlier run had left and the rest of the new one became one file, which neither of them was.
#[test]
fn what_is_left_is_compared_where_only_size_and_time_say_that_it_is_the_same() {
    let (old, new) = (Content::random(8, SIZE), Content::random(88, SIZE));
    let home = Home::new();
    let tag = Behaviour::Etag("\"size-and-time\"".to_owned());
    let first = odd(&old, vec![tag.clone().into(), Behaviour::die_after(5_000_000).into()]);
    home.run(["get", &url(&first), "--timeout", "3"]).code_is(3).says(&["kept "]);
    let second = odd(&new, vec![tag.clone().into()]);
    let ran = home.run(["get", &url(&second)]);
    ran.code_is(0).says(&["warning", "differs from ", "starting again"]);
    home.holds_only("data.bin", &new);
    // The same file is gone on with.
    let home = Home::new();
    let first = odd(&old, vec![tag.clone().into(), Behaviour::die_after(5_000_000).into()]);
    home.run(["get", &url(&first), "--timeout", "3"]).code_is(3);
    let second = odd(&old, vec![tag.into()]);
    home.run(["get", &url(&second)]).code_is(0).never_says(&["starting again"]);
    home.holds_only("data.bin", &old);
}

/// How many requests came, and what was kept of them.
type Taken = (usize, Vec<u8>);

/// A server that answers what is sent to it with one of these heads after the other, the last for all
/// that follows; what is answered with 201 is kept.
fn taking(answers: &'static [&'static str]) -> (String, Arc<Mutex<Taken>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/dir/", listener.local_addr().unwrap());
    let taken = Arc::new(Mutex::new((0, Vec::new())));
    let seen = Arc::clone(&taken);
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let _ = take(stream, answers, &seen);
        }
    });
    (url, taken)
}

fn take(mut stream: TcpStream, answers: &[&str], seen: &Mutex<Taken>) -> std::io::Result<()> {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") && stream.read(&mut byte)? > 0 {
        head.push(byte[0]);
    }
    let head = String::from_utf8_lossy(&head).into_owned();
    if !head.starts_with("PUT ") {
        return stream
            .write_all(b"HTTP/1.1 404 No\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
    }
    let answer = {
        let mut seen = seen.lock().unwrap();
        seen.0 += 1;
        answers[(seen.0 - 1).min(answers.len() - 1)]
    };
    if answer.starts_with("201") {
        stream.write_all(b"HTTP/1.1 100 Continue\r\n\r\n")?;
        let length = head.lines().find_map(|line| line.strip_prefix("Content-Length: "));
        let mut body = vec![0; length.unwrap().parse().unwrap()];
        stream.read_exact(&mut body)?;
        seen.lock().unwrap().1 = body;
    }
    write!(stream, "HTTP/1.1 {answer}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
}

/// Gateways before object stores say "slow down" once in a while, and mean it: nothing is wrong with
/// what was sent.
#[test]
fn an_upload_waits_for_a_gateway_that_is_busy() {
    let home = Home::new();
    let bytes = crate::support::trees::bytes(7, 300_001);
    home.write("run.h5", &bytes);
    for (answers, tries) in [
        (&["503 Slow Down", "201 Created"][..], 2),
        (&["502 Bad Gateway", "429 Too Many Requests\r\nRetry-After: 1", "201 Created"], 3),
    ] {
        let (url, taken) = taking(answers);
        home.run(["cp", "run.h5", &url]).code_is(0);
        let taken = taken.lock().unwrap();
        assert_eq!(taken.0, tries, "{answers:?}");
        assert_eq!(taken.1, bytes);
    }
    // What is meant for good is taken so, and patience has an end.
    for (answers, tries) in [(&["413 Too Large"][..], 1..2), (&["503 Slow Down"], 2..9)] {
        let (url, taken) = taking(answers);
        let ran = home.run(["cp", "run.h5", &url, "--timeout", "4"]);
        ran.code_is(5).says(&[answers[0], "nothing was written"]);
        let taken = taken.lock().unwrap().0;
        assert!(tries.contains(&taken), "{answers:?}: {taken} tries");
    }
}
