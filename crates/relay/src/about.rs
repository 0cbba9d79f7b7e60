//! What a relay tells about itself, and its round trips to other servers.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use serde_json::{Map, Value, json};
use swath_formats::relay;
use tokio::time::timeout;
use url::Url;

use super::{Relay, faults};
use swath_serve::http::{Content, Head, Response};

/// Round trips that were measured lately, in milliseconds, by what was asked for.
#[derive(Debug, Default)]
pub(super) struct Distances {
    known: Mutex<HashMap<String, (Instant, Value)>>,
}

impl Distances {
    fn known(&self, to: &str) -> Option<Value> {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.get(to).filter(|(at, _)| at.elapsed() < FRESH).map(|(_, told)| told.clone())
    }

    fn note(&self, to: &str, told: Value) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= KNOWN_MAX {
            known.retain(|_, (at, _)| at.elapsed() < FRESH);
        }
        if known.len() < KNOWN_MAX {
            known.insert(to.to_owned(), (Instant::now(), told));
        }
    }
}

impl Relay {
    /// `/relay`, with `?to=URL,URL` the round trips to those servers too. Connections that are opened
    /// to find out are kept: most likely they are needed next.
    pub(super) async fn about(&self, head: &Head) -> Response {
        let mut wanted: Vec<String> = Vec::new();
        let asked = head.target.query.iter().filter(|(name, _)| name == "to");
        for to in asked.flat_map(|(_, value)| value.split(',')).filter(|to| !to.is_empty()) {
            if wanted.len() < TO_MAX && !wanted.iter().any(|known| known == to) {
                wanted.push(to.to_owned());
            }
        }
        let told = join_all(wanted.iter().map(|to| self.distance(to))).await;
        let hops: Map<String, Value> = wanted.into_iter().zip(told).collect();
        let about = json!({
            "relay": "swath",
            "version": env!("CARGO_PKG_VERSION"),
            "name": self.name,
            "key": self.key.public(),
            "hops_max": relay::HOPS_MAX,
            "hops": hops,
        });
        Response::empty(200)
            .with("content-type", "application/json")
            .with("cache-control", "no-store")
            .containing(Content::Bytes(format!("{about}\n").into_bytes()))
    }

    /// The round trip to the server of `to`, or why it cannot be asked.
    async fn distance(&self, to: &str) -> Value {
        let Ok(url) = Url::parse(to) else { return json!({"error": "no address"}) };
        if !matches!(url.scheme(), "http" | "https") || !self.allowed.names(&url) {
            return json!({"error": "not listed"});
        }
        let origin = url.origin().ascii_serialization();
        if let Some(told) = self.distances.known(&origin) {
            return told;
        }
        let told = match timeout(WITHIN, self.net.upstream(&url, true)).await {
            Ok(Ok(upstream)) => {
                let rtt_ms = upstream.rtt().as_secs_f64() * 1e3;
                upstream.put_aside();
                json!({"rtt_ms": (rtt_ms * 1e3).round() / 1e3})
            }
            Ok(Err(error)) => json!({"error": faults::of(&error).0.name()}),
            Err(_) => json!({"error": "connection_timeout"}),
        };
        self.distances.note(&origin, told.clone());
        told
    }
}

/// Whoever asks does not want to wait longer for a server that does not answer.
const WITHIN: Duration = Duration::from_secs(3);
/// Distances change seldom.
const FRESH: Duration = Duration::from_secs(20);
/// More servers than this are not looked at in one request.
const TO_MAX: usize = 128;
const KNOWN_MAX: usize = 4096;
