//! Plays made-up transfers in the terminal, for looking at the display:
//! `cargo run -p swath --example progress_player -- six|one|thirty|bad|files [SPEED]`.
//! Add `--plain`, `--json` or `--quiet` for the other displays.

use std::time::{Duration, Instant};

use swath_model::observe::{Event, Observer};
use swath_netlab::events::{Scenario, play};

#[allow(dead_code)]
#[path = "../src/progress/mod.rs"]
mod progress;

use progress::{Mode, Progress};

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let has = |flag: &str| args.iter().any(|a| a == flag);
    let words: Vec<&String> = args.iter().filter(|a| !a.starts_with("--")).collect();
    let speed: f64 = words.get(1).and_then(|s| s.parse().ok()).unwrap_or(1.0);
    let mode =
        if has("--plain") { Mode::Plain } else { Mode::choose(has("--json"), has("--quiet")) };
    let progress = Progress::new(mode);
    match words.first().map(|s| s.as_str()) {
        Some("one") => {
            let mut one = Scenario::star("ubuntu-26.04-desktop-amd64.iso", 2_000_000_000, &[112.0]);
            one.resumed = 400_000_000;
            replay(&play(&one), progress.observer().as_mut(), speed);
        }
        Some("thirty") => {
            let rates: Vec<f64> = (0..30).map(|i| 8.0 + f64::from(i * 13 % 29)).collect();
            let mut thirty =
                Scenario::star("climate/cmip7/tas_day_ensemble.nc", 9_000_000_000, &rates);
            thirty.links[21].dies_s = Some((4.0, "404 Not Found".to_owned()));
            thirty.links[1].silent_s = Some((3.0, 7.0));
            replay(&play(&thirty), progress.observer().as_mut(), speed);
        }
        Some("files") => files(&progress, speed),
        _ => {
            let rates = [20.0, 40.0, 60.0, 80.0, 120.0, 180.0];
            let mut six = Scenario::star(
                "/data/DAOD_PHYS.38021234._000017.pool.root.1",
                4_294_967_296,
                &rates,
            );
            six.links[4].dies_s = Some((4.6, "connection refused, 5 times in a row".to_owned()));
            six.links[2].silent_s = Some((3.0, 6.0));
            six.links[0].lanes = 2;
            replay(&play(&six), progress.observer().as_mut(), speed);
        }
    }
}

/// The events at their times.
fn replay(events: &[Event], observer: &mut dyn Observer, speed: f64) {
    let begun = Instant::now();
    for event in events {
        if let Event::Progress(snapshot) = event {
            let at = Duration::from_secs_f64(snapshot.at_s / speed);
            std::thread::sleep(at.saturating_sub(begun.elapsed()));
        }
        observer.observe(event);
    }
}

/// Three files at a time out of a long list.
fn files(progress: &Progress, speed: f64) {
    let count = 3_000_u64;
    let files = progress.files("list.txt", Some(count));
    std::thread::scope(|scope| {
        for lane in 0..9_u64 {
            let files = files.clone();
            scope.spawn(move || {
                for file in (lane..count).step_by(9) {
                    let size = if file % 400 == 7 { 900_000_000 } else { 2_000_000 + file * 1_000 };
                    let path = format!("runs/run-{file:05}.h5");
                    let mut scenario = Scenario::star(&path, size, &[40.0, 60.0, 90.0]);
                    scenario.seed = file + 1;
                    if file % 701 == 700 {
                        files.failed(file, &path, "404 Not Found at all of its mirrors", true);
                    } else {
                        let mut observer = |event: &Event| files.observe(file, event);
                        replay(&play(&scenario), &mut observer, speed * 10.0);
                    }
                }
            });
        }
    });
    files.end(true);
}
