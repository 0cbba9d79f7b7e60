//! Answers clients that speak plain HTTP on a TLS port with a readable error.

use std::future::pending;
use std::net::SocketAddr;
use std::time::Duration;

use swath_formats::plain_http::{self, SpeaksHttps};

use super::SERVER;
use crate::http::{Answer, Head, Make, Response};

/// Answers each request so.
pub struct PlainHttp {
    who: SpeaksHttps,
}

impl PlainHttp {
    /// At a server.
    pub fn server() -> PlainHttp {
        PlainHttp { who: SpeaksHttps::Server }
    }

    /// At a relay.
    pub fn relay() -> PlainHttp {
        PlainHttp { who: SpeaksHttps::Relay }
    }
}

impl Answer for PlainHttp {
    type PerConnection = ();
    const TAKES_ANY_TARGET: bool = true;

    async fn answer(&self, _: &Head, _: SocketAddr, _: &mut dyn Make) -> Response {
        let phrase = self.who.phrase();
        let mut response = Response::text(plain_http::STATUS, phrase).with("server", SERVER);
        // Clients that show no more than the status line say it too.
        response.own_reason = Some(phrase);
        response
    }

    fn note(&self, _: &Head, _: SocketAddr, _: u16, _: u64, _: Duration) {}

    /// One answer is enough.
    fn is_ending(&self, _: bool) -> bool {
        true
    }

    async fn ending(&self, _: bool) {
        pending().await
    }
}
