//! Asking a relay what it is, and how far it is from it to others; and how far it is from us.

use std::future::poll_fn;
use std::time::Duration;

use futures_util::future::BoxFuture;
use serde_json::Value;
use swath_formats::plain_http::SpeaksHttps;
use swath_formats::relay;
use url::Url;

use crate::error::LaneError;
use crate::http::request::Lines;
use crate::net::{Net, Secret};
use crate::target::Origin;

/// What a relay tells of itself.
#[derive(Clone, Debug, PartialEq)]
pub struct AboutRelay {
    /// How it calls itself.
    pub name: String,
    /// The round trip to it, as its connection showed it.
    pub rtt: Duration,
    /// To each of the servers that were asked for, in their order: the round trip from the relay,
    /// or why it cannot reach that server or may not.
    pub hops: Vec<Result<Duration, String>>,
}

impl AboutRelay {
    /// Returns why a relay has told nothing of itself. Where its address names no port, that may well be the
    /// reason.
    pub fn why_not(names_port: bool, error: &LaneError) -> String {
        let is_elsewhere = matches!(error, LaneError::Connect { .. } | LaneError::Timeout { .. });
        match is_elsewhere && !names_port {
            true => format!("{error} (relays listen on {PORT} unless told otherwise)"),
            false => error.to_string(),
        }
    }
}

impl Net {
    /// Returns how long it takes to the server of `url` and back. The connection that shows it is kept for
    /// what is fetched from there then.
    ///
    /// # Errors
    /// [`LaneError`] if it cannot be reached.
    pub fn round_trip<'a>(&'a self, url: &'a Url) -> BoxFuture<'a, Result<Duration, LaneError>> {
        Box::pin(async move {
            self.note_relay(url);
            let limit = self.timeout().min(ANSWERS_WITHIN);
            let connected = self.awake().within(limit, self.upstream(url, true)).await;
            let upstream = connected.unwrap_or(Err(LaneError::Timeout { after: limit }))?;
            let rtt = upstream.rtt();
            upstream.put_aside();
            Ok(rtt)
        })
    }

    /// Asks the relay at `url` what it is, and for its round trips to the servers of `to`. The
    /// connection is kept for what is fetched through the relay then.
    ///
    /// # Errors
    /// [`LaneError`] if it cannot be reached, does not let us in, or is no relay.
    pub fn about_relay<'a>(
        &'a self,
        url: &'a Url,
        to: &'a [Url],
    ) -> BoxFuture<'a, Result<AboutRelay, LaneError>> {
        Box::pin(async move {
            let origin = Origin::of(url)
                .ok_or_else(|| LaneError::Scheme { scheme: url.scheme().to_owned() })?;
            let limit = self.timeout().min(ANSWERS_WITHIN);
            let asked = self.ask_relay(url, &origin, to);
            let about = self.awake().within(limit, asked).await;
            // With a key it has told that by now.
            self.note_no_relay_key(url);
            about.unwrap_or(Err(LaneError::Timeout { after: limit }))
        })
    }

    async fn ask_relay(
        &self,
        url: &Url,
        origin: &Origin,
        to: &[Url],
    ) -> Result<AboutRelay, LaneError> {
        self.note_relay(url);
        let mut upstream = self.upstream(url, false).await?;
        let rtt = upstream.rtt();
        let origins: Vec<String> = to.iter().map(|to| to.origin().ascii_serialization()).collect();
        let host = relay::site(url).unwrap_or_default();
        let target = format!("/relay?to={}", origins.join(","));
        let authorization = self.credentials_for_relay(origin).authorization.map(|it| it.value());
        let request = Lines::request("GET", &target, &host)
            .with("User-Agent", self.user_agent())
            .with_any("Authorization", authorization.as_ref().map(Secret::expose));
        upstream.send(&request.end()?);
        poll_fn(|cx| upstream.poll_send(cx)).await.map_err(|error| LaneError::reset(&error))?;
        let no_relay = || LaneError::protocol("it is no relay");
        let head = poll_fn(|cx| upstream.poll_head(cx, false)).await?.ok_or_else(no_relay)?;
        let mut body = vec![0; ABOUT_BYTES_MAX];
        let mut length = 0;
        loop {
            let space = &mut body[length..];
            if space.is_empty() {
                return Err(LaneError::TooLarge { limit_bytes: ABOUT_BYTES_MAX as u64 });
            }
            match poll_fn(|cx| upstream.poll_body(cx, space)).await? {
                0 => break,
                bytes => length += bytes,
            }
        }
        upstream.put_aside();
        if head.status != 200 {
            if let Some(who) = SpeaksHttps::read(head.status, &head.reason) {
                return Err(LaneError::SpeaksHttps(who));
            }
            let reason = crate::http::head::shortened(&head.reason);
            return Err(LaneError::status(head.status, reason, None));
        }
        let (about, key) = read(&body[..length], &origins, rtt).ok_or_else(no_relay)?;
        if let Some(key) = key {
            let told_at_s = head.fields.iter().find(|(name, _)| name == "date");
            let told_at_s = told_at_s.and_then(|(_, date)| swath_formats::http_date::parse(date));
            self.note_relay_key(url, &key, told_at_s);
        }
        Ok(about)
    }
}

