//! The content of a torrent on the disk, read for peers and verified before it is offered.

mod check;
mod files;
mod open_files;
mod uploads;

pub use check::{Checked, Fault, check};
pub use files::{ContentError, TorrentFiles};
pub use open_files::OpenFiles;
pub use uploads::{FileUploads, Lost};
