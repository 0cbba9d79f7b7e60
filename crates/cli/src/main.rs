//! The swath program: arguments in, progress and exit codes out.

mod args;
mod cluster;
mod compat;
mod config;
mod cp;
mod engine;
mod exit;
mod exposed;
mod failure;
mod follow;
mod forecast;
mod generate;
mod get;
mod help;
mod hints;
mod history;
mod identity;
mod keys;
mod link;
mod list;
mod net;
mod notes;
mod nss;
mod probe;
mod progress;
mod publish;
mod relay;
mod relays;
mod remember;
mod report;
mod routes;
mod say;
mod screen;
mod seed;
mod serve;
mod server_jobs;
mod signals;
mod stage;
mod study;
mod threads;
mod track;
mod trust;
mod tune;
mod units;
mod usage;
mod verify;
mod verify_published;
mod verify_sums;
mod verify_tree;

use std::io::{self, Write as _};
use std::path::Path;
use std::process::ExitCode;

use clap::{CommandFactory as _, FromArgMatches as _};

use args::{Cli, Command};
use config::settings::{self, Applying};
use exit::Exit;
use failure::Failure;
use forecast::args::ForecastCommand;
use routes::args::{Routes, RoutesCommand};
use server_jobs::args::job_at;
use swath_transfer::{Pin, Topology};
use trust::TrustPrompt;

fn main() -> ExitCode {
    nss::without_modules();
    signals::ignore_size_limit();
    let parsed = help::grouped(Cli::command()).try_get_matches();
    let cli = match parsed.and_then(|matches| Cli::from_arg_matches(&matches)) {
        Ok(cli) => cli,
        Err(error) => {
            let error = usage::explain(error);
            // Help and version are no errors, and neither is a closed pipe.
            let printed = error.print().and_then(|()| io::stdout().flush());
            if error.use_stderr() {
                if std::env::args_os().any(|arg| arg == "--json") {
                    // What is missing is listed in further lines.
                    let text = error.to_string();
                    let said: Vec<&str> =
                        text.lines().take_while(|line| !line.is_empty()).collect();
                    let said: Vec<&str> = said.iter().map(|line| line.trim()).collect();
                    exit::tell_program(Exit::Usage, said.join(" ").trim_start_matches("error: "));
                }
                return Exit::Usage.into();
            }
            return match printed {
                _ if say::is_closed() => exit::fail(Exit::Target, say::CLOSED).into(),
                Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
                    let text = format!("cannot write to standard output: {error}");
                    exit::fail(Exit::Target, &text).into()
                }
                _ => Exit::Done.into(),
            };
        }
    };
    let is_json = match &cli.command {
        Command::Get(get) => get.transfer.json,
        Command::Follow(follow) => follow.transfer.json,
        _ => false,
    };
    if is_json {
        exit::tell_programs();
    }
    let cli = match settings::applied(cli) {
        Ok(cli) => cli,
        Err(Applying::Config(error)) => return exit::fail(Exit::Input, &error.to_string()).into(),
        Err(Applying::Usage(error)) => {
            let _ = error.print();
            return Exit::Usage.into();
        }
    };
    let exit = run(cli.command).unwrap_or_else(|failure| failure.tell());
    say::settled(exit).into()
}