/// Returns what it tells, and its key.
fn read(body: &[u8], origins: &[String], rtt: Duration) -> Option<(AboutRelay, Option<String>)> {
    let about: Value = serde_json::from_slice(body).ok()?;
    if about.get("relay")?.as_str()? != "swath" {
        return None;
    }
    let name = about.get("name").and_then(Value::as_str).unwrap_or_default();
    let hops = about.get("hops");
    let hop = |origin: &String| {
        let told = hops.and_then(|hops| hops.get(origin));
        let of_it = |member: &str| told.and_then(|told| told.get(member));
        if let Some(why) = of_it("error").and_then(Value::as_str) {
            return Err(in_words(why).map_or_else(|| crate::http::head::words(why), str::to_owned));
        }
        let rtt_ms = of_it("rtt_ms").and_then(Value::as_f64);
        let rtt_ms = rtt_ms.filter(|it| (0.0..RTT_MAX_MS).contains(it));
        let rtt = rtt_ms.map(|rtt_ms| Duration::from_secs_f64(rtt_ms / 1e3));
        rtt.ok_or_else(|| "it does not say".to_owned())
    };
    let key = about.get("key").and_then(Value::as_str).filter(|key| key.len() <= KEY_LENGTH_MAX);
    let told = AboutRelay {
        name: crate::http::head::shortened(name),
        rtt,
        hops: origins.iter().map(hop).collect(),
    };
    Some((told, key.map(str::to_owned)))
}

/// What a relay says in a word of a server that it does not reach; `None` if it is not known here.
fn in_words(word: &str) -> Option<&'static str> {
    WORDS.iter().find(|(known, _)| *known == word).map(|(_, words)| *words)
}

/// `swath_formats::ProxyFault` as far as connecting may come to it, and whom a relay is not to ask.
const WORDS: &[(&str, &str)] = &[
    ("not listed", "it is not among those that this relay asks (--upstream)"),
    (
        "destination_ip_prohibited",
        "it leads to an address that is not public, and that is not listed there (--upstream CIDR lists it)",
    ),
    (
        "tls_certificate_error",
        "its certificate is not trusted by this relay (--ca or --fingerprint of its 'swath relay')",
    ),
    ("tls_protocol_error", "this relay gets no secure connection to it"),
    ("dns_error", "this relay cannot resolve its name"),
    ("connection_refused", "it takes no connection from this relay"),
    ("connection_timeout", "it does not answer this relay"),
    ("connection_read_timeout", "it does not answer this relay"),
    ("connection_terminated", "its connection with this relay breaks"),
    ("http_protocol_error", "it speaks no proper HTTP with this relay"),
];

/// Where `swath relay` listens.
const PORT: u16 = 8471;
/// Whoever takes longer is no use as a relay.
const ANSWERS_WITHIN: Duration = Duration::from_secs(8);
const ABOUT_BYTES_MAX: usize = 64 << 10;
const KEY_LENGTH_MAX: usize = 200;
const RTT_MAX_MS: f64 = 60_000.0;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_no_port_was_named_it_is_told_where_relays_listen() {
        // Nothing pointed to the port that was missing in the address.
        let why = |names_port, error| AboutRelay::why_not(names_port, &error);
        let refused = |host: &str| LaneError::Connect {
            timed_out: false,
            host: host.to_owned(),
            reason: "Connection refused".to_owned(),
        };
        let words = why(false, refused("r1.example:443"));
        assert!(words.contains("r1.example:443: Connection refused (relays listen on 8471 "));
        assert!(!why(true, refused("r1.example:8471")).contains("listen"));
        assert!(!why(false, LaneError::protocol("no")).contains("listen"));
    }

    #[test]
    fn what_relays_tell_is_read_and_nonsense_is_not() {
        let origins = ["http://a:1", "http://b", "http://c", "http://d"].map(str::to_owned);
        let body =
            br#"{"relay":"swath","key":"k","name":"r1\u0007","hops":{"http://a:1":{"rtt_ms":12.5},
            "http://b":{"error":"not listed"},"http://c":{"rtt_ms":-1},"http://x":{"rtt_ms":1}}}"#;
        let (about, key) = read(body, &origins, Duration::from_millis(3)).unwrap();
        assert_eq!(key.as_deref(), Some("k"));
        let (near, why) = (Duration::from_micros(12_500), |text: &str| Err(text.to_owned()));
        let unsaid = || why("it does not say");
        let listed = why("it is not among those that this relay asks (--upstream)");
        let hops = vec![Ok(near), listed, unsaid(), unsaid()];
        let expected = AboutRelay { name: "r1".to_owned(), rtt: Duration::from_millis(3), hops };
        assert_eq!(about, expected);
        for wrong in ["", "[]", "{}", r#"{"relay":"other"}"#, "<html>"] {
            assert_eq!(read(wrong.as_bytes(), &origins, Duration::ZERO), None, "{wrong}");
        }
    }
}
