//! What becomes of an answer: a body that passes, a redirect, a failure, an end.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use crate::source::Source;
use swath_formats::{Hop, ProxyFault, content_range, keep_alive};
use swath_transport::Transport;
use tokio::time::Instant;
use url::Url;

use super::content::to_file;
use super::drive::SETTLED_LIMIT_BYTES;
use super::event::LaneEventKind;
use super::lane_conn::{Kind, LaneConn, Passing};
use super::own::{Next, OwnLane};
use crate::error::{Class, LaneError, RefusalContext};
use crate::facts::Facts;
use crate::http::answer::{Answer, judge, judge_whole};
use crate::http::body::Body;
use crate::http::head::{Head, HeadError, SWITCHING_PROTOCOLS};
use crate::http_source::Learnt;
use crate::net::broke;
use crate::quirks::HostQuirks;
use crate::redirect::{self, Visit};
use crate::target::Origin;

impl OwnLane {
    /// An answer to the front ask begins.
    pub(super) fn on_head(&mut self, lane_conn: &mut LaneConn, head: &Head) -> Option<Next> {
        let Some(front) = self.asks.front() else {
            return Some(Next::End(Some(LaneError::protocol("an answer to nothing"))));
        };
        // In bytes of the file.
        let asked =
            front.part.as_ref().map_or(front.requested, |part| part.in_file(front.requested));
        let whole = front.whole;
        if head.status == SWITCHING_PROTOCOLS {
            return Some(self.nonsense(lane_conn, "it changes to another protocol unasked"));
        }
        let teller = self.source.target().teller();
        let answer = if whole { judge_whole(head, teller) } else { judge(head, asked, teller) };
        self.note_hops(head);
        self.note_connection(lane_conn, head);
        match answer {
            Answer::Redirect { location } => self.follow(lane_conn, head, &location),
            Answer::Refused(error) => {
                if matches!(error, LaneError::WrongRange { .. })
                    && let Some(size_bytes) = told_size(head)
                {
                    self.source.note_told(size_bytes);
                }
                self.refused(lane_conn, error)
            }
            Answer::Data { ends_at, size_bytes, ranges: true, .. }
                if self.source.doubts_end(ends_at, size_bytes, asked) =>
            {
                let reason = "a part that ends where it was asked to end is all of the file";
                self.refused(lane_conn, LaneError::WrongRange { reason: reason.to_owned() })
            }
            Answer::PastEnd { size_bytes } if asked.start < size_bytes => {
                let reason = format!(
                    "it refuses what begins at byte {}, and says that its file has {size_bytes}",
                    asked.start
                );
                self.refused(lane_conn, LaneError::WrongRange { reason })
            }
            Answer::NotHeld { size_bytes, lacking } => {
                if let Err(error) = self.learn_told(head, size_bytes) {
                    return self.fail(lane_conn, error);
                }
                self.fail(lane_conn, LaneError::NotHeld { range: asked, lacking })
            }
            Answer::PastEnd { size_bytes } => {
                if let Err(error) = self.learn_told(head, size_bytes) {
                    return self.fail(lane_conn, error);
                }
                if asked.start > size_bytes {
                    return self.fail(lane_conn, LaneError::BeyondEnd { size_bytes });
                }
                self.settle_done();
                self.pass(lane_conn, Kind::Settled)
            }
            Answer::Data { starts_at, ends_at, size_bytes, ranges } => {
                let facts = Facts { size_bytes, ranges, ..Facts::brief(head, &self.sent_to()) };
                if facts.is_metalink_instead() && self.source.metalink_came() {
                    // The owner may prefer it; those who want the file get it by asking again.
                    self.out.send(LaneEventKind::Facts(Box::new(facts.complete(head))));
                    let target = Arc::clone(&self.target);
                    return self.go_to(lane_conn, target);
                }
                let expected = self.source.expected();
                let learnt = facts.check(head, &expected).and_then(|()| self.learn(facts, head));
                match learnt {
                    Ok(Learnt::Doubtful) => {
                        // Another connection may lead to another server of a cluster.
                        lane_conn.http.reusable = false;
                        let target = Arc::clone(&self.target);
                        return self.go_to(lane_conn, target);
                    }
                    Ok(Learnt::News | Learnt::Known) => {}
                    // A page of a server that is at fault for a moment, a copy that is cut off in one of
                    // several caches: the source has given better answers.
                    Err(LaneError::Html | LaneError::SizeMismatch { .. })
                        if self.source.bears_stray() =>
                    {
                        lane_conn.http.reusable = false;
                        let target = Arc::clone(&self.target);
                        return self.go_to(lane_conn, target);
                    }
                    Err(error) => return self.fail(lane_conn, error),
                }
                if self.asks.front().is_some_and(|front| front.pipelined) {
                    self.source.note_host_quirks(HostQuirks::pipeline_works);
                }
                if let Some(presence) = &mut lane_conn.presence {
                    presence.serves();
                }
                let kind = if ranges { Kind::Range } else { Kind::Stream };
                if !ranges && self.asks.sent() > 1 {
                    // The others will be answered with whole files too; this one serves them all.
                    lane_conn.http.reusable = false;
                    self.asks.unsend_all_but_front();
                }
                lane_conn.passing = Some(Passing { at: starts_at, ends_at, kind });
                None
            }
        }
    }

