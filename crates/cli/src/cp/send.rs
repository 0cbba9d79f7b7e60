//! A folder of ours to a server that takes trees: it asks, we answer.

use std::path::Path;
use std::sync::Arc;

use swath_model::Limiter;
use swath_serve::{Access, Filter, Offer, Reads, SiteOptions};
use swath_source::{Download, LaneError, Net, Trust, Turned};
use swath_transfer::Stop;
use swath_transfer::observe::{Event, Observer};
use swath_transfer::sending::{Failed, Line, LineReader, Received, Wishes};
use tokio::task::JoinSet;
use url::Url;

use super::dry::Plan;
use super::put::status;
use crate::exit::Exit;

/// What became of it.
pub enum Sent {
    /// It is there.
    All(Box<Received>),
    /// The receiver says why not.
    Failed(Failed),
    /// The way there ended.
    Broken(Exit, String),
    /// It is a single file, and the server does not take trees, or not from us.
    Foreign(String),
    /// We were told to stop.
    Stopped {
        /// Whether the receiver had anything by then.
        has_something: bool,
    },
}

/// What is sent.
pub struct Load<'a> {
    /// What lies in this folder (or the file that this is, if the wishes say so) …
    pub from: &'a Path,
    /// … goes where this is what its user calls it …
    pub shown_to: &'a str,
    /// … and is let through here …
    pub filter: Filter,
    /// … read in this way …
    pub reads: Reads,
    /// … at no more than so many bytes a second.
    pub limit_bytes_per_s: Option<u64>,
    /// What would be done, if nothing is to be done, is told to this.
    pub plan: &'a Plan,
}

/// Send it into the folder at `to`.
pub async fn send(
    net: &Net,
    load: Load<'_>,
    to: &Url,
    wishes: &Wishes,
    observer: &mut dyn Observer,
    stop: &Stop,
) -> Sent {
    let offered = super::here::offered(load.from, wishes.single.as_deref(), load.filter.clone());
    let (folder, only) = match offered {
        Ok(offered) => offered,
        Err(error) => {
            return Sent::Broken(Exit::Input, format!("{}: {error}", load.from.display()));
        }
    };
    let options = SiteOptions {
        folders: vec![folder],
        access: Access::default(),
        follow_links: false,
        only: Some(only),
        name: String::new(),
        reads: load.reads,
        idle_index_bytes: 0,
        receive: None,
        receive_limit: None,
        send_limit: load.limit_bytes_per_s.map(|rate| Arc::new(Limiter::new(Some(rate)))),
    };
    let offer = match Offer::open(options) {
        Ok(offer) => offer,
        Err(error) => return Sent::Broken(Exit::Input, crate::exit::chain(&error)),
    };
    let asked = query_of(to, &format!("swath=receive&{}", wishes.query()));
    let shown = load.shown_to;
    let words = |error: &LaneError| format!("{shown}: {error}");
    let begun = tokio::select! {
        biased;
        () = stop.wait() => return Sent::Stopped { has_something: false },
        begun = Download::begin_by_post(net, &asked, Trust::Named, LINES) => begun,
    };
    let is_single = wishes.single.is_some();
    let mut told = match begun {
        Ok(told) if is_single && told.field("content-type") != Some(LINES) => {
            return Sent::Foreign(format!("{shown}: it takes no trees"));
        }
        // Whoever is not known is not known for files either.
        Err(error) if is_single && status(&error).is_some_and(|code| code != 401) => {
            return Sent::Foreign(words(&error));
        }
        Ok(told) => told,
        Err(error) => {
            let is_refused = status(&error).is_some_and(is_of_the_place);
            let exit = if is_refused { Exit::Target } else { Exit::Sources };
            return Sent::Broken(exit, words(&error));
        }
    };
    // Each ends with what the server said if it let us in no more.
    let mut lanes: JoinSet<Option<LaneError>> = JoinSet::new();
    let mut lines = LineReader::default();
    let mut id = String::new();
    // Whether there is anything for a later run to go on from.
    let mut has_something = false;
    let broken = |has_something: bool, text: String| {
        let exit = if has_something { Exit::Incomplete } else { Exit::Sources };
        Sent::Broken(exit, text)
    };
    loop {
        let part = tokio::select! {
            biased;
            () = stop.wait() => return Sent::Stopped { has_something },
            Some(ended) = lanes.join_next() => match ended {
                // The receiver would ask for connections until it gives up.
                Ok(Some(refused)) if lanes.is_empty() => {
                    return broken(has_something, words(&refused));
                }
                _ => continue,
            },
            part = told.next() => part,
        };
        match part {
            Ok(part) if part.is_empty() => {
                let text = format!("{shown}: the receiver ended without a word");
                return broken(has_something, text);
            }
            Ok(part) => lines.take_in(&part),
            Err(error) => return broken(has_something, words(&error)),
        }
        while let Some(line) = lines.next_line() {
            // It has nothing to say, and is there.
            if line.is_empty() {
                continue;
            }
            match Line::parse(&line) {
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
                                    None
                                }
                                Err(error @ LaneError::Denied { .. }) => Some(error),
                                // The receiver asks again while it has need.
                                Err(error) => {
                                    tracing::debug!(%error, "a lane could not be dialled");
                                    None
                                }
                            }
                        });
                    }
                }
                Ok(Line::Event(mut event)) => {
                    // The receiver knows neither by the name that they have here.
                    if let Event::Started { path, sources } = &mut *event {
                        *path = shown.to_owned();
                        *sources = vec![load.from.display().to_string()];
                    }
                    has_something |= match &*event {
                        Event::Opened { resumed_bytes, .. } => *resumed_bytes > 0,
                        Event::Progress(now) => now.done_bytes > 0,
                        _ => false,
                    };
                    observer.observe(&event);
                }
                Ok(Line::Change(bytes, path, further_of)) => {
                    let further_of = further_of.as_ref().map(|path| path.as_bytes());
                    load.plan.tell(bytes, path.as_bytes(), further_of);
                }
                Ok(Line::Received(received)) => return Sent::All(received),
                Ok(Line::Failed(failed)) => return Sent::Failed(failed),
                Err(error) => {
                    let text = format!("{shown}: it says what nobody understands: {error}");
                    return broken(has_something, text);
                }
            }
        }
        if lines.is_too_long() {
            return broken(has_something, format!("{shown}: it says too much at once"));
        }
    }
}

/// Whether a refusal is about where the tree is to lie, and not about the server.
fn is_of_the_place(status: u16) -> bool {
    matches!(status, 403 | 404 | 405 | 409 | 413 | 507)
}

fn query_of(url: &Url, query: &str) -> Url {
    let mut url = url.clone();
    url.set_query(Some(query));
    url
}

/// What a receiver says.
const LINES: &str = "application/x-ndjson";
/// As `docs/protocol.md` has it.
const PROTOCOL: &str = "swath-lane";
/// Connections at once.
const DIALS_MAX: usize = 64;
