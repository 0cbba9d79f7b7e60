//! Copies between two servers that a third site orders: what is measured, who takes part, and one run.

mod compare;
mod copy;
mod row;
mod run;
mod tool;

pub use compare::compare;
pub use row::{Data, Row, Sizes, rows};
pub(crate) use run::run_client;
pub use run::{Outcome, Places, run_once};
pub use tool::Tool;
pub(crate) use tool::swath_copy;
