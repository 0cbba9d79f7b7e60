//! How well forecasts come true: each is made before its transfer begins, from what had ended by
//! then, so nothing can flatter it.

mod replay;
mod scores;
mod simulated;
pub mod world;

pub use replay::{Compared, replay};
pub use scores::Scores;
pub use simulated::{logged, simulate};
