//! Uploads to swath servers.

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

/// An upload.
pub struct Outgoing {
    /// The local folder or file.
    pub from: PathBuf,
    /// The destination folder.
    pub to: Url,
    /// The destination name of a single file.
    pub single: Option<String>,
    /// The destination for the user.
    pub shown: String,
}

/// The server is not a swath server, or refuses uploads of trees; with its refusal.
pub struct Foreign(pub Option<LaneError>);

/// Sends an upload. The outer error is for a single file, which may be sent by `PUT` instead.
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
            // A server started by ssh ends with its connection; a plan is reported once.
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
        // The partial data belongs to this copy.
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
                // The receiver judges by what arrived; the sender knows better.
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

/// Returns the options for the receiver.
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

/// Returns the title of an upload: a decoded address, or a path.
pub fn title(shown: &str) -> String {
    if shown.contains("://") { percent::decode_text(shown) } else { shown.to_owned() }
}
