//! Requests of clients that let this server fetch from others.

use std::sync::Arc;

use swath_formats::scope::Act;

use super::Site;
use super::receive::{Place, check_writing, placed};
use super::rights::Rights;
use crate::http::{Content, Head, Make, Response};
use crate::third_party::{FetchOrder, Refused, SOURCES_BYTES_MAX, ThirdParty, answer};

/// What is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Asked {
    Terms,
    Fetch,
    Lines,
    List,
    Cancel,
}

impl Asked {
    /// What a request asks for, if it is about such copies.
    pub fn of(head: &Head) -> Option<Asked> {
        let is_post = head.method == crate::http::Method::POST;
        match (head.target.parameter("swath")?, is_post) {
            ("third-party", false) => Some(Asked::Terms),
            ("job", false) => Some(Asked::Lines),
            ("jobs", false) => Some(Asked::List),
            ("fetch", true) => Some(Asked::Fetch),
            ("cancel", true) => Some(Asked::Cancel),
            _ => None,
        }
    }
}

/// Answers a request about copies between servers.
pub(super) async fn respond(
    site: &Site,
    asked: Asked,
    head: &Head,
    rights: Rights,
    body: &mut dyn Make,
) -> Response {
    let Some(third_party) = site.third_party.clone() else {
        let text = "this server fetches nothing from others (it was started without --third-party)";
        return Response::text(403, text);
    };
    if !rights.may_write_somewhere() {
        return rights.refusal(Act::Create);
    }
    let id = head.target.parameter("job").unwrap_or_default().to_owned();
    let json = |text: String| {
        Response::empty(200)
            .with("content-type", "application/json")
            .with("cache-control", "no-store")
            .containing(Content::Bytes(text.into_bytes()))
    };
    let done = match asked {
        Asked::Terms => Ok(json(third_party.terms())),
        Asked::Fetch => return fetch(site, &third_party, id, head, rights, body).await,
        Asked::Lines => third_party.lines(rights.who, &id).map(answer),
        Asked::List => third_party.list(rights.who).map(json),
        Asked::Cancel => third_party.cancel(rights.who, &id).map(|()| Response::empty(204)),
    };
    done.unwrap_or_else(Refused::response)
}

async fn fetch(
    site: &Site,
    third_party: &Arc<dyn ThirdParty>,
    id: String,
    head: &Head,
    rights: Rights,
    body: &mut dyn Make,
) -> Response {
    if let Err(refusal) = check_writing(site, &head.target, &rights).await {
        return refusal;
    }
    let mut sources = Vec::new();
    loop {
        match body.next().await {
            Ok(part) if part.is_empty() => break,
            Ok(part) => sources.extend(part),
            Err(_) => return Response::text(400, "the list of sources did not arrive"),
        }
        if sources.len() > SOURCES_BYTES_MAX {
            return Response::text(413, "the list of sources is too long");
        }
    }
    let destination = match placed(site, &head.target, &rights).await {
        Ok(destination) => destination,
        Err(refusal) => return refusal,
    };
    let wishes = head.target.query.clone();
    let path = head.target.path.clone();
    let order = FetchOrder { rights, id, destination, path, wishes, sources };
    // Keeping it waits for the disk.
    let third_party = Arc::clone(third_party);
    let begun = tokio::task::spawn_blocking(move || third_party.order(order)).await;
    match begun {
        Ok(Ok(job)) => answer(job.lines).with(JOB_FIELD, job.id),
        Ok(Err(refused)) => refused.response(),
        Err(_) => Response::text(500, super::FAILED),
    }
}

impl Site {
    /// Begins the jobs again that an earlier run of the server has not ended.
    pub(crate) fn resume_jobs(&self) {
        let Some(third_party) = &self.third_party else { return };
        for job in third_party.unfinished() {
            let rights = job.rights.as_ref();
            let place = rights.and_then(|rights| Place::of(self, &job.path, rights).ok());
            third_party.resume(&job.id, place.and_then(|place| place.open(false).ok()));
        }
    }
}

/// Names the job of an order, which may be one that runs already.
const JOB_FIELD: &str = "swath-job";
