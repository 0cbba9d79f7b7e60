//! The files of a study: measurements as JSON, the table as text, the picture as SVG.

use std::fmt::Display;
use std::fs;
use std::io::{IsTerminal, Write};
use std::path::Path;

use crate::picture::draw;
use crate::results::Study;
use crate::table::study_table;

/// Writes all three files of a study into a folder.
pub fn keep(study: &Study, folder: &Path) -> Result<(), String> {
    let write = |ending: &str, text: String| {
        let path = folder.join(format!("{}.{ending}", study.name));
        fs::write(&path, text).map_err(|e| format!("cannot write {}: {e}", path.display()))
    };
    keep_data(study, folder)?;
    write("txt", study_table(study))?;
    write("svg", draw(study))
}

/// Writes the measurements of a study. Whoever is killed meanwhile leaves the earlier ones.
pub fn keep_data(study: &Study, folder: &Path) -> Result<(), String> {
    fs::create_dir_all(folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    let json = serde_json::to_string_pretty(study).map_err(|e| e.to_string())?;
    let path = folder.join(format!("{}.json", study.name));
    let new = path.with_extension("json.new");
    fs::write(&new, json + "\n")
        .and_then(|()| fs::rename(&new, &path))
        .map_err(|e| format!("cannot write {}: {e}", path.display()))
}

/// Reads the measurements of a study.
pub fn read(path: &Path) -> Result<Study, String> {
    let failed = |e: &dyn Display| format!("{}: {e}", path.display());
    let text = fs::read_to_string(path).map_err(|e| failed(&e))?;
    serde_json::from_str(&text).map_err(|e| failed(&e))
}

/// Prints the table and draws the picture of results that were kept earlier.
pub fn plot(path: &Path) -> Result<(), String> {
    let study = read(path)?;
    print!("{}", study_table(&study));
    keep(&study, path.parent().unwrap_or(Path::new(".")))
}

/// The command line of this study as a user types it.
pub fn typed_command(script: &str) -> String {
    let arguments = std::env::args().skip(1);
    std::iter::once(script.to_owned()).chain(arguments).collect::<Vec<_>>().join(" ")
}

/// Shows what runs at present, on a terminal only.
pub fn say(text: &str) {
    let mut stderr = std::io::stderr();
    if stderr.is_terminal() {
        // Nothing is lost when this cannot be shown.
        let _ = write!(stderr, "\r\x1b[K{text}");
        let _ = stderr.flush();
    }
}