    /// What the relays on the way tell of their hops.
    fn note_hops(&mut self, head: &Head) {
        if !self.source.is_passed() {
            return;
        }
        let hops: Vec<Hop> = head.fields("server-timing").flat_map(Hop::parse).collect();
        let far_ms: f64 = hops.iter().filter_map(|hop| hop.rtt_ms).sum();
        if far_ms > 0.0 {
            self.source.set_far(Duration::from_secs_f64((far_ms / 1e3).min(60.0)));
        }
        if !hops.is_empty() {
            self.out.send(LaneEventKind::Hops(hops));
        }
    }

    /// What the head tells about the connection itself.
    fn note_connection(&mut self, lane_conn: &mut LaneConn, head: &Head) {
        if let Some(rtt) = lane_conn.http.conn().transport().and_then(Transport::rtt) {
            self.out.meter.note_rtt(rtt + self.source.far());
        }
        let answers = lane_conn.http.conn().answers;
        if !head.keeps_alive() || lane_conn.http.body().ends_with_connection() {
            self.source.note_host_quirks(|host_quirks| host_quirks.closed_after(answers, true));
        } else {
            self.source.note_host_quirks(|host_quirks| host_quirks.kept_after(answers));
        }
        let max = head.field("keep-alive").and_then(|value| keep_alive::parse(value).max_requests);
        lane_conn.answers_left = max.or(lane_conn.answers_left.map(|left| left.saturating_sub(1)));
    }

    fn sent_to(&mut self) -> Url {
        let target = self.asks.front().and_then(|front| front.sent_to.clone());
        target.map_or_else(|| self.target.end.clone(), |target| target.end.clone())
    }

    /// An answer without a body of the file tells its size.
    fn learn_told(&mut self, head: &Head, size_bytes: u64) -> Result<(), LaneError> {
        let brief = Facts::brief(head, &self.sent_to());
        let ranges = self.source.quirks().ranges.unwrap_or(true);
        self.learn(Facts { size_bytes: Some(size_bytes), ranges, ..brief }, head).map(|_| ())
    }

    /// Holds the facts against what is known and reports them if they are news.
    fn learn(&mut self, facts: Facts, head: &Head) -> Result<Learnt, LaneError> {
        let learnt = self.source.learn(&facts)?;
        if learnt == Learnt::News {
            let facts = facts.complete(head);
            if facts.server.as_deref().is_some_and(leaves_requests_lying) {
                self.source.note_host_quirks(|host_quirks| host_quirks.confused = true);
            }
            self.source.remember(facts.clone());
            match self.content.joined() {
                Some(_) => self.tell_of_whole(&facts),
                None => self.out.send(LaneEventKind::Facts(Box::new(facts))),
            }
        }
        Ok(learnt)
    }

