//! `swath routes probe`: queries the relays, measures, and shows the network as `swath routes` does, with
//! the unreachable edges.

use crate::failure::Failure;
use serde::Serialize;
use swath_jobs::Environment;
use swath_model::SourceName;
use swath_model::path::visible;
use swath_model::units;
use swath_state::{HERE, Location, State};
use swath_transfer::{GetError, Sampled, Stop, Survey, Surveyed};
use unicode_width::UnicodeWidthStr as _;
use url::Url;

use super::args::Probe;
use super::{Memory, NetworkView};
use crate::config::{Config, RouteOption};
use crate::engine;
use crate::exit::{Exit, warn};
use crate::progress::look::Look;
use crate::relays::{RelayArgs, RouteArgs};
use crate::{net, remember, say, signals};

/// Runs the command.
pub async fn run(args: Probe) -> Result<Exit, Failure> {
    let sources: Vec<Url> = args
        .sources
        .iter()
        .map(|text| net::parse_url(text).map_err(Failure::from))
        .collect::<Result<_, _>>()?;
    // All useful routes are tried, whatever route is set for transfers.
    let which = RelayArgs { relay: args.relay.clone(), route: Some(RouteOption::Multi) };
    let config = Config { route: None, ..which.configured()? };
    if config.relays.is_empty() {
        let text = "there is no relay to query: add --relay URL";
        return Err(Failure::usage(text.to_owned()));
    }
    let mut environment = Environment::default();
    let routes = RouteArgs { which, end_to_end: false }.spec(&mut environment)?;
    let mut routes = environment.route_options(&routes)?;
    match remember::place() {
        Location::At(_) => {}
        Location::Off => warn("the results are not saved: SWATH_STATE is off"),
        Location::Homeless => {
            warn("the results are not saved: SWATH_STATE, XDG_STATE_HOME and HOME are unset")
        }
    }
    let state = routes.state.get_or_insert_with(State::none).clone();
    let engine = engine::start(&args.net, MEMORY_BYTES, routes, None)?;
    let stop = Stop::default();
    signals::watch(&stop);
    let survey = Survey { sources, bytes: args.bytes, lasts: args.lasts };
    if !args.json && !survey.sources.is_empty() && survey.bytes > 0 {
        let (bytes, lasts_s) = (units::bytes(survey.bytes), survey.lasts.as_secs_f64());
        say::err(&format!("measuring: fetching at most {bytes} for at most {lasts_s} s"));
    }
    let surveyed = engine.survey(&survey, &stop).await;
    for warning in state.warnings() {
        warn(&warning.to_string());
    }
    let nothing = "nothing is known yet".to_owned();
    let memory = Memory { edges: state.edges(), relays: state.relays(), is_read: true, nothing };
    let shown = show(memory, &config, &args, &surveyed)?;
    let exit = match &surveyed {
        _ if stop.is_set() => Exit::Interrupted,
        it if it.sources.is_empty() => usable(it.relays.iter().any(|relay| relay.error.is_none())),
        it if args.bytes == 0 => usable(it.sources.iter().any(|one| one.unreached.is_none())),
        it => usable(it.sources.iter().any(|one| one.bytes() > 0)),
    };
    Ok(say::out(shown.as_bytes(), exit))
}

fn usable(is_any: bool) -> Exit {
    if is_any { Exit::Done } else { Exit::Sources }
}

fn show(
    memory: Memory,
    config: &Config,
    args: &Probe,
    surveyed: &Surveyed,
) -> Result<String, Failure> {
    // The route of a single source is shown, if it is known.
    let one = match &args.sources[..] {
        [one] => surveyed.sources.first().map(|it| (one.as_str(), it.site.as_str())),
        _ => None,
    };
    let is_known = |site: &str| memory.edges.iter().any(|edge| edge.from == site);
    let from = one.filter(|(_, site)| is_known(site)).map(|(text, _)| text);
    let shown = NetworkView::new(memory, config, from, None)?;
    if args.json {
        let mut out = shown.json()?;
        for line in lines(surveyed) {
            out += &line.map_err(|error| Failure::new(Exit::Internal, error.to_string()))?;
            out.push('\n');
        }
        return Ok(out);
    }
    let mut out = shown.words(from.is_some());
    let unreached = unreached(surveyed);
    let arrow = Look::of_lines().either(" → ", " -> ");
    let rows: Vec<(String, &str)> =
        unreached.iter().map(|it| (format!("{}{arrow}{}", it.from, it.to), it.error)).collect();
    if !rows.is_empty() {
        let width = rows.iter().map(|(edge, _)| edge.width()).max().unwrap_or(0);
        out += "\nnot reached:\n";
        for (edge, why) in rows {
            out += &format!("  {edge}{}  {}\n", " ".repeat(width - edge.width()), visible(why));
        }
    }
    out += "\nfetched:\n";
    if surveyed.sources.is_empty() {
        out += "  nothing: give a source to measure rates\n";
    }
    for sampled in &surveyed.sources {
        out += &fetched(sampled, args);
    }
    Ok(out)
}

