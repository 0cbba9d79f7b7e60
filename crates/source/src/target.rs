//! Where the requests of a source go now: an origin, a path, and what every request there says.

use std::fmt;

use swath_formats::plain_http::SpeaksHttps;
use swath_formats::{depot, relay};
use swath_model::Range;
use url::{Host, Url};

use crate::cookies::Cookies;
use crate::error::{LaneError, Presented, RefusalContext, Said};
use crate::http::answer::Teller;
use crate::http::request::{self, Lines};
use crate::net::{Authorization, Credentials, Encrypted, Keys, Net, Secret, Via, has};
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
    shared: Lines,
    /// What each request shows as it is then: tokens are renewed meanwhile.
    authorization: Option<Authorization>,
    /// Requests go to a proxy, which is told the whole address.
    absolute: bool,
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
            self.shared.add("Cookie", &shown);
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
        let absolute = origin.as_ref().is_some_and(|origin| net.asks_proxy(origin));
        let mut shared = Lines::default();
        if !has(&credentials.headers, "user-agent") {
            shared.add("User-Agent", net.user_agent());
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
        for (name, value) in &credentials.headers {
            shared.add(name, value);
        }
        let proxy_authorization =
            origin.as_ref().filter(|_| absolute).and_then(|origin| net.proxy_authorization(origin));
        if let Some(authorization) = &proxy_authorization {
            shared.add("Proxy-Authorization", authorization.expose());
        }
        // Any host but the one the user named was named by the network.
        let trust = if elsewhere { Trust::Discovered } else { trust };
        Target {
            shared,
            authorization: credentials.authorization,
            absolute,
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

    /// Returns a GET for `range`, or for the whole file without a word of ranges, that asks for these
    /// media types, unless the user said which.
    ///
    /// # Errors
    /// [`LaneError::UnsafeField`].
    pub fn get(
        &self,
        range: Option<Range>,
        accept: &str,
        more: &Lines,
    ) -> Result<Vec<u8>, LaneError> {
        let range = range.map(request::range_value);
        self.begin("GET", Some(accept)).with_any("Range", range.as_deref()).and(more).end()
    }

    /// Begins a request that asks for these media types, if any, unless the user said which.
    pub fn begin(&self, method: &str, accept: Option<&str>) -> Lines {
        let authorization = self.authorization.as_ref().map(Authorization::value);
        let lines = request::begin(method, &self.url, self.absolute)
            .and(&self.shared)
            .with_any("Authorization", authorization.as_ref().map(Secret::expose));
        // What is encrypted for relays can be used once.
        let lines = match &self.encrypting {
            Some(of) => {
                let Sealing { net, relays, given, trust } = of;
                lines.and(&net.encrypted_for(relays, given, &self.end, *trust).lines)
            }
            None => lines,
        };
        lines.with_any("Accept", accept.filter(|_| !self.own_accept))
    }
}

impl fmt::Debug for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Target({})", crate::shown::display_name(&self.url))
    }
}
