//! `bench/trees`: whole trees, from one server or several, near and far.
//!
//! Prints a table, keeps every measurement as JSON and draws a picture. Needs root for namespaces.

use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use swath_bench::options::StudyOptions;
use swath_bench::results::{ScenarioResult, ToolResult};
use swath_bench::study_files::say;
use swath_bench::tree_data::Shape;
use swath_bench::tree_run::{Between, Places, TreeTool, run_once};
use swath_netlab::star::{LinkSpec, StarSpec};
use swath_netlab::wan::Queue;

/// Whole trees, from one server or several, near and far.
#[derive(Debug, Parser)]
#[command(name = "trees", max_term_width = 100)]
struct Options {
    /// Options of every study.
    #[command(flatten)]
    study: StudyOptions,
    /// The data sets of the comparative study at their full size, not at a tenth of it.
    #[arg(long)]
    full: bool,
}

/// What is copied from where, by whom.
struct Scenario {
    name: String,
    title: String,
    shape: Shape,
    between: Between,
    tools: Vec<TreeTool>,
}

fn main() -> ExitCode {
    let options = Options::parse();
    options.study.run("trees", || measure(&options))
}

/// All of them.
fn scenarios(full: bool) -> Vec<Scenario> {
    let tree = Shape::Natural { files: 50_000, bytes: 554_000_000 };
    let link = |mbit: u64, rtt_ms: f64| LinkSpec {
        rate_bits_per_s: mbit * 1_000_000,
        one_way_delay: Duration::from_secs_f64(rtt_ms / 2e3),
    };
    let one = |rtt_ms| Between::Star(StarSpec::new(vec![link(1000, rtt_ms)]));
    let mut all = vec![
        Scenario {
            name: "wan".to_owned(),
            title: "50,000 files, 554 MB, 1 Gbit/s, 95 ms".to_owned(),
            shape: tree,
            between: one(95.0),
            tools: vec![
                TreeTool::Swath,
                TreeTool::SwathSecond,
                TreeTool::SwathPlain,
                TreeTool::SwathOneFile,
                TreeTool::Rsync,
                TreeTool::Tar,
            ],
        },
        Scenario {
            name: "loopback".to_owned(),
            title: "50,000 files, 554 MB, loopback, memory to memory".to_owned(),
            shape: tree,
            between: Between::Loopback,
            tools: vec![
                TreeTool::Swath,
                TreeTool::RsyncTls,
                TreeTool::TarTls,
                TreeTool::SwathPlain,
                TreeTool::Rsync,
                TreeTool::Tar,
            ],
        },
        Scenario {
            name: "replicas".to_owned(),
            title: "50,000 files, 554 MB from three replicas, 100/200/400 Mbit/s, 20 ms".to_owned(),
            shape: tree,
            between: Between::Star(StarSpec::new(
                [100, 200, 400].map(|mbit| link(mbit, 20.0)).to_vec(),
            )),
            tools: vec![TreeTool::Swath, TreeTool::SwathPlain],
        },
    ];
    // Of the same link: what does not wait in a queue this short is dropped.
    for queue_ms in [20, 60, 150] {
        let mut star = StarSpec::new(vec![link(1000, 95.0)]);
        star.queue = Queue::Time(Duration::from_millis(queue_ms));
        all.push(Scenario {
            name: format!("wan-queue{queue_ms}"),
            title: format!("50,000 files, 554 MB, 1 Gbit/s, 95 ms, queue of {queue_ms} ms"),
            shape: tree,
            between: Between::Star(star),
            tools: vec![TreeTool::Swath],
        });
    }
    let scale = if full { 10 } else { 1 };
    // A tenth of DS1 is a smaller file, of the others fewer files.
    for (number, files, bytes) in [
        (1, 1, 1_000_000_000 * scale),
        (2, scale, 1_000_000_000),
        (3, 10 * scale, 100_000_000),
        (4, 100 * scale, 10_000_000),
        (5, 1000 * scale, 1_000_000),
        (6, 10_000 * scale, 100_000),
    ] {
        let shape = Shape::Equal { files, bytes };
        for rtt_ms in [0.6, 15.0, 30.0, 60.0] {
            all.push(Scenario {
                name: format!("ds{number}-{rtt_ms}ms"),
                title: format!("{files} × {} kB, 1 Gbit/s, {rtt_ms} ms", bytes / 1000),
                shape,
                between: one(rtt_ms),
                tools: vec![TreeTool::Swath],
            });
        }
    }
    all
}

