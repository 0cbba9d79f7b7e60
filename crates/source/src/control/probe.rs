//! What a replica offers, found out by asking rather than by believing.

use std::net::SocketAddr;
use std::time::Duration;

use futures_util::future::BoxFuture;
use swath_model::Range;
use tokio::time::timeout;
use url::Url;

use super::exchange::Exchange;
use super::{Answered, Request, ask};
use crate::error::LaneError;
use crate::facts::Facts;
use crate::http::answer::{Answer, judge, judge_whole};
use crate::http::request::Lines;
use crate::net::Net;
use crate::shown::display_name;
use crate::source::{Expected, Trust};
use crate::target::{Origin, Target};

/// What a replica offers.
#[derive(Clone, Debug)]
pub struct ProbeReport {
    /// The address asked, as a user may see it.
    pub name: String,
    /// Where requests led, one after the other, as a user may see it.
    pub redirects: Vec<String>,
    /// Size, validators, digests, links; `ranges` says whether a range was really honoured.
    pub facts: Facts,
    /// The other end.
    pub peer: SocketAddr,
    /// Round-trip time as connecting showed it.
    pub rtt: Duration,
    /// From sending a request for one byte to the first byte of the answer.
    pub first_byte: Duration,
    /// The protocol versions spoken, best first.
    pub http: Vec<&'static str>,
    /// TLS version and cipher.
    pub tls: Option<String>,
    /// Whether the connection stays open after an answer.
    pub keeps_alive: bool,
    /// Whether requests sent ahead are answered in order; `None` if that could not be tried.
    pub pipelines: Option<bool>,
}

/// Asks the replica at `url` for one byte, its head, and two bytes at once. What does not come
/// within the time-out is an error, or, once the file is known, left out.
///
/// # Errors
/// Any [`LaneError`]; 401 and 403 tell that credentials are needed.
pub fn probe<'a>(
    net: &'a Net,
    url: &'a Url,
    trust: Trust,
) -> BoxFuture<'a, Result<ProbeReport, LaneError>> {
    Box::pin(async move {
        let one_byte = Range::new(0, 1);
        let request = Request {
            range: Some(one_byte),
            more: net.digest_wishes(),
            limit_bytes: BODY_LIMIT_BYTES,
            ..Request::GET
        };
        let mut answered = ask(net, url, trust, &request).await?;
        let mut facts = match facts_of(&answered, one_byte) {
            Err(LaneError::Refused(_) | LaneError::WrongRange { .. }) => {
                // It may mean the range alone.
                answered = ask(net, url, trust, &Request { range: None, ..request }).await?;
                facts_of_whole(&answered)?
            }
            told => told?,
        };
        facts.check(&answered.head, &Expected::default())?;
        let keeps_alive = answered.head.keeps_alive();
        let pipelines = match answered.conn.take() {
            Some(conn) if facts.ranges && facts.size_bytes.is_some_and(|size| size >= 2) => {
                let target = Target::new(net, url, &answered.target.url, trust);
                let mut exchange = Exchange::new(conn, net, PIPELINE_PATIENCE);
                let patience = PIPELINE_PATIENCE.min(net.timeout());
                let tried = timeout(patience, two_at_once(&mut exchange, &target)).await;
                Some(matches!(tried, Ok(Ok(true))))
            }
            _ => None,
        };
        // Some servers send digests only in answer to HEAD; some do not know HEAD at all.
        if let Ok(more) = super::head(net, url, trust).await {
            for digest in more.digests {
                if !facts.digests.contains(&digest) {
                    facts.digests.push(digest);
                }
            }
            facts.size_bytes = facts.size_bytes.or(more.size_bytes);
            if facts.links.is_empty() {
                facts.links = more.links;
            }
        }
        let oldest = if answered.head.minor_version == 0 { "HTTP/1.0" } else { "HTTP/1.1" };
        let mut http = vec![oldest];
        if let Some(origin) = Origin::of(&answered.target.url)
            && origin.tls
            && net.speaks_http2(&answered.target.url, trust).await
        {
            http.insert(0, "HTTP/2");
        }
        let shown =
            answered.redirects.iter().skip(1).chain([&answered.target.url]).map(display_name);
        Ok(ProbeReport {
            name: display_name(url),
            redirects: if answered.redirects.is_empty() { Vec::new() } else { shown.collect() },
            facts,
            peer: answered.facts.peer,
            rtt: answered.facts.rtt,
            first_byte: answered.first_byte,
            http,
            tls: answered.facts.tls,
            keeps_alive,
            pipelines,
        })
    })
}

fn facts_of(answered: &Answered, asked: Range) -> Result<Facts, LaneError> {
    facts_by(answered, judge(&answered.head, asked, answered.target.teller()))
}

fn facts_of_whole(answered: &Answered) -> Result<Facts, LaneError> {
    facts_by(answered, judge_whole(&answered.head, answered.target.teller()))
}

fn facts_by(answered: &Answered, answer: Answer) -> Result<Facts, LaneError> {
    let (size_bytes, ranges) = match answer {
        Answer::Data { size_bytes, ranges, .. } => (size_bytes, ranges),
        Answer::PastEnd { size_bytes } | Answer::NotHeld { size_bytes, .. } => {
            (Some(size_bytes), true)
        }
        Answer::Refused(error) => return Err(answered.target.explain(error)),
        Answer::Redirect { .. } => {
            return Err(LaneError::protocol("an answer out of place"));
        }
    };
    Ok(Facts { size_bytes, ranges, ..Facts::brief(&answered.head, &answered.target.url) }
        .complete(&answered.head))
}

/// Asks for two bytes with two requests at once; whether both answers are right.
async fn two_at_once(exchange: &mut Exchange, target: &Target) -> Result<bool, LaneError> {
    let ranges = [Range::new(1, 2), Range::new(0, 1)];
    let mut requests = Vec::new();
    for range in ranges {
        requests.extend(target.get(Some(range), "*/*", Lines::NONE)?);
    }
    exchange.send(&requests).await?;
    for range in ranges {
        let head = exchange.opening().await?.head;
        let (body, _) = exchange.body(BODY_LIMIT_BYTES).await?;
        let right =
            matches!(judge(&head, range, target.teller()), Answer::Data { ranges: true, .. });
        if !right || body.len() != 1 {
            return Ok(false);
        }
    }
    Ok(true)
}

/// A server without ranges sends the whole file; that much of it is enough.
const BODY_LIMIT_BYTES: usize = 4096;
/// Requests sent ahead that are not answered within this time are lost.
const PIPELINE_PATIENCE: Duration = Duration::from_secs(5);
