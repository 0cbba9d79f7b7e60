//! The `netlab` program: runs a command in the middle of an emulated network, a faulty server, or
//! puts a server far away.
//!
//! Building and carrying is the library's work; here are the arguments, the control socket, the
//! signals, and the exit code, which is that of the command.

mod afar;
mod command;
mod control;
mod options;
mod room;

use std::process::ExitCode;

use clap::Parser;
use swath_netlab::faulty;

fn main() -> ExitCode {
    let result = match options::Program::parse().task {
        options::Task::Star(star) => command::star(&star),
        options::Task::Wan(wan) => command::wan(&wan),
        options::Task::Mesh(mesh) => command::mesh(&mesh),
        options::Task::Set(set) => control::send(&set).map(|()| 0),
        options::Task::Afar(options) => afar::run(&options).map(|()| 0).map_err(|e| e.to_string()),
        options::Task::Serve(serve) => {
            faulty::cli::run(&serve).map(|()| 0).map_err(|e| e.to_string())
        }
    };
    match result {
        Ok(code) => ExitCode::from(code),
        Err(message) => {
            eprintln!("netlab: {message}");
            ExitCode::from(options::EXIT_NOT_STARTED)
        }
    }
}
