//! Asks one tracker, by HTTP or UDP.

use std::time::Duration;

use futures_util::future::join_all;
use swath_formats::PeerAddress;
use swath_formats::torrent::bencode::BencodeError;
use swath_formats::tracker::http::{AnswerError, announce_url, read_announce};
use swath_formats::tracker::{Announce, AnnounceAnswer, Peer};
use swath_source::{Class, LaneError, Net, Trust, fetch_small};
use tokio::time::timeout;
use url::Url;

use super::udp;

/// Why a tracker gave no answer.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AnnounceError {
    /// It was not reached, or answered with an error of HTTP.
    #[error("{0}")]
    Net(#[from] LaneError),
    /// It refuses the announce, for this reason.
    #[error("the tracker refuses: {0}")]
    Refused(String),
    /// It did not answer with what trackers answer.
    #[error("the answer is not one of a tracker")]
    Malformed(#[source] Option<BencodeError>),
    /// It did not answer by UDP, however often it was asked.
    #[error("no answer by UDP within {} s", .0.as_secs())]
    TimedOut(Duration),
    /// Its address is not one of a tracker.
    #[error("the scheme '{0}' is not one of trackers")]
    Scheme(String),
    /// Its address has no port, which UDP needs.
    #[error("the address has no port")]
    NoPort,
}

impl AnnounceError {
    /// Returns how long the tracker wants to be left alone, if it said so.
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            AnnounceError::Net(error) => match error.class() {
                Class::Busy(wait) => Some(wait),
                _ => None,
            },
            _ => None,
        }
    }
}

impl From<AnswerError> for AnnounceError {
    fn from(error: AnswerError) -> AnnounceError {
        match error {
            AnswerError::Refused(reason) => AnnounceError::Refused(reason),
            AnswerError::Malformed(error) => AnnounceError::Malformed(Some(error)),
            AnswerError::Foreign => AnnounceError::Malformed(None),
        }
    }
}

/// Announces to the tracker at this address (BEP 3, BEP 15). `trust` says who named it.
///
/// # Errors
/// [`AnnounceError`].
pub async fn ask(
    net: &Net,
    tracker: &Url,
    trust: Trust,
    announce: &Announce,
) -> Result<AnnounceAnswer, AnnounceError> {
    let not_one = || AnnounceError::Scheme(tracker.scheme().to_owned());
    match tracker.scheme() {
        "http" | "https" => {
            let url =
                Url::parse(&announce_url(tracker.as_str(), announce)).map_err(|_| not_one())?;
            let document = fetch_small(net, &url, trust, "*/*", ANSWER_BYTES_MAX).await?;
            let mut answer = read_announce(&document.bytes)?;
            resolve(net, &mut answer).await;
            Ok(answer)
        }
        "udp" => udp::ask(net, tracker, trust, announce).await,
        _ => Err(not_one()),
    }
}

/// Adds the addresses of the peers that an answer names by their hosts. Whoever has no address is left
/// out, as is one to whom the network must not lead us.
async fn resolve(net: &Net, answer: &mut AnnounceAnswer) {
    let named: Vec<PeerAddress> = answer.named.drain(..).collect();
    let asked = named.iter().map(async |peer| {
        let found = net.peer_addresses(&peer.host, peer.port, Trust::Discovered);
        let found = timeout(RESOLVED_WITHIN, found).await.ok()?;
        found.inspect_err(|error| tracing::debug!(%peer, %error, "no address of a peer")).ok()
    });
    let addresses = join_all(asked).await.into_iter().flatten().flatten();
    answer.peers.extend(addresses.map(|address| Peer { address, id: None }));
}

/// Names that are answered later are found at the next announce: the resolver knows them then.
const RESOLVED_WITHIN: Duration = Duration::from_secs(10);
/// Two thousand peers, each a dictionary.
const ANSWER_BYTES_MAX: usize = 256 << 10;
