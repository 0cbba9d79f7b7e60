//! `swath study`: starts `bench/study` in swath's source, which does the work.

pub mod args;

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::exit::{Exit, fail};
use args::Study;

/// Becomes the program that measures; returns only if it cannot be started.
pub fn run(args: &Study) -> Exit {
    let Some(script) = script() else {
        let what = "the study is a part of swath's source (bench/study)";
        let how = "go to a copy of it that belongs to you and that others cannot write to";
        return fail(Exit::Input, &format!("{what}: {how}"));
    };
    let output = match std::path::absolute(&args.output) {
        Ok(output) => output,
        Err(error) => return fail(Exit::Internal, &format!("no current folder: {error}")),
    };
    let mut command = Command::new(&script);
    let rtts: Vec<String> = args.rtt.iter().map(f64::to_string).collect();
    for (option, values) in
        [("--datasets", &args.datasets), ("--rtt", &rtts), ("--tools", &args.tools)]
    {
        if !values.is_empty() {
            command.args([option, &values.join(",")]);
        }
    }
    command.args(["--size", &args.size, "--runs", &args.runs.to_string(), "-o"]).arg(output);
    if let Some(scratch) = &args.scratch {
        command.arg("--scratch").arg(scratch);
    }
    if args.fresh {
        command.arg("--fresh");
    }
    let error = command.exec();
    fail(Exit::Internal, &format!("{} cannot be started: {error}", script.display()))
}

/// Returns whether a file is one that root or this user has put there. In a folder that anybody may write
/// to, anybody could let root run a script.
fn is_ours(script: &Path) -> bool {
    // SAFETY: getuid has no preconditions and cannot fail.
    let own = unsafe { libc::getuid() };
    let is_safe = |it: &Metadata| (it.uid() == 0 || it.uid() == own) && it.mode() & OTHERS == 0;
    std::fs::metadata(script).is_ok_and(|it| it.is_file() && is_safe(&it))
        && script
            .parent()
            .is_some_and(|folder| std::fs::metadata(folder).is_ok_and(|it| is_safe(&it)))
}

/// Others may write.
const OTHERS: u32 = 0o002;

/// Returns the script of the copy of the source in which the user is, or from which swath was built.
fn script() -> Option<PathBuf> {
    let places = [std::env::current_dir(), std::env::current_exe()];
    let in_source = |folder: &Path| {
        let script = folder.join("bench/study");
        (folder.join("crates/cli").is_dir() && is_ours(&script)).then_some(script)
    };
    places.iter().flatten().find_map(|place| place.ancestors().find_map(in_source))
}
