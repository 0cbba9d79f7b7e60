//! The command line of `swath study`.

use std::path::PathBuf;

use clap::{Args, ValueHint};

/// `swath study`
#[derive(Args, Debug)]
#[command(after_long_help = EXAMPLES)]
pub struct Study {
    /// Measure these datasets: ds1 to ds6, mdtm, mdtm-third-party, radioastron [default: all]
    #[arg(long, value_delimiter = ',', value_name = "NAME", value_hint = ValueHint::Other)]
    pub datasets: Vec<String>,
    /// Measure ds1 to ds6 at these round-trip times in ms [default: 0.6,15,30,60]
    #[arg(long, value_delimiter = ',', value_name = "MS", value_hint = ValueHint::Other)]
    pub rtt: Vec<f64>,
    /// Measure these tools, for example swath,gridftp,rsync [default: all that are installed]
    #[arg(long, value_delimiter = ',', value_name = "NAME", value_hint = ValueHint::Other)]
    pub tools: Vec<String>,
    /// Total size of each dataset; as published: 10GB
    #[arg(long, value_name = "SIZE", default_value = "1GB", value_hint = ValueHint::Other)]
    pub size: String,
    /// Run each tool this often
    #[arg(long, value_name = "N", default_value_t = 5, value_hint = ValueHint::Other)]
    pub runs: u32,
    /// Keep measurements, tables and pictures in this folder
    #[arg(long, short, value_name = "DIR", default_value = "study", value_hint = ValueHint::DirPath)]
    pub output: PathBuf,
    /// Hold the files in this folder meanwhile [default: /dev/shm, which is in memory]
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub scratch: Option<PathBuf>,
    /// Forget earlier measurements and begin anew
    #[arg(long)]
    pub fresh: bool,
}

/// Shown below the help of `swath study`.
const EXAMPLES: &str = "\
Measures file transfer tools in an emulated network, all on this machine: the comparative study
of 2018 (IEEE ANTS 2018), with swath and the tools that can be had today. Must be run as root, in
a copy of swath's source. Installs the tools with apt-get if it may. The whole study takes hours,
in which nothing else should run; the same command goes on where it was stopped.

Examples:
  swath study --datasets ds1,ds6 --rtt 60 --tools swath,rsync
  swath study --size 10GB -o study-10GB

Exit codes:
  0 measured                  2 wrong command line
  1 something does not work   6 this is no copy of swath's source
  130 interrupted";
