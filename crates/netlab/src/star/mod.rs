//! A star: one client namespace in the middle, one server namespace at the end of each link.
//!
//! [`Lab::star`] builds the links; [`WebServer`] puts a real web server behind one. Everything
//! goes away when the values are dropped, or when the process dies in any other way.

mod lab;
mod scratch;
mod server;
mod spec;

pub use lab::Lab;
pub use scratch::{remove_own_folders_in, scratch_folder, scratch_folder_in};
pub use server::{ServerKind, WebServer};
pub use spec::{LinkSpec, StarSpec};
