//! The `netlab` program: runs a command in the middle of an emulated network.
//!
//! Building and carrying is the library's work; here are the arguments, the control socket, the
//! signals, and the exit code, which is that of the command.

mod command;
mod control;
mod options;

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    let result = match options::Program::parse().task {
        options::Task::Star(star) => command::star(&star),
        options::Task::Wan(wan) => command::wan(&wan),
        options::Task::Set(set) => control::send(&set).map(|()| 0),
    };
    match result {
        Ok(code) => ExitCode::from(code),
        Err(message) => {
            eprintln!("netlab: {message}");
            ExitCode::from(options::EXIT_NOT_STARTED)
        }
    }
}
