//! `swath routes`: shows the remembered network and the widest routes through it.
//!
//! Showing neither uses the network nor creates a file; `forget` and `probe` change the state, and only
//! `probe` uses the network.

pub mod args;

mod draw;
mod forget;
mod json;
mod map;
mod past;
pub mod probe;
mod table;

pub use map::named;
pub use table::ago;

use crate::failure::Failure;
use swath_model::path::visible;
use swath_state::{HERE, KnownEdge, KnownRelay, Location};

use crate::config::{Config, Relay, RouteOption};
use crate::exit::Exit;
use crate::progress::look::Look;
use crate::{remember, say};
use args::{Routes, RoutesCommand};
use map::{Map, NoSite, Path};

/// Runs the command.
pub fn run(args: Routes) -> Result<Exit, Failure> {
    match &args.command {
        Some(RoutesCommand::Forget(forget)) => Ok(forget::run(forget)),
        // Needs the runtime, and is started by `main`.
        Some(RoutesCommand::Probe(_)) => Ok(Exit::Internal),
        None => show(&args),
    }
}

fn show(args: &Routes) -> Result<Exit, Failure> {
    // The route of the configuration file is for transfers, and hides nothing here.
    let config = args.which().configured()?;
    let config = Config { route: args.route.clone(), ..config };
    let (from, to) = (args.from.as_deref(), args.to.as_deref());
    let memory = Memory::look();
    let exit = if memory.is_read { Exit::Done } else { Exit::Input };
    let mut shown = NetworkView::new(memory, &config, from, to)?;
    if let Some(path) = &args.svg {
        let to = to.map_or(Ok(HERE), |text| site(&shown.map, text))?;
        draw::write(path, &shown.map, to, &shown.routes())?;
    }
    let text = match args.json {
        true => shown.json()?,
        false => {
            if !args.all {
                shown.hide_past(&config, &[from, to]);
            }
            shown.words(from.is_some())
        }
    };
    Ok(say::out(text.as_bytes(), exit))
}

/// The remembered network as it is shown.
struct NetworkView {
    map: Map,
    found: RequestedRoutes,
    relays: Vec<(String, Option<KnownRelay>)>,
    /// Number of hidden relays.
    hidden: usize,
    nothing: String,
}

impl NetworkView {
    fn new(
        memory: Memory,
        config: &Config,
        from: Option<&str>,
        to: Option<&str>,
    ) -> Result<NetworkView, Failure> {
        let relays = relays(config, memory.relays);
        // A relay that never answered as one is probably a source, named by mistake.
        let is_one = |(site, known): &&(String, Option<KnownRelay>)| {
            config.relays.iter().any(|relay| relay.site() == *site)
                || known.as_ref().is_some_and(|known| known.seen_age_s.is_some())
        };
        let of_relays = relays.iter().filter(is_one).map(|(site, _)| site.clone()).collect();
        let map = Map::new(memory.edges, of_relays);
        let found = RequestedRoutes::new(&map, from, to, config)?;
        Ok(NetworkView { map, found, relays, hidden: 0, nothing: memory.nothing })
    }

    fn routes(&self) -> Vec<&Path> {
        self.found.routes.iter().flat_map(|of| &of.paths).collect()
    }

    fn json(&self) -> Result<String, Failure> {
        json::edges(&self.map.edges, &self.routes())
            .map_err(|error| Failure::new(Exit::Internal, error.to_string()))
    }

    /// Hides old relays, unless they are configured or requested.
    fn hide_past(&mut self, config: &Config, asked: &[Option<&str>]) {
        let asked = asked.iter().flatten().filter_map(|text| self.map.site(text).ok());
        let wanted: Vec<String> =
            config.relays.iter().map(Relay::site).chain(asked.map(str::to_owned)).collect();
        let past = past::relays(&self.relays, &self.map.edges, &wanted);
        self.hidden = past.len();
        self.relays.retain(|(site, _)| !past.contains(site));
        self.map.edges.retain(|edge| !past.contains(&edge.from) && !past.contains(&edge.to));
    }