/// Runs a command.
fn run(command: Command) -> Result<Exit, Failure> {
    Ok(match command {
        Command::Get(get) if get::leads_to_folder(&get) => {
            return run(Command::Cp(Box::new(get::of_folder(*get))));
        }
        Command::Get(mut get) => {
            link::take_apart(&mut get.sources, &mut get.transfer.net)?;
            let prompt = TrustPrompt::of(&get.sources, &get.transfer.net, get.transfer.is_quiet());
            let near = get.output.clone().or_else(|| get.dir.clone()).unwrap_or_default();
            let exit = pinned(&get.transfer.pin.clone(), &near, || with_runtime(|| get::run(*get)));
            prompt.settle(exit)
        }
        Command::Follow(mut follow) => {
            link::take_apart([&mut follow.feed], &mut follow.transfer.net)?;
            let (net, is_quiet) = (&follow.transfer.net, follow.transfer.is_quiet());
            let prompt = TrustPrompt::of([&follow.feed], net, is_quiet);
            let (pin, near) = (follow.transfer.pin.clone(), follow.dir.clone());
            prompt.settle(pinned(&pin, &near, || with_runtime(|| follow::run(*follow))))
        }
        Command::Ls(mut ls) => {
            link::take_apart([&mut ls.place], &mut ls.net)?;
            let prompt = TrustPrompt::of([&ls.place], &ls.net, ls.json);
            prompt.settle(with_runtime(|| list::ls(*ls)))
        }
        Command::Du(mut du) => {
            link::take_apart([&mut du.place], &mut du.net)?;
            let prompt = TrustPrompt::of([&du.place], &du.net, du.json);
            prompt.settle(with_runtime(|| list::du(*du)))
        }
        Command::Cp(mut cp) => {
            link::take_apart(&mut cp.places, &mut cp.transfer.net)?;
            let prompt = TrustPrompt::of(&cp.places, &cp.transfer.net, cp.transfer.is_quiet());
            let near = cp::near(&cp.places);
            let exit = pinned(&cp.transfer.pin.clone(), &near, || {
                with_runtime(|| async { Ok(cp::run(*cp).await) })
            });
            prompt.settle(exit)
        }
        Command::Attach(attach) => {
            let (mut job, mut transfer) = (job_at(&attach.job)?, attach.transfer);
            link::take_apart([&mut job.at], &mut transfer.net)?;
            let prompt = TrustPrompt::of([&job.at], &transfer.net, transfer.is_quiet());
            prompt.settle(with_runtime(|| server_jobs::attach(job, transfer)))
        }
        Command::Cancel(cancel) => {
            let (mut job, mut net) = (job_at(&cancel.job)?, cancel.net);
            link::take_apart([&mut job.at], &mut net)?;
            with_runtime(|| server_jobs::cancel(job, net))
        }
        Command::Jobs(mut jobs) => {
            link::take_apart([&mut jobs.server], &mut jobs.net)?;
            with_runtime(|| server_jobs::list(*jobs))
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
        Command::Seed(seed) => with_runtime(|| seed::run(*seed)),
        Command::Track(track) => with_runtime(|| track::run(*track)),
        Command::Stage(stage) => with_runtime(|| stage::run(*stage)),
        Command::Publish(publish) => publish::run(&publish)?,
        Command::Keys(keys) => keys::run(&keys)?,
        Command::Probe(mut probe) => {
            link::take_apart(&mut probe.sources, &mut probe.net)?;
            with_runtime(|| probe::run(probe))
        }
        Command::Forecast(mut forecast) => {
            let (sources, net) = match &mut forecast.command {
                ForecastCommand::Get(it) => (&mut it.get.sources, &mut it.get.transfer.net),
                ForecastCommand::Cp(it) => (&mut it.cp.places, &mut it.cp.transfer.net),
            };
            link::take_apart(&mut *sources, net)?;
            let prompt = TrustPrompt::of(&*sources, net, false);
            prompt.settle(with_runtime(|| forecast::run(forecast)))
        }
        Command::Tune(mut tune) => {
            let mut sources: Vec<String> = tune.source.take().into_iter().collect();
            link::take_apart(&mut sources, &mut tune.net)?;
            let prompt = TrustPrompt::of(&sources, &tune.net, false);
            tune.source = sources.pop();
            prompt.settle(with_runtime(|| tune::run(*tune)))
        }
        Command::History(args) => history::run(&args),
        Command::Study(args) => study::run(&args),
        Command::Routes(mut routes) => match routes.command.take() {
            Some(RoutesCommand::Probe(probe)) => with_runtime(|| routes::probe::run(*probe)),
            command => routes::run(Routes { command, ..*routes })?,
        },
        Command::Verify(verify) if verify_published::is_meant(&verify) => {
            verify_published::run(&verify)?
        }
        Command::Verify(mut verify) => match verify.index.take() {
            Some(mut index) => {
                link::take_apart([&mut index], &mut verify.net)?;
                with_runtime(|| verify_tree::run(verify, index))
            }
            None => verify::run(&verify)?,
        },
        Command::Config { command } => config::command::run(&command),
        Command::Completions { shell } => generate::completions(shell),
        Command::Man { command, dir } => generate::man(command.as_deref(), dir.as_deref()),
    })
}

/// Runs a command on the processors of `pin`, which its threads inherit; `near` is a path on its disk.
fn pinned(pin: &Pin, near: &Path, command: impl FnOnce() -> Exit) -> Exit {
    match pin.apply(&Topology::default(), near) {
        Ok(_) => command(),
        Err(_) => exit::fail(Exit::Usage, "--pin: none of these processors is available"),
    }
}

/// Runs a command that needs the network.
fn with_runtime<F: Future<Output = Result<Exit, Failure>> + Send + 'static>(
    command: impl FnOnce() -> F + Send + 'static,
) -> Exit {
    if let Err(failure) = serve::machine::enough_descriptors() {
        return failure.tell();
    }
    if let Err(error) = threads::check() {
        return threads::failure(&error).tell();
    }
    let runtime =
        tokio::runtime::Builder::new_multi_thread().enable_all().thread_name("swath").build();
    match runtime {
        Ok(runtime) => {
            let exit = runtime.block_on(async { tokio::spawn(command()).await });
            let exit = exit.unwrap_or(Ok(Exit::Internal)).unwrap_or_else(|failure| failure.tell());
            // Pending name lookups must not delay the exit.
            runtime.shutdown_background();
            exit
        }
        Err(error) => exit::fail(Exit::Internal, &format!("cannot start: {error}")),
    }
}
