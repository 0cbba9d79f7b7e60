//! What is here to a server that takes trees.

use std::path::PathBuf;

use swath_formats::percent;
use swath_source::LaneError;
use swath_transfer::observe::{Event, LimitedBy, Observer};
use swath_transfer::sending::Wishes;
use swath_transfer::{Filter, Stop};
use url::Url;

use super::Copying;
use super::error::CopyError;
use super::names::Renamed;
use super::send::{self, Sent};
use crate::error::JobError;
use crate::run::Outcome;

/// What is sent.
pub struct Outgoing {
    /// What lies in this folder, or a single file.
    pub from: PathBuf,
    /// Into this folder.
    pub to: Url,
    /// What a single file is called there.
    pub single: Option<String>,
    /// What the user calls where it goes.
    pub shown: String,
}

/// A server takes no trees, or not from us: with its refusal, if that is what it was.
pub struct Foreign(pub Option<LaneError>);

/// Sends it. The outer error is of a single file whose server does not take trees, or not from us.
pub async fn send(
    copying: &Copying<'_>,
    what: &Outgoing,
    filter: Filter,
    observer: &mut dyn Observer,
) -> Result<Result<Outcome, JobError>, Foreign> {
    let (job, copy) = (copying.job, copying.copy);
    let mut wishes = wishes(copying, what.single.clone());
    let names = copying.session.map(|session| session.names.clone()).unwrap_or_default();
    let sent = loop {
        let load = send::Load {
            from: &what.from,
            shown_to: &what.shown,
            filter: filter.clone(),
            reads: job.spec.disk.io.into(),
            limit_bytes_per_s: job.spec.network.limit_bytes_per_s,
            observer: &**job.observer,
            // By ssh the server ends with the connection, and is no more. A plan is told once.
            asks_again: copying.session.is_none() && !copy.dry_run,
        };
        let limit = copying.session.and_then(|session| session.limit.clone());
        let mut renamed = Renamed { observer: &mut *observer, names: &names, limit };
        let stop = Stop::default();
        let sending = send::send(job.engine.net(), load, &what.to, &wishes, &mut renamed, &stop);
        let sent = job.control.until_paused(&stop, sending).await;
        if !matches!(sent, Sent::Stopped { .. }) || !job.control.goes_on().await {
            break sent;
        }
        // What lies there now is of this very copy.
        wishes.resume = true;
    };
    let destination = what.shown.clone();
    Ok(Err(JobError::from(match sent {
        Sent::Foreign(error) => return Err(Foreign(error)),
        Sent::All(received) => {
            if !copy.dry_run {
                let mut summary = received.transfer.clone();
                summary.path = title(&what.shown);
                summary.sent = true;
                // Who received it has judged by what came to it.
                if let LimitedBy::OneSource { .. } | LimitedBy::Sources = summary.limited_by {
                    summary.limited_by = LimitedBy::Receiver;
                }
                let limit = copying.session.and_then(|session| session.limit.clone());
                Renamed { observer, names: &names, limit }.observe(&Event::Finished(summary));
            }
            return Ok(Ok(copying.copied(*received, destination)));
        }
        Sent::Failed(failed) => {
            let is_single = what.single.is_some();
            CopyError::Receiver { destination, failed, is_single }
        }
        Sent::Unreadable(error) => error.into(),
        Sent::Broken(progress, why) => {
            CopyError::Broken { destination, why: Box::new(why), progress, names }
        }
        Sent::Stopped { has_something } => CopyError::SendStopped { destination, has_something },
    })))
}

/// What a receiver has to know of the specification.
fn wishes(copying: &Copying<'_>, single: Option<String>) -> Wishes {
    let copy = copying.copy;
    Wishes {
        preserve: copy.preserve.into(),
        compare: copy.compare.into(),
        resume: copy.resume,
        delete: copy.delete,
        allow_empty: copy.allow_empty,
        first_walk: None,
        dry: copy.dry_run,
        patience_s: Some(copying.job.spec.network.stall_s()),
        include: copy.include.clone(),
        exclude: copy.exclude.clone(),
        single,
    }
}

/// What is sent, for whoever looks on: of an address the name as it is, not as addresses write it.
pub fn title(shown: &str) -> String {
    if shown.contains("://") { percent::decode_text(shown) } else { shown.to_owned() }
}
