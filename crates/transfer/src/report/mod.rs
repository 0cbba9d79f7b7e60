//! The report page of a transfer: a [`Recorder`] listens to the events, [`render`] makes one
//! self-contained HTML file of what it heard.
//!
//! [`ListRecorder`] does the same for a list of files.
//!
//! The page needs no network and no script to be read: charts are inline SVG that stretch to the
//! width of the window, tables repeat their figures, and a small inline script adds tooltips and
//! zoom. Every text that came from outside is escaped, and a content security policy in the page
//! forbids whatever else might slip in. [`units`] writes figures for people; the terminal uses it
//! too.

mod axis;
mod bound;
mod escape;
pub mod graph;
mod lines;
mod list;
mod map;
mod page;
mod palette;
mod recording;
mod scene;
mod tables;
mod timeline;
pub mod units;
mod ways;

pub use list::{ListRecorder, host_of, verified_by_relays, warning_of_relays};
pub use page::render;
pub use recording::{
    BARS_MAX, Bar, Content, Delivery, Ending, InUse, MOMENTS_MAX, Moment, MomentKind, PIECES_MAX,
    RATES_MAX, Recorder, Recording, Sample,
};

#[cfg(test)]
use crate::observe;
#[cfg(test)]
mod synthetic;
#[cfg(test)]
mod tests;
