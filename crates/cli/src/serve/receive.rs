//! `swath serve --write`: fetches uploads from their senders.
//!
//! The sender reads lines of JSON: `{"receiving":ID}` first, `{"dial":1}` for each requested connection,
//! `{"event":…}` as `swath cp --json` prints them, and at the end `{"received":…}` or `{"failed":…}`.

use std::sync::atomic::Ordering;
use std::time::Duration;

use swath_serve::{Lines, Order, Receive};
use swath_transfer::observe::Event;
use swath_transfer::sending::{Failed, InTheWay, Line, Passes, Received, Wishes};
use swath_transfer::{
    Change, Engine, GetError, Mirror, PartialError, PlanConfig, Stop, TreeRequest, Trust,
};
use tokio::sync::watch;

use super::told::ToldNames;
use crate::exit;
use swath_jobs::KeptRecorder;

/// Receives uploads.
pub struct Receiver {
    engine: Engine,
    /// The number of active uploads.
    under_way: watch::Sender<usize>,
}

impl Receiver {
    /// Returns a receiver with this engine for all uploads.
    pub fn new(engine: Engine) -> Receiver {
        Receiver { engine, under_way: watch::Sender::new(0) }
    }

    /// Waits for the end of all uploads: an upload whose sender is gone still saves its data, so that
    /// the next one can resume.
    pub async fn idle(&self) {
        let mut under_way = self.under_way.subscribe();
        // `self` holds the sender, so this does not fail.
        let _ = under_way.wait_for(|&count| count == 0).await;
    }
}

impl Receive for Receiver {
    fn begin(&self, order: Order) {
        let (engine, under_way) = (self.engine.clone(), self.under_way.clone());
        under_way.send_modify(|count| *count += 1);
        tokio::spawn(async move {
            // A panic must not stop the counting.
            let _ = tokio::spawn(receive(engine, order)).await;
            under_way.send_modify(|count| *count -= 1);
        });
    }
}

async fn receive(engine: Engine, order: Order) {
    let Order { id, destination, wishes, lines, mut lanes, received_bytes } = order;
    let engine = engine.granted(destination.grant());
    let tell = |line: &Line| tell(&lines, line);
    tell(&Line::Receiving(id.clone()));
    let (url, mut dialled) = match engine.net().dialled(&id) {
        Ok(dialled) => dialled,
        Err(error) => {
            tell(&Line::Failed(Failed::at_once(1, error.to_string())));
            return;
        }
    };
    let come = dialled.come();
    let stop = Stop::default();
    let wishes = Wishes::of(&wishes);
    let filter = match wishes.filter() {
        Ok(filter) => filter,
        Err(error) => {
            tell(&Line::Failed(Failed::at_once(2, error.to_string())));
            return;
        }
    };
    let request = TreeRequest {
        filter,
        beneath: None,
        single: wishes.single.clone(),
        single_there: None,
        keep_index: None,
        replicas: vec![Mirror { url: url.clone(), priority: 1, trust: Trust::Named, holds: None }],
        destination: destination.path.clone(),
        preserve: wishes.preserve,
        delete: wishes.delete,
        allow_empty: wishes.allow_empty,
        first_walk: wishes.first_walk.clone(),
        compare: wishes.compare,
        resume: wishes.resume,
        plan: PlanConfig::default(),
        stall_s: wishes.patience_s.unwrap_or(STALL_S),
        locked_s: LOCKED_S,
        discovery: None,
    };
    let on_the_way = lines.clone();
    // Internal names mean nothing to the sender.
    let sender = || "the sender".to_owned();
    let mut names = destination.names();
    names.extend([(url.to_string(), sender()), ("the server of the sender".to_owned(), sender())]);
    let names = ToldNames::new(names);
    let of_events = names.clone();
    let mut send_event = move |event: &Event| {
        if let Event::Swath(swath) = event {
            received_bytes.fetch_add(swath.end.saturating_sub(swath.start), Ordering::Relaxed);
        }
        // The last line reports the end.
        if !matches!(event, Event::Finished(_) | Event::Failed { .. }) {
            let _ = on_the_way.send(of_events.line(&Line::event(event)));
        }
    };
    let mut observer = KeptRecorder::new(&mut send_event);
    let planned = lines.clone();
    let copying = async {
        if !wishes.dry {
            return engine
                .copy(request, &mut observer, &stop)
                .await
                .map(|tree| Received::of(&tree));
        }
        let shows_surplus = request.delete;
        let take = move |change: Change, path: &[u8]| {
            let text = |path: &[u8]| String::from_utf8_lossy(path).into_owned();
            let line = match change {
                Change::Copy { bytes, is_folder, further_of } => {
                    Line::copy(bytes, path, is_folder, further_of.as_deref())
                }
                Change::Surplus | Change::InTheWay if shows_surplus => {
                    Line::Change(None, text(path), None)
                }
                Change::Surplus | Change::InTheWay => return,
            };
            self::tell(&planned, &line);
        };
        engine.differences(&request, take).await.map(|planned| Received::planned(&planned))
    };
    let mut gone = false;
    let mut pulse = tokio::time::interval(PULSE);
    let result = {
        tokio::pin!(copying);
        loop {
            tokio::select! {
                result = &mut copying => break result,
                true = dialled.is_wanted() => tell(&Line::Dial(1)),
                Some((stream, peer)) = lanes.recv() => come.take(stream, peer),
                () = lines.closed(), if !gone => {
                    gone = true;
                    stop.set();
                }
                // Renaming a million files sends no events for a long time.
                _ = pulse.tick() => {
                    let _ = lines.send(String::new());
                }
            }
        }
    };
    match result {
        Ok(received) => {
            let _ = lines.send(names.line(&Line::Received(Box::new(received)).to_json()));
        }
        Err(error) => {
            let exit = exit::of(&error, 1) as u8;
            let (words, in_the_way) = match &error {
                error if !error.reasons().is_empty() => (error.with_reasons(), None),
                // The sender adds the advice.
                GetError::Tree(PartialError::InTheWay { destination, conflicts }) => {
                    let destination = destination.display().to_string();
                    let words = exit::in_the_way(&destination, conflicts);
                    (words, Some(InTheWay::of(conflicts)))
                }
                _ => (exit::words(&error), None),
            };
            let passes = match &error {
                GetError::Stalled { .. } => Passes::Silence,
                GetError::Tree(PartialError::Locked(_)) => Passes::Held,
                _ => Passes::No,
            };
            let (error, kept_bytes) = (names.text(&words), observer.kept.known_bytes());
            tell(&Line::Failed(Failed { exit, error, kept_bytes, passes, in_the_way }));
        }
    }
}

fn tell(lines: &Lines, line: &Line) {
    // A closed channel is handled elsewhere.
    let _ = lines.send(line.to_json());
}

/// Interval of the empty lines to the sender.
const PULSE: Duration = Duration::from_secs(5);
/// Silence after which a sender is gone, unless it requests another limit.
const STALL_S: f64 = 60.0;
/// A restarted sender may have to wait until its earlier upload is saved.
const LOCKED_S: f64 = 30.0;
