//! A world of sites whose transfers are executed by the real executor in virtual time.
//!
//! A seed decides everything. Nothing here knows how forecasts are made.
//!
//! - `background`: the traffic of others on a link;
//! - `link`: what it leaves, split among lanes; `remote`: a replica behind a link;
//! - `plans`: sites, and who transfers what and when;
//! - `run`: the transfers;
//! - `random`: distributions.

mod background;
mod link;
mod plans;
mod random;
mod remote;
mod run;

pub use background::{Background, Setting, Step};
pub use link::{Link, Offer};
pub use plans::{Kind, Plan, Site, World};
pub use run::{Simulated, run};
