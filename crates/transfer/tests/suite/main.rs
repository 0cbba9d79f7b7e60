//! Transfers through the library, without the program around it.

mod crowd;
mod library;
mod patience;
mod simulation;
mod support;
