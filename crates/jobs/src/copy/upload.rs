//! Uploads to swath servers.

use std::path::PathBuf;

use swath_formats::percent;
use swath_source::{Forward, LaneError};
use swath_transfer::observe::{Event, LimitedBy, Observer};
use swath_transfer::sending::{Failed, Wishes};
use swath_transfer::{Filter, Stop};
use url::Url;

use super::CopyJob;
use super::error::CopyError;
use super::names::{DisplayNames, NameReplacer};
use super::send::{self, SendResult};
use crate::error::JobError;
use crate::run::Outcome;

/// An upload.
pub struct Upload {
    /// What is sent.
    pub from: Content,
    /// The destination folder.
    pub to: Url,
    /// The destination name of a single file.
    pub single: Option<String>,
    /// The destination for the user.
    pub shown: String,
}

/// What is sent to a server.
pub enum Content {
    /// A local folder or file.
    Here(PathBuf),
    /// What another server has; its lanes lead through this machine.
    Through {
        /// Passes on what the receiver asks for.
        forward: Forward,
        /// Its address for the user.
        shown: String,
    },
}

impl Content {
    /// Returns its name for the user.
    pub fn shown(&self) -> String {
        match self {
            Content::Here(path) => path.display().to_string(),
            Content::Through { shown, .. } => shown.clone(),
        }
    }
}

/// The server is not a swath server, or refuses uploads of trees; with its refusal.
pub struct NotTreeServer(pub Option<LaneError>);

/// Sends an upload. The outer error is for a single file, which may be sent by `PUT` instead.
pub async fn send(
    copy_job: &CopyJob<'_>,
    upload: &Upload,
    filter: Filter,
    observer: &mut dyn Observer,
) -> Result<Result<Outcome, JobError>, NotTreeServer> {
    let (job, copy) = (copy_job.job, copy_job.copy);
    let mut wishes = wishes(copy_job, upload.single.clone());
    let names = match &upload.from {
        Content::Here(_) => {
            copy_job.session.map(|session| session.names.clone()).unwrap_or_default()
        }
        // The receiver knows it by another name.
        Content::Through { shown, .. } => {
            DisplayNames::new(vec![("the sender".to_owned(), shown.clone())])
        }
    };
    let own_limit = || match &upload.from {
        Content::Here(_) => copy_job.session.and_then(|session| session.limit.clone()),
        Content::Through { .. } => Some(LimitedBy::ThroughHere),
    };
    let sent = loop {
        let limit = own_limit();
        let mut renamed = NameReplacer { observer: &mut *observer, names: &names, limit };
        let stop = Stop::default();
        let filter = filter.clone();
        let sending = send::send(copy_job, upload, filter, &wishes, &mut renamed, &stop);
        let sent = job.control.until_paused(&stop, sending).await;
        if !matches!(sent, SendResult::Stopped { .. }) || !job.control.goes_on().await {
            break sent;
        }
        // The partial data belongs to this copy.
        wishes.resume = true;
    };
    let destination = upload.shown.clone();
    Ok(Err(JobError::from(match sent {
        SendResult::NotTreeServer(error) => return Err(NotTreeServer(error)),
        SendResult::All(received) => {
            if !copy.dry_run {
                let mut summary = received.transfer.clone();
                summary.path = title(&upload.shown);
                summary.sent = true;
                // The receiver judges by what arrived; the sender knows better.
                if let LimitedBy::OneSource { .. } | LimitedBy::Sources = summary.limited_by
                    && let Content::Here(_) = upload.from
                {
                    summary.limited_by = LimitedBy::Receiver;
                }
                let limit = own_limit();
                NameReplacer { observer, names: &names, limit }.observe(&Event::Finished(summary));
            }
            return Ok(Ok(copy_job.copied(*received, destination)));
        }
        SendResult::Failed(failed) => {
            let is_single = upload.single.is_some();
            let failed = Failed { error: names.shown(&failed.error), ..failed };
            CopyError::Receiver { destination, failed, is_single }
        }
        SendResult::Unreadable(error) => error.into(),
        SendResult::Broken(progress, why) => {
            CopyError::Broken { destination, why: Box::new(why), progress, names }
        }
        SendResult::Stopped { has_something } => {
            CopyError::SendStopped { destination, has_something }
        }
    })))
}

/// Returns the options for the receiver.
pub fn wishes(copy_job: &CopyJob<'_>, single: Option<String>) -> Wishes {
    let copy = copy_job.copy;
    Wishes {
        preserve: copy.preserve.into(),
        compare: copy.compare.into(),
        resume: copy.resume,
        delete: copy.delete,
        allow_empty: copy.allow_empty,
        first_walk: None,
        dry: copy.dry_run,
        patience_s: Some(copy_job.job.spec.network.stall_s()),
        include: copy.include.clone(),
        exclude: copy.exclude.clone(),
        single,
    }
}

/// Returns the title of an upload: a decoded address, or a path.
pub fn title(shown: &str) -> String {
    if shown.contains("://") { percent::decode_text(shown) } else { shown.to_owned() }
}
