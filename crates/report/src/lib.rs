//! The report page of a transfer, made only of its events: a [`Recorder`] (of a file or a dataset) or a
//! [`ListRecorder`] (of a list of files) records them, and [`render`] makes one self-contained HTML file.
//! [`graph`] draws routes, [`history`] past transfers.
//!
//! The page needs neither network nor script: charts are inline SVG that stretches to the width of the
//! window, tables repeat the figures, and a small inline script adds tooltips and zoom. The template
//! engine escapes every text, and a content security policy forbids loading anything.

mod axis;
pub mod graph;
pub mod history;
mod lines;
mod list;
mod map;
mod moments;
mod page;
mod palette;
mod picture;
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
