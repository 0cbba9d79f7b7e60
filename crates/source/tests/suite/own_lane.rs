//! The lane of our own against a scripted server, one behaviour at a time.

use std::sync::atomic::{AtomicBool, Ordering};

use crate::support::{Bench, Reply, Request, Server, Story, content, partial};
use swath_model::{Pool, Range, SwathId};
use swath_source::{AfterTrim, HttpSource, LaneError, Net, NetOptions, Trust};

const SIZE: u64 = 1_000_003;

#[tokio::test]
async fn pipelined_ranges_arrive_in_order_and_aligned() {
    let server = Server::start(|request| Reply::keep(partial(request, SIZE))).await;
    let mut bench = Bench::open(&server.url);
    let cuts = [0, 100_000, 100_001, 300_000, 700_000, SIZE];
    for (swath, pair) in cuts.windows(2).enumerate() {
        bench.fetch(swath as u64, pair[0], pair[1]);
    }
    let story = bench.settled(5).await;
    for (swath, pair) in cuts.windows(2).enumerate() {
        assert!(story.delivered(swath as u64, Range::new(pair[0], pair[1])), "swath {swath}");
    }
    assert_eq!(story.facts.len(), 1);
    assert_eq!(story.facts[0].size_bytes, Some(SIZE));
    assert!(story.facts[0].ranges);
    assert_eq!(
        server.seen().iter().map(|request| request.connection).max(),
        Some(0),
        "one connection"
    );
    // Every chunk that does not begin a swath begins at a multiple of the buffer size.
    for (_, offset, _) in &story.chunks {
        assert!(offset % 65536 == 0 || cuts.contains(offset), "{offset}");
    }
    assert_eq!(bench.lane.meter().body_bytes(), SIZE);
    assert_eq!(bench.lane.meter().requests(), 5);
    bench.lane.close();
    let mut rest = Story::default();
    bench.until(&mut rest, |_| false).await;
    assert_eq!(rest.closed, Some((None, vec![])));
    assert_eq!(bench.pool.free_slots(), bench.pool.slots());
}

#[tokio::test]
async fn words_of_a_refusal_are_no_bytes_of_the_file() {
    // They ended the silence of a server that had nothing else to say.
    let was_asked = AtomicBool::new(false);
    let server = Server::start(move |request| match was_asked.swap(true, Ordering::Relaxed) {
        false => Reply::keep("HTTP/1.1 503 Busy\r\nContent-Length: 10\r\n\r\ntoo early\n"),
        true => Reply::keep(partial(request, SIZE)),
    })
    .await;
    let mut bench = Bench::open(&server.url);
    bench.fetch(0, 0, 1000);
    let story = bench.settled(1).await;
    assert!(!story.delivered(0, Range::new(0, 1000)));
    bench.fetch(1, 0, 1000);
    assert!(bench.settled(1).await.delivered(1, Range::new(0, 1000)));
    let connections = server.seen().iter().map(|request| request.connection).max();
    assert_eq!(connections, Some(0), "the words were read");
    assert_eq!((bench.lane.meter().body_bytes(), bench.lane.meter().wasted_bytes()), (1000, 0));
}

#[tokio::test]
async fn an_open_range_ends_with_the_file() {
    let server = Server::start(|request| Reply::keep(partial(request, SIZE))).await;
    let mut bench = Bench::open(&server.url);
    bench.fetch(0, 5, u64::MAX);
    bench.fetch(1, 0, 10 * SIZE);
    let story = bench.settled(2).await;
    assert!(story.delivered(0, Range::new(5, SIZE)));
    assert!(story.delivered(1, Range::new(0, SIZE)));
}

#[tokio::test]
async fn one_buffer_is_enough() {
    let server = Server::start(|request| Reply::keep(partial(request, SIZE))).await;
    let net = swath_source::Net::new(crate::support::options()).unwrap();
    let source = HttpSource::new(&net, server.url.clone(), swath_source::Trust::Named);
    let mut bench = Bench::on(source, Pool::new(1, 4096));
    bench.fetch(0, 0, 500_000);
    bench.fetch(1, 500_000, SIZE);
    let story = bench.settled(2).await;
    assert!(
        story.delivered(0, Range::new(0, 500_000)) && story.delivered(1, Range::new(500_000, SIZE))
    );
}

