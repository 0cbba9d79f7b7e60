//! Several files that are read as one: what becomes of the whole where one of them is odd.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use swath_model::{Pool, Range, SwathId};
use swath_netlab::faulty::{Behaviour, Content, Server as Faulty};
use swath_source::{
    AfterTrim, Class, FilePart, JoinedSource, LaneError, Net, RelayMode, Source, Trust,
};
use url::Url;

use crate::support::driver::download;
use crate::support::{Bench, Reply, Request, Server, Story, content, options, partial_of};

/// Size of each file of the scripted servers.
const FILE: u64 = 1000;

/// The file at `/N` of a scripted server.
fn proper(request: &Request) -> Vec<u8> {
    let number: u64 = request.path.rsplit('/').next().unwrap().parse().unwrap();
    partial_of(request, Range::of_len(number * FILE, FILE))
}

/// So many files of a scripted server.
fn scripted(server: &Server, count: u64) -> Arc<JoinedSource> {
    let net = Net::new(options()).unwrap();
    let files = (0..count).map(|number| (FILE, server.url.join(&format!("/{number}")).unwrap()));
    JoinedSource::new(&net, server.url.clone(), Trust::Named, files)
}

/// A server with files of random bytes at `/N`, and what they are together.
struct Shop {
    server: Faulty,
    files: Vec<(u64, Url)>,
    content: Vec<u8>,
}

impl Shop {
    fn new(sizes: &[u64]) -> Shop {
        let mut builder = Faulty::builder();
        let mut all = Vec::new();
        for (number, &bytes) in sizes.iter().enumerate() {
            let content = Content::random(number as u64, bytes);
            all.extend(content.read(0, bytes));
            builder = builder.file(&format!("/{number}"), content);
        }
        let server = builder.start().unwrap();
        let url = |number: usize| Url::parse(&server.url(&format!("/{number}"))).unwrap();
        let files = sizes.iter().enumerate().map(|(number, &bytes)| (bytes, url(number))).collect();
        Shop { server, files, content: all }
    }

    fn source(&self) -> Arc<JoinedSource> {
        let net = Net::new(options()).unwrap();
        let url = Url::parse(&self.server.url("/")).unwrap();
        JoinedSource::new(&net, url, Trust::Named, self.files.clone())
    }
}

#[tokio::test]
async fn small_files_are_asked_for_ahead_on_one_connection() {
    // From the second file on nothing is answered before many are asked for.
    let waiting: Mutex<Vec<Request>> = Mutex::default();
    let server = Server::start(move |request| {
        let mut waiting = waiting.lock().unwrap();
        waiting.push(request.clone());
        let enough = [1, 33, 65, 97];
        let at = request.path.trim_start_matches('/').parse::<usize>().unwrap() + 1;
        let due = if enough.contains(&at) { std::mem::take(&mut *waiting) } else { Vec::new() };
        Reply::keep(due.iter().flat_map(proper).collect::<Vec<u8>>())
    })
    .await;
    let mut bench = Bench::on(scripted(&server, 97), Pool::new(8, 64 * 1024));
    bench.fetch(1, 0, 97 * FILE);
    let story = bench.settled(1).await;
    assert!(story.delivered(1, Range::new(0, 97 * FILE)), "{:?}", story.failed);
    assert_eq!(bench.lane.meter().requests(), 97);
    assert!(server.seen().iter().all(|request| request.connection == 0), "one connection");
    assert!(story.chunks.len() < 20, "small files share buffers: {}", story.chunks.len());
    let facts: Vec<_> = story.facts.iter().map(|facts| facts.size_bytes).collect();
    assert_eq!(facts, [Some(97 * FILE)], "the size of the whole, once");
}

