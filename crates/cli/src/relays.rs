//! Relays and routes from the command line and the configuration file.

use std::path::PathBuf;

use crate::failure::Failure;
use clap::{Args, ValueHint};
use swath_jobs::{Address, Environment, RouteChoice, Routes, SecretRef};
use swath_source::Token;
use swath_state::{Location, State};
use swath_transfer::RelayAccess;

use crate::config::settings::SettingValue;
use crate::config::{self, Config, ConfigError, ConfigProblem, Relay, RouteOption};
use crate::exit::Exit;
use crate::exposed;
use crate::remember;

/// Relays and route of a command line.
#[derive(Args, Debug, Clone, Default)]
#[command(next_help_heading = "Routes")]
pub struct RelayArgs {
    /// Use this relay where it makes the transfer faster (repeatable); replaces those of the configuration file
    #[arg(long, value_name = "URL", value_parser = config::relay, value_hint = ValueHint::Url)]
    pub relay: Vec<Relay>,
    /// Choose the route: 'auto' measures during the transfer; 'direct'; relays R1,R2 from here to the source; 'widest', one route at a time; 'multi', as many routes as are useful [default: from the configuration file, else auto]
    #[arg(long, value_name = "ROUTE", value_parser = config::route, value_hint = ValueHint::Other)]
    pub route: Option<RouteOption>,
}

/// Relays, route and mode of a command line.
#[derive(Args, Debug, Clone, Default)]
#[command(next_help_heading = "Routes")]
pub struct RouteArgs {
    /// Relays and routes
    #[command(flatten)]
    pub which: RelayArgs,
    /// Tunnel connections to the origin through relays, which cannot read or change https:// data; http:// data stays readable
    #[arg(long)]
    pub end_to_end: bool,
}

impl RelayArgs {
    /// Returns the configuration file with the options of the command line over it.
    pub fn configured(&self) -> Result<Config, Failure> {
        let file = Config::load().map_err(|error| Failure::new(Exit::Input, error.to_string()))?;
        let route_at = file.route_at.clone().filter(|_| self.route.is_none());
        self.over(file).map_err(|wrong| match wrong {
            ConfigProblem::Scheme { .. } => Failure::usage(wrong.to_string()),
            wrong => blame(route_at, wrong),
        })
    }

    /// Whether the command line asks for relays.
    pub fn names_relays(&self) -> bool {
        let is_by_relays =
            !matches!(self.route, None | Some(RouteOption::Auto | RouteOption::Direct));
        let is_direct = self.route == Some(RouteOption::Direct);
        is_by_relays || !self.relay.is_empty() && !is_direct
    }

    fn over(&self, file: Config) -> Result<Config, ConfigProblem> {
        let mut relays = if self.relay.is_empty() { file.relays.clone() } else { Vec::new() };
        let mut add = |relay: &Relay| {
            let opened = relay.opened_by(&file.relays)?;
            match relays.iter_mut().find(|known| known.site() == opened.site()) {
                None => relays.push(opened),
                Some(known) if relay.has_login() => *known = opened,
                Some(_) => {}
            }
            Ok(())
        };
        self.relay.iter().try_for_each(&mut add)?;
        if let Some(RouteOption::Over(names)) = &self.route {
            names.iter().filter_map(|name| config::relay(name).ok()).try_for_each(|it| add(&it))?;
        }
        let (route, route_at) = match &self.route {
            Some(route) => (Some(route.clone()), None),
            None => (file.route, file.route_at),
        };
        let config = Config { relays, route, route_at, ..file };
        config.relays_of_the_route()?;
        Ok(config)
    }
}

impl RouteArgs {
    /// Returns the routes of a job, and opens the state in its environment.
    pub fn spec(&self, environment: &mut Environment) -> Result<Routes, Failure> {
        let config = self.which.configured()?;
        let choice = choice(&config).map_err(|wrong| match (config.route_at.clone(), wrong) {
            (None, ConfigProblem::Needs(word)) => {
                Failure::usage(format!("--route {word} needs a relay: add --relay URL"))
            }
            (at, wrong @ ConfigProblem::Needs(_)) => blame(at, wrong),
            (_, wrong) => Failure::usage(wrong.to_string()),
        })?;
        if !config.relays.is_empty() && choice != RouteChoice::Direct {
            environment.state = remembered();
        }
        let relays = config.relays.into_iter().map(|relay| swath_jobs::Relay {
            url: Address::new(relay.url),
            token: relay.token_file.map(SecretRef::File),
            fingerprint: relay.fingerprint,
        });
        Ok(Routes { relays: relays.collect(), choice, end_to_end: self.end_to_end })
    }
}

/// Returns which routes a configuration chooses.
fn choice(config: &Config) -> Result<RouteChoice, ConfigProblem> {
    Ok(match config.route.clone().unwrap_or_default() {
        RouteOption::Auto => RouteChoice::Auto,
        RouteOption::Direct => RouteChoice::Direct,
        RouteOption::Widest if config.relays.is_empty() => {
            return Err(ConfigProblem::Needs("widest"));
        }
        RouteOption::Multi if config.relays.is_empty() => {
            return Err(ConfigProblem::Needs("multi"));
        }
        RouteOption::Widest => RouteChoice::Widest,
        RouteOption::Multi => RouteChoice::Multi,
        RouteOption::Over(_) => RouteChoice::Over(config.relays_of_the_route()?),
    })
}

