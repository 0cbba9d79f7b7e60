//! The page of `--report`: whether it can be written, and writing it.

use std::fs::File;
use std::io;
use std::path::Path;

use swath_transfer::report::{Recording, render};

use crate::exit::{self, Exit};
use crate::say;

/// Whether the page can be written, found out before anything is fetched. A page that is there
/// stays as it is until there is a new one.
pub fn check(report: Option<&Path>) -> Result<(), (Exit, String)> {
    let Some(path) = report else { return Ok(()) };
    let made = match std::fs::metadata(path) {
        Ok(found) if found.is_dir() => Err(io::Error::from_raw_os_error(libc::EISDIR)),
        Ok(found) if found.is_file() => File::options().write(true).open(path).map(drop),
        // Writing into a device or a pipe shows when it is done.
        Ok(_) => Ok(()),
        Err(_) => File::create_new(path).and_then(|_| std::fs::remove_file(path)),
    };
    made.map_err(|error| (Exit::Target, unwritable(path, &error)))
}

/// Whether the page would take the place of the file that it is about, or of what lies beside it.
pub fn clash(report: Option<&Path>, target: &Path) -> Option<(Exit, String)> {
    let page = std::path::absolute(report?).ok()?;
    let target = std::path::absolute(target).ok()?;
    let same = ["", ".swath", ".swath.part", ".swath.new"].iter().any(|side| {
        let mut name = target.clone().into_os_string();
        name.push(side);
        page.as_os_str() == name
    });
    same.then(|| {
        let words = "would be written over the file or over what is kept beside it";
        (Exit::Usage, format!("the report {} {words}: give --report another name", page.display()))
    })
}

/// Write the page and, unless that is unwanted, say so; `exit` is how the transfer ended.
pub fn write(report: Option<&Path>, is_silent: bool, recording: &Recording, exit: Exit) -> Exit {
    let Some(path) = report else { return exit };
    match std::fs::write(path, render(recording)) {
        Ok(()) => {
            if !is_silent {
                say::err(&format!("report: {}", path.display()));
            }
            exit
        }
        Err(error) => exit::fail(exit.max(Exit::Target), &unwritable(path, &error)),
    }
}

fn unwritable(path: &Path, error: &io::Error) -> String {
    format!("cannot write the report to {}: {error}", path.display())
}
