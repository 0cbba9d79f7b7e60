//! Addresses that the server answers itself: `/health` and `/metrics`.
//!
//! Files of these names do not change the answers: otherwise whoever uploads files could take a
//! server out of a load balancer or mislead its monitoring. Such a file is in trees and listings,
//! and has the address `NAME?file`.

use swath_formats::percent::encode;

use crate::http::{Head, Target};

/// What the server answers of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BuiltIn {
    Health,
    Metrics,
}

impl BuiltIn {
    /// Whether this request is for one of them. One for a folder or a tree is not.
    pub fn of(head: &Head) -> Option<BuiltIn> {
        BuiltIn::at(&head.target)
    }

    /// What is at this address.
    pub fn at(target: &Target) -> Option<BuiltIn> {
        let is_other = target.is_folder || is_for_a_file(target);
        if is_other { None } else { BuiltIn::of_name(&target.path) }
    }

    /// Whether a request is for a file or a tree, whatever its name.
    pub fn names_a_file(head: &Head) -> bool {
        is_for_a_file(&head.target)
    }

    fn of_name(path: &[u8]) -> Option<BuiltIn> {
        match path {
            b"health" => Some(BuiltIn::Health),
            b"metrics" => Some(BuiltIn::Metrics),
            _ => None,
        }
    }
}

fn is_for_a_file(target: &Target) -> bool {
    let parameter = |name| target.parameter(name).is_some();
    parameter(FILE) || parameter("swath")
}

/// The address of a file, without the `/` before it.
pub(super) fn address_of_file(path: &[u8]) -> String {
    match BuiltIn::of_name(path) {
        Some(_) => format!("{}?{FILE}", encode(path)),
        None => encode(path),
    }
}

/// Where such an address has this parameter the file of this name is meant.
pub(super) const FILE: &str = "file";
