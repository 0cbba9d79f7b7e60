//! Finds out who changed data: the relays of a route, or its replica.

use super::name::{ReplicaId, RoutedId, SiteId};
use super::relay::Standing;
use super::router::Router;
use super::view::{RoutedState, Why};

/// A route that brought wrong data, and the relays suspected of it.
#[derive(Clone, Debug)]
pub(crate) struct Verdict {
    /// The replica of the route.
    replica: ReplicaId,
    /// The suspects: any of these relays may be at fault.
    relays: Vec<SiteId>,
}

impl Verdict {
    /// Returns whether one of these relays is among the suspects.
    fn is_about(&self, relays: &[SiteId]) -> bool {
        self.relays.iter().any(|relay| relays.contains(relay))
    }
}

impl Router {
    /// Handles wrong data from this route. If only one relay can have changed it, that relay is
    /// never used again. If several can, all of them are skipped and return one at a time, which
    /// shows the culprit.
    pub(crate) fn bar(&mut self, routed_id: RoutedId, at: Option<SiteId>) {
        let Some(routed) = self.routed_sources.open.get(&routed_id) else { return };
        let (replica, route) = (routed.replica, routed.route.clone());
        if route.is_direct() {
            self.acquit(replica);
            return;
        }
        let mut relays: Vec<SiteId> = match at {
            Some(at) if routed.route.contains(at) => vec![at],
            // The executor judges the origin itself.
            Some(_) => return,
            None => routed.route.relays().to_vec(),
        };
        let clear = |relay: &SiteId| {
            !self.relays.standing(*relay).suspected && self.is_vouched_for(routed_id, *relay)
        };
        if at.is_none() && !relays.iter().all(clear) {
            relays.retain(|relay| !clear(relay));
        }
        // A relay on probation is the only suspect on its route.
        if let Some(relay) = self.relays.on_probation.filter(|relay| relays.contains(relay)) {
            relays = vec![relay];
        }
        // If the same replica also brought wrong data without these relays, the replica may be at
        // fault, unless it delivered much directly without complaint.
        let is_right = self.routed_sources.open.values().any(|routed| {
            let brought = routed.now.delivered_bytes >= VOUCHED_BYTES;
            routed.replica == replica && routed.route.is_direct() && brought
        });
        let of_it = |it: &&Verdict| it.replica == replica && at.is_none() && !is_right;
        let is_doubtful = self.relays.verdicts.iter().filter(of_it).any(|it| !it.is_about(&relays));
        for &relay in &relays {
            let certain = relays.len() == 1 && !is_doubtful;
            let standing = self.relays.standings.entry(relay).or_default();
            standing.barred |= certain;
            standing.suspected = !standing.barred;
            self.beliefs.graph.set_relay(relay, false);
        }
        for verdict in self.relays.verdicts.iter().filter(of_it).filter(|it| !it.is_about(&relays))
        {
            for relay in &verdict.relays {
                let is_elsewhere = |it: &Verdict| it.replica != replica && it.relays == [*relay];
                if !self.relays.verdicts.iter().any(is_elsewhere)
                    && let Some(standing) = self.relays.standings.get_mut(relay)
                {
                    standing.suspected |= std::mem::take(&mut standing.barred);
                }
            }
        }
        if self.relays.verdicts.len() < VERDICTS_MAX {
            self.relays.verdicts.push(Verdict { replica, relays: relays.clone() });
        }
        self.relays.on_probation = self.relays.on_probation.filter(|relay| !relays.contains(relay));
        for other in self.routed_sources.those(|routed| {
            routed.id != routed_id && relays.iter().any(|&it| routed.route.contains(it))
        }) {
            self.lose(other, Why::Corrupt, true);
        }
    }

    /// Handles wrong data directly from a replica: wrong data from it through relays then says
    /// nothing about those relays.
    fn acquit(&mut self, replica: ReplicaId) {
        let (past, left): (Vec<Verdict>, Vec<Verdict>) = std::mem::take(&mut self.relays.verdicts)
            .into_iter()
            .partition(|it| it.replica == replica);
        self.relays.verdicts = left;
        for relay in past.into_iter().flat_map(|verdict| verdict.relays) {
            let Some(standing) = self.relays.standings.get_mut(&relay) else { continue };
            if self.relays.verdicts.iter().any(|it| it.relays.contains(&relay)) {
                continue;
            }
            (standing.barred, standing.suspected) = (false, false);
            let is_up = standing.is_usable();
            self.beliefs.graph.set_relay(relay, is_up);
            self.relays.on_probation = self.relays.on_probation.filter(|&it| it != relay);
        }
    }

    /// Lets relays suspected together return one at a time, to show that another one corrupts.
    pub(crate) fn absolve(&mut self) {
        if let Some(relay) = self.relays.on_probation {
            let brought =
                self.routed_sources.open.values().filter(|routed| routed.route.contains(relay));
            if brought.map(|routed| routed.now.delivered_bytes).sum::<u64>() >= VOUCHED_BYTES {
                self.relays.standings.entry(relay).or_default().suspected = false;
                self.relays.on_probation = None;
            } else if self.times.now_s >= self.relays.next_probation_s {
                // No route used it in time.
                self.relays.on_probation = None;
            }
        }
        if self.relays.on_probation.is_none() && self.times.now_s >= self.relays.next_probation_s {
            let suspected: Vec<SiteId> =
                self.relays.standings.iter().filter(|it| it.1.suspected).map(|it| *it.0).collect();
            if suspected.is_empty() {
                return;
            }
            for &relay in &suspected {
                self.beliefs.graph.set_relay(relay, false);
            }
            self.relays.next_probation_s = self.times.now_s + self.about(PROBATION_S);
            let chosen = suspected[self.rng.usize(..suspected.len())];
            let standing = Standing { suspected: false, ..self.relays.standing(chosen) };
            self.beliefs.graph.set_relay(chosen, standing.is_usable());
            self.relays.on_probation = Some(chosen);
        }
    }

    /// Returns whether the relay has delivered much over another route without complaint.
    fn is_vouched_for(&self, routed_id: RoutedId, relay: SiteId) -> bool {
        self.routed_sources.open.values().any(|routed| {
            routed.id != routed_id
                && routed.route.contains(relay)
                && routed.state == RoutedState::InUse
                && routed.now.delivered_bytes >= VOUCHED_BYTES
        })
    }
}

/// Bytes that clear a relay of suspicion, delivered over another route: blocks are proved by the
/// megabyte.
const VOUCHED_BYTES: u64 = 8 << 20;
/// How long a suspected relay may show that it is innocent.
const PROBATION_S: f64 = 15.0;
/// Most verdicts remembered: no more routes than this should corrupt one after the other.
const VERDICTS_MAX: usize = 64;
