//! The shells read what `swath completions` writes for them.

use std::process::Command;

use crate::support::Home;

#[test]
fn completions_are_scripts_that_their_shell_can_read() {
    let home = Home::new();
    for shell in ["bash", "zsh", "fish"] {
        let script = home.write(
            &format!("swath.{shell}"),
            home.run(["completions", shell]).code_is(0).stdout.clone(),
        );
        match Command::new(shell).arg("-n").arg(&script).output() {
            Ok(output) => assert!(
                output.status.success(),
                "{shell}: {}",
                String::from_utf8_lossy(&output.stderr)
            ),
            Err(error) => println!("skipped: {shell} cannot be run here: {error}"),
        }
    }
}
