//! The server within this process, on the loopback interface or in memory, asked with raw requests; and
//! the pure parts of the crate that others use. One executable for all of it: linking takes longer than
//! the tests run.

mod access;
mod allow;
mod answer;
mod attacks;
mod datasets;
mod encrypted;
mod files;
mod issuers;
mod life;
mod pages;
mod patience;
mod pipe;
mod put;
mod rates;
mod receivers;
mod seats;
mod support;
mod tls;
mod tree;
mod webdav;