#[tokio::test]
async fn a_swath_is_trimmed_within_between_and_before_files() {
    let server = Server::start(|request| Reply::keep(proper(request))).await;
    for end in [0, 1, FILE - 1, FILE, FILE + 1, 7 * FILE, 7 * FILE + 10, 40 * FILE, u64::MAX] {
        let mut bench = Bench::on(scripted(&server, 40), Pool::new(8, 4096));
        bench.fetch(1, 500, 30 * FILE + 5);
        bench.fetch(2, 31 * FILE, 33 * FILE);
        bench.lane.trim(SwathId(1), 500 + end.min(40 * FILE), AfterTrim::Drain);
        let mut story = bench.settled(2).await;
        let end = (500 + end.min(40 * FILE)).min(30 * FILE + 5);
        assert!(story.delivered(1, Range::new(500, end)), "{end}: {:?}", story.chunks.len());
        assert!(story.delivered(2, Range::new(31 * FILE, 33 * FILE)));
        // What has passed already ends it at once.
        bench.fetch(3, 0, 40 * FILE);
        bench.until(&mut story, |story| story.chunks.iter().any(|(id, ..)| id.0 == 3)).await;
        bench.lane.trim(SwathId(3), 2 * FILE, AfterTrim::Drop);
        bench.until(&mut story, |_| false).await;
        assert!(story.done.contains(&SwathId(3)));
        assert_eq!(story.closed, Some((None, vec![])));
        assert_eq!(bench.pool.free_slots(), bench.pool.slots());
    }
}

#[tokio::test]
async fn a_closed_lane_names_a_swath_of_several_files_once() {
    let server = Server::start(|_| Reply::keep("")).await;
    let mut bench = Bench::on(scripted(&server, 40), Pool::new(8, 4096));
    bench.fetch(1, 0, 20 * FILE);
    bench.fetch(2, 20 * FILE, 40 * FILE);
    while server.seen().is_empty() {
        tokio::task::yield_now().await;
    }
    bench.lane.close();
    let mut story = Story::default();
    bench.until(&mut story, |_| false).await;
    assert_eq!(story.closed, Some((None, vec![SwathId(1), SwathId(2)])));
}

#[tokio::test]
async fn a_lane_goes_on_where_each_answer_ends_the_connection() {
    for rule in [Behaviour::Close, Behaviour::Http10, Behaviour::NoRanges] {
        let shop = Shop::new(&[700; 40]);
        shop.server.set(rule.clone());
        let outcome = download(&shop.source()).await;
        assert!(outcome.is(&shop.content), "{rule:?}: {:?}", outcome.errors);
        assert_eq!(outcome.lanes, 1, "{rule:?}");
    }
}

#[tokio::test]
async fn large_files_come_from_a_server_without_ranges() {
    let shop = Shop::new(&[300_000, 5, 400_001]);
    shop.server.set(Behaviour::NoRanges);
    let outcome = download(&shop.source()).await;
    assert!(outcome.is(&shop.content), "{:?}", outcome.errors);
}

#[tokio::test]
async fn each_file_may_be_elsewhere() {
    let there = Shop::new(&[900; 60]);
    let here = Shop::new(&[900; 60]);
    for (number, (_, url)) in there.files.iter().enumerate() {
        if number % 3 != 1 {
            here.server.set_on(&format!("/{number}"), Behaviour::redirect(url.as_str()));
        }
    }
    let outcome = download(&here.source()).await;
    assert!(outcome.is(&here.content), "{:?}", outcome.errors);
    // Connections are kept while the lane is elsewhere.
    let connections = here.server.connections() + there.server.connections();
    assert!(connections <= 6, "{connections} connections");
    // The list itself may name several servers.
    let both = here.files.iter().zip(&there.files).enumerate();
    let files: Vec<_> =
        both.map(|(at, (here, there))| if at % 2 == 0 { here } else { there }.clone()).collect();
    let mixed = Shop { files, ..here };
    mixed.server.clear();
    (0..60).for_each(|number| mixed.server.clear_on(&format!("/{number}")));
    let outcome = download(&mixed.source()).await;
    assert!(outcome.is(&mixed.content), "{:?}", outcome.errors);
}

