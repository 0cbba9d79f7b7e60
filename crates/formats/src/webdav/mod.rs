//! WebDAV (RFC 4918): the properties that a client asks for, and what a server answers.

mod multistatus;
mod propfind;

pub use multistatus::{END, Resource, ResourceKind, Room, START, write};
pub use propfind::{Asked, BODY_BYTES_MAX, Name, PropfindError, read};

/// The namespace of WebDAV's own elements.
pub const NAMESPACE: &str = "DAV:";
