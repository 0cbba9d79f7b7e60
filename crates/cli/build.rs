//! What is known of a build alone: the commit, the profile, the target and the compiler.

use std::env;
use std::path::Path;
use std::process::Command;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    // What a commit changes; an archive of the source has neither.
    for file in ["../../.git/HEAD", "../../.git/logs/HEAD"] {
        if Path::new(file).exists() {
            println!("cargo:rerun-if-changed={file}");
        }
    }
    let variable = |name| env::var(name).unwrap_or_default();
    let mut words = Vec::new();
    words.extend(printed("git", &["log", "-1", "--format=commit %h of %cs"]));
    words.push(format!("{} for {}", variable("PROFILE"), variable("TARGET")));
    words.extend(printed(&variable("RUSTC"), &["--version"]).map(first_two));
    println!("cargo:rustc-env=SWATH_BUILD={}", words.join(", "));
}

/// `rustc 1.90.0` of what a compiler says of itself.
fn first_two(text: String) -> String {
    text.split(' ').take(2).collect::<Vec<_>>().join(" ")
}

fn printed(program: &str, args: &[&str]) -> Option<String> {
    let output = Command::new(program).args(args).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    let text = text.trim();
    (output.status.success() && !text.is_empty()).then(|| text.to_owned())
}
