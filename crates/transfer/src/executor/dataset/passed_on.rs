//! Groups of a tree that relays forwarded, or that came from sources that were found: the source itself
//! proves them before they count.
//!
//! A group comes with its group hash, and whoever can change one can change the other. So
//! swath requests the group hashes of such groups once more from the source without relays: 32
//! bytes for each group of 256 KiB. Until then they are written, but neither journaled nor
//! counted as proved nor passed on.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use swath_model::{Range, RangeSet, Time};
use swath_source::GroupHash;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use crate::error::GetError;
use crate::executor::Ended;
use crate::executor::dataset::{in_tree, sealed_of};
use crate::executor::jobs::JobDone;
use crate::executor::state::Run;
use crate::reason::Reason;
use crate::tree::group_hashes_of;
use swath_plan::routes::Fault;

/// Forwarded groups that are not proved yet.
#[derive(Debug, Default)]
pub(crate) struct PassedOn {
    /// Groups by their numbers.
    groups: BTreeMap<u64, Group>,
    /// Questions in flight.
    asked: u32,
    /// Whether the source has answered.
    has_told: bool,
    /// Whether the source does not answer without relays, so nothing can be proved.
    is_hopeless: bool,
    /// Since when a question waits for an answer.
    waits_since: Option<Time>,
    /// Groups of sources that were found whose hashes are not those of the replica: either they are wrong,
    /// or a file has changed at the replica meanwhile.
    disputed: BTreeMap<u64, Group>,
    /// The transfer ends, and does not wait for answers.
    stop: CancellationToken,
}

/// A forwarded group.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Group {
    group_hash: GroupHash,
    source: usize,
    /// In bytes of the plain file.
    range: Range,
}

impl PassedOn {
    /// Gives up all questions in flight.
    pub fn stop(&self) {
        self.stop.cancel();
    }

    fn is_empty(&self) -> bool {
        self.groups.is_empty() && self.asked == 0
    }
}

