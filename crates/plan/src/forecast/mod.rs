//! Forecasts: how long a transfer will take, before it begins.
//!
//! [`Forecaster`] is told of transfers when they begin and when they end, and answers for the next
//! one. How it works and how well is described in `docs/forecasts.md`.
//!
//! - `past`: what is known when a transfer begins;
//! - `cost`: what its parts cost, by `least_squares`; `beside`: what runs at the same time; `drift`:
//!   how costs change; `forest`: what else matters;
//! - `interval`: how far off it may be;
//! - `forecaster`: which of them is used; `replay`: telling it of the past;
//! - `remaining`: how long a transfer that runs still takes;
//! - `study`: the regressions of a published study, to be compared with.

mod beside;
mod cost;
mod drift;
mod forecaster;
mod forest;
mod interval;
mod least_squares;
mod pace;
mod past;
mod remaining;
mod replay;
pub mod study;

pub use cost::Cost;
pub use forecaster::{Forecast, Forecaster, Model, chance};
pub use pace::{Delivery, Pace, STEP_S};
pub use past::{Planned, TRAITS};
pub use replay::{Numbers, Outcome, Replay};
