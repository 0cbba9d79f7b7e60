//! What users read of the program itself: help, man pages, completions, and the commands in the
//! documentation. The help is compared with files in `snapshots`; after a wanted change write
//! them anew with `SWATH_UPDATE=1 cargo test -p swath --test program text_help`.

use std::path::{Path, PathBuf};

use crate::support::Home;

/// (name of the snapshot, arguments)
const SHOWN: &[(&str, &[&str])] = &[
    ("help", &["--help"]),
    ("get", &["get", "--help"]),
    ("get-short", &["get", "-h"]),
    ("follow", &["follow", "--help"]),
    ("cp", &["cp", "--help"]),
    ("attach", &["attach", "--help"]),
    ("cancel", &["cancel", "--help"]),
    ("jobs", &["jobs", "--help"]),
    ("serve", &["serve", "--help"]),
    ("seed", &["seed", "--help"]),
    ("track", &["track", "--help"]),
    ("publish", &["publish", "--help"]),
    ("keys", &["keys", "--help"]),
    ("keys-new", &["keys", "new", "--help"]),
    ("ls", &["ls", "--help"]),
    ("du", &["du", "--help"]),
    ("probe", &["probe", "--help"]),
    ("routes", &["routes", "--help"]),
    ("routes-probe", &["routes", "probe", "--help"]),
    ("stage", &["stage", "--help"]),
    ("stage-status", &["stage", "status", "--help"]),
    ("stage-extend", &["stage", "extend", "--help"]),
    ("stage-release", &["stage", "release", "--help"]),
    ("routes-forget", &["routes", "forget", "--help"]),
    ("study", &["study", "--help"]),
    ("verify", &["verify", "--help"]),
];

#[test]
fn help_is_as_it_was_read_and_agreed() {
    for (name, args) in SHOWN {
        let text = swath(args);
        let path = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("tests/snapshots")
            .join(format!("{name}.txt"));
        if std::env::var_os("SWATH_UPDATE").is_some() {
            std::fs::write(&path, &text).unwrap();
            continue;
        }
        let agreed = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(
            agreed == text,
            "{} differs. If that is wanted: SWATH_UPDATE=1 cargo test -p swath --test program text_help\n{}",
            path.display(),
            first_difference(&agreed, &text)
        );
        assert!(
            text.lines().all(|line| line.chars().count() <= 100),
            "{name}: a line is longer than 100"
        );
    }
}

#[test]
fn every_option_is_in_the_man_page_the_completions_and_the_guide() {
    let home = Home::new();
    swath(&["man", "--dir", home.path("man").to_str().unwrap()]);
    let shells: Vec<_> = ["bash", "zsh", "fish", "elvish", "powershell"]
        .map(|shell| (shell, swath(&["completions", shell])))
        .into();
    let guides = [
        ("get", "get.md"),
        ("cp", "cp.md"),
        ("ls", "cp.md"),
        ("du", "cp.md"),
        ("attach", "third-party.md"),
        ("cancel", "third-party.md"),
        ("jobs", "third-party.md"),
        ("serve", "serve.md"),
        ("relay", "relay.md"),
        ("seed", "publishing.md"),
        ("track", "tracker.md"),
        ("publish", "publishing.md"),
        ("routes", "routes.md"),
        ("stage", "stage.md"),
        ("study", "study.md"),
        ("verify", "probe-verify.md"),
    ];
    for (command, guide) in guides {
        let man = home.path(format!("man/swath-{command}.1"));
        let man = std::fs::read_to_string(man).unwrap().replace("\\-", "-");
        let text = std::fs::read_to_string(root().join("docs").join(guide)).unwrap();
        let options = options(&swath(&[command, "--help"]));
        assert!(options.len() >= 5, "{command}: {options:?}");
        for option in options {
            assert!(man.contains(&option), "{option} is not in the man page");
            for (shell, script) in &shells {
                // Fish writes long options without their dashes.
                assert!(
                    script.contains(option.trim_start_matches('-')),
                    "{option} is not in the completions for {shell}"
                );
            }
            assert!(
                option == "--help"
                    || text.contains(&format!("`{option}"))
                    || text.contains(&format!(", `{option}")),
                "{option} is not in docs/{guide}"
            );
        }
    }
}

#[test]
fn the_exit_codes_of_the_help_are_those_of_the_guide() {
    let guide = std::fs::read_to_string(root().join("docs/get.md")).unwrap();
    let codes = |line: &str| line.split('|').nth(1).and_then(|cell| cell.trim().parse::<u8>().ok());
    let documented: Vec<u8> =
        guide.lines().filter(|line| line.starts_with('|')).filter_map(codes).collect();
    let help = swath(&["get", "--help"]);
    let table = help.split("Exit codes:").nth(1).expect("the help has exit codes");
    let mut told: Vec<u8> = table.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    told.sort_unstable();
    assert_eq!(told, documented);
}

#[test]
fn man_pages_hold_what_a_user_looks_up() {
    let get = swath(&["man", "get"]).replace("\\-", "-");
    for word in [
        ".TH swath-get 1",
        "swath get [OPTIONS]",
        "EXIT STATUS",
        "3 incomplete",
        "ENVIRONMENT",
        "BEARER_TOKEN_FILE",
        "FILES",
        "NAME.swath.part",
        "swath-verify(1)",
    ] {
        assert!(get.to_lowercase().contains(&word.to_lowercase()), "{word} is missing:\n{get}");
    }
    // What stands below --help stands there too, and `sync` is another name.
    for (command, words) in [
        ("cp", &["EXAMPLES", "EXIT STATUS", "swath sync is swath cp", "host:/scratch/data/"][..]),
        ("sync", &[".TH swath-cp 1", "extended attributes were not copied", "swath-ls(1)"]),
        (
            "serve",
            &["EXAMPLES", "SIGNALS", "EXIT STATUS", "5 cannot listen", "--anonymous --plain"],
        ),
    ] {
        let page = swath(&["man", command]).replace("\\-", "-");
        for word in words {
            assert!(page.contains(word), "{command}: {word} is missing:\n{page}");
        }
    }
    let whole = swath(&["man"]).replace("\\-", "-");
    assert!(whole.contains("swath-get(1)") && whole.contains("EXIT STATUS"), "{whole}");
}

