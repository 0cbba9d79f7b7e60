//! `swath get`: inputs to requests, one transfer or many, the end.

mod engine;
mod inputs;
mod many;
mod one;

use crate::args::Get;
use crate::exit::{Exit, fail};
use crate::progress::{Mode, Progress};
use crate::signals;
use swath_transfer::Stop;

use inputs::Inputs;

/// Run the command.
pub async fn run(get: Get) -> Exit {
    let to_stdout = get.output.as_deref().is_some_and(|path| path.as_os_str() == "-");
    if to_stdout && get.json {
        return fail(Exit::Usage, "--json and '-o -' both want standard output");
    }
    let progress = Progress::new(Mode::choose(get.json, get.quiet));
    let stop = Stop::default();
    signals::watch(&stop);
    let engine = match engine::start(&get, to_stdout) {
        Ok(engine) => engine,
        Err(error) => return fail(Exit::Input, &error),
    };
    match inputs::read(&get, &engine).await {
        Ok(Inputs::One(request)) => one::run(&get, &engine, *request, &progress, &stop).await,
        Ok(Inputs::Many { title, count, requests }) => {
            many::run(&get, &engine, &title, count, requests, &progress, &stop).await
        }
        Err((exit, message)) => fail(exit, &message),
    }
}
