//! Writes report pages of made-up transfers into a folder, for looking at them in a browser:
//! `cargo run -p swath-report --example report_gallery -- FOLDER`.

use std::io;
use std::path::PathBuf;

use swath_model::observe::{Event, Observer as _};
use swath_netlab::events::{Link, Scenario, play};
use swath_report::{Recorder, render};

fn main() -> io::Result<()> {
    let folder =
        PathBuf::from(std::env::args().nth(1).unwrap_or_else(|| "report-gallery".to_owned()));
    std::fs::create_dir_all(&folder)?;
    for (name, events) in gallery() {
        let mut recorder = Recorder::new();
        for event in &events {
            recorder.observe(event);
        }
        let file = folder.join(format!("{name}.html"));
        let page = render(&recorder.recording());
        println!("{} {} kB", file.display(), page.len() / 1000);
        std::fs::write(file, page)?;
    }
    Ok(())
}

fn gallery() -> Vec<(&'static str, Vec<Event>)> {
    let mut six = Scenario::star(
        "/data/atlas/DAOD_PHYS.38021234._000017.pool.root.1",
        4_294_967_296,
        &[20.0, 40.0, 60.0, 80.0, 120.0, 180.0],
    );
    six.links[4].dies_s = Some((4.6, "connection refused, 5 times in a row".to_owned()));
    six.links[2].silent_s = Some((3.0, 5.4));
    six.links[0].lanes = 2;

    let one = Scenario::star("ubuntu-26.04-desktop-amd64.iso", 6_100_000_000, &[112.0]);

    let rates: Vec<f64> = (0..30).map(|i| 8.0 + f64::from(i * 13 % 29)).collect();
    let mut thirty = Scenario::star("climate/cmip7/tas_day_ensemble.nc", 12_000_000_000, &rates);
    thirty.links[7].silent_s = Some((5.0, 9.0));
    thirty.links[21].dies_s = Some((12.0, "404 Not Found".to_owned()));
    thirty.resumed = 2_500_000_000;

    let mut many =
        Scenario::star("genomes/1000g-phase4.tar", 40_000_000_000, &[300.0, 150.0, 90.0, 60.0]);
    many.swath_s = 0.05;
    many.links.iter_mut().for_each(|l| l.lanes = 4);

    let mut hostile = Scenario::star(
        "/tmp/<script>alert(1)</script>\u{202e}&\"'.bin",
        300_000_000,
        &[40.0, 25.0],
    );
    hostile.links[0].name =
        "evil.example/</title><img src=x onerror=alert(1)>\"' onmouseover=alert(2) x=".to_owned();
    let extra = Link {
        rate: 0.0,
        dies_s: Some((0.1, "<b>401</b> & \"more\"".to_owned())),
        ..hostile.links[1].clone()
    };
    hostile.links.push(extra);

    let mut failed = play(&six);
    failed.truncate(failed.len() * 2 / 3);
    vec![
        ("six", play(&six)),
        ("one", play(&one)),
        ("thirty", play(&thirty)),
        ("many", play(&many)),
        ("hostile", play(&hostile)),
        ("stopped", failed),
    ]
}
