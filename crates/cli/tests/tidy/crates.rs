//! Rules about crates: who may depend on whom, and under which licences.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

use serde_json::Value;

use super::{none, read, root};

#[test]
fn dependencies_point_downwards_only() {
    let metadata = metadata();
    let direct = direct_dependencies(&metadata);
    let mut offences = Vec::new();
    for (name, allowed) in HOUSE {
        let used = direct.get(*name).unwrap_or_else(|| panic!("there is no crate {name}"));
        for dependency in used.iter().filter(|used| direct.contains_key(*used)) {
            if !allowed.contains(&dependency.as_str()) {
                offences.push(format!("{name} must not depend on {dependency}"));
            }
        }
    }
    for name in direct.keys().filter(|name| name.starts_with("swath")) {
        if !HOUSE.iter().any(|(known, _)| known == name) {
            offences.push(format!("{name} has no place in the house: add it to HOUSE"));
        }
    }
    none(&offences);
}

#[test]
fn the_pure_crates_pull_in_neither_runtime_nor_sockets() {
    let direct = direct_dependencies(&metadata());
    let mut offences = Vec::new();
    for (name, banned) in BANNED {
        for dependency in
            direct.get(*name).into_iter().flatten().filter(|used| banned.contains(&used.as_str()))
        {
            offences.push(format!("{name} must not depend on {dependency}"));
        }
    }
    none(&offences);
}

#[test]
fn every_licence_is_on_the_list() {
    let deny = read("deny.toml".as_ref());
    let list = deny
        .split("allow = [")
        .nth(1)
        .and_then(|rest| rest.split(']').next())
        .expect("deny.toml has a list of licences");
    let allowed: BTreeSet<&str> = list.split('"').skip(1).step_by(2).collect();
    let mut offences = Vec::new();
    for package in metadata()["packages"].as_array().into_iter().flatten() {
        let name = package["name"].as_str().unwrap_or_default();
        let licence = package["license"].as_str().unwrap_or_default();
        if !holds(licence, &allowed) {
            offences.push(format!("{name}: '{licence}' is not allowed by deny.toml"));
        }
    }
    none(&offences);
}

#[test]
fn licence_expressions_are_read_as_meant() {
    let allowed = BTreeSet::from(["MIT", "ISC", "Apache-2.0 WITH LLVM-exception"]);
    for (expression, wanted) in [
        ("MIT", true),
        ("GPL-3.0 OR MIT", true),
        ("GPL-3.0/MIT", true),
        ("GPL-3.0 AND MIT", false),
        ("ISC AND (GPL-3.0 OR MIT)", true),
        ("ISC AND (GPL-3.0 OR MIT) AND GPL-3.0", false),
        ("Apache-2.0 WITH LLVM-exception", true),
        ("Apache-2.0", false),
        ("", false),
    ] {
        assert_eq!(holds(expression, &allowed), wanted, "{expression}");
    }
}

/// Otherwise `make demo`, `make build` and `cargo build` each build crates again that another has built.
#[test]
fn features_do_not_depend_on_which_packages_are_built() {
    let program = features(&["-p", "swath"]);
    for others in [&["-p", "swath", "-p", "swath-netlab"][..], &[]] {
        let both = features(others);
        let differ = program.iter().filter(|(package, has)| both.get(*package) != Some(has));
        let offences: Vec<String> = differ
            .map(|(package, has)| {
                format!("{package}: {has:?}, but {:?} with {others:?}", both[package])
            })
            .collect();
        none(&offences);
    }
}

