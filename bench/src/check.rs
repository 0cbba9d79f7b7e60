//! Whether a run counts: how the program ended, and whether the file is right.

use std::fs;
use std::io;
use std::path::Path;

use crate::data::same_content;
use crate::measure::Ending;

/// Why a run does not count, with the last words of the program; `None` for a good run.
/// `output` is compared with `data`, unless the program keeps nothing.
pub fn failure_of(
    ending: Ending,
    data: &Path,
    output: Option<&Path>,
    said: &Path,
) -> Option<String> {
    let failure = match (ending, output) {
        (Ending::Code(0), None) => return None,
        (Ending::Code(0), Some(output)) => match same_content(data, output) {
            Ok(true) => return None,
            Ok(false) => "the file is wrong".to_owned(),
            Err(e) => format!("no file: {e}"),
        },
        (Ending::Code(code), _) => format!("exit code {code}"),
        (Ending::Signal(signal), _) => format!("signal {signal}"),
        (Ending::TimeLimit, _) => "stopped at the time limit".to_owned(),
    };
    let text = fs::read_to_string(said).unwrap_or_default();
    let last = text.lines().rfind(|line| !line.trim().is_empty()).unwrap_or_default().trim();
    Some(if last.is_empty() { failure } else { format!("{failure}: {last}") })
}

/// Removes everything in a folder of ours.
pub fn empty(folder: &Path) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            fs::remove_dir_all(entry.path())?;
        } else {
            fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_right_file_counts() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        fs::write(path("data"), "abc").unwrap();
        fs::write(path("right"), "abc").unwrap();
        fs::write(path("wrong"), "abd").unwrap();
        fs::write(path("said"), "first\nno route\n\n").unwrap();
        let check = |ending, output: &str| {
            failure_of(ending, &path("data"), Some(&path(output)), &path("said"))
        };
        assert_eq!(check(Ending::Code(0), "right"), None);
        assert_eq!(check(Ending::Code(0), "wrong").unwrap(), "the file is wrong: no route");
        assert!(check(Ending::Code(0), "none").unwrap().starts_with("no file: "));
        assert_eq!(check(Ending::Code(4), "right").unwrap(), "exit code 4: no route");
    }
}
