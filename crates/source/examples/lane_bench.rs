//! How fast lanes are: `lane_bench URL [LANES] [SWATH_BYTES] [BUFFER_BYTES]` fetches the file and
//! throws it away, then prints GB/s and CPU seconds per GB.

use std::collections::HashMap;
use std::time::Instant;

use std::sync::Arc;
use swath_model::{LaneId, Pool, Range, SwathId};
use swath_source::{HttpSource, Lane, LaneEventKind, Net, NetOptions, Source, Trust};
use tokio::sync::mpsc::unbounded_channel;
use url::Url;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let url = Url::parse(
        &arguments.next().ok_or("usage: lane_bench URL [LANES] [SWATH_BYTES] [BUFFER_BYTES]")?,
    )?;
    let mut number =
        |default: u64| arguments.next().map_or(Ok(default), |text| text.parse::<u64>());
    let (lanes, swath_bytes, buffer_bytes) = (number(1)?, number(64 << 20)?, number(1 << 20)?);
    let threads = number(1)?;
    let runtime = if threads <= 1 {
        tokio::runtime::Builder::new_current_thread().enable_all().build()?
    } else {
        tokio::runtime::Builder::new_multi_thread()
            .worker_threads(threads as usize)
            .enable_all()
            .build()?
    };
    runtime.block_on(run(url, lanes as u32, swath_bytes, buffer_bytes as usize))
}

async fn run(
    url: Url,
    count: u32,
    swath_bytes: u64,
    buffer_bytes: usize,
) -> Result<(), Box<dyn std::error::Error>> {
    let net = Net::new(NetOptions { insecure: true, ..NetOptions::default() })?;
    let source = HttpSource::new(&net, url, Trust::Named);
    let pool = Pool::new(64, buffer_bytes);
    let (sender, mut events) = unbounded_channel();
    let begin = Instant::now();
    let cpu_begin = cpu_seconds();
    let mut lanes: HashMap<LaneId, Box<dyn Lane>> = HashMap::new();
    let first = Arc::clone(&source).open_lane(LaneId(0), &pool, sender.clone());
    first.fetch(SwathId(0), Range::new(0, 1));
    lanes.insert(LaneId(0), first);
    let (mut size, mut next, mut swaths, mut open, mut bytes) = (0, 1, 1, 1, 0);
    let mut events_seen = 0;
    while open > 0 {
        let Some(event) = events.recv().await else { break };
        events_seen += 1;
        match event.kind {
            LaneEventKind::Facts(facts) => {
                size = facts.size_bytes.ok_or("the size is not known")?;
                println!("{size} bytes, ranges: {}", facts.ranges);
                for number in 0..count {
                    let id = LaneId(number);
                    let lane = lanes.entry(id).or_insert_with(|| {
                        Arc::clone(&source).open_lane(id, &pool, sender.clone())
                    });
                    // One swath ahead, as the planner does.
                    for _ in 0..2 {
                        open += u32::from(give(&**lane, &mut next, size, swath_bytes, &mut swaths));
                    }
                }
            }
            LaneEventKind::Chunk { buffer, .. } => bytes += buffer.len() as u64,
            LaneEventKind::Done { .. } => {
                open -= 1;
                if size > 0
                    && let Some(lane) = lanes.get(&event.lane)
                {
                    open += u32::from(give(&**lane, &mut next, size, swath_bytes, &mut swaths));
                }
            }
            LaneEventKind::Failed { error, .. } => return Err(error.into()),
            LaneEventKind::Closed { error, .. } => return Err(format!("closed: {error:?}").into()),
            LaneEventKind::Hops(_) | LaneEventKind::Up { .. } => {}
        }
    }
    let seconds = begin.elapsed().as_secs_f64();
    let gigabytes = bytes as f64 / 1e9;
    println!(
        "{count} lanes: {:.3} s, {:.2} GB/s, {:.3} CPU s/GB, {events_seen} events",
        seconds,
        gigabytes / seconds,
        (cpu_seconds() - cpu_begin) / gigabytes
    );
    Ok(())
}

fn give(lane: &dyn Lane, next: &mut u64, size: u64, swath_bytes: u64, swaths: &mut u64) -> bool {
    if *next >= size {
        return false;
    }
    let end = ((*next / swath_bytes + 1) * swath_bytes).min(size);
    lane.fetch(SwathId(*swaths), Range::new(*next, end));
    *swaths += 1;
    *next = end;
    true
}

fn cpu_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields: Vec<f64> = stat
        .rsplit(')')
        .next()
        .unwrap_or("")
        .split_whitespace()
        .map(|field| field.parse().unwrap_or(0.0))
        .collect();
    // utime and stime in ticks of 1/100 s.
    fields.get(11).zip(fields.get(12)).map_or(0.0, |(user, system)| (user + system) / 100.0)
}
