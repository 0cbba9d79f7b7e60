//! What simulated transfers over routes came to.

use std::fmt;

use swath_plan::routes::{Reading, RouteAction, RoutedView};

/// One transfer.
#[derive(Clone, Debug, Default)]
pub struct TransferOutcome {
    /// Where its replicas are (positions in the map).
    pub sources: Vec<usize>,
    /// How long it took, in seconds.
    pub time_s: f64,
    /// Whether everything came within the time that the script allows.
    pub finished: bool,
    /// Bytes per second, every 0.1 s from its beginning.
    pub rates: Vec<f64>,
    /// What the router decided, and when, in seconds from its beginning.
    pub actions: Vec<(f64, RouteAction)>,
    /// Bytes that came directly.
    pub direct_bytes: f64,
    /// Bytes that had to come again.
    pub corrupt_bytes: f64,
    /// Most ways through relays open at once.
    pub ways_peak: usize,
    /// Ways through relays opened.
    pub attempts: u32,
    /// How often what was in use changed.
    pub changes: u32,
    /// As which attempt the widest route was opened first.
    pub widest_attempt: Option<u32>,
    /// When it was in use first, and after how many changes.
    pub widest_used_s: Option<f64>,
    /// See there.
    pub widest_changes: Option<u32>,
    /// The ways at the end.
    pub views: Vec<RoutedView>,
    /// What it learnt: from, to (positions in the map), reading.
    pub learnt: Vec<(usize, usize, Reading)>,
}

impl TransferOutcome {
    /// Mean rate between two moments, bytes per second.
    pub fn mean(&self, from_s: f64, to_s: f64) -> f64 {
        let (from, to) = ((from_s * 10.0) as usize, (to_s * 10.0) as usize);
        let part = &self.rates[from.min(self.rates.len())..to.min(self.rates.len())];
        part.iter().sum::<f64>() / part.len().max(1) as f64
    }

    /// Seconds' worth of throughput that were lost within `within_s` of a moment: against the
    /// lesser of what came before it and `after`, what could come since, in bytes per second.
    pub fn lost_s(&self, at_s: f64, within_s: f64, after: f64) -> f64 {
        let wanted = self.mean(at_s - 1.0, at_s).min(after);
        let (from, to) = ((at_s * 10.0) as usize, ((at_s + within_s) * 10.0) as usize);
        let part = &self.rates[from.min(self.rates.len())..to.min(self.rates.len())];
        part.iter().map(|rate| (1.0 - rate / wanted).max(0.0) * 0.1).sum()
    }
}

/// All transfers of a script.
#[derive(Clone, Debug)]
pub struct RouteOutcome {
    /// In the order in which they began.
    pub transfers: Vec<TransferOutcome>,
    /// What the network could bring to one receiver at its end, over all routes together.
    pub max_flow: f64,
    /// The same over as few ways as the router may use, chosen one after the other.
    pub few_flow: f64,
    /// What the widest route could bring at the beginning.
    pub widest: f64,
    /// What direct could bring at the beginning.
    pub direct: f64,
}

impl RouteOutcome {
    /// Returns the only transfer, or the first.
    pub fn first(&self) -> &TransferOutcome {
        &self.transfers[0]
    }

    /// Checks a statement about the outcome; the outcome is printed if it does not hold.
    ///
    /// # Panics
    /// When the statement does not hold.
    #[track_caller]
    pub fn expect(self, statement: impl FnOnce(&Self) -> bool) -> Self {
        assert!(statement(&self), "not as expected:\n{self}");
        self
    }
}

impl fmt::Display for RouteOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mbit = |rate: f64| rate / 125e3;
        let (direct, widest, flow) = (mbit(self.direct), mbit(self.widest), mbit(self.max_flow));
        writeln!(f, "direct {direct:.1}, widest {widest:.1}, maximum flow {flow:.1} Mbit/s")?;
        for it in &self.transfers {
            writeln!(
                f,
                "{:.1} s, {} attempts, {} changes, at most {} ways; the widest is attempt {:?}, in use at {:?} s",
                it.time_s,
                it.attempts,
                it.changes,
                it.ways_peak,
                it.widest_attempt,
                it.widest_used_s
            )?;
            for (at_s, action) in &it.actions {
                writeln!(f, "  {at_s:6.2} {action:?}")?;
            }
            for view in &it.views {
                let rate = mbit(view.rate_bytes_per_s);
                let promised = mbit(view.promised_bytes_per_s);
                let (routed_id, route, state, why) =
                    (view.routed_id, &view.route, view.state, view.why);
                writeln!(
                    f,
                    "  {routed_id} {route}: {state:?} ({why:?}), {rate:.1} of {promised:.1} Mbit/s"
                )?;
            }
            let seconds = it.rates.chunks(10).map(|it| it.iter().sum::<f64>() / it.len() as f64);
            let seconds: Vec<String> = seconds.map(|it| format!("{:.0}", mbit(it))).collect();
            writeln!(f, "  Mbit/s each second: {}", seconds.join(" "))?;
        }
        Ok(())
    }
}
