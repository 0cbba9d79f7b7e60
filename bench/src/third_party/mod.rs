//! Copies between two servers that a third site orders: what is measured, who takes part, and one run.

mod compare;
mod copy;
mod row;
mod run;
mod server;
mod tool;
mod xrootd;

pub use compare::compare;
pub use row::{Data, Row, Sizes, rows};
pub use run::{Outcome, Places, run_once};
pub use tool::Tool;
