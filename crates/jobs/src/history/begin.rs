//! How a transfer begins: with as many lanes as paid in earlier transfers from the same site.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use swath_state::{HERE, History, PastTransfer};

use super::sites::{Sites, joined};
use crate::spec::{GetFrom, JobSpec, Work};
use crate::tune::TUNED;

/// Returns the lanes to begin with, if the history knows and the user does not say. A history that
/// cannot be read is not known; the transfer itself tells why.
pub(crate) fn first_lanes(history: &Path, spec: &JobSpec) -> Option<u32> {
    if spec.plan.connections.is_some() || spec.plan.connections_in_all.is_some() {
        return None;
    }
    let sites = Sites::of(spec);
    let from = match &spec.work {
        Work::Get(get) => match &get.from {
            GetFrom::Replicas(all) => joined(all),
            _ => return None,
        },
        Work::Copy(_) => sites.from(&[]),
    };
    let is_one = !from.is_empty() && !from.contains(' ') && from != HERE;
    if !is_one || sites.to != HERE || !history.exists() {
        return None;
    }
    let past = History::open(history).ok()?.last_between(&from, &sites.to, LOOKED_AT).ok()?;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    lanes(&past.iter().collect::<Vec<_>>(), now.as_secs_f64())
}

/// What transfers from a site begin with.
#[derive(Clone, Debug, PartialEq)]
pub struct SiteBegin {
    /// The site.
    pub site: String,
    /// Connections.
    pub connections: u32,
    /// The rate of the transfer that had them, in bytes per second.
    pub rate_bytes_per_s: f64,
    /// When that was, in seconds since 1970.
    pub at_s: f64,
}

/// Returns what transfers begin with, from each site that a history tells it of. The history is in the
/// order of its transfers' starts.
pub fn begins(history: &[PastTransfer], now_s: f64) -> Vec<SiteBegin> {
    let mut sites: BTreeMap<&str, Vec<&PastTransfer>> = BTreeMap::new();
    for past in history.iter().rev().filter(|past| past.transfer.to == HERE) {
        let newest = sites.entry(&past.transfer.from).or_default();
        if newest.len() < LOOKED_AT {
            newest.push(past);
        }
    }
    let told = sites.iter().filter_map(|(site, newest)| {
        let (rate_bytes_per_s, past) = fastest(newest, now_s)?;
        let connections = past.ended.as_ref()?.figures.lanes?;
        let (site, at_s) = ((*site).to_owned(), past.transfer.begun_s);
        Some(SiteBegin { site, connections, rate_bytes_per_s, at_s })
    });
    told.collect()
}

/// Returns the lanes of the fastest one of these transfers.
fn lanes(past: &[&PastTransfer], now_s: f64) -> Option<u32> {
    fastest(past, now_s)?.1.ended.as_ref()?.figures.lanes
}

/// Returns the fastest one of the last [`COUNTED`] of these transfers (the newest first) that tell how
/// many lanes pay, and its rate.
fn fastest<'a>(past: &[&'a PastTransfer], now_s: f64) -> Option<(f64, &'a PastTransfer)> {
    let mut told: Vec<(f64, &PastTransfer)> = Vec::new();
    for &past in past {
        let Some(rate) = telling_rate(past, now_s) else { continue };
        told.push((rate, past));
        // What was measured before the newest 'swath tune' no longer counts.
        if told.len() == COUNTED || is_tuned(past) {
            break;
        }
    }
    told.into_iter().max_by(|a, b| a.0.total_cmp(&b.0))
}

/// Returns the rate of a transfer that tells how many lanes pay.
fn telling_rate(past: &PastTransfer, now_s: f64) -> Option<f64> {
    let ended = past.ended.as_ref().filter(|ended| ended.is_complete)?;
    ended.figures.lanes.filter(|lanes| *lanes > 0)?;
    let is_free = past.transfer.limit_bytes_per_s.is_none();
    let is_recent = now_s - past.transfer.begun_s < RECENT_S;
    let is_long = ended.took_s >= LONG_S || is_tuned(past);
    // How many of several sources' lanes are one's own is not known.
    let is_alone = ended.figures.sources == Some(1) && ended.figures.routed == Some(0);
    let rate = ended.bytes as f64 / ended.took_s;
    (is_free && is_recent && is_long && is_alone).then_some(rate)
}

/// Returns whether `swath tune` measured it, here or where it was exported: that is no transfer.
pub fn is_tuned(past: &PastTransfer) -> bool {
    past.transfer.kind == TUNED
}

/// Transfers that count.
const COUNTED: usize = 5;

/// The newest transfers between the same places among which they are sought: most may be short.
const LOOKED_AT: usize = 1_000;

/// What is older may not be so any more.
const RECENT_S: f64 = 7.0 * 86_400.0;

/// In less time it is not found out how many lanes pay.
const LONG_S: f64 = 3.0;

#[cfg(test)]
mod tests {
    use swath_state::{Ended, Figures, Transfer};

    use super::*;

    fn past(begun_s: f64, took_s: f64, lanes: u32) -> PastTransfer {
        let figures =
            Figures { lanes: Some(lanes), sources: Some(1), routed: Some(0), ..Figures::default() };
        let ended = Ended { took_s, is_complete: true, bytes: 1_000_000_000, figures };
        PastTransfer {
            id: 1,
            transfer: Transfer { begun_s, ..Transfer::default() },
            ended: Some(ended),
            beside: 0,
            beside_bytes: 0,
            is_imported: false,
        }
    }

    #[test]
    fn the_fastest_of_the_last_transfers_tells() {
        let now_s = 1e9;
        let earlier = |ago_s: f64, took_s, lanes| past(now_s - ago_s, took_s, lanes);
        let lanes = |past: &[PastTransfer]| lanes(&past.iter().collect::<Vec<_>>(), now_s);
        assert_eq!(lanes(&[]), None);
        let two = [earlier(100.0, 20.0, 2), earlier(50.0, 10.0, 8)];
        assert_eq!(lanes(&two), Some(8));
        let old = [earlier(100.0, 20.0, 2), earlier(1e6, 10.0, 8)];
        assert_eq!(lanes(&old), Some(2));
        assert_eq!(lanes(&[earlier(9.0, 1.0, 4), earlier(9.0, 9.0, 0)]), None);
        let mut tuned = earlier(50.0, 20.0, 1);
        tuned.transfer.kind = TUNED.to_owned();
        let slower = earlier(9.0, 30.0, 3);
        assert_eq!(lanes(&[slower, tuned, earlier(100.0, 10.0, 8)]), Some(1));
        let mut limited = earlier(9.0, 9.0, 4);
        limited.transfer.limit_bytes_per_s = Some(1_000_000);
        assert_eq!(lanes(&[limited]), None);
        // Short ones do not push the others out.
        let mut many = vec![earlier(9.0, 1.0, 1); 20];
        many.push(earlier(100.0, 10.0, 8));
        assert_eq!(lanes(&many), Some(8));
        let mut many = vec![earlier(9.0, 20.0, 1); COUNTED];
        many.push(earlier(100.0, 10.0, 8));
        assert_eq!(lanes(&many), Some(1));
    }
}