    fn follow(&mut self, lane_conn: &mut LaneConn, head: &Head, location: &str) -> Option<Next> {
        self.redirects = true;
        let from = self.asks.front()?.sent_to.clone().unwrap_or_else(|| Arc::clone(&self.target));
        let (from, shown) = (from.url.clone(), from.cookies.clone());
        let is_passed = self.source.is_passed();
        let front = self.asks.front()?;
        let visit = Visit { url: from.clone(), cookies: shown };
        let followed = {
            let mut cookies = self.source.cookies();
            cookies.take(&from, head);
            redirect::follow(visit, location, &mut front.visited, &cookies)
        };
        match followed {
            // A relay leads on through itself alone.
            Ok(url) if is_passed && Origin::of(&url) != Origin::of(&from) => {
                let reason = "the relay leads away from itself".to_owned();
                self.fail(lane_conn, LaneError::RedirectInvalid { reason })
            }
            Ok(url) => {
                let target = self.source.redirect_to(&url);
                self.go_to(lane_conn, target)
            }
            Err(error) => self.fail(lane_conn, error),
        }
    }

    fn refused(&mut self, lane_conn: &mut LaneConn, mut error: LaneError) -> Option<Next> {
        let sent_to = self.asks.front().and_then(|front| front.sent_to.clone());
        let front = self.asks.front()?;
        if matches!(error, LaneError::WrongRange { .. }) && front.pipelined {
            // Answers out of order: nothing that follows can be trusted either.
            self.source.note_host_quirks(|host_quirks| host_quirks.confused = true);
            lane_conn.http.reusable = false;
            let is_passed = self.source.is_passed();
            return Some(Next::End(is_passed.then(|| LaneError::protocol("answers out of order"))));
        }
        // It was written before a token was renewed, or lay unread until the old one had expired.
        if error.may_mean_credentials() && self.source.net().has_renewed_tokens(front.renewals) {
            let target = sent_to.unwrap_or_else(|| Arc::clone(&self.target));
            return self.go_to(lane_conn, target);
        }
        // A redirect remembered from earlier may have expired; one just followed has not.
        let stale_redirect =
            error.refusal().is_some() && !front.went_back && front.visited.is_empty();
        if stale_redirect
            && let Some(target) = &sent_to
            && self.source.back_to_original(target)
        {
            front.went_back = true;
            let target = self.source.target();
            return self.go_to(lane_conn, target);
        }
        if self.source.gives_up_digests(&error) {
            let target = sent_to.unwrap_or_else(|| Arc::clone(&self.target));
            return self.go_to(lane_conn, target);
        }
        if !front.whole && self.source.gives_up_ranges(&error) {
            let target = sent_to.unwrap_or_else(|| Arc::clone(&self.target));
            tracing::debug!(source = %self.source.name(), %error, "asked without a range");
            return self.go_to(lane_conn, target);
        }
        if front.whole && self.source.believes_end() {
            let target = sent_to.unwrap_or_else(|| Arc::clone(&self.target));
            return self.go_to(lane_conn, target);
        }
        // Some hosts answer 403, and not 429 or 503, to connections beyond those that they allow.
        let origin = sent_to.as_ref().and_then(|target| target.origin.as_ref());
        if let LaneError::Refused(refusal) = &mut error
            && refusal.class == Class::Forbidden
            && self.source.is_unheard()
            && let Some(origin) = origin
        {
            let borne = self.source.net().hosts().bears_refusals(origin);
            if let Some(wait) = self.source.note(|file_quirks| file_quirks.crowded(borne)) {
                refusal.class = Class::Busy(wait);
                refusal.context = RefusalContext::OneTooMany;
                if let Some(presence) = &mut lane_conn.presence {
                    presence.is_one_too_many();
                }
                lane_conn.http.reusable = false;
                return self.fail(lane_conn, error);
            }
        }
        if let LaneError::Refused(refusal) = &error
            && matches!(refusal.code, 429 | 503)
            && let Some(presence) = &mut lane_conn.presence
        {
            presence.is_put_off(refusal.retry_after);
        }
        let is_encrypted_for_another =
            matches!(error, LaneError::Relay { fault: Some(ProxyFault::OtherKey), .. });
        if is_encrypted_for_another
            && let Some(target) = &sent_to
            && !std::mem::replace(&mut front.encrypted_anew, true)
        {
            return Some(Next::EncryptAnew(Arc::clone(target), error));
        }
        let error = match sent_to {
            Some(target) => {
                self.source.net().blame_proxy(target.origin.as_ref(), target.explain(error))
            }
            None => error,
        };
        self.fail(lane_conn, error)
    }

