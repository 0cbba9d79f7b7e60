//! Relays as the command line names them.

use clap::{Args, ValueHint};
use swath_transfer::{
    Carriage, RelayAccess, RouteChoice, RouteOptions, State, StatePlace, Url, state_place,
};

use crate::exit::warn;

/// The ways that data may take.
#[derive(Args, Debug, Clone, Default)]
#[command(next_help_heading = "Routes")]
pub struct Relays {
    /// A relay that data may come through (repeatable): used where it makes the transfer faster
    #[arg(long, value_name = "URL", value_parser = relay, value_hint = ValueHint::Url)]
    pub relay: Vec<Url>,
    /// Which way: 'auto' finds out beside the transfer; 'direct'; relays as R1,R2 from here to the source; 'widest', one way at a time; 'multi', as many as pay
    #[arg(long, value_name = "ROUTE", default_value = "auto", value_hint = ValueHint::Other)]
    pub route: String,
    /// Relays carry connections with the origin itself, which they cannot read where these are encrypted
    #[arg(long)]
    pub end_to_end: bool,
}

impl Relays {
    /// As transfers take it; the error is a sentence.
    pub fn options(&self) -> Result<RouteOptions, String> {
        let mut urls: Vec<Url> = Vec::new();
        for url in &self.relay {
            if !urls.iter().any(|known| is_same(known, url)) {
                urls.push(url.clone());
            }
        }
        let choice = match self.route.as_str() {
            "auto" => RouteChoice::Auto,
            "direct" => RouteChoice::Direct,
            "widest" => RouteChoice::Widest,
            "multi" => RouteChoice::Multi,
            named => {
                let places: Result<Vec<usize>, String> =
                    named.split(',').map(|name| place(&mut urls, name.trim())).collect();
                RouteChoice::Fixed(places?)
            }
        };
        if urls.is_empty() && matches!(choice, RouteChoice::Widest | RouteChoice::Multi) {
            return Err(format!("--route {} needs relays: --relay URL names one", self.route));
        }
        let urls_are_some = !urls.is_empty();
        let relays = urls.into_iter().map(|url| RelayAccess { url, token: None }).collect();
        let state = match (&choice, urls_are_some) {
            (RouteChoice::Direct, _) | (_, false) => None,
            _ => remembered(),
        };
        let carriage = if self.end_to_end { Carriage::Carried } else { Carriage::Passed };
        Ok(RouteOptions { relays, choice, carriage, state })
    }
}

/// What earlier transfers have learnt; whatever is wrong with it is told and does not matter.
fn remembered() -> Option<State> {
    match state_place(|name| std::env::var_os(name)) {
        StatePlace::At(path) => {
            let (state, warning) = State::open(&path);
            if let Some(warning) = warning {
                warn(&warning.to_string());
            }
            Some(state)
        }
        _ => None,
    }
}

/// Where the relay that is called so stands in the list; an address that is not there is added.
fn place(urls: &mut Vec<Url>, name: &str) -> Result<usize, String> {
    if let Ok(url) = relay(name) {
        let at = urls.iter().position(|known| is_same(known, &url));
        return Ok(at.unwrap_or_else(|| {
            urls.push(url);
            urls.len() - 1
        }));
    }
    let is_called = |url: &&Url| {
        let host = url.host_str().unwrap_or_default();
        let site = swath_formats::relay::site(url).unwrap_or_default();
        host == name || site == name || host.split('.').next() == Some(name)
    };
    let found: Vec<&Url> = urls.iter().filter(is_called).collect();
    match found.as_slice() {
        [one] => Ok(urls.iter().position(|url| url == *one).unwrap_or_default()),
        [] => Err(format!(
            "--route: no relay is called '{name}' (auto, direct, widest and multi are the other choices; \
             a relay may be written as its address)"
        )),
        several => {
            let several: Vec<&str> = several.iter().map(|url| url.as_str()).collect();
            Err(format!("--route: '{name}' may be any of {}", several.join(", ")))
        }
    }
}

fn is_same(one: &Url, other: &Url) -> bool {
    swath_formats::relay::site(one) == swath_formats::relay::site(other)
}

/// A relay's address: no more than scheme, host and port.
pub fn relay(text: &str) -> Result<Url, String> {
    let url = Url::parse(text).map_err(|error| {
        format!("'{text}' is no address of a relay (https://r1.example.org:8471): {error}")
    })?;
    if !matches!(url.scheme(), "http" | "https") || !url.has_host() {
        return Err("a relay's address begins with https:// or http://".to_owned());
    }
    if url.path() != "/" || url.query().is_some() || url.fragment().is_some() {
        return Err("a relay's address ends behind its host and port".to_owned());
    }
    Ok(url)
}
