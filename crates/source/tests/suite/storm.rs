//! Lanes in a storm: a server that behaves differently at every request, orders at random
//! moments. Whatever happens, data is right, nothing is delivered that was not asked for, and
//! every swath comes to exactly one end. Seeded; a failure names its seed. `STORM_SEED=N STORM_COUNT=1` runs
//! one again; `system` runs three times as many as the suite.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::support::{Reply, Request, Server, byte_at, content, partial_of};
use swath_model::{LaneId, Pool, Range, RangeSet, SwathId};
use swath_source::{
    AfterTrim, HttpSource, JoinedSource, Lane, LaneEventKind, Net, NetOptions, Source, Trust,
};
use tokio::sync::mpsc::unbounded_channel;
use tokio::time::timeout;

const SIZE: u64 = 400_009;

/// A small generator, so that a seed is a whole story.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % sides
    }
}

/// The part of the content that has this path: `/NAME/START-END`, or all of it.
fn part(path: &str) -> Range {
    let name = path.rsplit('/').next().and_then(|name| name.split_once('-'));
    let ends = name.and_then(|(start, end)| Some((start.parse().ok()?, end.parse().ok()?)));
    ends.map_or(Range::new(0, SIZE), |(start, end)| Range::new(start, end))
}

/// One of many answers to `request`, most of them proper.
fn answer(dice: &mut Dice, request: &Request) -> Reply {
    let part = part(&request.path);
    let size = part.len();
    let whole = |head: &str| {
        let mut bytes = format!("HTTP/1.1 200 OK\r\n{head}\r\n").into_bytes();
        bytes.extend(content(part));
        bytes
    };
    match dice.roll(24) {
        0 => Reply::close(partial_of(request, part)),
        1 => {
            let mut bytes = partial_of(request, part);
            bytes.truncate(dice.roll(bytes.len() as u64 + 1) as usize);
            Reply::close(bytes)
        }
        2 => {
            // Less than was asked for, which a server may send.
            let mut shorter = request.clone();
            shorter.range = request.range.map(|(start, last)| {
                let last = last.unwrap_or(size - 1).min(size - 1);
                (start, Some(start + (last.max(start) - start) / 2))
            });
            Reply::keep(partial_of(&shorter, part))
        }
        3 => Reply::keep(whole(&format!("Content-Length: {size}\r\nETag: \"v1\"\r\n"))),
        4 => Reply::close(whole("ETag: \"v1\"\r\n")),
        5 => Reply::keep("HTTP/1.1 503 Busy\r\nRetry-After: 0\r\nContent-Length: 4\r\n\r\nbusy"),
        6 => Reply::keep(format!(
            "HTTP/1.1 302 Found\r\nLocation: /other/{}-{}\r\nContent-Length: 2\r\n\r\nhi",
            part.start, part.end
        )),
        7 => Reply::close(""),
        8 => {
            let mut bytes = b"HTTP/1.1 100 Continue\r\n\r\n".to_vec();
            bytes.extend(partial_of(request, part));
            Reply::keep(bytes)
        }
        9 => {
            let proper = partial_of(request, part);
            let body = proper.windows(4).position(|window| window == b"\r\n\r\n").unwrap() + 4;
            let head = String::from_utf8_lossy(&proper[..body]).into_owned();
            let without: String = head
                .lines()
                .filter(|line| !line.starts_with("Content-Length"))
                .map(|line| format!("{line}\r\n"))
                .collect();
            let mut bytes = without.trim_end().as_bytes().to_vec();
            bytes.extend(b"\r\nTransfer-Encoding: chunked\r\n\r\n");
            for chunk in proper[body..].chunks(1 + dice.roll(9000) as usize) {
                bytes.extend(format!("{:X}\r\n", chunk.len()).bytes());
                bytes.extend(chunk);
                bytes.extend(b"\r\n");
            }
            bytes.extend(b"0\r\n\r\n");
            Reply::keep(bytes)
        }
        _ => Reply::keep(partial_of(request, part)),
    }
}

/// The content cut into files of all sizes, some of them empty.
fn files(dice: &mut Dice) -> Vec<Range> {
    let mut files = Vec::new();
    let mut start = 0;
    let most = [500, 5_000, 300_000][dice.roll(3) as usize];
    while start < SIZE {
        let end = (start + dice.roll(most)).min(SIZE);
        files.push(Range::new(start, end));
        start = end;
    }
    files
}

/// A swath as its owner sees it.
struct Book {
    asked: Range,
    /// Nothing is needed from here on.
    needed_to: u64,
    got: RangeSet,
}

