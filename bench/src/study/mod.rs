//! The comparative study of file transfer tools of 2018, made again: Yu, Chen, Zhang et al.
//! compared GridFTP, FDT, mdtmFTP and XDD with six datasets at four round-trip times.
//!
//! A [`Cell`] is a dataset on a link; every [`Tool`] of a cell copies the dataset by turns. The
//! tables of the mdtmFTP paper and of the Radioastron paper are further cells. Each measurement is
//! kept at once, so that a study that was stopped goes on where it was. All texts and pictures are
//! made from what was kept.

mod cell;
mod chart;
mod copy;
mod interval;
mod predict;
mod published;
mod record;
mod report;
mod rounds;
mod ssh;
mod standing;
mod tool;

pub use cell::{Cell, DATASETS, RTTS_MS, Way, bytes_text, cells, stands_for};
pub use chart::draw;
pub use interval::Interval;
pub use predict::{Predicted, predict};
pub use record::Record;
pub use report::{keep_report, line, table, write_report};
pub use rounds::measure_cell;
pub use tool::Tool;
