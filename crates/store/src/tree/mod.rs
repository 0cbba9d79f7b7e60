//! A tree of files: walked into the entries of an index.

mod alike;
mod changes;
mod check;
mod conflict;
mod content;
mod differ;
mod file_set;
mod filter;
mod folder_cursor;
mod grant;
mod incoming;
mod kept_index;
mod kept_time;
mod list;
mod lookup;
mod names;
mod partial;
mod reader;
mod removal;
mod rights;
mod root;
mod single;
mod stat;
mod surplus;
mod unfinished;
mod walk;
mod work;
mod xattrs;

pub use alike::{Pair, is_taken_for_others, key};
pub use check::{Wrong, check_entries};
pub use conflict::Conflict;
pub use content::Content;
pub use differ::{Change, differences};
pub use file_set::{FileSet, SetFile, SetReader, existing};
pub use filter::{Filter, FilterError, Verdict};
pub use folder_cursor::Files;
pub use grant::{Decide, Deed, Grant, NotPermitted, PlaceGrant};
pub use incoming::{Incoming, leads_into_a_copy, may_be_received};
pub use kept_index::{KeptIndex, KeptIndexWriter};
pub use list::{Entries, Listed};
pub use lookup::{Listing, Lookup, turned};
pub use partial::{
    Finished, Halt, PartialError, PartialTree, Preserve, Same, TreePlace, Unchanged,
    check_destination, check_rights, check_space,
};
pub use reader::TreeReader;
pub use root::Root;
pub use single::Single;
pub use surplus::{Removed, Stays, Surplus, removable, remove};
pub use walk::{Unnameable, WalkError, WalkOptions, walk};
pub use xattrs::XattrLoss;