#[test]
fn completions_offer_the_values_there_are() {
    let script = swath(&["completions", "bash"]);
    assert!(script.contains("auto uring threads buffered"), "{script}");
    assert!(script.contains("swath mdtp fixed single"));
}

/// Each `swath …` line in a block of shell commands must be one that the program understands:
/// with `--help` at its end everything before it is parsed, and nothing is done.
#[test]
fn commands_in_the_documentation_are_understood() {
    let mut count = 0;
    let pages = std::fs::read_dir(root().join("docs")).unwrap();
    let mut files = vec![root().join("README.md")];
    files.extend(pages.map(|entry| entry.unwrap().path()));
    for path in files.iter().filter(|path| path.extension().is_some_and(|kind| kind == "md")) {
        let file = path.display();
        for line in shell_lines(&std::fs::read_to_string(path).unwrap()) {
            let Some(args) = arguments(&line) else { continue };
            let home = Home::new();
            let mut words: Vec<&str> = args.iter().map(String::as_str).collect();
            words.push("--help");
            let result = home.swath(&words).run();
            assert_eq!(result.code(), 0, "{file}: {line}\n{}", result.stderr);
            count += 1;
        }
    }
    assert!(count >= 10, "only {count} commands were found");
}

#[test]
fn a_wrong_command_line_says_what_is_wrong_and_ends_with_2() {
    for (args, said) in [
        (&["get"][..], "required arguments were not provided"),
        (
            &["get", "--policy", "best", "http://a.example/x"],
            "[possible values: swath, mdtp, fixed, single]",
        ),
        (&["get", "--digest", "sha-256:12", "http://a.example/x"], "--digest"),
        (
            &["get", "--limit-rate", "fast", "http://a.example/x"],
            "'fast' is not a rate (examples: 500k, 50M, 1.5GB/s)",
        ),
        (&["get", "--connections", "0", "http://a.example/x"], "'auto' or a number from 1 to 256"),
        (&["get", "--bogus"], "--bogus"),
        (
            &["get", "ftp://a.example/x"],
            ": unsupported scheme ftp (supported: http, https, dav, davs, root, roots, xroot, xroots, swath, file, magnet)",
        ),
        (&["get", "http://a.example/"], "-o FILE"),
        (&["get", "--json", "-o", "-", "http://a.example/x"], "standard output"),
        (&["verify"], "FILE"),
        (&["man", "forcast"], "there is no command of this name"),
        (&["get", "-o", "dir/", "http://a.example/x"], "is a folder: use -d"),
        (&["get", "http://a.example/..%2fetc"], "ends in an invalid name"),
        (&["get", "-i", "l", "--digest", "adler32:00000001"], "cannot be used with"),
        (
            &["get", "http://a.example/x.meta4", "http://b.example/x"],
            "is a Metalink: give it as the only source",
        ),
        (&["fetch"], "unrecognized subcommand"),
        (&[], "Usage"),
    ] {
        let result = Home::new().swath(args).run();
        assert_eq!(result.code(), 2, "{args:?}\n{}", result.stderr);
        assert!(result.stderr.contains(said), "{args:?} says\n{}", result.stderr);
    }
}

fn swath(args: &[&str]) -> String {
    let result = Home::new().swath(args).run();
    assert_eq!(result.code(), 0, "{args:?}: {}", result.stderr);
    result.out()
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap().to_owned()
}

/// The long options that a help text describes.
fn options(help: &str) -> Vec<String> {
    let lines = help.lines().map(str::trim_start).filter(|line| line.starts_with('-'));
    lines
        .filter_map(|line| {
            let word = line.split([' ', ',']).find(|word| word.starts_with("--"))?;
            // Dots behind it mean that it may stand there twice.
            Some(word.trim_end_matches('.').to_owned())
        })
        .collect()
}

/// The lines of the blocks marked as shell commands.
fn shell_lines(text: &str) -> Vec<String> {
    let mut lines = Vec::new();
    let mut shell = false;
    for line in text.lines() {
        if line.starts_with("```") {
            shell = line == "```sh";
        } else if shell {
            lines.push(line.to_owned());
        }
    }
    lines
}

/// The arguments of a `swath` call, up to a pipe, a redirection or a comment; digests that the page
/// shortens, or keeps in a variable, are filled in.
fn arguments(line: &str) -> Option<Vec<String>> {
    let digest = format!("sha-256:{}", "9f".repeat(32));
    let whole = line.replace("sha-256:9f86…", &digest).replace("sha-256:$digest", &digest);
    let mut words = Vec::new();
    for word in
        whole.split_whitespace().take_while(|word| !["|", ">", "#", "&&", "\\"].contains(word))
    {
        words.push(word.trim_matches('\'').to_owned());
    }
    (words.first().is_some_and(|word| word == "swath") && words.len() > 1)
        .then(|| words.split_off(1))
}

fn first_difference(agreed: &str, text: &str) -> String {
    let differs =
        agreed.lines().zip(text.lines()).enumerate().find(|(_, (before, after))| before != after);
    match differs {
        Some((number, (before, after))) => format!("line {}:\n- {before}\n+ {after}", number + 1),
        None => "one is longer than the other".to_owned(),
    }
}