    /// Asks the front ask again at `target`, over this connection if it leads there.
    fn go_to(
        &mut self,
        lane_conn: &mut LaneConn,
        target: Arc<crate::target::Target>,
    ) -> Option<Next> {
        // Among several files this connection may serve the next one.
        let here = target.origin.as_ref() == Some(&lane_conn.http.conn().origin)
            || self.content.joined().is_some();
        self.target = target;
        if here && lane_conn.http.reusable && is_short(lane_conn.http.body()) {
            return self.pass(lane_conn, Kind::Again);
        }
        lane_conn.http.reusable = false;
        Some(Next::Reconnect)
    }

    /// Reports the front ask as failed and gets rid of its body.
    fn fail(&mut self, lane_conn: &mut LaneConn, error: LaneError) -> Option<Next> {
        let front = self.asks.front()?;
        self.out.flush(front);
        if !front.reported {
            front.reported = true;
            let swath = front.swath;
            let error = self.named(error);
            self.asks.give_up(swath);
            self.out.send(LaneEventKind::Failed { swath, error });
        }
        self.pass(lane_conn, Kind::Settled)
    }

    /// Says of which file of several an error is.
    fn named(&mut self, error: LaneError) -> LaneError {
        let part = self.asks.front().and_then(|front| front.part.as_ref());
        match part.filter(|_| self.content.joined().is_some()) {
            Some(part) => part.name(error),
            None => error,
        }
    }

    /// Reports the front ask as done, unless the swath goes on with the next file.
    pub(super) fn settle_done(&mut self) {
        let Some(front) = self.asks.front() else { return };
        let was_reported = std::mem::replace(&mut front.reported, true);
        if front.continues {
            return;
        }
        self.out.flush(front);
        if !was_reported {
            self.out.done(front.swath);
        }
    }

    /// Lets a body pass that nobody wants, if that is cheaper than a new connection.
    fn pass(&mut self, lane_conn: &mut LaneConn, kind: Kind) -> Option<Next> {
        if !is_short(lane_conn.http.body()) {
            lane_conn.http.reusable = false;
            return Some(self.left_with_rest(kind));
        }
        lane_conn.passing = Some(Passing { at: 0, ends_at: None, kind });
        None
    }

    /// The rest of a body is not worth waiting for.
    pub(super) fn left_with_rest(&mut self, kind: Kind) -> Next {
        if kind == Kind::Again { Next::Reconnect } else { self.after_connection() }
    }

    /// A body is complete.
    pub(super) fn finish_answer(&mut self, lane_conn: &mut LaneConn) -> Option<Next> {
        let passing = lane_conn.passing.take()?;
        match passing.kind {
            Kind::Settled => {
                self.asks.pop_front();
            }
            Kind::Again => self.ask_again(lane_conn),
            Kind::Range | Kind::Stream => self.finish_data(lane_conn, &passing),
        }
        if lane_conn.http.reusable {
            return None;
        }
        Some(if passing.kind == Kind::Again { Next::Reconnect } else { self.after_connection() })
    }

    /// Asks for the front ask again: behind what is out, or with all of that on a new connection if what is
    /// out continues it, as the bytes of a swath come in their order.
    fn ask_again(&mut self, lane_conn: &mut LaneConn) {
        // What is held is of its swath, and another one may come to the front.
        self.hand_over();
        let continues = self.asks.front().is_some_and(|front| front.continues);
        if continues && self.asks.sent() > 1 {
            lane_conn.http.reusable = false;
        } else {
            self.asks.ask_again();
        }
    }