#[tokio::test]
async fn a_trimmed_swath_ends_early_and_the_lane_goes_on() {
    let server = Server::start(|request| Reply::keep(partial(request, SIZE))).await;
    let mut bench = Bench::open(&server.url);
    bench.fetch(0, 0, 400_000);
    bench.fetch(1, 400_000, 500_000);
    bench.lane.trim(SwathId(0), 123_456, AfterTrim::Drain);
    let story = bench.settled(2).await;
    assert!(story.delivered(1, Range::new(400_000, 500_000)));
    let end = story
        .chunks
        .iter()
        .filter(|(id, ..)| id.0 == 0)
        .map(|(_, at, data)| at + data.len() as u64)
        .max();
    assert_eq!(end, Some(123_456));
}

#[tokio::test]
async fn a_dropped_swath_ends_the_lane_and_lists_the_rest() {
    let server = Server::start(|request| {
        // The first answer never ends.
        let mut bytes = partial(request, 100_000_000);
        bytes.truncate(300_000);
        Reply::keep(bytes)
    })
    .await;
    let mut bench = Bench::open(&server.url);
    bench.fetch(0, 0, 1_000_000);
    bench.fetch(1, 1_000_000, 2_000_000);
    let mut story = Story::default();
    bench.until(&mut story, |story| !story.chunks.is_empty()).await;
    bench.lane.trim(SwathId(0), 200_000, AfterTrim::Drop);
    bench.until(&mut story, |_| false).await;
    assert_eq!(story.done, [SwathId(0)]);
    assert_eq!(story.closed, Some((None, vec![SwathId(1)])));
}

#[tokio::test]
async fn a_lane_told_to_drop_ends_whatever_has_become_of_the_swath() {
    // Each of these left a lane that was given nothing more and never ended.
    let server = Server::start(|request| Reply::keep(partial(request, SIZE))).await;
    // Its answer has passed already.
    let mut bench = Bench::open(&server.url);
    bench.fetch(0, 0, 1000);
    let mut story = bench.settled(1).await;
    bench.lane.trim(SwathId(0), 500, AfterTrim::Drop);
    bench.until(&mut story, |_| false).await;
    assert_eq!(story.closed, Some((None, vec![])));
    // It was not sent yet (nothing is sent ahead of the first answer), and is not wanted at all …
    let mut bench = Bench::open(&server.url);
    bench.fetch(0, 0, 1000);
    bench.fetch(1, 1000, 2000);
    bench.lane.trim(SwathId(1), 1000, AfterTrim::Drop);
    let mut story = Story::default();
    bench.until(&mut story, |_| false).await;
    assert!(story.delivered(0, Range::new(0, 1000)));
    assert_eq!(story.closed, Some((None, vec![])));
    // … or in part.
    let mut bench = Bench::open(&server.url);
    bench.fetch(0, 0, 1000);
    bench.fetch(1, 1000, 2000);
    bench.lane.trim(SwathId(1), 1500, AfterTrim::Drop);
    let mut story = Story::default();
    bench.until(&mut story, |_| false).await;
    assert!(story.delivered(1, Range::new(1000, 1500)));
    assert_eq!(story.closed, Some((None, vec![])));
    // It was given up while the lane was still connecting.
    let mut bench = Bench::open(&server.url);
    bench.fetch(0, 0, 1000);
    bench.lane.trim(SwathId(0), 0, AfterTrim::Drop);
    let mut story = Story::default();
    bench.until(&mut story, |_| false).await;
    assert_eq!(story.closed, Some((None, vec![])));
}

#[tokio::test]
async fn a_lane_that_is_held_up_by_us_says_so() {
    let server = Server::start(|request| Reply::keep(partial(request, SIZE))).await;
    let net = NetOptions { limit_bytes_per_s: Some(1), ..crate::support::options() };
    let mut bench = Bench::with(&Net::new(net).unwrap(), &server.url);
    bench.fetch(0, 0, SIZE);
    let mut story = Story::default();
    bench.until(&mut story, |story| !story.facts.is_empty()).await;
    while bench.lane.meter().holds() == 0 {
        tokio::task::yield_now().await;
    }
    // No buffer is the same.
    let net = Net::new(crate::support::options()).unwrap();
    let source = HttpSource::new(&net, server.url.clone(), Trust::Named);
    let pool = Pool::new(1, 4096);
    let taken = pool.try_take();
    let mut bench = Bench::on(source, pool);
    bench.fetch(0, 0, SIZE);
    while bench.lane.meter().holds().is_multiple_of(2) {
        tokio::task::yield_now().await;
    }
    drop(taken);
    let story = bench.settled(1).await;
    assert!(story.delivered(0, Range::new(0, SIZE)));
    assert!(bench.lane.meter().holds().is_multiple_of(2));
}

