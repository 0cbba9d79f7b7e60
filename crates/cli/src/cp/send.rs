//! A folder of ours to a server that takes trees: it asks, we answer.

use std::path::Path;
use std::sync::Arc;

use swath_model::Limiter;
use swath_serve::{Access, Filter, Offer, SiteOptions};
use swath_source::{Download, LaneError, Net, Trust, Turned, display_name};
use swath_transfer::Stop;
use swath_transfer::observe::Observer;
use tokio::task::JoinSet;
use url::Url;

use super::wire::{Failed, Line, Received};
use crate::exit::Exit;

/// What became of it.
pub enum Sent {
    /// It is there.
    All(Box<Received>),
    /// The receiver says why not.
    Failed(Failed),
    /// The way there ended.
    Broken(Exit, String),
    /// We were told to stop.
    Stopped,
}

/// What is sent.
pub struct Load<'a> {
    /// What lies in this folder …
    pub folder: &'a Path,
    /// … and is let through here …
    pub filter: Filter,
    /// … at no more than so many bytes a second.
    pub limit_bytes_per_s: Option<u64>,
}

/// Send it into the folder at `to`.
pub async fn send(
    net: &Net,
    load: Load<'_>,
    to: &Url,
    query: &str,
    observer: &mut dyn Observer,
    stop: &Stop,
) -> Sent {
    let options = SiteOptions {
        folders: vec![load.folder.to_owned()],
        access: Access::default(),
        follow_links: false,
        filter: Some(load.filter),
        name: String::new(),
        idle_index_bytes: 0,
        receive: None,
        send_limit: load.limit_bytes_per_s.map(|rate| Arc::new(Limiter::new(Some(rate)))),
    };
    let offer = match Offer::open(options) {
        Ok(offer) => offer,
        Err(error) => return Sent::Broken(Exit::Input, crate::exit::chain(&error)),
    };
    let asked = query_of(to, &format!("swath=receive{query}"));
    let shown = display_name(to);
    let words = |error: &LaneError| format!("{shown}: {error}");
    let begun = tokio::select! {
        biased;
        () = stop.wait() => return Sent::Stopped,
        begun = Download::begin_by_post(net, &asked, Trust::Named, "application/x-ndjson") => begun,
    };
    let mut told = match begun {
        Ok(told) => told,
        Err(error) => return Sent::Broken(Exit::Sources, words(&error)),
    };
    let mut lanes: JoinSet<()> = JoinSet::new();
    let mut pending: Vec<u8> = Vec::new();
    let mut id = String::new();
    loop {
        let part = tokio::select! {
            biased;
            () = stop.wait() => return Sent::Stopped,
            Some(_) = lanes.join_next() => continue,
            part = told.next() => part,
        };
        match part {
            Ok(part) if part.is_empty() => {
                let text = format!("{shown}: the receiver ended without a word");
                return Sent::Broken(Exit::Incomplete, text);
            }
            Ok(part) => pending.extend_from_slice(&part),
            Err(error) => return Sent::Broken(Exit::Incomplete, words(&error)),
        }
        while let Some(end) = pending.iter().position(|&byte| byte == b'\n') {
            let line: Vec<u8> = pending.drain(..=end).collect();
            match serde_json::from_slice::<Line>(&line) {
                Ok(Line::Receiving(name)) => id = name,
                Ok(Line::Dial(count)) => {
                    let free = DIALS_MAX.saturating_sub(lanes.len());
                    for _ in 0..free.min(count as usize) {
                        let (net, offer) = (net.clone(), offer.clone());
                        let lane = query_of(to, &format!("swath=lane&of={id}"));
                        lanes.spawn(async move {
                            match Turned::dial(&net, &lane, Trust::Named, PROTOCOL).await {
                                Ok(turned) => {
                                    let peer = turned.peer();
                                    offer.serve(turned, peer).await;
                                }
                                // The receiver asks again while it has need.
                                Err(error) => {
                                    tracing::debug!(%error, "a lane could not be dialled")
                                }
                            }
                        });
                    }
                }
                Ok(Line::Event(event)) => observer.observe(&event),
                Ok(Line::Change(bytes, path)) => super::print_change(bytes, &path),
                Ok(Line::Received(received)) => return Sent::All(received),
                Ok(Line::Failed(failed)) => return Sent::Failed(failed),
                Err(error) => {
                    let text = format!("{shown}: it says what nobody understands: {error}");
                    return Sent::Broken(Exit::Incomplete, text);
                }
            }
        }
        if pending.len() > LINE_BYTES_MAX {
            return Sent::Broken(Exit::Incomplete, format!("{shown}: it says too much at once"));
        }
    }
}

fn query_of(url: &Url, query: &str) -> Url {
    let mut url = url.clone();
    url.set_query(Some(query));
    url
}

/// As `docs/protocol.md` has it.
const PROTOCOL: &str = "swath-lane";
/// Connections at once.
const DIALS_MAX: usize = 64;
/// A line is a summary at most.
const LINE_BYTES_MAX: usize = 16 << 20;
