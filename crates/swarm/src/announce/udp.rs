//! Asks a tracker by UDP (BEP 15), by IPv4 and IPv6 at once if it has addresses of both.

use std::time::Duration;

use futures_util::future::join_all;
use swath_formats::tracker::udp::{Answer, ConnectionId, Request, TransactionId};
use swath_formats::tracker::{Announce, AnnounceAnswer};
use swath_source::{LaneError, Net, Trust};
use tokio::net::UdpSocket;
use tokio::time::{Instant, timeout_at};
use url::Url;

use super::AnnounceError;
use crate::random::random;

/// Announces to the tracker at this address. What it answers by both address families is one answer.
pub(super) async fn ask(
    net: &Net,
    tracker: &Url,
    trust: Trust,
    announce: &Announce,
) -> Result<AnnounceAnswer, AnnounceError> {
    let (Some(host), Some(port)) = (tracker.host_str(), tracker.port()) else {
        return Err(AnnounceError::NoPort);
    };
    let query = tracker.query().map(|query| format!("?{query}")).unwrap_or_default();
    let path = format!("{}{query}", tracker.path());
    let sockets = net.datagrams(host, port, trust).await?;
    let asked = sockets.iter().map(|socket| Conversation { socket }.announce(announce, &path));
    let mut all: Option<AnnounceAnswer> = None;
    let mut failed = None;
    for asked in join_all(asked).await {
        match (asked, &mut all) {
            (Ok(answer), Some(all)) => all.peers.extend(answer.peers),
            (Ok(answer), None) => all = Some(answer),
            (Err(error), _) => failed = Some(error),
        }
    }
    match (all, failed) {
        (Some(answer), _) => Ok(answer),
        (None, Some(error)) => Err(error),
        (None, None) => Err(AnnounceError::Malformed(None)),
    }
}

/// A tracker at one address.
struct Conversation<'a> {
    socket: &'a UdpSocket,
}

impl Conversation<'_> {
    /// Announces, repeating what is not answered, with waits that double.
    async fn announce(
        self,
        announce: &Announce,
        path: &str,
    ) -> Result<AnnounceAnswer, AnnounceError> {
        let mut connection: Option<(ConnectionId, Instant)> = None;
        for wait in WAITS {
            let until = Instant::now() + wait;
            connection = connection.filter(|(_, since)| since.elapsed() < CONNECTION_LASTS);
            if connection.is_none() {
                let transaction = transaction();
                let request = Request::Connect { transaction };
                connection = match self.ask(&request, transaction, until).await? {
                    Some(Answer::Connect { connection, .. }) => Some((connection, Instant::now())),
                    _ => None,
                };
            }
            let Some((connection, _)) = connection else { continue };
            let (transaction, path) = (transaction(), path.as_bytes().to_vec());
            let announce = announce.clone();
            let request = Request::Announce { connection, transaction, announce, path };
            if let Some(Answer::Announce { answer, .. }) =
                self.ask(&request, transaction, until).await?
            {
                return Ok(answer);
            }
        }
        Err(AnnounceError::TimedOut(WAITS.iter().sum()))
    }

    /// Sends a request and returns its answer; `None` if there is none until then. Whatever is not
    /// the answer to this request is ignored: anybody can send datagrams.
    async fn ask(
        &self,
        request: &Request,
        transaction: TransactionId,
        until: Instant,
    ) -> Result<Option<Answer>, AnnounceError> {
        let is_six = self.socket.peer_addr().is_ok_and(|address| address.is_ipv6());
        let mut bytes = Vec::new();
        request.write(&mut bytes);
        let lost = |error: std::io::Error| LaneError::Reset { reason: error.to_string() };
        self.socket.send(&bytes).await.map_err(lost)?;
        let mut received = vec![0; ANSWER_BYTES_MAX];
        loop {
            let Ok(length) = timeout_at(until, self.socket.recv(&mut received)).await else {
                return Ok(None);
            };
            let Ok(answer) = Answer::read(&received[..length.map_err(lost)?], is_six) else {
                continue;
            };
            let (of, is_wanted) = match (&answer, request) {
                (Answer::Connect { transaction, .. }, Request::Connect { .. })
                | (Answer::Announce { transaction, .. }, Request::Announce { .. }) => {
                    (transaction, true)
                }
                (Answer::Error { transaction, .. }, _) => (transaction, true),
                (Answer::Connect { transaction, .. } | Answer::Announce { transaction, .. }, _)
                | (Answer::Scrape { transaction, .. }, _) => (transaction, false),
            };
            match answer {
                _ if *of != transaction || !is_wanted => {}
                Answer::Error { reason, .. } => return Err(AnnounceError::Refused(reason)),
                answer => return Ok(Some(answer)),
            }
        }
    }
}

/// A number that nobody guesses.
fn transaction() -> TransactionId {
    TransactionId(u32::from_be_bytes(random()))
}

/// How long each try is waited for. BEP 15 has nine, which take more than two hours; there are other
/// trackers to be asked.
const WAITS: [Duration; 3] =
    [Duration::from_secs(15), Duration::from_secs(30), Duration::from_secs(60)];
/// Connection ids are used for a minute.
const CONNECTION_LASTS: Duration = Duration::from_secs(60);
/// The longest datagram.
const ANSWER_BYTES_MAX: usize = 64 << 10;
