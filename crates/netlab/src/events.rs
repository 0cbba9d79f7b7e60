//! Transfers that never happened, for tests and for looking at the page and the terminal: a
//! small simulation with a step of 10 ms that gives the events of a plausible run. It plans
//! simply (swaths by time, tails given to whoever is idle) and needs no network.

use swath_model::SourceName;
use swath_model::observe::{
    Eta, Event, LimitedBy, Outcome, Phase, Snapshot, SourceSnapshot, SourceState, SourceSummary,
    Summary, SwathRecord, Verified,
};

/// One make-believe source.
#[derive(Clone, Debug)]
pub struct Link {
    /// Its address as shown.
    pub name: String,
    /// Bytes per second.
    pub rate: f64,
    /// Seconds.
    pub rtt_s: f64,
    /// Connections.
    pub lanes: u32,
    /// From when on nothing arrives, and until when.
    pub silent_s: Option<(f64, f64)>,
    /// When it is gone for good, and why.
    pub dies_s: Option<(f64, String)>,
}

/// A make-believe transfer.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// Final path.
    pub path: String,
    /// Bytes of the file.
    pub size: u64,
    /// Bytes at its front that an earlier run left.
    pub resumed: u64,
    /// Who delivers.
    pub links: Vec<Link>,
    /// Seconds that a swath should take.
    pub swath_s: f64,
    /// For the noise.
    pub seed: u64,
}

impl Scenario {
    /// `rates_mb` in MB/s, names and round trips made up.
    pub fn star(path: &str, size: u64, rates_mb: &[f64]) -> Self {
        let file = path.rsplit('/').next().unwrap_or(path);
        let hosts = [
            "cern.ch",
            "desy.de",
            "in2p3.fr",
            "fnal.gov",
            "kek.jp",
            "ihep.ac.cn",
            "anl.gov",
            "surf.nl",
        ];
        let link = |(i, rate): (usize, &f64)| Link {
            name: format!(
                "mirror{}.{}/atlas/rucio/data18_13TeV/{file}",
                i + 1,
                hosts[i % hosts.len()]
            ),
            rate: rate * 1e6,
            rtt_s: 0.004 + 0.019 * ((i * 7) % 11) as f64,
            lanes: 1,
            silent_s: None,
            dies_s: None,
        };
        let links = rates_mb.iter().enumerate().map(link).collect();
        Self { path: path.to_owned(), size, resumed: 0, links, swath_s: 0.6, seed: 1 }
    }
}

struct Running {
    start: u64,
    at: f64,
    end: u64,
    asked_end: u64,
    asked_s: f64,
    first_s: Option<f64>,
}