#[tokio::test]
async fn another_protocol_is_not_followed() {
    let server = Server::start(|_| {
        Reply::keep(&b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: h2c\r\n\r\n"[..])
    })
    .await;
    let mut bench = Bench::open(&server.url);
    bench.fetch(0, 0, 1000);
    let mut story = Story::default();
    bench.until(&mut story, |_| false).await;
    let Some((Some(LaneError::Protocol { .. }), _)) = story.closed else {
        panic!("{:?}", story.closed)
    };
}

#[tokio::test]
async fn a_server_that_gives_a_byte_at_a_time_is_left() {
    let server = Server::start(|request| {
        let (start, _) = request.range.unwrap();
        let one = Request { range: Some((start, Some(start))), ..request.clone() };
        Reply::keep(partial(&one, SIZE))
    })
    .await;
    let mut bench = Bench::open(&server.url);
    bench.fetch(0, 0, SIZE);
    let story = bench.settled(1).await;
    assert!(matches!(story.failed[0].1, LaneError::Meagre { bytes: 1 }), "{:?}", story.failed);
    assert!(server.seen().len() < 100);
}

#[tokio::test]
async fn a_server_without_ranges_is_one_stream() {
    let server = Server::start(|_| {
        let mut bytes = format!("HTTP/1.1 200 OK\r\nContent-Length: {SIZE}\r\n\r\n").into_bytes();
        bytes.extend(content(Range::new(0, SIZE)));
        Reply::keep(bytes)
    })
    .await;
    let mut bench = Bench::open(&server.url);
    bench.fetch(0, 10, 1000);
    bench.fetch(1, 1000, 200_000);
    let mut story = bench.settled(2).await;
    assert!(!story.facts[0].ranges);
    // Later swaths are served from the same stream, also after a gap.
    bench.fetch(2, 250_000, SIZE);
    bench.until(&mut story, |story| story.done.len() == 3).await;
    assert!(story.delivered(0, Range::new(10, 1000)));
    assert!(story.delivered(1, Range::new(1000, 200_000)));
    assert!(story.delivered(2, Range::new(250_000, SIZE)));
    assert_eq!(server.seen().len(), 1);
    // What lies behind the stream needs a new one.
    bench.fetch(3, 0, 20);
    bench.until(&mut story, |story| story.done.len() == 4).await;
    assert!(story.delivered(3, Range::new(0, 20)));
    assert_eq!(bench.source.quirks().ranges, Some(false));
}

#[tokio::test]
async fn a_chunked_body_is_decoded() {
    let server = Server::start(|_| {
        let mut bytes = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n".to_vec();
        for chunk in content(Range::new(0, SIZE)).chunks(70_001) {
            bytes.extend(format!("{:x};note=x\r\n", chunk.len()).bytes());
            bytes.extend(chunk);
            bytes.extend(b"\r\n");
        }
        bytes.extend(b"0\r\nTrailer: yes\r\n\r\n");
        Reply::keep(bytes)
    })
    .await;
    let mut bench = Bench::open(&server.url);
    bench.fetch(0, 0, u64::MAX);
    let story = bench.settled(1).await;
    assert!(story.delivered(0, Range::new(0, SIZE)), "{:?}", story.failed);
    assert_eq!(story.facts.last().unwrap().size_bytes, Some(SIZE));
}

#[tokio::test]
async fn a_cut_body_keeps_what_came() {
    let server = Server::start(|request| {
        let mut bytes = partial(request, SIZE);
        bytes.truncate(150_000);
        Reply::close(bytes)
    })
    .await;
    let mut bench = Bench::open(&server.url);
    bench.fetch(0, 0, 500_000);
    let mut story = Story::default();
    bench.until(&mut story, |_| false).await;
    let got: usize = story.chunks.iter().map(|(.., data)| data.len()).sum();
    assert!(got > 149_000);
    let Some((Some(LaneError::Truncated { got: said, wanted }), unfinished)) = story.closed else {
        panic!("{:?}", story.closed)
    };
    assert_eq!((said as usize, wanted), (got, 500_000));
    assert_eq!(unfinished, [SwathId(0)]);
}
