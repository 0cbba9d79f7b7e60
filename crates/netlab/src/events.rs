//! The events of transfers that never happened, for tests and for looking at the page and the
//! terminal. Each lane takes a swath of about the same time after the other until all is fetched;
//! what a lane that breaks leaves goes to the next one. It needs no network.

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

/// Every event of the scenario, in order; `Progress` comes ten times a second.
pub fn play(scenario: &Scenario) -> Vec<Event> {
    let links = &scenario.links;
    let swaths = schedule(scenario);
    let end_s = swaths.iter().map(|swath| swath.ended_at_s).fold(0.0, f64::max);
    let changes: Vec<_> =
        (0..links.len()).map(|i| changes(&links[i], ended_s(&swaths, i), end_s)).collect();
    let mut events: Vec<(f64, Event)> = Vec::new();
    for (i, changes) in changes.iter().enumerate() {
        for (at_s, state, reason) in changes {
            let (name, reason) = (SourceName::direct(&links[i].name), reason.clone());
            let (source, state, at_s) = (i as u32, *state, *at_s);
            events.push((at_s, Event::Source { at_s, source, name, state, reason }));
        }
    }
    events.extend(swaths.iter().map(|swath| (swath.ended_at_s, Event::Swath(swath.clone()))));
    let state_at = |i: usize, at_s: f64| {
        let past = changes[i].iter().take_while(|change| change.0 <= at_s);
        past.last().map_or(SourceState::Waiting, |change| change.1)
    };
    let mut before = vec![0.0; links.len()];
    let mut capacity = vec![0.0_f64; links.len()];
    for tick in 1..=(end_s * 10.0) as u64 {
        let at_s = tick as f64 / 10.0;
        let bytes: Vec<f64> = (0..links.len()).map(|i| delivered(&swaths, i, at_s)).collect();
        let sum: f64 = bytes.iter().sum();
        let rates: Vec<f64> =
            bytes.iter().zip(&before).map(|(now, was)| (now - was) * 10.0).collect();
        capacity.iter_mut().zip(&rates).for_each(|(most, rate)| *most = most.max(*rate));
        let rate = rates.iter().sum::<f64>();
        let sources = links.iter().enumerate().map(|(i, link)| SourceSnapshot {
            source: i as u32,
            name: SourceName::direct(&link.name),
            state: state_at(i, at_s),
            rate_bytes_per_s: rates[i],
            bytes: bytes[i] as u64,
            share: bytes[i] / sum.max(1.0),
            rtt_ms: (at_s > 2.0 * link.rtt_s).then_some(link.rtt_s * 1e3),
            lanes: if state_at(i, at_s) == SourceState::Bad { 0 } else { link.lanes },
            requests: requests(&swaths, i, at_s),
        });
        let done = scenario.resumed as f64 + sum;
        let likely_s = (scenario.size as f64 - done) / rate.max(1.0);
        let eta = Eta { likely_s, low_s: likely_s * 0.85, high_s: likely_s * 1.35 + 0.2 };
        let snapshot = Snapshot {
            at_s,
            phase: if rate == 0.0 { Phase::Probing } else { Phase::Fetching },
            size_bytes: Some(scenario.size),
            files: 1,
            done_bytes: done as u64,
            resumed_bytes: scenario.resumed,
            verified_bytes: (done * 0.97) as u64,
            rate_bytes_per_s: rate,
            eta: (rate > 0.0 && at_s > 0.4).then_some(eta),
            sources: sources.collect(),
        };
        events.push((at_s, Event::Progress(snapshot)));
        before = bytes;
    }
    events.sort_by(|a, b| a.0.total_cmp(&b.0));
    let begin = [
        Event::Started {
            path: scenario.path.clone(),
            sources: links.iter().map(|link| link.name.clone()).collect(),
        },
        Event::Opened {
            size_bytes: Some(scenario.size),
            resumed_bytes: scenario.resumed,
            kept_bytes: 0,
            verification: format!("sha-256, {} pieces of 1 MiB", scenario.size.div_ceil(1 << 20)),
        },
    ];
    let last_state = |i: usize| state_at(i, f64::INFINITY);
    let end = summary(scenario, &swaths, &capacity, end_s, last_state);
    let events = events.into_iter().map(|(_, event)| event);
    begin.into_iter().chain(events).chain([Event::Finished(end)]).collect()
}

