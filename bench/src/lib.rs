//! Benchmarks of swath against its peers: what is measured, how, and how it is shown.
//!
//! A study (one program under `src/bin`) runs tools through scenarios and keeps every single
//! measurement in a [`results::Study`]; tables and pictures are made from that alone, so they can
//! be drawn again later. Tools take turns within each round, so that a change in the machine's
//! mood touches all of them alike. What is not installed or cannot apply is listed as skipped.

pub mod announces;
pub mod check;
pub mod crowd;
pub mod data;
pub mod disk_run;
pub mod forecast;
pub mod limits_run;
pub mod machine;
pub mod measure;
pub mod options;
pub mod oracle;
pub mod paired;
pub mod picture;
pub mod results;
pub mod routes;
pub mod scenario;
pub mod serve_run;
pub mod server;
pub mod serving;
pub mod short_rows;
pub mod star_run;
pub mod store_run;
pub mod study;
pub mod study_files;
pub mod swarm;
pub mod table;
pub mod third_party;
pub mod tool;
pub mod tree_data;
pub mod tree_run;
pub mod xrootd;
