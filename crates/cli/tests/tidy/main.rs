//! House rules that no other tool checks: who changes files, decisions by words, words that must not stay,
//! links in the documentation, who may depend on whom, licences.

mod changes;
mod crates;
mod decisions;
mod text;

use std::path::{Path, PathBuf};

/// The workspace's folder.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .ancestors()
        .nth(2)
        .expect("crates/cli lies two below the root")
        .to_owned()
}

/// The project's own files below `folder` with this extension, as paths relative to the root.
fn files(folder: &str, extension: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![root().join(folder)];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder)
            .unwrap_or_else(|error| panic!("{}: {error}", folder.display()))
        {
            let path = entry.expect("an entry of a folder").path();
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            if path.is_dir() {
                if !NOT_OURS.contains(&name) && !name.starts_with('.') {
                    folders.push(path);
                }
            } else if path.extension().is_some_and(|has| has == extension) {
                found.push(path.strip_prefix(root()).expect("below the root").to_owned());
            }
        }
    }
    assert!(!found.is_empty(), "no *.{extension} below {folder}");
    found.sort();
    found
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(root().join(path))
        .unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Fails with one line per offence.
fn none(offences: &[String]) {
    assert!(offences.is_empty(), "\n{}\n", offences.join("\n"));
}

/// What is built, learnt or left behind.
const NOT_OURS: [&str; 5] = ["target", "corpus", "artifacts", "demo", "results"];