#[tokio::test]
async fn a_busy_file_is_asked_for_again() {
    let shop = Shop::new(&[9_000; 20]);
    shop.server.set_on("/7", Behaviour::busy(503, 0).first(1));
    let outcome = download(&shop.source()).await;
    assert!(outcome.is(&shop.content), "{:?}", outcome.errors);
    let [error] = &outcome.errors[..] else { panic!("{:?}", outcome.errors) };
    assert!(matches!(error.class(), Class::Busy(_)) && error.code() == Some(503), "{error:?}");
    assert!(error.to_string().contains("/7: the server answered 503"), "{error}");
}

#[tokio::test]
async fn a_file_that_is_not_as_expected_is_named() {
    type Case = (&'static str, fn(&Shop), Class);
    let cases: [Case; 4] = [
        ("too short", |shop| shop.server.put("/7", Content::random(7, 8_999)), Class::Lying),
        ("empty", |shop| shop.server.put("/7", Content::random(7, 0)), Class::Lying),
        ("too long", |shop| shop.server.put("/7", Content::random(7, 9_001)), Class::Lying),
        ("missing", |shop| shop.server.set_on("/7", Behaviour::status(404)), Class::Missing),
    ];
    for (what, spoil, class) in cases {
        let shop = Shop::new(&[9_000; 20]);
        spoil(&shop);
        let source = shop.source();
        let mut bench = Bench::on(Arc::clone(&source), Pool::new(8, 4096));
        bench.fetch(1, 0, 60_000);
        bench.fetch(2, 60_000, 70_000);
        bench.fetch(3, 90_000, 180_000);
        let story = bench.settled(3).await;
        let [(SwathId(2), error)] = &story.failed[..] else { panic!("{what}: {:?}", story.failed) };
        assert_eq!(error.class(), class, "{what}");
        let LaneError::InFile { file, .. } = error else { panic!("{what}: {error:?}") };
        assert!(file.ends_with("/7"), "{what}: {file}");
        assert_eq!(story.done, [SwathId(1), SwathId(3)], "{what}: the others come");
        // What came before the odd file is good.
        let came = story.chunks.iter().filter(|(id, ..)| id.0 == 2);
        let came: Vec<u8> = came.flat_map(|(.., bytes)| bytes.clone()).collect();
        assert_eq!(came, shop.content[60_000..63_000], "{what}");
        let refused = source.fetch_part(Range::new(62_999, 63_001)).await.unwrap_err();
        assert_eq!(refused.class(), class, "{what}: {refused}");
    }
}

#[tokio::test]
async fn an_answer_with_less_than_asked_for_keeps_the_order() {
    // Every fifth answer holds half of what was asked for.
    let server = Server::start(|request| {
        let mut request = request.clone();
        let is_odd = request.path.ends_with('3') || request.path.ends_with('8');
        if let Some((start, Some(last))) = request.range
            && is_odd
        {
            request.range = Some((start, Some(start + (last - start) / 2)));
        }
        Reply::keep(proper(&request))
    })
    .await;
    let mut bench = Bench::on(scripted(&server, 10), Pool::new(8, 4096));
    bench.fetch(1, 0, 10 * FILE);
    let story = bench.settled(1).await;
    // It gives less and less, so it is left at last; all that came before is in its order.
    let came: Vec<u8> = story.chunks.iter().flat_map(|(.., bytes)| bytes.clone()).collect();
    assert!(came == content(Range::of_len(0, came.len() as u64)) && came.len() > 3 * FILE as usize);
    match &story.failed[..] {
        [] => assert_eq!(came.len() as u64, 10 * FILE),
        [(_, error)] => assert!(matches!(error, LaneError::InFile { .. }), "{error:?}"),
        _ => panic!("{:?}", story.failed),
    }
}

#[tokio::test]
async fn parts_of_files_come_whatever_the_server_can() {
    for rule in [Behaviour::Close, Behaviour::Http10, Behaviour::NoRanges] {
        let shop = Shop::new(&[70_000; 7]);
        shop.server.set(rule.clone());
        // The end of a file, the middle, all, the beginning.
        let cuts =
            [60_000..70_000, 1..2, 0..70_000, 0..5_000, 10_000..69_999, 0..1, 69_999..70_000];
        let mut content = Vec::new();
        let parts = cuts.iter().enumerate().map(|(number, cut)| {
            let (file_bytes, url) = shop.files[number].clone();
            let start = number * 70_000;
            content.extend(&shop.content[start + cut.start..start + cut.end]);
            let range = Range::new(cut.start as u64, cut.end as u64);
            FilePart { url, file_bytes, range }
        });
        let parts: Vec<FilePart> = parts.collect();
        let net = Net::new(options()).unwrap();
        let url = Url::parse(&shop.server.url("/")).unwrap();
        let source = JoinedSource::of_parts(&net, url.clone(), Trust::Named, parts.clone());
        let outcome = download(&source).await;
        assert!(outcome.is(&content), "{rule:?}: {:?}", outcome.errors);
        let part = source.fetch_part(Range::new(9_990, 10_100)).await;
        match part {
            Ok((_, bytes)) => assert_eq!(bytes, content[9_990..10_100]),
            Err(error) => assert!(matches!(rule, Behaviour::NoRanges), "{error}"),
        }
        // A file of another size is not the one of the list.
        let mut other = parts;
        other[0].file_bytes += 1;
        let source = JoinedSource::of_parts(&net, url, Trust::Named, other);
        let error = source.fetch_part(Range::new(0, 10)).await.unwrap_err();
        assert!(matches!(error, LaneError::InFile { .. }), "{error}");
    }
}

#[tokio::test]
async fn a_million_files_need_no_million_sources() {
    // Only what is asked for is made; all but one of these addresses lead nowhere.
    let shop = Shop::new(&[5_000]);
    let (_, url) = &shop.files[0];
    let nowhere = Url::parse("http://127.0.0.1:9/").unwrap();
    let files =
        (0..1_000_000_u32).map(|at| (5_000, if at == 777_777 { url } else { &nowhere }.clone()));
    let net = Net::new(options()).unwrap();
    let source = JoinedSource::new(&net, url.clone(), Trust::Named, files);
    let mut bench = Bench::on(source, Pool::new(8, 4096));
    bench.fetch(1, 777_777 * 5_000, 777_778 * 5_000);
    let story = bench.settled(1).await;
    assert_eq!(story.done, [SwathId(1)], "{:?}", story.failed);
    let came: Vec<u8> = story.chunks.iter().flat_map(|(.., bytes)| bytes.clone()).collect();
    assert_eq!(came, shop.content);
}

#[tokio::test]
async fn relays_lead_to_each_file() {
    let relay = Server::start(|request| Reply::keep(proper(request))).await;
    let origin = Url::parse("http://origin.example/data/").unwrap();
    let net = Net::new(options()).unwrap();
    let files = (0..5).map(|at| (FILE, origin.join(&at.to_string()).unwrap()));
    let direct = JoinedSource::new(&net, origin.clone(), Trust::Named, files);
    let relays = [relay.url.clone()];
    let routed = direct.by_way_of(&relays, RelayMode::Forward, Duration::ZERO).unwrap();
    assert!(routed.relaying().is_some() && direct.relaying().is_none());
    let mut bench = Bench::on(routed, Pool::new(8, 4096));
    bench.fetch(1, 0, 5 * FILE);
    let story = bench.settled(1).await;
    assert!(story.delivered(1, Range::new(0, 5 * FILE)), "{:?}", story.failed);
    assert!(relay.seen().iter().all(|request| request.path.contains("origin.example/data/")));
}
