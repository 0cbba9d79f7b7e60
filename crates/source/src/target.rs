//! Where the requests of a source go now: an origin, a path, and what every request there says.

use std::fmt;

use swath_formats::plain_http::SpeaksHttps;
use swath_formats::{depot, relay};
use swath_model::Range;
use url::{Host, Url};

use crate::cookies::Cookies;
use crate::error::{LaneError, Presented, RefusalContext, Said};
use crate::http::answer::Teller;
use crate::http::request;
use crate::net::{Credentials, Encrypted, Keys, Net, Via, has};
use crate::source::Trust;

/// Scheme, host and port: the unit to which connections and credentials belong.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Origin {
    pub tls: bool,
    pub host: Host<String>,
    pub port: u16,
}

impl Origin {
    /// `None` for anything but http and https with a host.
    pub fn of(url: &Url) -> Option<Origin> {
        let tls = match url.scheme() {
            "https" => true,
            "http" => false,
            _ => return None,
        };
        Some(Origin { tls, host: url.host()?.to_owned(), port: url.port_or_known_default()? })
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.host, self.port)
    }
}

/// One address that requests go to.
pub(crate) struct Target {
    pub url: Url,
    pub origin: Option<Origin>,
    pub trust: Trust,
    /// The part that all requests share; holds credentials, so it is never shown.
    shared: String,
    /// What is encrypted for relays, anew for each request.
    encrypting: Option<Sealing>,
    /// The user's own headers say which media types are wanted.
    own_accept: bool,
    /// The user's own headers have cookies.
    own_cookie: bool,
    /// Which credentials requests here show.
    presented: Presented,
    /// A redirect led here.
    redirected: bool,
    /// The cookies that requests here show.
    pub cookies: String,
    /// What is asked for, without the relays that it comes through.
    pub end: Url,
    /// Relays that carry the connection without reading it, the nearest first.
    pub via: Via,
    /// The keys with which the relays open what is encrypted for them.
    pub keys: Keys,
}

/// What relays are to be shown, each for its eyes alone.
struct Sealing {
    net: Net,
    relays: Vec<Url>,
    given: Url,
    trust: Trust,
}

impl Target {
    /// `url` as an address of the source that was given as `source_url`.
    pub fn new(net: &Net, source_url: &Url, url: &Url, trust: Trust) -> Target {
        let credentials = net.credentials_for(source_url, url, trust);
        Target::with(net, source_url, url, trust, credentials)
    }

    /// `url` as an address at a relay of what was given as `given`, which relays pass on at
    /// `source_url`. Of the user's own secrets the first relay gets none but what opens it.
    /// What opens the origin, a password in `given` too, is encrypted for the last relay, and what opens
    /// other relays for these.
    pub fn through(net: &Net, given: &Url, source_url: &Url, url: &Url, trust: Trust) -> Target {
        let own = Origin::of(source_url).filter(|own| Origin::of(url).as_ref() == Some(own));
        let credentials = own.map(|own| net.credentials_for_relay(&own)).unwrap_or_default();
        let mut target = Target::with(net, source_url, url, Trust::Named, credentials);
        let (relays, end) = relay::route(url);
        let (_, given) = relay::route(given);
        let Encrypted { lines, keys } = net.encrypted_for(&relays, &given, &end, trust);
        if !lines.is_empty() {
            target.encrypting = Some(Sealing { net: net.clone(), relays, given, trust });
        }
        Target { end, keys, ..target }
    }

    /// Who answers requests here.
    pub fn teller(&self) -> Teller {
        let path = self.url.path();
        let is_relay = path.starts_with(relay::PREFIX) || depot::is_path(path);
        if is_relay { Teller::Relay } else { Teller::Server }
    }

    /// Returns the same address, on a connection that relays carry.
    pub fn carried_by(self, via: &Via) -> Target {
        Target { via: Via::clone(via), ..self }
    }

    /// Returns the same address, shown the cookies that are for it, unless the user gives their own.
    pub fn showing(mut self, cookies: &Cookies) -> Target {
        let shown = cookies.shown_to(&self.url);
        if !shown.is_empty() && !self.own_cookie {
            self.shared.push_str(&format!("Cookie: {shown}\r\n"));
            self.cookies = shown;
        }
        self
    }

