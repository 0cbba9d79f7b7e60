//! The executor: joins planner, lanes and store into one verified transfer.

pub mod observe;
