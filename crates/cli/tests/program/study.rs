//! `swath study` starts the program of the source that measures.

use std::os::unix::fs::PermissionsExt as _;

use crate::support::Home;

/// A copy of the source whose study ends with this code and says how it was called.
fn source(code: u8) -> Home {
    let home = Home::new();
    home.write("bench/study", format!("#!/bin/sh\necho \"$0\" \"$@\"\nexit {code}\n"));
    home.write("crates/cli/Cargo.toml", "");
    let script = home.path("bench/study");
    std::fs::set_permissions(script, std::fs::Permissions::from_mode(0o755)).unwrap();
    home
}

#[test]
fn the_study_of_the_source_gets_all_options() {
    let home = source(0);
    let here = home.work().canonicalize().unwrap();
    let script = here.join("bench/study").display().to_string();
    let output = here.join("study").display().to_string();
    let told = |args: &[&str]| {
        let ran = home.run(["study"].iter().chain(args));
        ran.code_is(0);
        String::from_utf8_lossy(&ran.stdout).trim().to_owned()
    };
    assert_eq!(told(&[]), format!("{script} --size 1GB --runs 5 -o {output}"));
    let some = ["--datasets", "ds1,ds6", "--rtt", "0.6,60", "--tools", "swath", "--runs", "1"];
    let expected = format!(
        "{script} --datasets ds1,ds6 --rtt 0.6,60 --tools swath --size 10GB --runs 1 -o /some/where"
    );
    let more = ["--size", "10GB", "-o", "/some/where"];
    assert_eq!(told(&[&some[..], &more[..]].concat()), expected);
}

#[test]
fn its_exit_code_is_that_of_the_study() {
    source(1).run(["study"]).code_is(1);
    source(0).run(["study", "--rtt", "far"]).code_is(2).says(&["invalid value 'far'"]);
}