/// Every swath of a scenario, in the order in which they begin.
fn schedule(scenario: &Scenario) -> Vec<SwathRecord> {
    let Scenario { links, size, .. } = scenario;
    let mut random = fastrand::Rng::with_seed(scenario.seed);
    // Each lane with its source and from when on it is free.
    let mut lanes: Vec<(usize, u32, f64)> = Vec::new();
    for (source, link) in links.iter().enumerate() {
        lanes.extend((0..link.lanes).map(|lane| (source, lane, 2.0 * link.rtt_s)));
    }
    let mut next = scenario.resumed;
    let mut left_over: Vec<(u64, u64)> = Vec::new();
    let mut swaths = Vec::new();
    while let Some(at) = (0..lanes.len()).min_by(|a, b| lanes[*a].2.total_cmp(&lanes[*b].2)) {
        let (source, lane, free_s) = lanes[at];
        let link = &links[source];
        let rate = link.rate / f64::from(link.lanes) * (0.85 + 0.2 * random.f64());
        let part = ((size - next) / (2 * lanes.len() as u64)).min((rate * scenario.swath_s) as u64);
        let fresh = (next, (next + part.max((rate * 0.2) as u64 + 65_536)).min(*size));
        let Some((start, end)) = left_over.pop().or((next < *size).then_some(fresh)) else { break };
        next = next.max(end);
        let mut swath = SwathRecord {
            source: source as u32,
            lane,
            start,
            end,
            asked_end: end,
            asked_at_s: (free_s - link.rtt_s).max(0.0),
            first_byte_at_s: Some(free_s),
            ended_at_s: free_s + (end - start) as f64 / rate,
            outcome: Outcome::Done,
        };
        let stops = [link.silent_s, link.dies_s.as_ref().map(|(at_s, _)| (*at_s, f64::INFINITY))];
        let stop = stops.into_iter().flatten();
        let stop = stop.filter(|(from_s, to_s)| *from_s < swath.ended_at_s && *to_s > free_s);
        lanes[at].2 = swath.ended_at_s;
        if let Some((from_s, to_s)) = stop.min_by(|a, b| a.0.total_cmp(&b.0)) {
            let bytes = ((from_s - free_s).max(0.0) * rate) as u64;
            swath.end = start + bytes;
            swath.first_byte_at_s = (bytes > 0).then_some(free_s);
            swath.ended_at_s = from_s.max(swath.asked_at_s) + 0.15;
            swath.outcome = Outcome::Failed;
            left_over.push((swath.end, end));
            lanes[at].2 = to_s + link.rtt_s;
            if to_s.is_infinite() {
                lanes.remove(at);
            }
        } else if random.u8(..60) == 0 {
            // It was asked of another one, too, which came second.
            let other = SwathRecord {
                source: (source as u32 + 1) % links.len() as u32,
                lane: 0,
                end: start + (end - start) / 3,
                outcome: Outcome::Lost,
                ..swath.clone()
            };
            swaths.push(other);
        } else if random.u8(..40) == 0 {
            swath.asked_end = (end + (end - start) / 3).min(*size);
            swath.outcome = Outcome::Trimmed;
        }
        swaths.push(swath);
    }
    swaths
}

/// What becomes of a source, when and why: it has nothing more to deliver from `idle_s` on.
fn changes(link: &Link, idle_s: f64, end_s: f64) -> Vec<(f64, SourceState, Option<String>)> {
    let mut changes = vec![
        (0.0, SourceState::Probing, None),
        (2.0 * link.rtt_s, SourceState::Running, None),
        (idle_s, SourceState::Idle, None),
    ];
    if let Some((from_s, to_s)) = link.silent_s {
        let why = "nothing arrived for 3 round trips".to_owned();
        changes.push((from_s, SourceState::Silent, Some(why)));
        changes.push((to_s, SourceState::Running, Some("it delivers again".to_owned())));
    }
    if let Some((at_s, why)) = &link.dies_s {
        changes.retain(|change| change.0 < *at_s);
        changes.push((*at_s, SourceState::Bad, Some(why.clone())));
    }
    changes.retain(|change| change.0 <= end_s);
    changes.sort_by(|a, b| a.0.total_cmp(&b.0));
    changes
}