    fn with(
        net: &Net,
        source_url: &Url,
        url: &Url,
        trust: Trust,
        credentials: Credentials,
    ) -> Target {
        let origin = Origin::of(url);
        let mut fields: Vec<(&str, &str)> = Vec::new();
        if !has(&credentials.headers, "user-agent") {
            fields.push(("User-Agent", net.user_agent()));
        }
        let own_accept = has(&credentials.headers, "accept");
        let own_cookie = has(&credentials.headers, "cookie");
        let elsewhere = Origin::of(source_url) != origin;
        let presented = if credentials.are_some() {
            Presented::Sent
        } else if credentials.needs_tls {
            Presented::NeedsTls
        } else if elsewhere && net.credentials_for(source_url, source_url, trust).are_some() {
            Presented::OtherHost
        } else if !elsewhere
            && trust != Trust::Named
            && net.credentials_for(source_url, url, Trust::Named).are_some()
        {
            Presented::Unnamed
        } else {
            Presented::None
        };
        fields.extend(
            credentials.headers.iter().map(|(name, value)| (name.as_str(), value.as_str())),
        );
        if let Some(authorization) = &credentials.authorization {
            fields.push(("Authorization", authorization.expose()));
        }
        let absolute = origin.as_ref().is_some_and(|origin| net.asks_proxy(origin));
        let proxy_authorization =
            origin.as_ref().filter(|_| absolute).and_then(|origin| net.proxy_authorization(origin));
        if let Some(authorization) = &proxy_authorization {
            fields.push(("Proxy-Authorization", authorization.expose()));
        }
        // Any host but the one the user named was named by the network.
        let trust = if elsewhere { Trust::Discovered } else { trust };
        Target {
            shared: request::shared_part(url, absolute, &fields),
            encrypting: None,
            origin,
            url: url.clone(),
            trust,
            own_accept,
            own_cookie,
            presented,
            redirected: source_url != url,
            cookies: String::new(),
            end: url.clone(),
            via: Via::from([]),
            keys: Keys::default(),
        }
    }

    /// A refusal for want of credentials, with what the user must know to do something about it:
    /// who refused, and what was shown there. Other errors as they are.
    pub fn explain(&self, error: LaneError) -> LaneError {
        let LaneError::Refused(mut refusal) = error else { return error };
        // A library on the way leaves nothing of the status line but its number.
        let Said { phrase, why } = &refusal.said;
        let lines = [Some(phrase), why.as_ref()];
        let read = |line: &String| SpeaksHttps::read(refusal.code, line);
        if let Some(who) = lines.into_iter().flatten().find_map(read) {
            return LaneError::SpeaksHttps(who);
        }
        if matches!(refusal.code, 401 | 403) {
            refusal.context = RefusalContext::Credentials {
                presented: self.presented,
                redirected_to: self.redirected.then(|| crate::shown::display_name(&self.url)),
            };
        }
        LaneError::Refused(refusal)
    }

    /// Appends a GET for `range` to `out`, asking for these media types (unless the user said
    /// which); `extra` holds further complete header lines.
    pub fn append(&self, out: &mut Vec<u8>, range: Range, accept: &str, extra: &str) {
        let lines = [self.encrypted_lines(), self.accept_line(accept), extra.to_owned()];
        request::append(out, &self.shared, range, &lines.each_ref().map(String::as_str));
    }

    /// The same for the whole file, without a word of ranges.
    pub fn append_whole(&self, out: &mut Vec<u8>, accept: &str, extra: &str) {
        let lines = [self.encrypted_lines(), self.accept_line(accept), extra.to_owned()];
        request::append_whole(out, &self.shared, &lines.each_ref().map(String::as_str));
    }

    /// How a request by another method than GET begins.
    pub fn begin(&self, method: &str) -> Vec<u8> {
        let mut out = method.as_bytes().to_vec();
        out.extend_from_slice(self.shared.trim_start_matches("GET").as_bytes());
        out.extend_from_slice(self.encrypted_lines().as_bytes());
        out
    }

    /// What is encrypted for relays can be used once.
    fn encrypted_lines(&self) -> String {
        let encrypted = self
            .encrypting
            .as_ref()
            .map(|of| of.net.encrypted_for(&of.relays, &of.given, &self.end, of.trust).lines);
        encrypted.unwrap_or_default()
    }

    /// The header line that asks for these media types; empty if the user said which.
    pub fn accept_line(&self, accept: &str) -> String {
        if self.own_accept { String::new() } else { format!("Accept: {accept}\r\n") }
    }
}

impl fmt::Debug for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Target({})", crate::shown::display_name(&self.url))
    }
}
