//! Another service that answers some addresses of a site, such as a tracker.

use std::net::SocketAddr;

use crate::exposition::Page;
use crate::http::{Head, Response};

/// A service that is asked before the site, also by clients that show no token: it decides itself who
/// gets an answer.
pub trait Mount: Send + Sync {
    /// Answers a request (GET or HEAD); `None` leaves it to the site.
    fn answer(&self, head: &Head, peer: SocketAddr) -> Option<Response>;

    /// Adds figures to the metrics of the site.
    fn metrics(&self, page: &mut Page);
}
