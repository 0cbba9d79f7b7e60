//! The command lines of `swath attach`, `swath cancel` and `swath jobs`.

use clap::{Args, ValueHint};

use crate::args::{Net, Transfer};
use crate::failure::Failure;

/// `swath attach`
#[derive(Args, Debug)]
#[command(after_long_help = EXAMPLES)]
// The server carries it out: nothing is planned, read or written here.
#[command(mut_args(|arg| match SHOWN.contains(&arg.get_id().as_str()) {
    true => arg,
    false => arg.hide(true),
}))]
pub struct Attach {
    /// Copy on a server, as 'swath cp --detach' printed it
    #[arg(value_name = "JOB@URL", value_hint = ValueHint::Other)]
    pub job: String,
    /// Options of every transfer
    #[command(flatten)]
    pub transfer: Transfer,
}

/// `swath cancel`
#[derive(Args, Debug)]
pub struct Cancel {
    /// Copy on a server
    #[arg(value_name = "JOB@URL", value_hint = ValueHint::Other)]
    pub job: String,
    /// The network
    #[command(flatten)]
    pub net: Net,
}

/// `swath jobs`
#[derive(Args, Debug)]
pub struct ServerJobs {
    /// Server that was started with --third-party
    #[arg(value_name = "URL", value_hint = ValueHint::Url)]
    pub server: String,
    /// Print JSON, one object per line
    #[arg(long)]
    pub json: bool,
    /// The network
    #[command(flatten)]
    pub net: Net,
}

/// A job and its server.
#[derive(Clone, Debug)]
pub struct JobAt {
    /// Its name.
    pub job: String,
    /// The address of the server.
    pub at: String,
}

/// Reads JOB@URL. The error does not repeat it: the address may have a token.
pub fn job_at(text: &str) -> Result<JobAt, Failure> {
    let wrong = || {
        Failure::usage("not of the form JOB@URL, such as 5f0c…@https://b.example:8470/")
            .hint("'swath jobs URL' lists your copies on that server")
    };
    let (job, at) = text.split_once('@').ok_or_else(wrong)?;
    let is_name = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
    if job.is_empty() || !job.bytes().all(is_name) || !at.contains("://") {
        return Err(wrong());
    }
    Ok(JobAt { job: job.to_owned(), at: at.to_owned() })
}

/// The options that mean something to whoever only looks.
const SHOWN: [&str; 15] = [
    "job",
    "token",
    "bearer_file",
    "header",
    "ca",
    "fingerprint",
    "insecure",
    "cert",
    "key",
    "timeout",
    "json",
    "verbose",
    "quiet",
    "report",
    "help",
];

const EXAMPLES: &str = "\
Examples:
  swath cp https://a.example/ds/ https://b.example/ds/ --detach      prints JOB@URL
  swath attach JOB@URL                                               follows it to its end
  swath cancel JOB@URL
  swath jobs https://b.example/

Ctrl-C ends 'swath attach', not the copy.

Exit codes:
  as of 'swath cp'";
