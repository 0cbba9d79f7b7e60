//! A planner on the bench: told what happens, asked what it does.

// Every test file uses a part of it.
#![allow(dead_code)]

use std::collections::VecDeque;
use std::time::Duration;

use swath_model::{LaneId, Range, RangeSet, Requests, SourceId, SwathId, Time};
use swath_plan::{Action, Config, Event, Lanes, Planner};

pub const MIB: u64 = 1 << 20;

/// A planner, its clock, and what it has asked for.
pub struct Bench {
    pub planner: Planner,
    pub now: Time,
    pub actions: Vec<Action>,
}

impl Bench {
    /// `sources` sources whose lanes (numbered like them) are up, and a file of `size_bytes`.
    pub fn new(sources: u32, size_bytes: u64) -> Self {
        Self::with(Config { lanes: Lanes::Fixed(1), ..Config::default() }, sources, size_bytes)
    }

    pub fn with(config: Config, sources: u32, size_bytes: u64) -> Self {
        let mut bench =
            Self { planner: Planner::new(config), now: Time::ZERO, actions: Vec::new() };
        bench.tell(Event::Layout { size_bytes, missing: RangeSet::full(size_bytes) });
        for at in 0..sources {
            bench.tell(Event::SourceAdded { source: SourceId(at), max_lanes: None });
        }
        for at in 0..sources {
            bench.up(LaneId(at));
        }
        bench
    }

    pub fn tell(&mut self, event: Event) {
        self.planner.handle(event, self.now);
        self.act();
    }

    pub fn act(&mut self) {
        while let Some(action) = self.planner.poll(self.now) {
            self.actions.push(action);
        }
        self.planner.audit().expect("the books agree");
    }

    pub fn up(&mut self, lane: LaneId) {
        self.tell(Event::LaneUp {
            lane,
            rtt: Duration::from_millis(10),
            requests: Requests::Pipelined,
        });
    }

    /// Time passes, nothing happens.
    pub fn wait_s(&mut self, seconds: f64) {
        let until = self.now.plus_secs(seconds);
        while let Some(at) = self.planner.poll_timeout().filter(|&at| at <= until) {
            self.now = self.now.max(at);
            self.act();
        }
        self.now = until;
        self.act();
    }

    /// What `lane` was asked for since the last time, in order.
    pub fn fetches(&mut self, lane: u32) -> Vec<(SwathId, Range)> {
        let mut found = Vec::new();
        self.actions.retain(|action| match *action {
            Action::Fetch { lane: LaneId(of), swath, range } if of == lane => {
                found.push((swath, range));
                false
            }
            _ => true,
        });
        found
    }

    /// The whole swath arrives on its lane, `total` bytes of it so far.
    pub fn deliver(&mut self, lane: u32, total: &mut u64, (swath, range): (SwathId, Range)) {
        *total += range.len();
        self.tell(Event::Arrived { lane: LaneId(lane), total_bytes: *total });
        self.tell(Event::Delivered { swath, range });
        self.tell(Event::SwathDone { swath });
    }

    /// How many lanes were to be opened since the last time, and their numbers.
    pub fn opened(&mut self) -> Vec<LaneId> {
        let mut found = Vec::new();
        self.actions.retain(|action| match *action {
            Action::OpenLane { lane, .. } => {
                found.push(lane);
                false
            }
            _ => true,
        });
        found
    }

    pub fn took(&self, wanted: &Action) -> bool {
        self.actions.contains(wanted)
    }
}

/// What was asked for on a lane, and how far it has come.
#[derive(Default)]
pub struct Flow {
    pub lane: u32,
    pub total: u64,
    pub asked: VecDeque<(SwathId, Range)>,
}

impl Flow {
    pub fn of(lane: u32) -> Self {
        Self { lane, ..Self::default() }
    }

    /// `bytes` more arrive, as far as they were asked for.
    pub fn carry(&mut self, bench: &mut Bench, mut bytes: u64) {
        self.asked.extend(bench.fetches(self.lane));
        while bytes > 0
            && let Some((swath, range)) = self.asked.pop_front()
        {
            let here = Range::of_len(range.start, bytes.min(range.len()));
            bytes -= here.len();
            self.total += here.len();
            bench.tell(Event::Arrived { lane: LaneId(self.lane), total_bytes: self.total });
            bench.tell(Event::Delivered { swath, range: here });
            if here == range {
                bench.tell(Event::SwathDone { swath });
            } else {
                self.asked.push_front((swath, Range::new(here.end, range.end)));
            }
        }
    }
}
