//! The report page of a transfer, made of its events alone: a [`Recorder`] (of a file or a tree) or
//! a [`ListRecorder`] (of a list of files) keeps what the page needs, [`render`] makes one
//! self-contained HTML file of it. [`graph`] draws routes.
//!
//! The page needs no network and no script to be read: charts are inline SVG that stretches to the
//! width of the window, tables repeat the figures, and a small inline script adds tooltips and
//! zoom. The template engine escapes every text, and a content security policy in the page forbids
//! whatever else might slip in.

mod axis;
pub mod graph;
mod lines;
mod list;
mod map;
mod moments;
mod page;
mod palette;
mod rates;
mod recording;
mod routes;
mod swaths;
mod tables;
mod timeline;
mod view;

pub use list::{ListRecorder, host_of, warning_of_relays};
pub use page::render;
pub use recording::{Content, Heading, Recorder, Recording};

#[cfg(test)]
mod tests;
