//! The swath program: arguments in, progress and exit codes out.

mod args;
mod config;
mod cp;
mod engine;
mod exit;
mod generate;
mod get;
mod list;
mod names;
mod net;
mod probe;
mod progress;
mod relay;
mod relays;
mod remember;
mod report;
mod routes;
mod say;
mod serve;
mod signals;
mod stage;
mod units;
mod verify;
mod verify_sums;
mod verify_tree;

use std::path::Path;
use std::process::ExitCode;

use clap::Parser as _;

use args::{Cli, Command};
use exit::Exit;
use routes::args::{Routes, Then};
use swath_transfer::{Pin, Topology};

fn main() -> ExitCode {
    names::without_modules();
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            // Help and version are no errors; a closed pipe behind them is none either.
            let _ = error.print();
            return if error.use_stderr() { Exit::Usage.into() } else { Exit::Done.into() };
        }
    };
    let exit = match cli.command {
        Command::Get(get) => {
            let near = get.output.clone().or_else(|| get.dir.clone()).unwrap_or_default();
            pinned(&get.pin.clone(), &near, || with_runtime(|| get::run(*get)))
        }
        Command::Ls(ls) => with_runtime(|| list::ls(*ls)),
        Command::Du(du) => with_runtime(|| list::du(*du)),
        Command::Cp(cp) => {
            let near = cp::near(&cp.places);
            pinned(&cp.pin.clone(), &near, || with_runtime(|| cp::run(*cp)))
        }
        Command::Serve(serve) if serve.through.is_some() => {
            serve::through::run(serve.through.unwrap_or_default())
        }
        Command::Serve(serve) => {
            let near = serve.served().into_iter().next().map(|folder| folder.path);
            let near = near.unwrap_or_default();
            pinned(&serve.pin.clone(), &near, || with_runtime(|| serve::run(*serve)))
        }
        Command::Relay(relay) => with_runtime(|| relay::run(*relay)),
        Command::Stage(stage) => with_runtime(|| stage::run(*stage)),
        Command::Probe(probe) => with_runtime(|| probe::run(probe)),
        Command::Routes(mut routes) => match routes.command.take() {
            Some(Then::Probe(probe)) => with_runtime(|| routes::probe::run(*probe)),
            command => routes::run(Routes { command, ..*routes }),
        },
        Command::Verify(mut verify) => match verify.index.take() {
            Some(index) => with_runtime(|| verify_tree::run(verify, index)),
            None => verify::run(&verify),
        },
        Command::Completions { shell } => generate::completions(shell),
        Command::Man { command, dir } => generate::man(command.as_deref(), dir.as_deref()),
    };
    exit.into()
}

/// Run a command where it is to run, which all its threads inherit; `near` lies on its disk.
fn pinned(pin: &Pin, near: &Path, command: impl FnOnce() -> Exit) -> Exit {
    match pin.apply(&Topology::default(), near) {
        Ok(_) => command(),
        Err(_) => exit::fail(Exit::Usage, "--pin: none of these processors may be used here"),
    }
}

/// Run a command that needs the network.
fn with_runtime<F: Future<Output = Exit> + Send + 'static>(
    command: impl FnOnce() -> F + Send + 'static,
) -> Exit {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().enable_all().thread_name("swath").build();
    match runtime {
        Ok(runtime) => {
            let exit = runtime.block_on(async { tokio::spawn(command()).await });
            let exit = exit.unwrap_or(Exit::Internal);
            // Lookups that still hang in the resolver must not hold up the end.
            runtime.shutdown_background();
            exit
        }
        Err(error) => exit::fail(Exit::Internal, &format!("cannot start: {error}")),
    }
}
