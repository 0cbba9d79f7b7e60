//! Nothing decides by reading a message: kinds of errors, routes and proofs are types up to the last line
//! of the program.

use super::{files, none, read};

#[test]
fn nothing_decides_by_reading_a_message() {
    let mut offences = Vec::new();
    for folder in FOLDERS {
        for path in files(folder, "rs") {
            let name = path.display().to_string();
            let is_test = name.ends_with("tests.rs") || name.contains("/tests/");
            if is_test || READERS.iter().any(|(reader, _)| name.ends_with(reader)) {
                continue;
            }
            let text = read(&path);
            let product = text.split("#[cfg(test)]").next().unwrap_or_default();
            for (number, line) in product.lines().enumerate() {
                if line.trim_start().starts_with("//") {
                    continue;
                }
                let literals = TAKES_APART.iter().flat_map(|method| literals_of(line, method));
                let words = literals.filter(|literal| is_of_words(literal)).map(str::to_owned);
                let shown = AS_WORDS.iter().filter(|shown| line.contains(*shown));
                offences.extend(
                    words
                        .chain(shown.map(|it| (*it).to_owned()))
                        .map(|what| format!("{name}:{}: decides by words: {what:?}", number + 1)),
                );
            }
        }
    }
    none(&offences);
}

/// The literals with which a line calls this method.
fn literals_of<'a>(line: &'a str, method: &str) -> Vec<&'a str> {
    let begin = format!(".{method}(");
    let calls = line.match_indices(&begin).map(|(at, _)| &line[at + begin.len()..]);
    calls
        .filter_map(|rest| rest.trim_start_matches('&').strip_prefix('"')?.split('"').next())
        .collect()
}

/// Whether these are words of a sentence, and not a part of a format.
fn is_of_words(literal: &str) -> bool {
    let letters = |part: &str| part.chars().any(char::is_alphabetic);
    literal.contains(' ') && letters(literal)
}

/// What texts are taken apart by.
const TAKES_APART: [&str; 11] = [
    "contains",
    "starts_with",
    "ends_with",
    "strip_prefix",
    "strip_suffix",
    "split",
    "split_once",
    "rsplit_once",
    "find",
    "rfind",
    "trim_start_matches",
];

/// An error, or whatever is shown, made into words that something is then decided by.
const AS_WORDS: [&str; 4] = [
    "error.to_string().contains(",
    "error.to_string().starts_with(",
    "error.to_string() ==",
    "words() ==",
];

/// Formats are read in `formats`.
const FOLDERS: [&str; 12] = [
    "crates/cli/src",
    "crates/plan/src",
    "crates/relay/src",
    "crates/report/src",
    "crates/serve/src",
    "crates/source/src",
    "crates/state/src",
    "crates/store/src",
    "crates/swarm/src",
    "crates/tracker/src",
    "crates/transfer/src",
    "crates/transport/src",
];

/// What reads text of its own because that is its format.
const READERS: [(&str, &str); 4] = [
    ("cp/bootstrap.rs", "what a shell prints of the other machine"),
    ("cli/src/generate.rs", "the help of which manual pages are made"),
    ("cli/src/main.rs", "what the parser of arguments prints"),
    ("executor/persistence/deliverer.rs", "names in the journal"),
];
