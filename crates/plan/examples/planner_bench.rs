//! What a decision costs: 1,000 sources, each on one lane, and 1,000,000 scattered ranges to fetch.
//!
//! The transfer is played in virtual time with lanes of constant rates; only the time inside the
//! planner counts. A decision is an action that comes out of `poll`; whatever leads to it (meters,
//! deliveries, looks at all lanes every 20 ms) is paid by it. The last second, when nothing is open
//! any more and lanes help one another, is told apart. Prints the median of five runs.
//!
//! With `crowd`: what an event costs (with the polls that follow it) where 10, 1,000 and 10,000
//! sources were seen of which 10 live, and where 1,000 live. Of those that do not live, half have
//! left and half are known to be bad. The first three rows should be alike.
//!
//! ```text
//! cargo run --release -p swath-plan --example planner_bench [SOURCES [RANGES]]
//! cargo run --release -p swath-plan --example planner_bench crowd
//! ```

// What is measured here is real time.
#![allow(clippy::disallowed_methods)]

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use swath_model::{LaneId, Range, RangeSet, Requests, SourceId, SwathId, Time};
use swath_plan::{Action, Config, Event, Lanes, Planner};

/// Length of a missing range and of the gap behind it.
const RANGE_BYTES: u64 = 64 << 10;
/// What is told apart as the end.
const END: Duration = Duration::from_secs(1);
const RUNS: usize = 5;
const TARGET_US: f64 = 5.0;

struct Lane {
    id: LaneId,
    rate_bytes_per_s: f64,
    asked: VecDeque<(SwathId, Range)>,
    /// Bytes received of the first swath.
    position: f64,
    total: f64,
}

struct Run {
    us_per_decision: f64,
    us_per_event: f64,
    decisions: u64,
    events: u64,
    virtual_s: f64,
    /// The longest look at everything, including the events before and the actions after it.
    longest_ms: f64,
    /// The same of the last second.
    end: Cost,
}

/// What some of the steps cost.
#[derive(Clone, Copy, Default)]
struct Cost {
    decisions: u64,
    spent: Duration,
    longest: Duration,
}

impl Cost {
    fn add(&mut self, decisions: u64, spent: Duration) {
        self.decisions += decisions;
        self.spent += spent;
        self.longest = self.longest.max(spent);
    }

    fn us_per_decision(&self) -> f64 {
        self.spent.as_secs_f64() * 1e6 / self.decisions.max(1) as f64
    }
}

/// Sources seen, and how many of them live.
const CROWDS: [(usize, usize); 4] = [(10, 10), (1_000, 10), (10_000, 10), (1_000, 1_000)];
/// Missing ranges for each source that lives.
const CROWD_RANGES: usize = 2_000;

fn crowds() {
    println!("    seen    live   us an event   us a decision   longest pause ms");
    for (seen, live) in CROWDS {
        let mut runs: Vec<Run> =
            (0..RUNS).map(|seed| run(seen, live, CROWD_RANGES * live, seed as u64)).collect();
        runs.sort_by(|a, b| a.us_per_event.total_cmp(&b.us_per_event));
        let Run { us_per_event, us_per_decision, longest_ms, .. } = runs[RUNS / 2];
        println!("{seen:8}{live:8}{us_per_event:14.2}{us_per_decision:16.2}{longest_ms:19.1}");
    }
}

fn main() {
    if std::env::args().nth(1).is_some_and(|word| word == "crowd") {
        return crowds();
    }
    let number = |at: usize, default: usize| {
        std::env::args().nth(at).and_then(|text| text.parse().ok()).unwrap_or(default)
    };
    let (sources, ranges) = (number(1, 1_000), number(2, 1_000_000));
    let mut runs: Vec<Run> =
        (0..RUNS).map(|seed| run(sources, sources, ranges, seed as u64)).collect();
    runs.sort_by(|a, b| a.us_per_decision.total_cmp(&b.us_per_decision));
    for run in &runs {
        println!(
            "{:.2} us a decision ({} decisions, {} events, {:.2} us an event, {:.1} s of virtual time, longest pause {:.1} ms); in the last second {:.2} us ({} decisions, longest pause {:.1} ms)",
            run.us_per_decision,
            run.decisions,
            run.events,
            run.us_per_event,
            run.virtual_s,
            run.longest_ms,
            run.end.us_per_decision(),
            run.end.decisions,
            run.end.longest.as_secs_f64() * 1e3
        );
    }
    let median = &runs[RUNS / 2];
    println!(
        "median of {RUNS}: {:.2} us a decision with {sources} sources and {ranges} open ranges (target {TARGET_US} us): {}",
        median.us_per_decision,
        if median.us_per_decision <= TARGET_US { "reached" } else { "missed" }
    );
}