/// Returns the swaths of a source whose bytes count.
fn swaths_of(swaths: &[SwathRecord], source: usize) -> impl Iterator<Item = &SwathRecord> {
    swaths.iter().filter(move |it| it.source as usize == source && it.outcome != Outcome::Lost)
}

fn ended_s(swaths: &[SwathRecord], source: usize) -> f64 {
    swaths_of(swaths, source).map(|swath| swath.ended_at_s).fold(0.0, f64::max)
}

fn requests(swaths: &[SwathRecord], source: usize, at_s: f64) -> u64 {
    swaths_of(swaths, source).filter(|swath| swath.asked_at_s <= at_s).count() as u64
}

/// Returns how many bytes a source has delivered by a time.
fn delivered(swaths: &[SwathRecord], source: usize, at_s: f64) -> f64 {
    let part = |swath: &SwathRecord| {
        let first_s = swath.first_byte_at_s.unwrap_or(swath.ended_at_s);
        let part = (at_s - first_s) / (swath.ended_at_s - first_s).max(1e-9);
        (swath.end - swath.start) as f64 * part.clamp(0.0, 1.0)
    };
    swaths_of(swaths, source).map(part).sum()
}

fn summary(
    scenario: &Scenario,
    swaths: &[SwathRecord],
    capacity: &[f64],
    end_s: f64,
    state: impl Fn(usize) -> SourceState,
) -> Summary {
    let fetched_bytes = scenario.size - scenario.resumed;
    let elapsed_s = end_s + 0.08;
    let rate_bytes_per_s = fetched_bytes as f64 / elapsed_s;
    let sources = scenario.links.iter().enumerate().map(|(i, link)| {
        let bytes: u64 = swaths_of(swaths, i).map(|swath| swath.end - swath.start).sum();
        let lost = swaths.iter().filter(|swath| swath.source as usize == i);
        let lost = lost.filter(|swath| swath.outcome == Outcome::Lost);
        let reason = link.dies_s.as_ref().map(|(_, why)| why.clone());
        SourceSummary {
            source: i as u32,
            name: SourceName::direct(&link.name),
            state: state(i),
            reason: reason.filter(|_| state(i) == SourceState::Bad),
            bytes,
            share: bytes as f64 / (fetched_bytes as f64).max(1.0),
            rate_bytes_per_s: bytes as f64 / ended_s(swaths, i).max(0.01),
            capacity_bytes_per_s: capacity[i],
            requests: requests(swaths, i, end_s),
            lanes: link.lanes,
            settled_lanes: link.lanes,
            rtt_ms: Some(link.rtt_s * 1e3),
            wasted_bytes: lost.map(|swath| swath.end - swath.start).sum(),
        }
    });
    let sources: Vec<SourceSummary> = sources.collect();
    let lost = sources.iter().filter(|it| it.state == SourceState::Bad && it.bytes > 0);
    let names: Vec<String> = lost.map(|it| it.name.address.clone()).collect();
    Summary {
        path: scenario.path.clone(),
        size_bytes: scenario.size,
        fetched_bytes,
        resumed_bytes: scenario.resumed,
        elapsed_s,
        rate_bytes_per_s,
        wasted_bytes: sources.iter().map(|it| it.wasted_bytes).sum(),
        efficiency: Some((rate_bytes_per_s / capacity.iter().sum::<f64>().max(1.0)).min(1.0)),
        verified: Verified::Digest,
        verified_by: "sha-256".to_owned(),
        proved: true,
        limited_by: match names.is_empty() {
            true => LimitedBy::Sources,
            false => LimitedBy::LostSources { names },
        },
        digest: "sha-256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"
            .parse()
            .ok(),
        sources,
        ..Summary::default()
    }
}
