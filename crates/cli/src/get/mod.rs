//! `swath get`: inputs to requests, one transfer or many, the end.

mod checksums;
pub mod inputs;
mod list;
pub mod many;
mod names;
mod one;

use std::io::{self, IsTerminal as _};

use crate::args::Get;
use crate::engine::{self, CONNECTIONS_PER_HOST, Wishes};
use crate::exit::{Exit, fail};
use crate::failure::Failure;
use crate::progress::look::show_details;
use crate::progress::{Mode, Progress};
use crate::report;
use crate::say;
use crate::signals;
use swath_transfer::{Lanes, Stop};

pub use checksums::file_of as checksummed;
use inputs::Inputs;
pub use inputs::{name_of, shown};
use many::Manner;
pub use one::Kept;

/// Run the command.
pub async fn run(mut get: Get) -> Exit {
    if get.verbose > 0 {
        show_details();
    }
    let to_stdout = get.output.as_deref().is_some_and(|path| path.as_os_str() == "-");
    if to_stdout && get.json {
        return fail(Exit::Usage, "--json and '-o -' both want standard output");
    }
    if (to_stdout || get.json) && say::is_closed() {
        return fail(Exit::Target, say::CLOSED);
    }
    if to_stdout && !get.force_terminal && io::stdout().is_terminal() {
        let text = "-o - would write the file to this terminal, which may garble it";
        let hint =
            "-o FILE writes to a file, | PROGRAM hands it on; --force-terminal writes it here";
        return Failure::usage(text).hint(hint).tell();
    }
    get.usual.explain();
    if let Err(failure) = inputs::check(&get).and_then(|()| report::check(get.report.as_deref())) {
        return failure.tell();
    }
    let progress = Progress::new(Mode::choose(get.json, get.quiet));
    log_to(&progress, get.verbose > 1);
    let stop = Stop::default();
    signals::watch(&stop);
    let routes = match get.routes.options() {
        Ok(routes) => routes,
        Err(failure) => return failure.tell(),
    };
    let wishes = Wishes {
        net: &get.net,
        routes,
        limit_rate: get.limit_rate,
        connections_per_host: connections_per_host(&get),
        metalinks: !get.no_discover,
        io: get.io,
        memory: get.memory,
        to_stdout,
        own_server: None,
    };
    let engine = match engine::start(wishes) {
        Ok(engine) => engine,
        Err(failure) => return failure.tell(),
    };
    let io_began_as = engine.io_name();
    if get.checksums.is_some() {
        let found = tokio::select! {
            biased;
            () = stop.wait() => return fail(Exit::Interrupted, "stopped before anything was fetched"),
            found = checksums::find(&get, &engine, &progress) => found,
        };
        match found {
            Ok(digests) => get.digest.extend(digests),
            Err(failure) => {
                progress.clear();
                return failure.tell();
            }
        }
        if let Err(failure) = crate::args::one_value_each(&get.digest) {
            return failure.tell();
        }
    }
    // A server may be silent, and a pipe empty, for as long as they like.
    let inputs = tokio::select! {
        biased;
        () = stop.wait() => return fail(Exit::Interrupted, "stopped before anything was fetched"),
        inputs = inputs::read(&get, &engine, &progress) => inputs,
    };
    let exit = match inputs {
        Ok(Inputs::One(request)) => one::run(&get, &engine, *request, &progress, &stop).await,
        Ok(Inputs::Many(many)) => {
            many::run(Manner::of(&get), &engine, many, &progress, &stop).await
        }
        Err(failure) => {
            progress.clear();
            failure.tell()
        }
    };
    // The disk engine changes by itself where the kernel cannot run it.
    if get.verbose > 0 && engine.io_name() != io_began_as {
        let text = "the kernel could not start workers for io_uring (a limit of processes, as of ulimit -u?): the disk was written with threads";
        progress.note(text, false);
    }
    exit
}

/// With `SWATH_LOG` set (to `debug`, `swath_transfer=trace`, …), or where `is_wanted`, what happens
/// inside is told above the bars.
pub fn log_to(progress: &Progress, is_wanted: bool) {
    let filter = match std::env::var_os("SWATH_LOG") {
        Some(_) => tracing_subscriber::EnvFilter::from_env("SWATH_LOG"),
        None if is_wanted => tracing_subscriber::EnvFilter::new(INSIDE),
        None => return,
    };
    let writer = progress.log_writer();
    let told = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(move || writer.clone())
        .with_ansi(false)
        .try_init();
    // A second subscriber in one process would be a mistake of ours, and no reason to stop.
    debug_assert!(told.is_ok());
}

/// What `-vv` tells: what our own parts say.
const INSIDE: &str = "swath=debug,swath_source=debug,swath_store=debug,swath_transfer=debug";

/// Most connections to one host: more than is usual only where the user asks for that.
fn connections_per_host(get: &Get) -> u32 {
    let asked = match get.plan.lanes {
        Lanes::Fixed(count) => count,
        Lanes::Auto { .. } => 0,
    };
    let at_once = get.jobs.map_or(0, u32::from);
    let split = get.usual.split.unwrap_or(0);
    CONNECTIONS_PER_HOST.max(asked).max(at_once).max(split)
}