/// The features of each package that a release build of these packages uses.
fn features(packages: &[&str]) -> BTreeMap<String, BTreeSet<String>> {
    let tree = ["tree", "--locked", "--offline", "--edges", "normal,build", "--prefix", "none"];
    let output = Command::new(env!("CARGO"))
        .args(tree)
        .args(["--format", "{p} {f}"])
        .args(packages)
        .current_dir(root())
        .output()
        .expect("cargo runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).expect("names are UTF-8");
    let mut features: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for line in text.lines() {
        let mut words = line.split_whitespace();
        let package = words.by_ref().take(2).collect::<Vec<_>>().join(" ");
        let list = words.filter(|word| !word.starts_with('('));
        features.entry(package).or_default().extend(list.map(str::to_owned));
    }
    features
}

/// Whether an SPDX expression can be met with the licences allowed.
fn holds(expression: &str, allowed: &BTreeSet<&str>) -> bool {
    let spaced = expression.replace('(', " ( ").replace(')', " ) ").replace('/', " OR ");
    let words: Vec<&str> = spaced.split_whitespace().collect();
    let mut at = 0;
    either(&words, &mut at, allowed) && at == words.len()
}

fn either(words: &[&str], at: &mut usize, allowed: &BTreeSet<&str>) -> bool {
    let mut met = both(words, at, allowed);
    while words.get(*at) == Some(&"OR") {
        *at += 1;
        met |= both(words, at, allowed);
    }
    met
}

fn both(words: &[&str], at: &mut usize, allowed: &BTreeSet<&str>) -> bool {
    let mut met = one(words, at, allowed);
    while words.get(*at) == Some(&"AND") {
        *at += 1;
        met &= one(words, at, allowed);
    }
    met
}

fn one(words: &[&str], at: &mut usize, allowed: &BTreeSet<&str>) -> bool {
    let Some(word) = words.get(*at) else { return false };
    *at += 1;
    if *word == "(" {
        let met = either(words, at, allowed);
        *at += 1;
        return met;
    }
    if words.get(*at) == Some(&"WITH") {
        let exception = words.get(*at + 1).copied().unwrap_or_default();
        *at += 2;
        return allowed.contains(format!("{word} WITH {exception}").as_str());
    }
    allowed.contains(word)
}

/// What cargo knows of the workspace and of all that is built for this platform.
fn metadata() -> Value {
    let host = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    let output = Command::new(env!("CARGO"))
        .args([
            "metadata",
            "--format-version",
            "1",
            "--locked",
            "--offline",
            "--filter-platform",
            &host,
        ])
        .current_dir(root())
        .output()
        .expect("cargo runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("cargo's metadata is JSON")
}

/// What each crate of the workspace needs to be built, development apart.
fn direct_dependencies(metadata: &Value) -> BTreeMap<String, BTreeSet<String>> {
    let members: BTreeSet<&str> = metadata["workspace_members"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect();
    let packages = metadata["packages"].as_array().into_iter().flatten();
    packages
        .filter(|package| package["id"].as_str().is_some_and(|id| members.contains(id)))
        .map(|package| {
            let needed = package["dependencies"]
                .as_array()
                .into_iter()
                .flatten()
                .filter(|needed| needed["kind"] != "dev");
            let names =
                needed.filter_map(|needed| needed["name"].as_str()).map(str::to_owned).collect();
            (package["name"].as_str().unwrap_or_default().to_owned(), names)
        })
        .collect()
}

/// Each crate and the crates of the house that it may use. `swath-netlab` is for tests and
/// benchmarks: no other crate may need it to be built.
const HOUSE: &[(&str, &[&str])] = &[
    ("swath-model", &[]),
    ("swath-plan", &["swath-model"]),
    ("swath-formats", &["swath-model"]),
    ("swath-store", &["swath-model"]),
    ("swath-state", &[]),
    ("swath-transport", &[]),
    ("swath-source", &["swath-model", "swath-formats", "swath-transport"]),
    ("swath-serve", &["swath-model", "swath-formats", "swath-store", "swath-transport"]),
    ("swath-report", &["swath-model", "swath-formats"]),
    (
        "swath-relay",
        &["swath-model", "swath-formats", "swath-store", "swath-source", "swath-serve"],
    ),
    ("swath-tracker", &["swath-model", "swath-formats", "swath-serve"]),
    ("swath-swarm", &["swath-model", "swath-formats", "swath-store", "swath-source"]),
    ("swath-publish", &["swath-model", "swath-formats", "swath-store"]),
    (
        "swath-transfer",
        &[
            "swath-model",
            "swath-plan",
            "swath-formats",
            "swath-store",
            "swath-state",
            "swath-source",
        ],
    ),
    (
        "swath-share",
        &[
            "swath-model",
            "swath-formats",
            "swath-source",
            "swath-serve",
            "swath-transfer",
            "swath-swarm",
        ],
    ),
    (
        "swath-jobs",
        &[
            "swath-model",
            "swath-plan",
            "swath-formats",
            "swath-store",
            "swath-state",
            "swath-source",
            "swath-serve",
            "swath-transfer",
            "swath-swarm",
            "swath-share",
            "swath-publish",
        ],
    ),
    (
        "swath",
        &[
            "swath-model",
            "swath-plan",
            "swath-formats",
            "swath-store",
            "swath-state",
            "swath-source",
            "swath-serve",
            "swath-relay",
            "swath-tracker",
            "swath-swarm",
            "swath-publish",
            "swath-transfer",
            "swath-report",
            "swath-jobs",
        ],
    ),
    ("swath-netlab", &["swath-model", "swath-plan"]),
    (
        "swath-bench",
        &[
            "swath-model",
            "swath-plan",
            "swath-formats",
            "swath-store",
            "swath-source",
            "swath-transfer",
            "swath-netlab",
        ],
    ),
];

/// Crates whose very presence would break what the house says of these.
const BANNED: &[(&str, &[&str])] = &[
    ("swath-model", IMPURE),
    ("swath-plan", IMPURE),
    ("swath-formats", IMPURE),
    ("swath-report", IMPURE),
    ("swath-store", &["reqwest", "rustls", "tokio-rustls", "hyper", "socket2"]),
    ("swath-state", &["tokio", "reqwest", "rustls", "socket2"]),
    ("swath-source", &["io-uring"]),
];
const IMPURE: &[&str] =
    &["tokio", "reqwest", "rustls", "io-uring", "libc", "rand", "socket2", "mio", "rayon"];
