//! The rows of `bench/short`: what both builds copy, and one run of it.
//!
//! Each row is a scenario of another study. Its data are made once; every run has a network, servers
//! and a home folder of its own, and what arrived is compared with the original.

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use swath_netlab::star::{
    LinkSpec, ServerKind, StarSpec, WebServer, remove_own_folders_in, scratch_folder_in,
};
use swath_netlab::wan::Namespace;
use tempfile::TempDir;

use crate::data::{digests, make_file};
use crate::disk_run::{self, DiskTool};
use crate::results::Run;
use crate::scenario::scenarios;
use crate::serving::Spent;
use crate::star_run;
use crate::swarm;
use crate::tool::Tool;
use crate::tree_data::Shape;
use crate::tree_run::{self, Between, TreeTool};

/// What both builds do, and for how long.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// Short name, for the command line.
    pub name: &'static str,
    /// What is copied, in one line.
    pub title: &'static str,
    /// Names of what is measured, in the order of a turn's samples.
    pub lines: &'static [&'static str],
    /// The time for all pairs, in seconds.
    pub limit_s: u64,
    /// Makes the data. Fails with the reason, in words.
    pub prepare: fn(&Folders) -> Result<Turn, String>,
}

/// One run of a build: a sample for each line of the row. Fails with the reason, in words.
pub type Turn = Box<dyn Fn(&Path) -> Result<Vec<Sample>, String>>;

/// What one copy took, at both ends as far as swath is there.
#[derive(Clone, Copy, Debug)]
pub struct Sample {
    /// From the start of the client until everything has arrived, in seconds.
    pub elapsed_s: f64,
    /// All clients.
    pub client: Spent,
    /// The server or the seeder, if it is swath.
    pub server: Option<Spent>,
}

/// Where files are.
#[derive(Clone, Debug, Args)]
pub struct Folders {
    /// Where files are served from and written to: a folder in memory, so that no disk takes part.
    #[arg(long, default_value = "/dev/shm", value_name = "DIR")]
    scratch: PathBuf,
    /// A folder on the disk of the row `disk`.
    #[arg(long, default_value = "/var/tmp", value_name = "DIR")]
    target: PathBuf,
}

impl Folders {
    /// Leaves nothing behind when this process ends before its time: some rows need gigabytes.
    pub fn remove(&self) {
        remove_own_folders_in(&self.scratch);
        remove_own_folders_in(&self.target);
    }
}

/// All rows, in the order in which they are measured.
pub const ROWS: [Row; 8] = [
    Row {
        name: "get",
        title: "1 GiB over loopback, encrypted, from memory to memory",
        lines: &["get"],
        limit_s: 50,
        prepare: |folders| {
            let shape = Shape::Equal { files: 1, bytes: 1 << 30 };
            tree(folders, TreeTool::SwathOneFile, shape, Between::Loopback)
        },
    },
    Row {
        name: "static",
        title: "256 MiB from six mirrors, nothing changes",
        lines: &["static"],
        limit_s: 180,
        prepare: |folders| six_links(folders, "static256"),
    },
    Row {
        name: "cut",
        title: "256 MiB from six mirrors, the fastest link falls to a tenth after 2 s",
        lines: &["cut"],
        limit_s: 180,
        prepare: |folders| six_links(folders, "cut"),
    },
    Row {
        name: "long",
        title: "512 MiB over one link of 1 Gbit/s and 95 ms, encrypted",
        lines: &["long"],
        limit_s: 70,
        prepare: |folders| {
            let shape = Shape::Equal { files: 1, bytes: 512 << 20 };
            tree(folders, TreeTool::SwathOneFile, shape, long_link())
        },
    },
    Row {
        name: "files",
        title: "50,000 files with 554 MB over the same link, and once more with what that taught",
        lines: &["files", "files-again"],
        limit_s: 150,
        prepare: |folders| {
            let shape = Shape::Natural { files: 50_000, bytes: 554_000_000 };
            tree(folders, TreeTool::SwathSecond, shape, long_link())
        },
    },
    Row {
        name: "disk",
        title: "4 GiB from nginx over loopback until all is on the disk, verified with BLAKE3",
        lines: &["disk"],
        limit_s: 80,
        prepare: disk,
    },
    Row {
        name: "list",
        title: "a list of 10,000 files of 100 kB over loopback, encrypted, from memory to memory",
        lines: &["list"],
        limit_s: 50,
        prepare: |folders| {
            let shape = Shape::Equal { files: 10_000, bytes: 100_000 };
            tree(folders, TreeTool::SwathList, shape, Between::Loopback)
        },
    },
    Row {
        name: "swarm",
        title: "128 MiB from one seeder to eight sites of 100 Mbit/s, 40 ms",
        lines: &["swarm"],
        limit_s: 130,
        prepare: sites,
    },
];

