//! Who changed data: the relays of a route, or the replica that it leads to.

use super::name::{ReplicaId, RoutedId, SiteId};
use super::relay::Standing;
use super::router::Router;
use super::view::{RoutedState, Why};

/// Whom a route was held against that had brought what is not the data.
#[derive(Clone, Debug)]
pub(crate) struct Verdict {
    /// Where the route led.
    replica: ReplicaId,
    /// Any of these may have been it.
    relays: Vec<SiteId>,
}

impl Verdict {
    /// Returns whether one of these relays may have been it.
    fn is_about(&self, relays: &[SiteId]) -> bool {
        self.relays.iter().any(|relay| relays.contains(relay))
    }
}

impl Router {
    /// Handles wrong data from this route. If only one relay can have changed it, that relay is never
    /// used again. If several can, all of them are skipped and return one at a time, which shows the
    /// culprit.
    pub(crate) fn bar(&mut self, routed_id: RoutedId, at: Option<SiteId>) {
        let Some(routed) = self.routed_sources.open.get(&routed_id) else { return };
        let (replica, route) = (routed.replica, routed.route.clone());
        if route.is_direct() {
            self.acquit(replica);
            return;
        }
        let mut relays: Vec<SiteId> = match at {
            Some(at) if routed.route.contains(at) => vec![at],
            // The origin itself is not judged here: that is the executor's business.
            Some(_) => return,
            None => routed.route.relays().to_vec(),
        };
        let clear = |relay: &SiteId| {
            !self.relays.standing(*relay).suspected && self.is_vouched_for(routed_id, *relay)
        };
        if at.is_none() && !relays.iter().all(clear) {
            relays.retain(|relay| !clear(relay));
        }
        // Who is on probation was the only one that was not above suspicion.
        if let Some(relay) = self.relays.on_probation.filter(|relay| relays.contains(relay)) {
            relays = vec![relay];
        }
        // If what came from the same replica without them was no better, perhaps it was the replica;
        // unless that has brought much directly, and nobody complained.
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

    /// The replica itself brought what is not the data: that relays on the way to it did says nothing
    /// about them.
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

    /// Lets those that were left out because one of them corrupts show, one at a time, that it was
    /// another one.
    pub(crate) fn absolve(&mut self) {
        if let Some(relay) = self.relays.on_probation {
            let brought =
                self.routed_sources.open.values().filter(|routed| routed.route.contains(relay));
            if brought.map(|routed| routed.now.delivered_bytes).sum::<u64>() >= VOUCHED_BYTES {
                self.relays.standings.entry(relay).or_default().suspected = false;
                self.relays.on_probation = None;
            } else if self.times.now_s >= self.relays.next_probation_s {
                // Nobody had a use for it.
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

    /// Returns whether another route through this relay has long brought what nobody complained about.
    fn is_vouched_for(&self, routed_id: RoutedId, relay: SiteId) -> bool {
        self.routed_sources.open.values().any(|routed| {
            routed.id != routed_id
                && routed.route.contains(relay)
                && routed.state == RoutedState::InUse
                && routed.now.delivered_bytes >= VOUCHED_BYTES
        })
    }
}

/// What a relay has to have brought over another route to be above suspicion: blocks are proved by
/// the megabyte.
const VOUCHED_BYTES: u64 = 8 << 20;
/// How long one of those that are suspected may show that it is not the one.
const PROBATION_S: f64 = 15.0;
/// Most verdicts that are remembered: more routes than this do not corrupt one after the other.
const VERDICTS_MAX: usize = 64;
