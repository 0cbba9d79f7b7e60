//! Files below a folder are changed in one way: by the store, which follows no link that a tree brought and
//! asks what may be done. Whoever serves reaches folders by way of the rights of a request.

use super::{files, none, read};

#[test]
fn files_below_a_folder_are_changed_by_the_store_alone() {
    let mut offences = Vec::new();
    for (folder, calls, exceptions) in RULES {
        for path in files(folder, "rs") {
            let name = path.display().to_string();
            let is_test = name.ends_with("tests.rs");
            if is_test || exceptions.iter().any(|(exception, _)| name.ends_with(exception)) {
                continue;
            }
            let text = read(&path);
            let product = text.split("#[cfg(test)]").next().unwrap_or_default();
            for (number, line) in product.lines().enumerate() {
                let is_comment = line.trim_start().starts_with("//");
                let call = calls.iter().find(|call| !is_comment && line.contains(**call));
                offences.extend(call.map(|call| {
                    format!("{name}:{}: '{call}' goes around swath_store::tree", number + 1)
                }));
            }
        }
    }
    none(&offences);
}

type Exceptions = &'static [(&'static str, &'static str)];

/// Folders of the project, the calls that none of their files may make, and the files that may, each with
/// the reason.
const RULES: &[(&str, &[&str], Exceptions)] = &[
    (
        "crates/serve/src",
        OPENS,
        &[("site/folders.rs", "gives roots to those who have rights, with these rights")],
    ),
    ("crates/serve/src", CHANGES, &[]),
    ("crates/transfer/src", CHANGES, &[]),
    ("crates/jobs/src/copy", CHANGES, &[]),
    ("crates/jobs/src/get", CHANGES, &[]),
    (
        "crates/jobs/src/follow",
        CHANGES,
        &[
            (
                "follow/state.rs",
                "makes the folder that the user named, and removes stages by a root",
            ),
            (
                "follow/swap.rs",
                "renames and removes names themselves, in folders that are no links",
            ),
        ],
    ),
];

/// Open a folder without anybody's rights.
const OPENS: &[&str] = &["Root::open(", "Root::open_itself("];
/// Change files by their paths.
const CHANGES: &[&str] = &[
    "fs::write(",
    "fs::rename(",
    "fs::copy(",
    "fs::create_dir",
    "fs::remove_",
    "fs::hard_link(",
    "fs::set_permissions(",
    "File::create",
    ".create(true)",
    ".create_new(",
    "DirBuilder",
    "fs::symlink(",
    "symlinkat(",
    "renameat",
    "unlinkat(",
    "mkdirat(",
    "linkat(",
];
