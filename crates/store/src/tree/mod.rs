//! A tree of files: walked into the entries of an index.

mod check;
mod conflict;
mod content;
mod differ;
mod filter;
mod incoming;
mod kept;
mod list;
mod lookup;
mod names;
mod rights;
mod root;
mod single;
mod stage;
mod stat;
mod surplus;
mod trail;
mod unfinished;
mod walk;
mod work;
mod xattrs;

pub use check::{Wrong, check_entries};
pub use conflict::Conflict;
pub use content::Content;
pub use differ::{Change, differences};
pub use filter::{Filter, FilterError, Verdict};
pub use incoming::{Incoming, leads_into_a_copy, may_be_received};
pub use kept::{Keeper, KeptIndex};
pub use list::Listed;
pub use lookup::{Listing, Lookup, turned};
pub use root::Root;
pub use single::Single;
pub use stage::{
    Finished, Halt, Kept, Preserve, Same, Stage, StageError, check_rights, check_room, check_way,
};
pub use surplus::{Removed, Stays, Surplus, removable, remove};
pub use trail::Files;
pub use walk::{Unnameable, WalkError, WalkOptions, walk};
pub use xattrs::XattrLoss;