fn sample(run: &Run, server: Option<Spent>) -> Result<Sample, String> {
    if let Some(why) = &run.failure {
        return Err(why.clone());
    }
    let cpu = Duration::from_secs_f64(run.cpu_s);
    let client = Spent { cpu, peak_memory_bytes: run.peak_memory_bytes };
    Ok(Sample { elapsed_s: run.elapsed_s + run.sync_s, client, server })
}

fn tree(folders: &Folders, tool: TreeTool, shape: Shape, between: Between) -> Result<Turn, String> {
    let scratch = folder(&folders.scratch)?;
    let places = tree_run::Places::make(scratch.path(), shape, &[tool])?;
    Ok(Box::new(move |swath| {
        let _kept = &scratch;
        let copied = tree_run::copy(&between, tool, swath, &places).map_err(|e| e.to_string())?;
        copied.0.iter().map(|copied| sample(&copied.run, Some(copied.servers))).collect()
    }))
}

fn long_link() -> Between {
    let one_way_delay = Duration::from_micros(47_500);
    Between::Star(StarSpec::new(vec![LinkSpec { rate_bits_per_s: 1_000_000_000, one_way_delay }]))
}

fn six_links(folders: &Folders, name: &str) -> Result<Turn, String> {
    let scenario = scenarios(1).into_iter().find(|scenario| scenario.name == name);
    let scenario = scenario.ok_or_else(|| format!("no scenario '{name}'"))?;
    let [served, target] = [folder(&folders.scratch)?, folder(&folders.scratch)?];
    let data = make_file(served.path(), scenario.size_bytes).map_err(|e| format!("data: {e}"))?;
    Ok(Box::new(move |swath| {
        let places = star_run::Places {
            swath: swath.to_owned(),
            served: served.path().to_owned(),
            target: target.path().to_owned(),
        };
        let ran = star_run::run_once(&scenario, Tool::Swath, swath, &places, &data);
        Ok(vec![sample(&ran.map_err(|e| e.to_string())?.0, None)?])
    }))
}

fn disk(folders: &Folders) -> Result<Turn, String> {
    let (served, target) = (folder(&folders.scratch)?, folder(&folders.target)?);
    let data = make_file(served.path(), 4 << 30).map_err(|e| format!("data: {e}"))?;
    let (blake3, sha256) = digests(&data).map_err(|e| format!("data: {e}"))?;
    let namespace = Namespace::new("bench-short").map_err(|e| e.to_string())?;
    let server = WebServer::start(ServerKind::Nginx, &namespace, served.path())
        .map_err(|e| e.to_string())?;
    let swath = PathBuf::new();
    let place = disk_run::Place { swath, data, blake3, sha256, target: target.path().to_owned() };
    Ok(Box::new(move |swath| {
        let _kept = (&server, &served, &target);
        let ran = disk_run::run_once(&namespace, DiskTool::SwathBlake3, swath, &place);
        Ok(vec![sample(&ran.map_err(|e| e.to_string())?.0, None)?])
    }))
}

fn sites(folders: &Folders) -> Result<Turn, String> {
    let row = swarm::rows().into_iter().find(|row| row.name == "sites");
    let row = row.ok_or("no row 'sites'")?;
    let [served, target] = [folder(&folders.scratch)?, folder(&folders.scratch)?];
    let data = make_file(served.path(), row.size_bytes).map_err(|e| format!("data: {e}"))?;
    let case =
        swarm::Case { name: "swath", origin: swarm::Origin::Swath, client: swarm::Client::Swath };
    Ok(Box::new(move |swath| {
        let places = swarm::Places {
            swath: swath.to_owned(),
            served: served.path().to_owned(),
            target: target.path().to_owned(),
            trace: None,
        };
        let run = swarm::run_once(&row, case, row.limit(), &places, &data);
        let run = run.map_err(|e| e.to_string())?;
        let sample =
            Sample { elapsed_s: run.last_s(), client: run.clients, server: Some(run.origin) };
        run.failure.map_or(Ok(vec![sample]), Err)
    }))
}

fn folder(parent: &Path) -> Result<TempDir, String> {
    scratch_folder_in(parent).map_err(|e| format!("cannot write to {}: {e}", parent.display()))
}