    fn words(&self, is_asked: bool) -> String {
        let look = Look::of_lines();
        let mut parts = Vec::new();
        if self.map.edges.is_empty() {
            // Relays may be known nevertheless, and are listed below.
            let is_known = self.relays.iter().any(|(_, known)| known.is_some());
            let nothing =
                if is_known { "no rates and no round trips are known yet" } else { &self.nothing };
            parts.push(format!("{nothing}\n"));
        } else {
            parts.push(table::edges(&self.map.edges, &self.routes()));
        }
        let mut said = String::new();
        for of in &self.found.routes {
            let arrow = look.either(" → ", " -> ");
            for path in &of.paths {
                said += &table::path(path, look);
                for (site, error) in failed(path, &self.relays) {
                    said +=
                        &format!("{}currently unusable: {site} failed: {error}\n", " ".repeat(15));
                }
            }
            if let Some((sum, count)) = of.together {
                said += &table::together(sum, count);
            }
            if let Some((from, to)) = &of.unknown {
                said += &format!("  unknown: {from}{arrow}{to} was never measured\n");
            } else if of.paths.is_empty() && is_asked {
                said += &format!("  no known route from {} to {}\n", of.from, of.to);
            }
        }
        if self.found.left_out > 0 {
            said += &format!(
                "  and {} more sources: give one to see its routes\n",
                self.found.left_out
            );
        }
        if !said.is_empty() {
            parts.push(format!("routes:\n{said}"));
        }
        if !self.relays.is_empty() {
            parts.push(format!("relays:\n{}", table::relays(&self.relays)));
        }
        let mut text = parts.join("\n");
        if self.hidden > 0 {
            text += &past::words(self.hidden);
        }
        text
    }
}

/// The remembered network.
struct Memory {
    edges: Vec<KnownEdge>,
    relays: Vec<KnownRelay>,
    /// Whether it could be read.
    is_read: bool,
    /// The text if it is empty.
    nothing: String,
}

impl Memory {
    fn look() -> Memory {
        let none = |nothing: String| Memory {
            edges: Vec::new(),
            relays: Vec::new(),
            is_read: true,
            nothing,
        };
        match remember::place() {
            Location::Off => none("nothing is remembered: SWATH_STATE is off".to_owned()),
            Location::Homeless => none(
                "nothing is remembered: SWATH_STATE, XDG_STATE_HOME and HOME are unset".to_owned(),
            ),
            Location::At(path) => {
                let nothing = format!("nothing is remembered yet ({})", path.display());
                if !path.exists() {
                    return none(nothing);
                }
                let (state, is_read) = remember::look(&path);
                let nothing = match is_read {
                    true => nothing,
                    false => format!("cannot read the remembered network ({})", path.display()),
                };
                Memory { edges: state.edges(), relays: state.relays(), is_read, nothing }
            }
        }
    }
}

/// The requested routes.
struct RequestedRoutes {
    routes: Vec<SourceRoutes>,
    /// Number of omitted origins.
    left_out: usize,
}

/// The routes of one source.
struct SourceRoutes {
    from: String,
    to: String,
    paths: Vec<Path>,
    /// The total rate of several routes in bytes per second, and their number, if requested.
    together: Option<(f64, usize)>,
    /// The unmeasured edge of the requested route.
    unknown: Option<(String, String)>,
}

impl RequestedRoutes {
    fn new(
        map: &Map,
        from: Option<&str>,
        to: Option<&str>,
        config: &Config,
    ) -> Result<RequestedRoutes, Failure> {
        let to = to.map_or(Ok(HERE), |text| site(map, text))?.to_owned();
        let from: Vec<String> = match from {
            Some(text) => vec![site(map, text)?.to_owned()],
            None => map.origins().into_iter().map(str::to_owned).collect(),
        };
        if from.len() == 1 && from[0] == to {
            return Err(Failure::usage(format!("the route begins and ends at {to}")));
        }
        let left_out = from.len().saturating_sub(ORIGINS_SHOWN);
        let from = from.into_iter().take(ORIGINS_SHOWN);
        let routes = from.map(|from| SourceRoutes::new(map, from, to.clone(), config));
        Ok(RequestedRoutes { routes: routes.collect::<Result<_, _>>()?, left_out })
    }
}

