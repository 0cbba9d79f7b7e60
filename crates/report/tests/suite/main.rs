//! Pages and pictures made of events, through the public interface alone.

mod charts;
mod events;
mod graphs;
mod history;
mod lists;
mod maps;
mod pages;
mod sources;
mod support;
