//! Transfers of the real program in emulated networks, with the traffic of others changing as in the
//! simulated worlds, only faster.

use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::Duration;

use swath_model::observe::{Eta, Event};
use swath_netlab::star::{Lab, LinkSpec, ServerKind, StarSpec, WebServer};
use swath_netlab::wan::{Change, LabError, Schedule, Step as Changed, Target};

use super::fetch::{fetch, places_in};
use super::progress::{self, Marks, look};
use super::replay::Compared;
use super::scores::Scores;
use super::world::{Background, Setting, Step};
use crate::data::make_file;

/// A transfer of the program.
struct Emulated {
    forecast: Option<Eta>,
    marks: Marks,
    took_s: f64,
}

/// Lets the program fetch so many files, one after the other, and returns what is to be said of its
/// forecasts, one line for each thing. Files lie below `scratch` meanwhile.
///
/// # Errors
/// What does not work in the laboratory, or which transfer failed.
pub fn emulate(
    swath: &Path,
    scratch: &Path,
    transfers: usize,
    seed: u64,
) -> Result<Vec<String>, String> {
    let fault = |error: std::io::Error| format!("{}: {error}", scratch.display());
    let (folder, places) = places_in(scratch, swath).map_err(fault)?;
    let files: Vec<PathBuf> = (SIZES.iter())
        .map(|&size_bytes| make_file(&places.served, size_bytes))
        .collect::<Result<_, _>>()
        .map_err(fault)?;

    let in_lab = |error: LabError| error.to_string();
    let lab = Lab::star(&StarSpec { seed, ..StarSpec::new(LINKS.to_vec()) }).map_err(in_lab)?;
    let servers = lab.servers().iter();
    let _servers = servers
        .map(|namespace| WebServer::start(ServerKind::Nginx, namespace, &places.served))
        .collect::<Result<Vec<_>, _>>()
        .map_err(in_lab)?;
    let mut random = fastrand::Rng::with_seed(seed);
    lab.play(&schedule(LONGEST_S * transfers as f64, &mut random));

    let mut done = Vec::new();
    for number in 0..transfers {
        // Few of the pairs dominate.
        let link = random.usize(..LINKS.len()).min(random.usize(..LINKS.len()));
        let data = &files[link + random.usize(..files.len() - LINKS.len() + 1)];
        let links = std::iter::once(link);
        let said =
            fetch(&places, folder.path(), &lab, links, data, Duration::from_secs(120), || {})
                .map_err(|error| format!("transfer {number} of {}: {error}", data.display()))?;
        done.push(read(&said));
        sleep(Duration::from_secs_f64(0.5 * random.f64()));
    }
    Ok(lines(&done[done.len() * 3 / 10..]))
}

/// Returns what others leave of each link over so many seconds.
fn schedule(seconds: f64, random: &mut fastrand::Rng) -> Schedule {
    let mut changes = Vec::new();
    for (link, spec) in LINKS.iter().enumerate() {
        let mut background = Background::new(Setting::Changing, random.fork());
        let mut at_s = 0.0;
        while at_s < seconds {
            let Step { until_s, left_part } = background.step();
            let rate = (spec.rate_bits_per_s as f64 * left_part) as u64;
            let (at, target) = (Duration::from_secs_f64(at_s), Target::both(link));
            changes.push(Changed { at, target, change: Change::RateBitsPerS(rate) });
            at_s = until_s / FASTER;
        }
    }
    Schedule::new(changes)
}

/// Reads what the program said of a transfer, a line for each event.
fn read(said: &str) -> Emulated {
    let mut emulated = Emulated { forecast: None, marks: Marks::default(), took_s: f64::NAN };
    for event in said.lines().filter_map(|line| serde_json::from_str(line).ok()) {
        match &event {
            Event::Forecast { takes, .. } => emulated.forecast = Some(*takes),
            Event::Finished(summary) => emulated.took_s = summary.elapsed_s,
            event => look(&mut emulated.marks, event),
        }
    }
    emulated
}

fn lines(done: &[Emulated]) -> Vec<String> {
    let forecast = |one: &Emulated| Some(Compared { takes: one.forecast?, took_s: one.took_s });
    let before: Vec<Compared> = done.iter().filter_map(forecast).collect();
    let mean_s = done.iter().map(|one| one.took_s).sum::<f64>() / done.len() as f64;
    let scores = Scores::of(&before);
    let mut lines = vec![
        format!("{} forecasts, of transfers that took {mean_s:.1} s on average", before.len()),
        format!("before the begin: {}", scores.line()),
        format!("  median ratio of upper to lower end {:.2}", scores.width),
    ];
    let marked: Vec<(Marks, f64)> = done.iter().map(|one| (one.marks, one.took_s)).collect();
    lines.extend(progress::lines(&marked));
    lines
}

/// From the slowest to the fastest.
const LINKS: [LinkSpec; 4] =
    [LinkSpec::new(80, 30), LinkSpec::new(120, 20), LinkSpec::new(160, 10), LinkSpec::new(240, 5)];

/// Each link carries three of them, in 2 to 6 seconds if others leave half of it.
const SIZES: [u64; 6] = [14_000_000, 20_000_000, 28_000_000, 40_000_000, 56_000_000, 80_000_000];

/// The traffic of others changes so many times faster than in a simulated world: five seconds are as
/// long as two and a half minutes there.
const FASTER: f64 = 30.0;

/// For so long the traffic of others is planned, for each transfer.
const LONGEST_S: f64 = 20.0;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_change_all_the_time() {
        let schedule = schedule(100.0, &mut fastrand::Rng::with_seed(1));
        assert!(schedule.steps().len() > 4 * 100 * 3);
        assert!(schedule.steps().is_sorted_by(|a, b| a.at <= b.at));
    }

    #[test]
    fn events_are_read() {
        let takes = Eta { low_s: 1.0, likely_s: 2.0, high_s: 3.0 };
        let end = swath_model::observe::Summary { elapsed_s: 2.5, ..Default::default() };
        let said = [Event::Forecast { at_s: 0.1, takes }, Event::Finished(end)]
            .map(|event| serde_json::to_string(&event).unwrap());
        let emulated = read(&format!("{}\nnot an event\n{}\n", said[0], said[1]));
        assert_eq!((emulated.forecast, emulated.took_s), (Some(takes), 2.5));
    }
}