/// Returns why the route of a file and of these settings of the environment cannot be used, if so.
pub fn fault(file: &Config, set: &[SettingValue]) -> Option<String> {
    let values =
        |name| set.iter().filter(move |it| it.setting.name == name).flat_map(|it| &it.values);
    let args = RelayArgs {
        relay: values("relay").filter_map(|text| config::relay(text).ok()).collect(),
        route: values("route").find_map(|text| config::route(text).ok()),
    };
    let route_at = file.route_at.clone().filter(|_| args.route.is_none());
    let wrong = args.over(file.clone()).and_then(|config| choice(&config)).err()?;
    Some(match route_at {
        Some((path, line)) => ConfigError::At { path, line, wrong }.to_string(),
        None => format!("SWATH_ROUTE: {wrong}"),
    })
}

/// Returns the failure of a route, with the place where it was set.
fn blame(route_at: Option<(PathBuf, usize)>, wrong: ConfigProblem) -> Failure {
    match route_at {
        Some((path, line)) => {
            Failure::new(Exit::Input, ConfigError::At { path, line, wrong }.to_string())
        }
        None => Failure::usage(format!("--route: {wrong}")),
    }
}

/// Returns a relay with its token.
pub fn access(relay: Relay) -> Result<RelayAccess, Failure> {
    relay.token_file.as_deref().into_iter().for_each(exposed::warn_of_secret);
    let token = relay.token_file.as_deref().map(Token::in_file).transpose()?;
    Ok(RelayAccess { url: relay.url, token, fingerprint: relay.fingerprint })
}

/// Opens the state, if there is one; problems are only warnings.
fn remembered() -> Option<State> {
    match remember::place() {
        Location::At(path) => Some(remember::open(&path)),
        Location::Off | Location::Homeless => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_command_line_says_wins() {
        let file = |route: Option<&str>| Config {
            relays: vec![
                config::relay("https://r1.example").unwrap(),
                config::relay("https://r2.other").unwrap(),
            ],
            route: route.map(|text| config::route(text).unwrap()),
            ..Config::default()
        };
        let line = |relays: &[&str], route: Option<&str>| RelayArgs {
            relay: relays.iter().map(|text| config::relay(text).unwrap()).collect(),
            route: route.map(|text| config::route(text).unwrap()),
        };
        let sites =
            |config: &Config| -> Vec<String> { config.relays.iter().map(Relay::site).collect() };
        let both = line(&[], None).over(file(Some("widest"))).unwrap();
        assert_eq!((sites(&both).len(), both.route), (2, Some(RouteOption::Widest)));
        let both = line(&["http://x"], Some("direct")).over(file(Some("widest"))).unwrap();
        assert_eq!((sites(&both), both.route), (vec!["x:80".into()], Some(RouteOption::Direct)));
        // A route of the file that leads over relays which the command line does without.
        let gone = line(&["http://x"], None).over(file(Some("r1"))).unwrap_err().to_string();
        assert!(gone.contains("'r1', which is not among the relays x:80"), "{gone}");
        // What is said twice on a command line is a slip of a script.
        let twice = line(&["http://x", "http://X:80/"], None).over(file(None)).unwrap();
        assert_eq!(sites(&twice), ["x:80"]);
        // What opens a relay is known from the file.
        let mut opened = file(None);
        opened.relays[0].token_file = Some("r1.token".into());
        let both = line(&["https://r1.example", "http://x"], None).over(opened).unwrap();
        assert_eq!(both.relays[0].token_file, Some("r1.token".into()));
        assert_eq!((both.relays.len(), &both.relays[1].token_file), (2, &None));
        // A token and a certificate are for one server: `--relay http://…` got them of an https:// one,
        // and showed the token to everybody on the way.
        let fingerprint = crate::args::fingerprint(&format!("sha-256:{:064}", 1)).ok();
        let mut pinned = file(None);
        pinned.relays[0].token_file = Some("r1.token".into());
        pinned.relays[0].fingerprint = fingerprint;
        for (relays, route) in [
            (&["http://r1.example:443"][..], None),
            (&["http://any:typed@r1.example:443"], None),
            (&[], Some("http://r1.example:443")),
            (&["https://r2.other"], Some("http://r1.example:443")),
        ] {
            let refused = line(relays, route).over(pinned.clone()).unwrap_err().to_string();
            assert!(refused.contains("r1.example:443 with https://, not http://"), "{refused}");
        }
        // What is typed opens it, whatever the file says, and the certificate stays.
        let opened = "https://any:typed@r1.example";
        for (relays, route) in [(&[opened][..], None), (&[], Some(opened))] {
            let both = line(relays, route).over(pinned.clone()).unwrap();
            let own = &both.relays[0];
            assert_eq!((own.url.password(), &own.token_file), (Some("typed"), &None));
            assert_eq!(own.fingerprint, fingerprint);
        }
        // An address needs no further introduction.
        let added = line(&["http://x"], Some("x,https://y")).over(file(None)).unwrap();
        assert_eq!(
            (sites(&added), added.relays_of_the_route()),
            (vec!["x:80".to_owned(), "y:443".to_owned()], Ok(vec![0, 1]),)
        );
        // By any name that is clear.
        for name in ["r1", "R1.example", "r1.example:443", "https://r1.example/"] {
            let config = line(&[], Some(name)).over(file(None)).unwrap();
            assert_eq!(config.relays_of_the_route(), Ok(vec![0]), "{name}");
        }
        let alike = line(&["https://r1.a", "https://r1.b"], Some("r1")).over(file(None));
        assert!(matches!(alike, Err(ConfigProblem::Ambiguous { .. })), "{alike:?}");
    }
}
