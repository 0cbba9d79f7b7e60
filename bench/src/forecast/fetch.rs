//! One transfer of the real program over emulated links.

use std::fs::{self, File};
use std::io;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use swath_netlab::star::{Lab, scratch_folder_in};
use tempfile::TempDir;

use crate::check::{empty, failure_of};
use crate::measure::measure;
use crate::star_run::Places;

/// Makes folders for what is served and what is fetched, which go with the first result.
///
/// # Errors
/// As [`fs::create_dir`].
pub(super) fn places_in(scratch: &Path, swath: &Path) -> io::Result<(TempDir, Places)> {
    let folder = scratch_folder_in(scratch)?;
    let [served, target] = ["served", "target"].map(|name| folder.path().join(name));
    fs::create_dir(&served)?;
    fs::create_dir(&target)?;
    Ok((folder, Places { swath: swath.to_owned(), served, target }))
}

/// Lets the program fetch `data` from the servers of these links, and returns its events, a line for
/// each. `home` keeps its history. `started` is called when it runs.
///
/// # Errors
/// What does not work, or why the transfer failed.
pub(super) fn fetch(
    places: &Places,
    home: &Path,
    lab: &Lab,
    links: impl Iterator<Item = usize>,
    data: &Path,
    limit: Duration,
    started: impl FnOnce(),
) -> Result<String, String> {
    let fault = |error: std::io::Error| format!("{}: {error}", home.display());
    let name = data.file_name().unwrap_or_default().to_string_lossy();
    let mut command = Command::new(&places.swath);
    command.args(["get", "--json", "-d"]).arg(&places.target);
    command.args(links.map(|link| format!("http://{}/{name}", lab.server_address(link))));
    command.env_clear().env("PATH", std::env::var_os("PATH").unwrap_or_default());
    command.env("HOME", home).env("SWATH_STATE", home.join("state.db"));
    let said = home.join("said");
    command.stdout(File::create(&said).map_err(fault)?);
    command.stderr(File::create(home.join("errors")).map_err(fault)?);
    lab.client().confine(&mut command);
    let measured = measure(&mut command, limit, started).map_err(fault)?;
    let output = places.target.join(&*name);
    if let Some(failure) = failure_of(measured.ending, data, Some(&output), &said) {
        return Err(failure);
    }
    empty(&places.target).map_err(fault)?;
    fs::read_to_string(&said).map_err(fault)
}
