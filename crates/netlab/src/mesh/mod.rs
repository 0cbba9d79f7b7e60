//! A mesh: sites that stand for places on a map, each a namespace of its own.
//!
//! [`MeshSpec`] is the mesh as data, made from a map; [`Mesh`] builds and runs it on the links of
//! the WAN emulator. Every site has one address, by which each neighbour reaches it over the
//! direct link between the two; there is no other way from site to site than through programs
//! that run at sites between them. Everything goes away when the values are dropped, or when the
//! process dies in any other way.

mod lab;
mod spec;
mod targets;

pub use lab::Mesh;
pub use spec::{MeshLink, MeshSpec, SiteSpec};
