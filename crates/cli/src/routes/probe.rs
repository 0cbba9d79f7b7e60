//! `swath routes probe`: the network as it is now. Asks the relays, measures, and shows what is known
//! then as `swath routes` does, with what could not be reached and why.

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
use super::{Memory, Shown};
use crate::config::{Config, RouteWish};
use crate::engine::{self, Wishes};
use crate::exit::{Exit, warn};
use crate::progress::look::Look;
use crate::relays::{Relays, Which};
use crate::{net, remember, say, signals};

/// Run the command.
pub async fn run(args: Probe) -> Exit {
    match probe(&args).await {
        Ok(exit) => exit,
        Err(failure) => failure.tell(),
    }
}

async fn probe(args: &Probe) -> Result<Exit, Failure> {
    let sources: Vec<Url> = args
        .sources
        .iter()
        .map(|text| net::parse_url(text).map_err(Failure::from))
        .collect::<Result<_, _>>()?;
    // As many routes as pay are tried, whatever transfers are told to take.
    let which = Which { relay: args.relay.clone(), route: Some(RouteWish::Multi) };
    let config = Config { route: None, ..which.configured()? };
    if config.relays.is_empty() {
        let text = "there are no relays to be asked: --relay URL names one";
        return Err(Failure::usage(text.to_owned()));
    }
    let mut environment = Environment::default();
    let routes = Relays { which, end_to_end: false }.spec(&mut environment)?;
    let mut routes = environment.route_options(&routes)?;
    match remember::place() {
        Location::At(_) => {}
        Location::Off => warn("nothing of it is remembered, since SWATH_STATE says so"),
        Location::Homeless => warn(
            "nothing of it is remembered: neither SWATH_STATE, XDG_STATE_HOME nor HOME says where",
        ),
    }
    let state = routes.state.get_or_insert_with(State::none).clone();
    let engine = engine::start(Wishes { routes, ..Wishes::reading(&args.net, MEMORY_BYTES) })?;
    let stop = Stop::default();
    signals::watch(&stop);
    let survey = Survey { sources, bytes: args.bytes, lasts: args.lasts };
    if !args.json && !survey.sources.is_empty() && survey.bytes > 0 {
        let (bytes, lasts_s) = (units::bytes(survey.bytes), survey.lasts.as_secs_f64());
        say::err(&format!("fetching at most {bytes} for at most {lasts_s} s, to measure with"));
    }
    let surveyed = engine.survey(&survey, &stop).await;
    for warning in state.warnings() {
        warn(&warning.to_string());
    }
    let nothing = "nothing is known yet".to_owned();
    let memory = Memory { edges: state.edges(), relays: state.relays(), is_read: true, nothing };
    let shown = show(memory, &config, args, &surveyed)?;
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
    // Of one source the route is shown, if anything is known of it.
    let one = match &args.sources[..] {
        [one] => surveyed.sources.first().map(|it| (one.as_str(), it.site.as_str())),
        _ => None,
    };
    let is_known = |site: &str| memory.edges.iter().any(|edge| edge.from == site);
    let from = one.filter(|(_, site)| is_known(site)).map(|(text, _)| text);
    let shown = Shown::new(memory, config, from, None)?;
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
        out += "  nothing, so that rates were not measured: name a source\n";
    }
    for sampled in &surveyed.sources {
        out += &fetched(sampled, args);
    }
    Ok(out)
}

/// What was fetched of a source, by which ways, and what went wrong with them.
fn fetched(sampled: &Sampled, args: &Probe) -> String {
    let site = &sampled.site;
    let mut out = match failure(sampled) {
        Some(why) => format!("  nothing of {site}: {}\n", visible(&why)),
        None if args.bytes == 0 => format!("  nothing of {site}: --bytes 0 says so\n"),
        None if sampled.bytes() == 0 => format!("  nothing of {site}: there was no time left\n"),
        None => String::new(),
    };
    for way in &sampled.ways {
        let mut said = Vec::new();
        if way.bytes > 0 {
            said.push(units::bytes(way.bytes));
        }
        if way.was_brief {
            said.push("too soon here to tell a rate".to_owned());
        }
        said.extend(way.error.as_deref().map(visible));
        out += &format!("  {}: {}\n", visible(&way.name.to_string()), said.join("; "));
    }
    let is_brief = sampled.ways.iter().any(|way| way.was_brief);
    if is_brief && sampled.size_bytes.is_some_and(|size| size < args.bytes) {
        out += "  a larger file tells more\n";
    } else if is_brief {
        out += "  with more --bytes more can be measured\n";
    }
    if !sampled.untried.is_empty() && sampled.bytes() > 0 {
        let names = sampled.untried.join(", ");
        out +=
            &format!("  by {names}: not tried alone, for lack of time or bytes (--for, --bytes)\n");
    }
    out
}

/// Why nothing came of a source.
fn failure(sampled: &Sampled) -> Option<String> {
    sampled.error.as_ref().map(|error| match error {
        GetError::Stopped => "nothing came in that time".to_owned(),
        error => error.with_reasons(),
    })
}

/// An edge that nothing can come by.
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
    ways: Vec<Taken<'a>>,
    /// Relays for which nothing was left to be spent.
    untried: &'a [String],
}

#[derive(Serialize)]
struct Taken<'a> {
    #[serde(flatten)]
    name: &'a SourceName,
    bytes: u64,
    /// It was here too soon to tell a rate.
    brief: bool,
    error: Option<&'a str>,
}

/// For programs: what could not be reached, then the sources.
fn lines(surveyed: &Surveyed) -> Vec<serde_json::Result<String>> {
    let mut all: Vec<_> = unreached(surveyed).iter().map(serde_json::to_string).collect();
    for sampled in &surveyed.sources {
        let taken = sampled.ways.iter().map(|way| Taken {
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
            ways: taken.collect(),
            untried: &sampled.untried,
        }));
    }
    all
}

/// As for a transfer: long fast routes have much under way.
const MEMORY_BYTES: usize = 128 << 20;