/// Describes what was fetched from a source by each route, and errors.
fn fetched(sampled: &Sampled, args: &Probe) -> String {
    let site = &sampled.site;
    let mut out = match failure(sampled) {
        Some(why) => format!("  nothing from {site}: {}\n", visible(&why)),
        None if args.bytes == 0 => format!("  nothing from {site}: --bytes is 0\n"),
        None if sampled.bytes() == 0 => format!("  nothing from {site}: no time left\n"),
        None => String::new(),
    };
    for way in &sampled.ways {
        let mut said = Vec::new();
        if way.bytes > 0 {
            said.push(units::bytes(way.bytes));
        }
        if way.was_brief {
            said.push("too fast to measure a rate".to_owned());
        }
        said.extend(way.error.as_deref().map(visible));
        out += &format!("  {}: {}\n", visible(&way.name.to_string()), said.join("; "));
    }
    let is_brief = sampled.ways.iter().any(|way| way.was_brief);
    if is_brief && sampled.size_bytes.is_some_and(|size| size < args.bytes) {
        out += "  use a larger file to measure more\n";
    } else if is_brief {
        out += "  increase --bytes to measure more\n";
    }
    if !sampled.untried.is_empty() && sampled.bytes() > 0 {
        let names = sampled.untried.join(", ");
        out += &format!("  by {names}: not tried alone: no time or bytes left (--for, --bytes)\n");
    }
    out
}

/// Returns why nothing was received from a source.
fn failure(sampled: &Sampled) -> Option<String> {
    sampled.error.as_ref().map(|error| match error {
        GetError::Stopped => "nothing arrived in time".to_owned(),
        error => error.with_reasons(),
    })
}

/// An unreachable edge.
#[derive(Serialize)]
struct Unreached<'a> {
    from: &'a str,
    to: &'a str,
    error: &'a str,
}

fn unreached(surveyed: &Surveyed) -> Vec<Unreached<'_>> {
    let mut all = Vec::new();
    for relay in &surveyed.relays {
        if let Some(error) = &relay.error {
            all.push(Unreached { from: &relay.site, to: HERE, error });
        }
        for (from, error) in &relay.unreached {
            all.push(Unreached { from, to: &relay.site, error });
        }
    }
    for source in &surveyed.sources {
        if let Some(error) = &source.unreached {
            all.push(Unreached { from: &source.site, to: HERE, error });
        }
    }
    all
}

#[derive(Serialize)]
struct Source<'a> {
    source: &'a str,
    size_bytes: Option<u64>,
    fetched_bytes: u64,
    error: Option<String>,
    ways: Vec<RoutedSourceLine<'a>>,
    /// Relays that were not tried alone.
    untried: &'a [String],
}

#[derive(Serialize)]
struct RoutedSourceLine<'a> {
    #[serde(flatten)]
    name: &'a SourceName,
    bytes: u64,
    /// It was received too fast to measure a rate.
    brief: bool,
    error: Option<&'a str>,
}

/// Returns the JSON lines of unreachable edges and sources.
fn lines(surveyed: &Surveyed) -> Vec<serde_json::Result<String>> {
    let mut all: Vec<_> = unreached(surveyed).iter().map(serde_json::to_string).collect();
    for sampled in &surveyed.sources {
        let routed_sources = sampled.ways.iter().map(|way| RoutedSourceLine {
            name: &way.name,
            bytes: way.bytes,
            brief: way.was_brief,
            error: way.error.as_deref(),
        });
        all.push(serde_json::to_string(&Source {
            source: &sampled.site,
            size_bytes: sampled.size_bytes,
            fetched_bytes: sampled.bytes(),
            error: failure(sampled),
            ways: routed_sources.collect(),
            untried: &sampled.untried,
        }));
    }
    all
}

/// As for a transfer: long fast routes have much data in flight.
const MEMORY_BYTES: usize = 128 << 20;
