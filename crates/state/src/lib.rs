//! What swath remembers between runs: how wide and how long the edges between sites were, and the
//! relays it met. One SQLite file, which all transfers of a user share while they run.
//!
//! Nothing here ever holds up or fails a transfer: [`State`] answers from memory, a thread of its
//! own reads and writes the file, and whatever is wrong with the file is one [`Warning`], after
//! which the transfer goes on with what it learns itself. Nothing is planned here and nothing is
//! sent; which edges make a route is `swath-plan`'s.
//!
//! - `edge`, `relay`: what is told and asked; `memory`: the table in memory, and how two pieces of
//!   news about one edge become one;
//! - `database`: the file, and `aside`: what becomes of a damaged one;
//! - `keeper`: the thread; `location`: where the file lies.
//!
//! Files of their own, by `own_file`: `jobs`, those that a server keeps; `history`, the transfers that
//! forecasts are made from.

mod aside;
mod clock;
mod database;
mod edge;
mod history;
mod jobs;
mod keeper;
mod location;
mod memory;
mod own_file;
mod relay;
mod state;
mod warning;

pub use edge::{By, EdgeReading, Grade, HERE, KnownEdge, Measured, is_site};
pub use history::{
    Ended, Figures, History, Imported, PastTransfer, Range, TRANSFERS_MAX, Transfer,
};
pub use jobs::{KeptJob, KeptJobs, KeptState};
pub use location::{Location, locate};
pub use memory::NewsCursor;
pub use own_file::KeepError;
pub use relay::{KnownRelay, RelayNote};
pub use state::{Forget, ForgetError, Forgotten, State};
pub use warning::Warning;
