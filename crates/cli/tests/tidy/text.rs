//! Rules about what is written in the files.

use std::path::{Component, Path, PathBuf};

use super::{files, none, read, root};

#[test]
fn nothing_unfinished_stays() {
    // Put together here, so that this file does not find itself.
    let words = [["to", "do!("], ["unimple", "mented!("], ["db", "g!("], ["FIX", "ME"]]
        .map(|parts| parts.concat());
    let mut offences = Vec::new();
    for path in files(".", "rs") {
        for (number, line) in read(&path).lines().enumerate() {
            if let Some(word) = words.iter().find(|word| line.contains(*word)) {
                offences.push(format!("{}:{}: {word}", path.display(), number + 1));
            }
        }
    }
    none(&offences);
}

#[test]
fn an_ignored_test_says_what_runs_it() {
    let mut offences = Vec::new();
    let marks = [["#[ign", "ore"].concat(), ["cfg_attr(", "ign"].concat()];
    for path in files(".", "rs") {
        for (number, line) in read(&path).lines().enumerate() {
            let ignored = line.trim_start().starts_with(&marks[0]);
            if ignored
                && !["= \"run ", "`make ", "`cargo "].iter().any(|reason| line.contains(reason))
            {
                offences.push(format!(
                    "{}:{}: ignored without a way to run it",
                    path.display(),
                    number + 1
                ));
            }
        }
    }
    none(&offences);
}

#[test]
fn the_pure_crates_stay_pure() {
    let mut offences = Vec::new();
    for folder in ["crates/model/src", "crates/plan/src", "crates/formats/src"] {
        for path in files(folder, "rs") {
            let text = read(&path);
            // Tests may do as they like.
            let is_test = path.file_name().is_some_and(|name| name == "tests.rs");
            let product =
                if is_test { "" } else { text.split("#[cfg(test)]").next().unwrap_or_default() };
            for (number, line) in product.lines().enumerate() {
                if let Some(word) = IMPURE
                    .iter()
                    .find(|word| line.contains(*word) && !line.trim_start().starts_with("//"))
                {
                    offences.push(format!("{}:{}: {word}", path.display(), number + 1));
                }
            }
        }
    }
    none(&offences);
}

#[test]
fn links_in_the_documentation_lead_somewhere() {
    let mut offences = Vec::new();
    for path in files(".", "md") {
        for target in links(&read(&path)) {
            if target.contains("://") || target.starts_with("mailto:") {
                continue;
            }
            let (file, anchor) = target.split_once('#').unwrap_or((&target, ""));
            let file = match file {
                "" => path.clone(),
                file => normal(&path.parent().unwrap_or(Path::new("")).join(file)),
            };
            if !root().join(&file).exists() {
                offences.push(format!("{}: {target} is not there", path.display()));
            } else if !anchor.is_empty() && !anchors(&read(&file)).iter().any(|has| has == anchor) {
                offences.push(format!("{}: {target}: no such heading", path.display()));
            }
        }
    }
    none(&offences);
}

/// What `](…)` and `src="…"` name, outside code.
fn links(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    for line in prose(text) {
        for (open, close) in [("](", ')'), ("src=\"", '"'), ("href=\"", '"')] {
            for rest in line.split(open).skip(1) {
                found.extend(rest.split(close).next().map(str::to_owned));
            }
        }
    }
    found
}

/// The anchors of a page's headings, as hosting sites make them.
fn anchors(text: &str) -> Vec<String> {
    let headings = prose(text).filter(|line| line.starts_with('#'));
    headings
        .map(|line| {
            let title = line.trim_start_matches('#').trim().to_lowercase();
            title
                .chars()
                .filter(|c| c.is_alphanumeric() || " -_".contains(*c))
                .map(|c| if c == ' ' { '-' } else { c })
                .collect()
        })
        .collect()
}

/// The lines outside fenced code.
fn prose(text: &str) -> impl Iterator<Item = &str> {
    let mut code = false;
    text.lines().filter(move |line| {
        let fence = line.trim_start().starts_with("```");
        code ^= fence;
        !code && !fence
    })
}

fn normal(path: &Path) -> PathBuf {
    let mut parts = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => {
                parts.pop();
            }
            Component::CurDir => {}
            part => parts.push(part),
        }
    }
    parts
}

/// What the crates without files, sockets, clock, threads and chance must not name.
const IMPURE: [&str; 9] = [
    "std::fs",
    "std::net",
    "std::thread",
    "std::env",
    "std::process",
    "Instant::now",
    "SystemTime::now",
    "fastrand::Rng::new()",
    "tokio",
];
