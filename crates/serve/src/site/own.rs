//! Addresses that are the server's own.
//!
//! They answer the same whatever lies in the folders: who sends files could else take a server out
//! of a load balancer, or tell a monitor what it likes. A file that has such a name at the top is
//! in trees and lists as all are, and has an address of its own.

use swath_formats::percent::encode;

use crate::http::Head;

/// What the server answers of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Own {
    Health,
    Metrics,
}

impl Own {
    /// Whether this request is for one of them. One for a folder or a tree is not.
    pub fn of(head: &Head) -> Option<Own> {
        let target = &head.target;
        let is_named = target.parameter(FILE).is_some() || target.parameter("swath").is_some();
        if target.is_folder || is_named { None } else { Own::of_name(&target.path) }
    }

    fn of_name(path: &[u8]) -> Option<Own> {
        match path {
            b"health" => Some(Own::Health),
            b"metrics" => Some(Own::Metrics),
            _ => None,
        }
    }
}

/// The address of a file, without the `/` before it.
pub(super) fn address_of_file(path: &[u8]) -> String {
    match Own::of_name(path) {
        Some(_) => format!("{}?{FILE}", encode(path)),
        None => encode(path),
    }
}

/// Where such an address has this parameter the file of this name is meant.
pub(super) const FILE: &str = "file";
