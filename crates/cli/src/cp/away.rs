//! What is ours to a server that takes trees, and how it went.

use std::path::PathBuf;

use swath_formats::percent;
use swath_model::SourceName;
use swath_transfer::observe::{Event, LimitedBy, Observer};
use swath_transfer::sending::Wishes;
use swath_transfer::{Engine, Filter, LaneError, Party, Stop};
use url::Url;

use super::args::Cp;
use super::dry::Plan;
use super::here::{self, Renamed};
use super::send::{self, Sent};
use super::ssh::Session;
use super::{comparison, told};
use crate::exit::{self, Exit};
use crate::get::Kept;
use crate::progress::Progress;
use crate::{hints, say};

/// How things are sent.
pub struct Away<'a> {
    /// As the user wishes.
    pub cp: &'a Cp,
    /// What would be done goes there.
    pub plan: &'a Plan,
    /// What observers have heard of a failure.
    pub kept: &'a Kept,
    /// Opens connections.
    pub engine: &'a Engine,
    /// Where ssh led.
    pub session: Option<&'a Session>,
}

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

impl Away<'_> {
    /// Send it, and say how it went; an error if it is a single file and the server does not take
    /// trees, or not from us.
    pub async fn send(
        &self,
        what: Outgoing,
        filter: Filter,
        observer: &mut dyn Observer,
        progress: &Progress,
        stop: &Stop,
    ) -> Result<Exit, Foreign> {
        let cp = self.cp;
        let names = self.session.map(|session| session.names.as_slice()).unwrap_or_default();
        let Outgoing { from, to, single, shown } = what;
        let is_single = single.is_some();
        let wishes = wishes(cp, single);
        let load = send::Load {
            from: &from,
            shown_to: &shown,
            filter,
            reads: cp.io.into(),
            limit_bytes_per_s: cp.limit_rate,
            plan: self.plan,
            // By ssh the server ends with the connection, and is no more. A plan is told once.
            asks_again: self.session.is_none() && !cp.dry_run,
        };
        let limit = self.session.and_then(|session| session.limit.clone());
        let mut renamed = Renamed { observer, names, limit };
        let sent = send::send(self.engine.net(), load, &to, &wishes, &mut renamed, stop).await;
        if let Sent::All(received) = &sent
            && !cp.dry_run
        {
            let mut summary = received.transfer.clone();
            summary.path = title(&shown);
            summary.sent = true;
            // Who received it has judged by what came to it.
            if let LimitedBy::OneSource { .. } | LimitedBy::Sources = summary.limited_by {
                summary.limited_by = LimitedBy::Receiver;
            }
            renamed.observer.observe(&Event::Finished(summary));
        }
        progress.clear();
        let goes_on = "what is there is kept: the same command goes on from there";
        Ok(match sent {
            Sent::Foreign(error) => return Err(Foreign(error)),
            Sent::All(received) => {
                told::told_rate(cp, self.session, &received);
                told::told(cp, self.plan, &received, &shown)
            }
            Sent::Failed(failed) => {
                let error = match failed.in_the_way {
                    // A single file is never copied with --delete.
                    Some(conflict) if !is_single => {
                        format!("{}, and {}", failed.error, exit::advice_on(conflict))
                    }
                    _ => failed.error,
                };
                told::failed(cp, self.kept, &shown, &error, failed.kept_bytes);
                say::err(&format!("swath: {}", exit::about(&shown, &error)));
                if is_single && failed.in_the_way.is_some_and(|conflict| conflict.is_folder) {
                    say::hint(&format!("into that folder: {shown}/"));
                }
                super::tell_kept(failed.kept_bytes.unwrap_or(0), exit::GOES_ON);
                Exit::of_code(failed.exit)
            }
            Sent::Unreadable(failure) => {
                told::failed(cp, self.kept, &shown, &failure.what, None);
                failure.tell()
            }
            Sent::Broken(exit, why) => {
                let error = here::renamed(names, &format!("{shown}: {why}"));
                told::failed(cp, self.kept, &shown, &error, None);
                say::err(&format!("swath: {error}"));
                let of = Party::Source(SourceName::direct(&shown));
                if let Some(error) = why.lane_error() {
                    hints::of_server(error).into_iter().for_each(say::hint);
                    hints::of_https(&of, error).iter().for_each(|hint| say::hint(hint));
                }
                if exit == Exit::Incomplete {
                    say::hint(goes_on);
                }
                exit
            }
            Sent::Stopped { has_something } => {
                let goes_on = if has_something { goes_on } else { "nothing was sent" };
                // What a receiver makes of that it has nobody to tell.
                told::failed(cp, self.kept, &shown, "stopped", None);
                say::err(&format!("swath: stopped; {goes_on}"));
                Exit::Interrupted
            }
        })
    }
}

/// What a receiver has to know of the command line.
fn wishes(cp: &Cp, single: Option<String>) -> Wishes {
    Wishes {
        preserve: cp.preserve(),
        compare: comparison(cp),
        resume: cp.resume || !cp.no_resume,
        delete: cp.delete,
        allow_empty: cp.allow_empty,
        first_walk: None,
        dry: cp.dry_run,
        patience_s: Some(cp.net.timeout.as_secs_f64()),
        include: cp.include.clone(),
        exclude: cp.exclude.clone(),
        single,
    }
}

/// What is sent, for whoever looks on: of an address the name as it is, not as addresses write it.
pub fn title(shown: &str) -> String {
    if shown.contains("://") { percent::decode_text(shown) } else { shown.to_owned() }
}