fn run(seen: usize, live: usize, ranges: usize, seed: u64) -> Run {
    let mut rng = fastrand::Rng::with_seed(seed);
    let config =
        Config { max_sources: live, lanes: Lanes::Auto { max: 4 }, seed, ..Config::default() };
    let mut planner = Planner::new(config);
    let missing: RangeSet =
        (0..ranges as u64).map(|at| Range::of_len(2 * at * RANGE_BYTES, RANGE_BYTES)).collect();
    let size_bytes = 2 * ranges as u64 * RANGE_BYTES;
    let mut now = Time::ZERO;
    let mut events = 0;
    let mut all = Cost::default();
    let mut last: VecDeque<(Time, u64, Duration)> = VecDeque::new();
    let mut lanes: Vec<Lane> = Vec::new();
    let mut inbox: Vec<Event> = vec![Event::Layout { size_bytes, missing }];
    for at in 0..seen {
        let source = SourceId(at as u32);
        inbox.push(Event::SourceAdded { source, max_lanes: None });
        if at >= live {
            inbox.push(match at % 2 {
                0 => Event::SourceLeft { source },
                _ => Event::SourceBad { source },
            });
        }
    }
    let mut outbox: Vec<Action> = Vec::new();
    // The first second, in which everything begins, is not counted.
    let warm = Time::from_millis(1_000);
    loop {
        let counts = now > warm;
        events += if counts { inbox.len() as u64 } else { 0 };
        let began = Instant::now();
        for event in inbox.drain(..) {
            planner.handle(event, now);
        }
        while let Some(action) = planner.poll(now) {
            outbox.push(action);
        }
        let spent = began.elapsed();
        if counts {
            all.add(outbox.len() as u64, spent);
            last.push_back((now, outbox.len() as u64, spent));
            while last.front().is_some_and(|&(at, ..)| now.since(at) > END) {
                last.pop_front();
            }
        }
        for action in outbox.drain(..) {
            match action {
                Action::OpenLane { lane, .. } => {
                    let rate_bytes_per_s = 1e6 * (1.0 + 9.0 * rng.f64());
                    lanes.push(Lane {
                        id: lane,
                        rate_bytes_per_s,
                        asked: VecDeque::new(),
                        position: 0.0,
                        total: 0.0,
                    });
                    let rtt = Duration::from_millis(rng.u64(1..100));
                    inbox.push(Event::LaneUp { lane, rtt, requests: Requests::Pipelined });
                }
                Action::Fetch { lane, swath, range } => {
                    if let Some(lane) = lanes.iter_mut().rfind(|it| it.id == lane) {
                        lane.asked.push_back((swath, range));
                    }
                }
                Action::Trim { lane, swath, end, .. } => {
                    if let Some(lane) = lanes.iter_mut().rfind(|it| it.id == lane)
                        && let Some(asked) = lane.asked.iter_mut().find(|asked| asked.0 == swath)
                    {
                        asked.1.end = asked.1.end.min(end.max(asked.1.start));
                    }
                }
                Action::CloseLane { lane } => {
                    lanes.retain(|it| it.id != lane);
                    inbox.push(Event::LaneLost { lane, loss: swath_plan::Loss::Clean });
                }
                Action::Finished | Action::Exhausted => {
                    return finish(all, &last, events, now);
                }
            }
        }
        let step = Time::from_nanos(now.as_nanos() + 5_000_000);
        let step_s = step.secs_since(now);
        let meters = planner.poll_timeout().is_some_and(|at| at <= step);
        now = step;
        for lane in &mut lanes {
            let mut bytes = lane.rate_bytes_per_s * step_s;
            while let Some(&(swath, range)) = lane.asked.front() {
                let left = range.len() as f64 - lane.position;
                if left > bytes {
                    lane.position += bytes;
                    lane.total += bytes;
                    break;
                }
                bytes -= left;
                lane.total += left.max(0.0);
                lane.position = 0.0;
                lane.asked.pop_front();
                if !range.is_empty() {
                    inbox.push(Event::Delivered { swath, range });
                }
                inbox.push(Event::SwathDone { swath });
            }
            if meters {
                inbox.push(Event::Arrived { lane: lane.id, total_bytes: lane.total as u64 });
            }
        }
    }
}

fn finish(all: Cost, last: &VecDeque<(Time, u64, Duration)>, events: u64, now: Time) -> Run {
    let mut end = Cost::default();
    for &(_, decisions, spent) in last {
        end.add(decisions, spent);
    }
    Run {
        us_per_decision: all.us_per_decision(),
        us_per_event: all.spent.as_secs_f64() * 1e6 / events.max(1) as f64,
        decisions: all.decisions,
        events,
        virtual_s: now.as_secs_f64(),
        longest_ms: all.longest.as_secs_f64() * 1e3,
        end,
    }
}