/// Every event of the scenario, in order; `Progress` comes ten times a second.
pub fn play(scenario: &Scenario) -> Vec<Event> {
    let s = scenario;
    let mut noise = Noise(s.seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let n = s.links.len();
    let mut events = vec![
        Event::Started {
            path: s.path.clone(),
            sources: s.links.iter().map(|l| l.name.clone()).collect(),
        },
        Event::Opened {
            size_bytes: Some(s.size),
            resumed_bytes: s.resumed,
            kept_bytes: 0,
            verification: format!("sha-256, {} pieces of 1 MiB", s.size.div_ceil(1 << 20)),
        },
    ];
    let mut states = vec![SourceState::Probing; n];
    for i in 0..n {
        events.push(Event::Source {
            at_s: 0.0,
            source: i as u32,
            name: SourceName::direct(&s.links[i].name),
            state: SourceState::Probing,
            reason: None,
        });
    }
    let mut lanes: Vec<Vec<Option<Running>>> =
        s.links.iter().map(|l| (0..l.lanes).map(|_| None).collect()).collect();
    let (mut bytes, mut requests, mut capacity) =
        (vec![0.0_f64; n], vec![0_u64; n], vec![0.0_f64; n]);
    let (mut window, mut busy_s) = (vec![0.0_f64; n], vec![0.0_f64; n]);
    let (mut wasted, mut wander) = (vec![0.0_f64; n], vec![1.0_f64; n]);
    let mut next = s.resumed;
    let mut back: Vec<(u64, u64)> = Vec::new();
    let mut done = s.resumed as f64;
    let dt = 0.01;
    let mut step = 0_u64;
    let mut now = 0.0;
    let total_rate: f64 = s.links.iter().map(|l| l.rate).sum();
    while done + 0.5 < s.size as f64 && step < 2_000_000 {
        now = step as f64 * dt;
        for (i, link) in s.links.iter().enumerate() {
            let dead = link.dies_s.as_ref().is_some_and(|(t, _)| now >= *t);
            let silent = link.silent_s.is_some_and(|(from, to)| now >= from && now < to);
            let before = states[i];
            let mut set = |state: SourceState, reason: Option<String>, events: &mut Vec<Event>| {
                if states[i] != state {
                    states[i] = state;
                    let name = SourceName::direct(&link.name);
                    events.push(Event::Source { at_s: now, source: i as u32, name, state, reason });
                }
            };
            if dead || silent {
                for (l, lane) in lanes[i].iter_mut().enumerate() {
                    if let Some(run) = lane.take() {
                        let end = run.at as u64;
                        events.push(record(i, l, &run, end, now + 0.15, Outcome::Failed));
                        if end < run.end {
                            back.push((end, run.end));
                        }
                    }
                }
                if dead {
                    if before != SourceState::Bad {
                        let why = link.dies_s.as_ref().map(|d| d.1.clone()).unwrap_or_default();
                        set(SourceState::Bad, Some(why), &mut events);
                    }
                } else {
                    set(
                        SourceState::Silent,
                        Some("nothing arrived for 3 round trips".into()),
                        &mut events,
                    );
                }
                continue;
            }
            if now >= link.rtt_s * 2.0 {
                let back_again = before == SourceState::Silent;
                set(
                    SourceState::Running,
                    back_again.then(|| "it delivers again".into()),
                    &mut events,
                );
            } else {
                continue;
            }
            wander[i] = (wander[i] + noise.around() * 0.03).clamp(0.75, 1.1);
            for l in 0..lanes[i].len() {
                let mut budget = link.rate / f64::from(link.lanes)
                    * dt
                    * wander[i]
                    * ((now / 0.4 + 0.1).min(1.0));
                let mut idle_first = true;
                while budget > 1.0 {
                    if lanes[i][l].is_none() {
                        let left_s = (s.size as f64 - done) / total_rate;
                        let want_s = s.swath_s.min(left_s / 2.5).max(0.22);
                        let want = (link.rate / f64::from(link.lanes) * want_s) as u64 + 65_536;
                        let given = back.pop().or_else(|| {
                            (next < s.size).then(|| {
                                let range = (next, (next + want).min(s.size));
                                next = range.1;
                                range
                            })
                        });
                        let given = given.or_else(|| steal(&mut lanes, (i, l), link.rate));
                        let Some((start, end)) = given else { break };
                        requests[i] += 1;
                        lanes[i][l] = Some(Running {
                            start,
                            at: start as f64,
                            end,
                            asked_end: end,
                            asked_s: (now - if idle_first { 0.0 } else { link.rtt_s * 1.3 })
                                .max(0.0),
                            first_s: None,
                        });
                    }
                    let first_request = requests[i] <= u64::from(link.lanes);
                    let Some(run) = lanes[i][l].as_mut() else { break };
                    if run.first_s.is_none() {
                        if now < run.asked_s + link.rtt_s && first_request {
                            break;
                        }
                        run.first_s = Some(now);
                    }
                    idle_first = false;
                    let part = budget.min(run.end as f64 - run.at);
                    run.at += part;
                    budget -= part;
                    bytes[i] += part;
                    window[i] += part;
                    done += part;
                    if run.at + 0.5 >= run.end as f64 {
                        let end = run.end;
                        if let Some(run) = lanes[i][l].take() {
                            let outcome =
                                if run.asked_end > end { Outcome::Trimmed } else { Outcome::Done };
                            events.push(record(i, l, &run, end, now + dt, outcome));
                            if outcome == Outcome::Done && noise.next().is_multiple_of(60) {
                                let extra = (end - run.start) / 3;
                                wasted[i] += extra as f64;
                                let lost = Running {
                                    asked_s: now,
                                    first_s: Some(now + link.rtt_s),
                                    ..run
                                };
                                let to = lost.start + extra;
                                events.push(record(
                                    (i + 1) % n,
                                    0,
                                    &lost,
                                    to,
                                    now + 0.2,
                                    Outcome::Lost,
                                ));
                            }
                        }
                    }
                }
            }
            if lanes[i].iter().any(Option::is_some) {
                busy_s[i] += dt;
            } else {
                set(SourceState::Idle, None, &mut events);
            }
        }
        if step % 10 == 9 {
            let mut rate = 0.0;
            let got: f64 = bytes.iter().sum::<f64>().max(1.0);
            let sources = (0..n)
                .map(|i| {
                    let now_rate = window[i] / (10.0 * dt);
                    window[i] = 0.0;
                    capacity[i] = capacity[i].max(now_rate);
                    rate += now_rate;
                    SourceSnapshot {
                        source: i as u32,
                        name: SourceName::direct(&s.links[i].name),
                        state: states[i],
                        rate_bytes_per_s: now_rate,
                        bytes: bytes[i] as u64,
                        share: bytes[i] / got,
                        rtt_ms: (states[i] != SourceState::Probing)
                            .then_some(s.links[i].rtt_s * 1e3),
                        lanes: if states[i] == SourceState::Bad { 0 } else { s.links[i].lanes },
                        requests: requests[i],
                    }
                })
                .collect();
            let likely_s = (s.size as f64 - done) / rate.max(1.0);
            events.push(Event::Progress(Snapshot {
                at_s: now + dt,
                phase: if rate == 0.0 { Phase::Probing } else { Phase::Fetching },
                size_bytes: Some(s.size),
                done_bytes: done as u64,
                resumed_bytes: s.resumed,
                verified_bytes: (done * 0.97) as u64,
                rate_bytes_per_s: rate,
                eta: (rate > 0.0 && now > 0.4).then_some(Eta {
                    likely_s,
                    low_s: likely_s * 0.85,
                    high_s: likely_s * 1.35 + 0.2,
                }),
                sources,
            }));
        }
        step += 1;
    }
    let elapsed_s = now + dt + 0.08;
    let fetched = s.size - s.resumed;
    let wasted_all: f64 = wasted.iter().sum();
    let is_lost = |i: &usize| states[*i] == SourceState::Bad && bytes[*i] > 0.0;
    let lost: Vec<String> = (0..n).filter(is_lost).map(|i| s.links[i].name.clone()).collect();
    let sources = (0..n)
        .map(|i| SourceSummary {
            source: i as u32,
            name: SourceName::direct(&s.links[i].name),
            state: states[i],
            reason: s.links[i]
                .dies_s
                .as_ref()
                .filter(|_| states[i] == SourceState::Bad)
                .map(|d| d.1.clone()),
            bytes: bytes[i] as u64,
            share: bytes[i] / (fetched as f64).max(1.0),
            rate_bytes_per_s: bytes[i] / busy_s[i].max(dt),
            capacity_bytes_per_s: capacity[i],
            requests: requests[i],
            lanes: s.links[i].lanes,
            rtt_ms: Some(s.links[i].rtt_s * 1e3),
            wasted_bytes: wasted[i] as u64,
        })
        .collect();
    let rate = fetched as f64 / elapsed_s;
    events.push(Event::Finished(Summary {
        sent: false,
        path: s.path.clone(),
        size_bytes: s.size,
        fetched_bytes: fetched,
        resumed_bytes: s.resumed,
        kept_bytes: 0,
        kept_files: 0,
        elapsed_s,
        rate_bytes_per_s: rate,
        wasted_bytes: wasted_all as u64,
        efficiency: Some((rate / capacity.iter().sum::<f64>().max(1.0)).min(1.0)),
        verified: Verified::Digest,
        verified_by: "sha-256".into(),
        proved: true,
        limited_by: match lost.is_empty() {
            true => LimitedBy::Sources,
            false => LimitedBy::LostSources { names: lost },
        },
        digest: "sha-256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"
            .parse()
            .ok(),
        sources,
    }));
    events
}

/// Take the later half of the longest rest of another lane that is worth it.
fn steal(
    lanes: &mut [Vec<Option<Running>>],
    thief: (usize, usize),
    rate: f64,
) -> Option<(u64, u64)> {
    let (mut best, mut longest) = (None, (rate * 0.05).max(200_000.0));
    for (i, source) in lanes.iter().enumerate() {
        for (l, run) in source.iter().enumerate() {
            let Some(run) = run else { continue };
            let rest = run.end as f64 - run.at;
            if (i, l) != thief && rest > longest {
                (best, longest) = (Some((i, l)), rest);
            }
        }
    }
    let (i, l) = best?;
    let run = lanes[i][l].as_mut()?;
    let cut = run.at as u64 + (run.end - run.at as u64) / 2;
    let tail = (cut, run.end);
    run.end = cut;
    Some(tail)
}

fn record(
    source: usize,
    lane: usize,
    run: &Running,
    end: u64,
    ended_at_s: f64,
    outcome: Outcome,
) -> Event {
    Event::Swath(SwathRecord {
        source: source as u32,
        lane: lane as u32,
        start: run.start,
        end: end.max(run.start),
        asked_end: run.asked_end,
        asked_at_s: run.asked_s,
        first_byte_at_s: run.first_s,
        ended_at_s,
        outcome,
    })
}

/// A small xorshift; the scenarios repeat exactly.
struct Noise(u64);

impl Noise {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// Evenly in -1..1.
    fn around(&mut self) -> f64 {
        (self.next() % 20_001) as f64 / 10_000.0 - 1.0
    }
}
