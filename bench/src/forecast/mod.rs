//! How well forecasts come true: each is made before its transfer begins, from what had ended by
//! then, so nothing can flatter it.

mod emulated;
mod fetch;
pub mod progress;
mod replay;
mod scores;
mod simulated;
mod six_links;
pub mod world;

pub use emulated::emulate;
pub use replay::{Compared, replay};
pub use scores::Scores;
pub use simulated::{logged, simulate};
pub use six_links::six_links;