impl SourceRoutes {
    fn new(map: &Map, from: String, to: String, config: &Config) -> Result<SourceRoutes, Failure> {
        let none = SourceRoutes { paths: Vec::new(), together: None, unknown: None, from, to };
        let (from, to) = (none.from.as_str(), none.to.as_str());
        let over = |relays: &[String]| map.over(map::through(from, relays, to));
        let of_one = |found: Result<Path, (String, String)>| match found {
            Ok(path) => (vec![path], None),
            Err(edge) => (Vec::new(), Some(edge)),
        };
        let widest = || map.widest(from, to).into_iter().collect::<Vec<_>>();
        Ok(match config.route.clone().unwrap_or_default() {
            RouteOption::Auto => {
                let (paths, (all, sum)) = (widest(), map.together(from, to));
                SourceRoutes {
                    paths,
                    together: (all.len() > 1).then_some((sum, all.len())),
                    ..none
                }
            }
            RouteOption::Widest => SourceRoutes { paths: widest(), ..none },
            RouteOption::Multi => {
                let (paths, sum) = map.together(from, to);
                SourceRoutes {
                    together: (paths.len() > 1).then_some((sum, paths.len())),
                    paths,
                    ..none
                }
            }
            RouteOption::Direct => {
                let (paths, unknown) = of_one(over(&[]));
                SourceRoutes { paths, unknown, ..none }
            }
            RouteOption::Over(_) => {
                let places = config
                    .relays_of_the_route()
                    .map_err(|wrong| Failure::usage(wrong.to_string()))?;
                let sites: Vec<String> =
                    places.into_iter().map(|at| config.relays[at].site()).collect();
                let (paths, unknown) = of_one(over(&sites));
                SourceRoutes { paths, unknown, ..none }
            }
        })
    }
}

fn site<'m>(map: &'m Map, text: &str) -> Result<&'m str, Failure> {
    map.site(text).map_err(|error| match error {
        NoSite::Unknown(name) if name.is_empty() => {
            Failure::usage("a site such as host:port is needed".to_owned())
        }
        NoSite::Unknown(name) => {
            Failure::new(Exit::Input, format!("nothing is known about {name}"))
        }
        NoSite::Ambiguous(name, names) => {
            Failure::usage(format!("{name} is ambiguous: {}", names.join(" or ")))
        }
    })
}

/// Returns the configured relays, then those that are only remembered.
fn relays(config: &Config, known: Vec<KnownRelay>) -> Vec<(String, Option<KnownRelay>)> {
    let mut known: Vec<(String, KnownRelay)> =
        known.into_iter().map(|relay| (map::named(&relay.url), relay)).collect();
    let mut all = Vec::new();
    for relay in &config.relays {
        let at = known.iter().position(|(site, _)| *site == relay.site());
        all.push((relay.site(), at.map(|at| known.remove(at).1)));
    }
    all.extend(known.into_iter().map(|(site, relay)| (site, Some(relay))));
    all
}

/// Returns the relays of a route that failed at the last query, so that its measured rate may be
/// outdated. The source is not included: it may have been queried as a relay by mistake.
fn failed<'a>(path: &Path, relays: &'a [(String, Option<KnownRelay>)]) -> Vec<(&'a str, String)> {
    let passed = path.sites.get(1..path.sites.len().saturating_sub(1)).unwrap_or_default();
    let failed = relays.iter().filter(|(site, _)| passed.contains(site));
    let failed = failed.filter_map(|(site, known)| {
        let known = known.as_ref()?;
        let (error, age_s) = known.error.as_ref()?;
        let is_last = known.seen_age_s.is_none_or(|seen_s| *age_s <= seen_s);
        is_last.then(|| (site.as_str(), visible(error)))
    });
    failed.collect()
}

/// Most origins whose routes are shown without a request.
const ORIGINS_SHOWN: usize = 20;
