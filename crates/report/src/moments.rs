//! Moments on the time axis: notes, changes of state, and changes of the routed sources in use.

use swath_model::observe::SourceState;

/// Most notes and changes of state kept.
pub(crate) const MOMENTS_MAX: usize = 2_000;

/// Moments in the order of time, at most [`MOMENTS_MAX`].
#[derive(Clone, Debug, Default)]
pub(crate) struct Moments {
    /// The recorded moments.
    pub kept: Vec<Moment>,
    /// The sources in use, in the order of time.
    pub in_use: Vec<InUse>,
    /// The number of dropped moments.
    pub dropped: u64,
}

/// A moment on the time axis.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Moment {
    /// Seconds since the transfer began.
    pub at_s: f64,
    /// Its kind.
    pub kind: MomentKind,
    /// Its text.
    pub text: String,
}

/// The kinds of moments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MomentKind {
    /// A source changed its state.
    State {
        /// Its number.
        source: u32,
        /// Its new state.
        state: SourceState,
    },
    /// The routes in use changed; the position in [`Moments::in_use`].
    Routes(u32),
    /// Information.
    Note,
    /// A warning.
    Warning,
}

/// The sources in use from a moment on.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct InUse {
    /// Seconds since the transfer began.
    pub at_s: f64,
    /// Their numbers.
    pub sources: Vec<u32>,
}

impl Moments {
    pub(crate) fn add(&mut self, at_s: f64, kind: MomentKind, text: &str) {
        if self.kept.len() >= MOMENTS_MAX {
            self.dropped += 1;
            return;
        }
        self.kept.push(Moment { at_s, kind, text: text.to_owned() });
    }

    pub(crate) fn add_routes(&mut self, at_s: f64, sources: Vec<u32>) {
        if self.kept.len() < MOMENTS_MAX {
            self.in_use.push(InUse { at_s, sources });
        }
        let last = (self.in_use.len() as u32).saturating_sub(1);
        self.add(at_s, MomentKind::Routes(last), "");
    }
}