    /// A body of the file is complete.
    fn finish_data(&mut self, lane_conn: &mut LaneConn, passing: &Passing) {
        let bytes = lane_conn.http.body().taken();
        // In bytes of the file, as all that follows.
        let known_size = self.source.known_size();
        let at = passing.at;
        let missing = passing.ends_at.filter(|&end| at < end);
        let size_bytes = if passing.kind == Kind::Stream { Some(at) } else { known_size };
        let unknown_size = passing.kind == Kind::Stream && passing.ends_at.is_none();
        let verdict = if let Some(end) = missing {
            Err(LaneError::Truncated { got: bytes, wanted: end - (at - bytes) })
        } else if let Some(wanted) = known_size.filter(|&size| unknown_size && at < size) {
            // A connection that broke off looks the same as the end of such a body.
            Err(LaneError::Truncated { got: at, wanted })
        } else if unknown_size {
            self.learn_size(at)
        } else {
            Ok(())
        };
        // A stream may end when nobody asks for its file any more.
        if self.asks.sent() == 0 {
            return;
        }
        let Some(front) = self.asks.front() else { return };
        let position = to_file(front.position, self.base);
        let at_end = size_bytes.is_some_and(|size| position >= size);
        if front.is_complete() || (verdict.is_ok() && at_end && size_bytes == Some(position)) {
            self.settle_done();
            self.asks.pop_front();
            self.source.note(crate::quirks::FileQuirks::gave_all);
            return;
        }
        self.out.flush(front);
        let error = match verdict {
            Err(error) => error,
            // Only what the index lists is asked for: an answer that ends the file before that lies.
            Ok(()) if self.source.sealed().is_some() && passing.kind == Kind::Stream => {
                LaneError::SizeMismatch { expected: front.end, actual: at }
            }
            Ok(()) if at_end => LaneError::BeyondEnd { size_bytes: size_bytes.unwrap_or(at) },
            // A server may answer with less than was asked for; the rest is asked for again.
            Ok(()) => {
                if !self.source.note(|file_quirks| file_quirks.gave_less(bytes)) {
                    return self.ask_again(lane_conn);
                }
                LaneError::Meagre { bytes }
            }
        };
        let swath = front.swath;
        let error = self.named(error);
        self.asks.pop_front();
        self.asks.give_up(swath);
        self.out.send(LaneEventKind::Failed { swath, error });
    }

    /// The end of a stream of unknown length shows the size.
    fn learn_size(&mut self, size_bytes: u64) -> Result<(), LaneError> {
        let Some(known) = self.source.facts() else { return Ok(()) };
        let facts = Facts { size_bytes: Some(size_bytes), ..known };
        if self.source.learn(&facts)? == Learnt::News && self.content.joined().is_none() {
            self.out.send(LaneEventKind::Facts(Box::new(facts)));
        }
        Ok(())
    }

    /// What came is not HTTP.
    pub(super) fn no_head(&mut self, lane_conn: &mut LaneConn, error: &HeadError) -> Next {
        let pipelined = self.asks.front().is_some_and(|front| front.pipelined);
        let is_http = *error == HeadError::EndlessInterim;
        if is_http || pipelined || self.source.is_passed() || !self.source.is_unheard() {
            return self.nonsense(lane_conn, &error.to_string());
        }
        // It has never spoken HTTP with us, and will not at the next try.
        lane_conn.http.reusable = false;
        Next::End(Some(LaneError::NotHttp { reason: error.to_string() }))
    }

    /// What came is not HTTP, or not where it should be.
    pub(super) fn nonsense(&mut self, lane_conn: &mut LaneConn, reason: &str) -> Next {
        lane_conn.http.reusable = false;
        if self.asks.front().is_some_and(|front| front.pipelined) {
            self.source.note_host_quirks(|host_quirks| host_quirks.confused = true);
            // Of a relay it says more: that what came before may be wrong.
            if !self.source.is_passed() {
                return Next::End(None);
            }
        }
        Next::End(Some(LaneError::protocol(reason)))
    }

    /// A pipelined request stays unanswered.
    pub(super) fn pipeline_broke(&self, lane_conn: &LaneConn) {
        self.source.note_host_quirks(|host_quirks| {
            host_quirks.pipeline_broken(lane_conn.begun, Instant::now())
        });
    }

