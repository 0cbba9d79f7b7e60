//! How well a transfer knows its end after five seconds: the program fetches a file from six emulated
//! mirrors, in the scenarios of `bench/multisource`.

use std::path::Path;
use std::time::Duration;

use swath_model::observe::{Eta, Event};
use swath_netlab::star::{Lab, ServerKind, WebServer, scratch_folder_in};
use swath_netlab::wan::{LabError, MTU_BYTES};

use super::fetch::{fetch, places_in};
use super::progress::whole;
use super::replay::Compared;
use super::scores::Scores;
use crate::check::empty;
use crate::data::make_file;
use crate::scenario::{PAYLOAD_BYTES, Scenario, scenarios};
use crate::star_run::Places;
use crate::study_files::say;

/// Lets the program fetch a file in each of the scenarios, so often, and returns what is to be said of
/// its estimates, one line for each scenario and one for all. Files lie below `scratch` meanwhile.
///
/// # Errors
/// What does not work in the laboratory, or which transfer failed.
pub fn six_links(
    swath: &Path,
    scratch: &Path,
    runs: usize,
    seed: u64,
) -> Result<Vec<String>, String> {
    let fault = |error: std::io::Error| format!("{}: {error}", scratch.display());
    let (folder, places) = places_in(scratch, swath).map_err(fault)?;
    let (mut all, mut lines) = (Vec::new(), Vec::new());
    for name in SCENARIOS {
        let mut outcomes = Vec::new();
        for run in 0..runs {
            let scenario = lasting(name, seed + run as u64)?;
            say(&format!("{name}, run {} of {runs}: {}", run + 1, scenario.title));
            empty(&places.served).map_err(fault)?;
            let data = make_file(&places.served, scenario.size_bytes).map_err(fault)?;
            let home = scratch_folder_in(folder.path()).map_err(fault)?;
            let outcome = estimated(&scenario, &places, home.path(), &data);
            outcomes.push(outcome.map_err(|error| format!("{name}: {error}"))?);
        }
        lines.push(format!("{name}: {}; {}", line(&outcomes), each(&outcomes)));
        all.extend(outcomes);
    }
    say("");
    lines.push(format!("all: {}", line(&all)));
    Ok(lines)
}

/// Returns a scenario with a file that keeps its links busy for a minute.
fn lasting(name: &str, seed: u64) -> Result<Scenario, String> {
    let known = scenarios(seed).into_iter().find(|known| known.name == name);
    let scenario = known.ok_or_else(|| format!("there is no scenario {name}"))?;
    Ok(Scenario { size_bytes: bytes_in(&scenario, LASTS), ..scenario })
}

/// Returns how many bytes the links of a scenario carry in this time.
fn bytes_in(scenario: &Scenario, time: Duration) -> u64 {
    let bits = scenario.schedule.carried_bits(&scenario.star.rates_bits_per_s(), time);
    let wire_bytes = bits.iter().sum::<f64>() / 8.0;
    (wire_bytes * PAYLOAD_BYTES / MTU_BYTES as f64) as u64
}

/// Returns what the program said after five seconds, and how long it took. In a new `home` nothing is
/// known of these mirrors.
fn estimated(
    scenario: &Scenario,
    places: &Places,
    home: &Path,
    data: &Path,
) -> Result<Compared, String> {
    let in_lab = |error: LabError| error.to_string();
    let lab = Lab::star(&scenario.star).map_err(in_lab)?;
    let servers = lab.servers().iter();
    let _servers = servers
        .map(|namespace| WebServer::start(ServerKind::Nginx, namespace, &places.served))
        .collect::<Result<Vec<_>, _>>()
        .map_err(in_lab)?;
    let links = 0..scenario.star.links.len();
    let started = || lab.play(&scenario.schedule);
    let said = fetch(places, home, &lab, links, data, LASTS * 5, started)?;
    estimate(&said).ok_or_else(|| format!("no estimate after {AFTER_S} s"))
}

/// Returns the first estimate after five seconds, and how long the transfer took.
fn estimate(said: &str) -> Option<Compared> {
    let (mut found, mut took_s) = (None, f64::NAN);
    for event in said.lines().filter_map(|line| serde_json::from_str(line).ok()) {
        match event {
            Event::Progress(now) if now.at_s >= AFTER_S && found.is_none() => {
                found = now.eta.map(|eta| (now.at_s, eta));
            }
            Event::Finished(summary) => took_s = summary.elapsed_s,
            _ => {}
        }
    }
    found.map(|(at_s, eta)| whole(at_s, eta, took_s))
}

/// Returns how many estimates were near, and how far off they were.
fn line(outcomes: &[Compared]) -> String {
    let is_near = |one: &&Compared| (one.takes.likely_s / one.took_s - 1.0).abs() <= NEAR;
    let (near, all) = (outcomes.iter().filter(is_near).count(), outcomes.len());
    format!("{near} of {all} within {:.0} %; {}", NEAR * 100.0, Scores::of(outcomes).line())
}

/// Returns each estimate with its range, and how long the transfer took, in seconds.
fn each(outcomes: &[Compared]) -> String {
    let all = outcomes.iter().map(|Compared { takes, took_s }| {
        let Eta { low_s, likely_s, high_s } = takes;
        format!("{likely_s:.0} ({low_s:.0}–{high_s:.0}) took {took_s:.0}")
    });
    all.collect::<Vec<_>>().join(", ")
}

/// Those of the six mirrors.
const SCENARIOS: [&str; 6] = ["static1g", "cut", "silent", "jump", "loss", "latency500"];
/// When it is asked how long it takes: that is on the screen.
const AFTER_S: f64 = 5.0;
/// How long a transfer would take at the rates of the links.
const LASTS: Duration = Duration::from_secs(60);
/// A good estimate is no further off.
const NEAR: f64 = 0.15;

#[cfg(test)]
mod tests {
    use swath_model::observe::{Phase, Snapshot, Summary};

    use super::*;

    #[test]
    fn the_first_estimate_after_five_seconds_counts() {
        let progress = |at_s: f64, left_s: f64| {
            Event::Progress(Snapshot {
                at_s,
                phase: Phase::Fetching,
                size_bytes: Some(100),
                files: 1,
                done_bytes: 10,
                resumed_bytes: 0,
                verified_bytes: 0,
                rate_bytes_per_s: 0.0,
                eta: Some(Eta { low_s: left_s, likely_s: left_s, high_s: left_s }),
                sources: Vec::new(),
            })
        };
        let end = Event::Finished(Summary { elapsed_s: 50.0, ..Summary::default() });
        let events = [progress(4.9, 1.0), progress(5.1, 40.0), progress(6.0, 90.0), end];
        let said: Vec<String> =
            events.iter().map(|event| serde_json::to_string(event).unwrap()).collect();
        let one = estimate(&said.join("\n")).unwrap();
        assert!((one.takes.likely_s - 45.1).abs() < 1e-9 && one.took_s == 50.0);
        assert!(line(&[one]).starts_with("1 of 1 within 15 %; median error 9.8 %"));
        assert_eq!(each(&[one]), "45 (45–45) took 50");
    }

    #[test]
    fn transfers_last_a_minute() {
        for name in SCENARIOS {
            let bound_s = lasting(name, 1).unwrap().bound().unwrap().as_secs_f64();
            assert!((59.0..61.0).contains(&bound_s), "{name}: {bound_s}");
        }
    }
}