async fn storm(seed: u64, is_joined: bool) {
    let mut dice = Dice(seed);
    let servers_dice = Mutex::new(Dice(seed ^ 0xdead_beef));
    let server =
        Server::start(move |request| answer(&mut servers_dice.lock().unwrap(), request)).await;
    let fallback_only = dice.roll(4) == 0;
    let net = Net::new(NetOptions {
        fallback_only,
        timeout: Duration::from_secs(60),
        ..NetOptions::default()
    })
    .unwrap();
    let source: Arc<dyn Source> = match is_joined {
        false => HttpSource::new(&net, server.url.clone(), Trust::Named),
        true => {
            let files = files(&mut dice).into_iter().map(|part| {
                let path = format!("/file/{}-{}", part.start, part.end);
                (part.len(), server.url.join(&path).unwrap())
            });
            JoinedSource::new(&net, server.url.clone(), Trust::Named, files)
        }
    };
    let pool = Pool::new(1 + dice.roll(4) as usize, 4096 << dice.roll(4));
    let mut next_swath = 0;
    for lane_number in 0..12 {
        let (sender, mut events) = unbounded_channel();
        let lane = Arc::clone(&source).open_lane(LaneId(lane_number), &pool, sender);
        let mut books: HashMap<SwathId, Book> = HashMap::new();
        let mut orders = 25;
        let mut closing = false;
        loop {
            while orders > 0 && books.len() < 4 && dice.roll(3) > 0 {
                orders -= 1;
                give_order(&mut dice, &*lane, &mut books, &mut next_swath);
            }
            if orders == 0 && books.is_empty() && !closing {
                closing = true;
                lane.close();
            }
            let event = match timeout(Duration::from_millis(1 + dice.roll(20)), events.recv()).await
            {
                Ok(event) => event.expect("a lane says that it closed"),
                Err(_) => {
                    orders += u32::from(orders == 0 && books.is_empty() && !closing);
                    if dice.roll(200) == 0 {
                        lane.close();
                        closing = true;
                    }
                    continue;
                }
            };
            match event.kind {
                LaneEventKind::Hops(_) => {}
                LaneEventKind::Up { .. } => {}
                LaneEventKind::Facts(facts) => {
                    assert!(
                        facts.size_bytes.is_none_or(|size| size == SIZE),
                        "seed {seed}, library {fallback_only}: {facts:?}"
                    )
                }
                LaneEventKind::Chunk { swath, offset, buffer, .. } => {
                    let book = books
                        .get_mut(&swath)
                        .unwrap_or_else(|| panic!("seed {seed}: {swath} is over"));
                    let range = Range::of_len(offset, buffer.len() as u64);
                    let came_to = book.asked.start + book.got.total_bytes();
                    assert_eq!(offset, came_to, "seed {seed}: {range} out of turn");
                    assert!(
                        !range.is_empty() && book.asked.covers(range),
                        "seed {seed}: {range} of {}",
                        book.asked
                    );
                    assert_eq!(
                        book.got.insert(range),
                        range.len(),
                        "seed {seed}: {range} came twice"
                    );
                    let right =
                        buffer.iter().zip(range.start..).all(|(&byte, at)| byte == byte_at(at));
                    assert!(right, "seed {seed}: wrong bytes in {range}");
                }
                LaneEventKind::Done { swath } => {
                    let book = books
                        .remove(&swath)
                        .unwrap_or_else(|| panic!("seed {seed}: {swath} ended twice"));
                    let needed = Range::new(book.asked.start, book.needed_to.min(SIZE));
                    assert!(
                        book.got.covers(needed),
                        "seed {seed}: {needed} wanted, {:?} came",
                        book.got
                    );
                }
                LaneEventKind::Failed { swath, error } => {
                    assert!(
                        books.remove(&swath).is_some(),
                        "seed {seed}: {swath} ended twice ({error})"
                    );
                }
                LaneEventKind::Closed { unfinished, .. } => {
                    for swath in unfinished {
                        assert!(books.remove(&swath).is_some(), "seed {seed}: {swath} ended twice");
                    }
                    // Only orders that crossed this event may be left.
                    break;
                }
            }
        }
        drop(lane);
        drop(events);
    }
    // Lanes give every buffer back.
    for _ in 0..4500 {
        if pool.free_slots() == pool.slots() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("seed {seed}: {pool:?}");
}

fn give_order(
    dice: &mut Dice,
    lane: &dyn Lane,
    books: &mut HashMap<SwathId, Book>,
    next_swath: &mut u64,
) {
    if dice.roll(3) == 0
        && let Some((&swath, book)) = books.iter_mut().next()
    {
        let end = book.asked.start + dice.roll(book.asked.len().min(SIZE) + 1);
        book.needed_to = book.needed_to.min(end);
        let then = if dice.roll(4) == 0 { AfterTrim::Drop } else { AfterTrim::Drain };
        lane.trim(swath, end, then);
        return;
    }
    let start = dice.roll(SIZE);
    let end = if dice.roll(12) == 0 { u64::MAX } else { start + 1 + dice.roll(120_000) };
    let swath = SwathId(*next_swath);
    *next_swath += 1;
    let asked = Range::new(start, end);
    books.insert(swath, Book { asked, needed_to: end, got: RangeSet::new() });
    lane.fetch(swath, asked);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_swath_comes_to_one_right_end() {
    storms(false).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_swath_of_several_files_comes_to_one_right_end() {
    storms(true).await;
}

async fn storms(is_joined: bool) {
    let first: u64 =
        std::env::var("STORM_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or(1);
    let count: u64 = std::env::var("STORM_COUNT")
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(crate::STORMS);
    let running = Arc::new(tokio::sync::Semaphore::new(6));
    let mut storms = tokio::task::JoinSet::new();
    for seed in first..first + count {
        let running = Arc::clone(&running);
        storms.spawn(async move {
            let _turn = running.acquire_owned().await.unwrap();
            timeout(Duration::from_secs(300), storm(seed, is_joined))
                .await
                .unwrap_or_else(|_| panic!("seed {seed}: stuck"));
        });
    }
    while let Some(result) = storms.join_next().await {
        result.unwrap();
    }
}