    /// The server ended the connection, or it broke.
    pub(super) fn connection_ended(
        &mut self,
        lane_conn: &mut LaneConn,
        error: Option<&io::Error>,
    ) -> Next {
        lane_conn.http.reusable = false;
        if let Some(error) = lane_conn.http.take_failure() {
            return Next::End(Some(error));
        }
        let (cut, answers) = (lane_conn.http.conn().was_cut(), lane_conn.http.conn().answers);
        if let Some(kind) = lane_conn.passing.as_ref().map(|passing| passing.kind) {
            // A reset that a failed write has reported already looks like a proper end to a read.
            let proper = error.is_none() && !lane_conn.write_broken;
            // Anybody on the way can cut a connection; only the server can say that it ends.
            if proper && !cut && lane_conn.http.ends_properly() {
                return self.finish_answer(lane_conn).unwrap_or(Next::End(None));
            }
            // Nothing says that this is all of it; the digest will.
            if kind == Kind::Stream
                && lane_conn.http.body().may_end_here()
                && self.source.takes_cut_for_end()
            {
                lane_conn.http.cut_body();
                return self.finish_answer(lane_conn).unwrap_or(Next::End(None));
            }
            let body = lane_conn.http.body();
            return match kind {
                Kind::Settled => Next::End(None),
                Kind::Again => Next::Reconnect,
                Kind::Range | Kind::Stream
                    if self.asks.sent() == 0
                        || self.asks.front().is_none_or(|front| front.reported) =>
                {
                    self.after_connection()
                }
                Kind::Range | Kind::Stream => Next::End(Some(match (error, body.remaining()) {
                    (Some(error), _) => broke(&lane_conn.http.conn().origin, error),
                    (None, Some(left)) => {
                        LaneError::Truncated { got: body.taken(), wanted: body.taken() + left }
                    }
                    (None, None) if cut => LaneError::Reset {
                        reason: "it was cut off: without a length nothing says that this is all"
                            .to_owned(),
                    },
                    (None, None) => {
                        LaneError::Reset { reason: "it ended within the body".to_owned() }
                    }
                })),
            };
        }
        let out = self.asks.sent();
        if out == 0 {
            return Next::End(None);
        }
        if lane_conn.http.conn().reused && !lane_conn.heard {
            // It was closed while it lay idle; a fresh one will do.
            self.may_reuse = false;
            return Next::Reconnect;
        }
        let pipelined = out > 1 || self.asks.front().is_some_and(|front| front.pipelined);
        if !lane_conn.http.has_input() && pipelined {
            self.pipeline_broke(lane_conn);
        }
        if !lane_conn.http.has_input() && answers > 0 {
            if !pipelined {
                self.source
                    .note_host_quirks(|host_quirks| host_quirks.closed_after(answers, false));
            }
            return self.after_connection();
        }
        let error = match error {
            Some(error) => broke(&lane_conn.http.conn().origin, error),
            None => {
                LaneError::Reset { reason: "the server closed it without an answer".to_owned() }
            }
        };
        // What guards some servers closes the connection where others answer 403.
        self.source.gives_up_ranges(&error);
        Next::End(Some(error))
    }
}

/// Returns the size of the file that `Content-Range` tells, whatever else is wrong with it.
fn told_size(head: &Head) -> Option<u64> {
    content_range::parse(head.field("content-range")?).ok()?.size_bytes
}

/// Returns whether letting the body pass is cheaper than a new connection. Chunked bodies are tried.
pub(super) fn is_short(body: &Body) -> bool {
    !body.ends_with_connection()
        && body.remaining().is_none_or(|bytes| bytes <= SETTLED_LIMIT_BYTES)
}

/// Whether a server of this name answers the second of two requests that come in one TLS record only when a
/// third one comes (XRootD 5.5).
fn leaves_requests_lying(server: &str) -> bool {
    server.trim_start().get(..6).is_some_and(|name| name.eq_ignore_ascii_case("xrootd"))
}
