//! The tracker protocol over HTTP: queries of announces and scrapes, and answers in bencoding.

mod answer;
mod request;

pub use answer::{
    AnswerError, read_announce, read_scrape, write_announce, write_failure, write_scrape,
};
pub use request::{RequestError, announce_query, announce_url, scrape_query, scrape_url};
