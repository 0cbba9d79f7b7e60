//! What takes trees that others send, around the real engine, as `swath serve --write` has it: the
//! program adds its own words.

use swath_jobs::KeptRecorder;
use swath_model::Limiter;
use swath_serve::{Order, Receive};
use swath_transfer::observe::Event;
use swath_transfer::sending::{Failed, InTheWay, Line, Passes, Received, Wishes};
use swath_transfer::{
    Change, Engine, EngineOptions, GetError, Mirror, PartialError, PlanConfig, Stop, TreeRequest,
    Trust,
};

use std::sync::Arc;

pub struct Receiver(Engine);

impl Receiver {
    pub fn new() -> Receiver {
        Receiver(Engine::start(EngineOptions::default()).unwrap())
    }

    /// What limits all that is received.
    pub fn limiter(&self) -> Arc<Limiter> {
        Arc::clone(self.0.net().limiter())
    }
}

impl Receive for Receiver {
    fn begin(&self, order: Order) {
        tokio::spawn(receive(self.0.clone(), order));
    }
}

async fn receive(engine: Engine, order: Order) {
    let Order { id, destination, wishes, lines, mut lanes, .. } = order;
    let engine = engine.granted(destination.grant());
    let tell = |line: &Line| _ = lines.send(line.to_json());
    tell(&Line::Receiving(id.clone()));
    let (url, mut dialled) = engine.net().dialled(&id).unwrap();
    let (come, stop, wishes) = (dialled.come(), Stop::default(), Wishes::of(&wishes));
    let request = TreeRequest {
        filter: wishes.filter().unwrap(),
        beneath: None,
        single: wishes.single.clone(),
        single_there: None,
        keep_index: None,
        replicas: vec![Mirror { url, priority: 1, trust: Trust::Named, holds: None }],
        destination: destination.path.clone(),
        preserve: wishes.preserve,
        delete: wishes.delete,
        allow_empty: wishes.allow_empty,
        first_walk: wishes.first_walk.clone(),
        compare: wishes.compare,
        resume: wishes.resume,
        plan: PlanConfig::default(),
        stall_s: wishes.patience_s.unwrap_or(60.0),
        locked_s: 30.0,
        discovery: None,
    };
    let on_the_way = lines.clone();
    let mut send_event = move |event: &Event| {
        if !matches!(event, Event::Finished(_) | Event::Failed { .. }) {
            let _ = on_the_way.send(Line::event(event));
        }
    };
    let mut observer = KeptRecorder::new(&mut send_event);
    let (planned, deletes) = (lines.clone(), request.delete);
    let copying = async {
        if !wishes.dry {
            let copied = engine.copy(request, &mut observer, &stop).await;
            return copied.map(|tree| Received::of(&tree));
        }
        let take = move |change: Change, path: &[u8]| {
            let text = |path: &[u8]| String::from_utf8_lossy(path).into_owned();
            let line = match change {
                Change::Copy { bytes, is_folder, further_of } => {
                    Line::copy(bytes, path, is_folder, further_of.as_deref())
                }
                Change::Surplus | Change::InTheWay if deletes => {
                    Line::Change(None, text(path), None)
                }
                Change::Surplus | Change::InTheWay => return,
            };
            let _ = planned.send(line.to_json());
        };
        engine.differences(&request, take).await.map(|planned| Received::planned(&planned))
    };
    let result = {
        tokio::pin!(copying);
        let mut is_gone = false;
        loop {
            tokio::select! {
                result = &mut copying => break result,
                true = dialled.is_wanted() => tell(&Line::Dial(1)),
                Some((stream, peer)) = lanes.recv() => come.take(stream, peer),
                () = lines.closed(), if !is_gone => {
                    is_gone = true;
                    stop.set();
                }
            }
        }
    };
    match result {
        Ok(received) => tell(&Line::Received(Box::new(received))),
        Err(error) => {
            let in_the_way = match &error {
                GetError::Tree(PartialError::InTheWay { conflicts, .. }) => {
                    Some(InTheWay::of(conflicts))
                }
                _ => None,
            };
            let kept_bytes = observer.kept.known_bytes();
            let (exit, error) = (1, error.to_string());
            tell(&Line::Failed(Failed { exit, error, kept_bytes, passes: Passes::No, in_the_way }));
        }
    }
}