impl Run<'_> {
    /// Takes in written groups from `source`. Returns whether they wait for a proof.
    pub(crate) fn waits_for_proof(
        &mut self,
        source: usize,
        good: &[(Range, u64, GroupHash)],
    ) -> bool {
        let Some(entry) = self.sources.get(source) else { return false };
        let (is_passed, is_found) = (entry.is_passed(), entry.is_found);
        let Some(tree) = self.dataset.tree_mut() else { return false };
        if !is_found && (!is_passed || tree.passed_on.is_hopeless) {
            return false;
        }
        for &(range, number, group_hash) in good {
            tree.passed_on.groups.insert(number, Group { group_hash, source, range });
        }
        // Others wait for what was found.
        self.prove_some(if is_found { 1 } else { AT_ONCE });
        true
    }

    /// Returns whether nothing waits for a proof. At the end it asks for the remaining hashes.
    pub(crate) fn are_proved(&mut self) -> bool {
        if self.planner_done || self.request.discovery.is_some() {
            self.prove_some(1);
        }
        self.dataset.tree().is_none_or(|tree| tree.passed_on.is_empty())
    }

    /// Drops the sources that were found and delivered other bytes of these groups, which are right.
    pub(crate) fn settle_disputed(&mut self, good: &[(Range, u64, GroupHash)]) {
        let Some(tree) = self.dataset.tree_mut() else { return };
        let disputed = good.iter().filter_map(|(_, number, group_hash)| {
            let group = tree.passed_on.disputed.remove(number)?;
            (group.group_hash != *group_hash).then_some(group)
        });
        for group in disputed.collect::<Vec<_>>() {
            self.drop_corrupt(group.source, sealed_of(group.range));
        }
    }

    /// Asks the source for group hashes, if at least `least` are wanted.
    fn prove_some(&mut self, least: usize) {
        let now = self.now();
        let Some(tree) = self.dataset.tree_mut() else { return };
        let passed_on = &mut tree.passed_on;
        if passed_on.groups.len() < least || passed_on.asked >= ASKED_MAX {
            return;
        }
        let rest = match passed_on.groups.keys().nth(AT_ONCE) {
            Some(&end) => passed_on.groups.split_off(&end),
            None => BTreeMap::new(),
        };
        let batch = std::mem::replace(&mut passed_on.groups, rest);
        passed_on.asked += 1;
        passed_on.waits_since.get_or_insert(now);
        let (url, trust) = (tree.pass.taking.group_hashes.clone(), tree.pass.taking.trust);
        let net = self.engine.net.clone();
        // One retry if the source has never answered: perhaps only relays reach it.
        let waits = if passed_on.has_told { &WAITS_S[..] } else { &WAITS_S[..1] };
        let stop = passed_on.stop.clone();
        self.jobs.add(async move {
            let numbers: RangeSet = batch.keys().map(|&number| Range::of_len(number, 1)).collect();
            let asking = async {
                let mut told = group_hashes_of(&net, &url, trust, &numbers).await;
                for &wait_s in waits {
                    if told.is_ok() {
                        break;
                    }
                    sleep(Duration::from_secs(wait_s)).await;
                    told = group_hashes_of(&net, &url, trust, &numbers).await;
                }
                told
            };
            let told = stop.run_until_cancelled(asking).await;
            let told = told.unwrap_or_else(|| Err("the copy has ended".to_owned()));
            JobDone::Proved { batch, told }
        });
    }

    /// Returns whether blocks of a tree are unconfirmed, since the source did not answer directly.
    pub(crate) fn takes_relays_word(&self) -> bool {
        self.dataset.tree().is_some_and(|tree| tree.passed_on.is_hopeless)
    }

    /// Handles the source's own hashes of these groups, or that there was no answer.
    pub(crate) fn proved(
        &mut self,
        batch: BTreeMap<u64, Group>,
        told: Result<Vec<GroupHash>, String>,
    ) -> Result<(), Ended> {
        let now = self.now();
        let Some(tree) = self.dataset.tree_mut() else { return Ok(()) };
        tree.passed_on.asked -= 1;
        let group_hashes = match told {
            Ok(group_hashes) => {
                (tree.passed_on.has_told, tree.passed_on.waits_since) = (true, None);
                group_hashes
            }
            Err(why) => {
                let is_found = |group: &Group| self.sources[group.source].is_found;
                let (found, batch): (BTreeMap<_, _>, BTreeMap<_, _>) =
                    batch.into_iter().partition(|(_, group)| is_found(group));
                // They never count without a proof: it is asked for until the transfer gives up.
                tree.passed_on.groups.extend(found);
                let stall_s = self.request.stall_s;
                let since = tree.passed_on.waits_since.unwrap_or(now);
                if !tree.passed_on.groups.is_empty() && now.since(since).as_secs_f64() > stall_s {
                    let replica = self.sources.iter().find(|entry| !entry.is_found);
                    let name = replica.map(|entry| entry.source.name().clone());
                    let of = |name| Reason::of_source(name, why);
                    let reasons = name.map(of).into_iter().collect();
                    return Err(GetError::Stalled { stall_s, reasons }.into());
                }
                if batch.is_empty() {
                    return Ok(());
                }
                let bytes: u64 = batch.values().map(|group| group.range.len()).sum();
                self.persistence.records.extend(batch.values().map(|group| in_tree(group.range)));
                self.coverage.verified_bytes += bytes;
                if !std::mem::replace(&mut tree.passed_on.is_hopeless, true) {
                    let name = tree.pass.taking.name.clone();
                    let text = format!(
                        "{name} does not answer without relays ({why}), so nothing confirms what relays deliver"
                    );
                    self.note(text, true);
                }
                return Ok(());
            }
        };
        let mut wrong: BTreeMap<usize, u64> = BTreeMap::new();
        let mut disputed = BTreeMap::new();
        let sink = Arc::clone(&tree.pass.sink);
        for ((number, group), group_hash) in batch.into_iter().zip(group_hashes) {
            if group.group_hash == group_hash {
                self.coverage.verified_bytes += group.range.len();
                self.persistence.records.push(in_tree(group.range));
                self.tell_verified(std::iter::once(group.range));
                continue;
            }
            match self.sources[group.source].is_found {
                true => _ = disputed.insert(number, group),
                false => *wrong.entry(group.source).or_default() += group.range.len(),
            }
            sink.stage.reopen(group.range);
            self.open_again(group.source, sealed_of(group.range), true);
        }
        if let Some(tree) = self.dataset.tree_mut() {
            tree.passed_on.disputed.extend(disputed);
        }
        for (source, bytes) in wrong {
            let name = self.sources[source].source.name().to_string();
            let bytes = swath_model::units::bytes(bytes);
            self.note(
                format!("{name} delivered {bytes} that differ from the source; fetching again"),
                true,
            );
            if !self.sources.is_out(source) {
                self.sources[source].fault = Fault::Corrupt;
                self.drop_source(
                    source,
                    "relays delivered other bytes than the source has".to_owned(),
                );
            }
        }
        Ok(())
    }
}

/// Most groups of one question: 32 MiB of files, and no more ranges than fit into an address.
const AT_ONCE: usize = 128;
/// Most questions in flight.
const ASKED_MAX: u32 = 2;
/// Pauses before each retry of a question, in seconds.
const WAITS_S: [u64; 6] = [1, 2, 5, 10, 20, 30];