fn measure(options: &Options) -> Result<(), String> {
    let all = scenarios(options.full);
    if options.study.list {
        for scenario in &all {
            println!("{:<12} {}", scenario.name, scenario.title);
        }
        return Ok(());
    }
    let known: Vec<&str> = all.iter().map(|scenario| scenario.name.as_str()).collect();
    options.study.check(&known, &TreeTool::ALL.map(TreeTool::name))?;
    let swath = options.study.swath();
    let mut study = options.study.begin("trees");
    for scenario in all.iter().filter(|scenario| options.study.has_scenario(&scenario.name)) {
        options.study.add(&mut study, measure_scenario(scenario, options, &swath)?)?;
    }
    options.study.end(&study);
    Ok(())
}

fn measure_scenario(
    scenario: &Scenario,
    options: &Options,
    swath: &std::path::Path,
) -> Result<ScenarioResult, String> {
    let scratch = tempfile::Builder::new()
        .prefix("swath-bench-")
        .tempdir_in(&options.study.scratch)
        .map_err(|e| format!("cannot write to {}: {e}", options.study.scratch.display()))?;
    let is_chosen = |tool: &TreeTool| options.study.has_tool(tool.name());
    let tools: Vec<TreeTool> = scenario.tools.iter().copied().filter(is_chosen).collect();
    say("making the tree");
    let places = Places::make(scratch.path(), scenario.shape, &tools)?;
    let (bound_s, bound_is) = bound(scenario);
    let mut result = ScenarioResult {
        name: scenario.name.clone(),
        title: scenario.title.clone(),
        size_bytes: scenario.shape.bytes(),
        bound_s,
        bound_is: bound_is.to_owned(),
        tools: Vec::new(),
        skipped: Vec::new(),
        goals: Vec::new(),
    };
    let mut taking_part = Vec::new();
    for tool in tools {
        let name = tool.name().to_owned();
        match tool.program(swath) {
            Some(program) => {
                taking_part.push((tool, program));
                result.tools.push(ToolResult { name, command: String::new(), runs: Vec::new() });
            }
            None => result.skipped.push((name, "not installed".to_owned())),
        }
    }
    for round in 1..=options.study.runs {
        for ((tool, program), kept) in taking_part.iter().zip(&mut result.tools) {
            say(&format!(
                "{} round {round}/{}: {}",
                scenario.name,
                options.study.runs,
                tool.name()
            ));
            let (run, command) = run_once(&scenario.between, *tool, program, &places)
                .map_err(|e| format!("{}, {}: {e}", scenario.name, tool.name()))?;
            kept.command = command;
            kept.runs.push(run);
        }
    }
    say("");
    if result.bound_s == 0.0 {
        // The limit of the place is what the best of all did there.
        let medians = result.tools.iter().filter_map(|tool| result.median_s(&tool.name));
        result.bound_s = medians.fold(f64::INFINITY, f64::min);
    }
    Ok(result)
}

/// The least time that the links allow, with TCP's framing.
fn bound(scenario: &Scenario) -> (f64, &'static str) {
    match &scenario.between {
        Between::Loopback => (0.0, "the median of the fastest tool"),
        Between::Star(star) => {
            let rate: u64 = star.rates_bits_per_s().iter().sum();
            let wire_bytes = scenario.shape.bytes() as f64 * FRAMING;
            (wire_bytes * 8.0 / rate as f64, "size with framing over the sum of the rates")
        }
    }
}

/// Of 1,500 bytes on the wire 1,448 are payload.
const FRAMING: f64 = 1500.0 / 1448.0;
