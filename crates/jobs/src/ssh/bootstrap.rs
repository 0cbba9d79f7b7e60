//! Copies this program to a remote host.

use std::path::Path;
use std::time::Instant;

use tokio::io::AsyncWriteExt as _;
use tokio::time::timeout;

use super::error::{Command, SshError, SshFault};
use super::host::SshHost;
use super::listen::{BEGUN, ends};
use crate::event::Note;

/// Copies the program into the cache of the remote host, if it is missing; returns the remote command.
pub async fn bootstrap(
    host: &SshHost,
    own: &Path,
    note: &(dyn Fn(Note) + Sync),
) -> Result<String, SshError> {
    let here = std::env::consts::ARCH;
    let (name, program) = (name(), bootstrapped());
    let look = format!(
        "is=; cd \"$HOME\"; test -x {name} && is=there; echo {FOUND} $is on $(uname -s) $(uname -m)"
    );
    let mut run = host.run(&by_sh(&look)).await?;
    // A shell that refuses the line may print it.
    let found = |line: &str| Some(line.split_once(FOUND)?.1.trim().to_owned());
    let found = |line: &str| found(line).filter(|found| !found.contains('$'));
    let found = match run.output.listen(found).await {
        Ok(found) => found,
        Err(unheard) => return Err(host.why(&mut run, unheard, Command::Look).await),
    };
    drop(run);
    let (is_there, kind) = match found.strip_prefix("there on ") {
        Some(kind) => (true, kind),
        None => (false, found.strip_prefix("on ").unwrap_or(&found)),
    };
    if kind != format!("Linux {here}") {
        let kind = kind.to_owned();
        return Err(host.error(SshFault::OtherMachine(kind)));
    }
    if is_there {
        return Ok(program);
    }
    put(host, own, &name).await?;
    note(Note::Bootstrapped { host: host.host.clone(), path: format!("~/{name}") });
    Ok(program)
}

/// Returns its path below the remote home folder.
fn name() -> String {
    format!(".cache/swath/swath-{}-{}", env!("CARGO_PKG_VERSION"), std::env::consts::ARCH)
}

/// Returns the remote command: the swath in the PATH, or the copied one. It checks first which one exists,
/// because a shell complains about a missing command.
pub fn found() -> String {
    let look = format!(
        "command -v swath >/dev/null 2>&1 && exec swath \"$@\"; \
         test -x {own} && exec {own} \"$@\"; exit {MISSING}",
        own = bootstrapped()
    );
    format!("sh -c '{look}' swath")
}

/// Returns the remote command of the copied program.
fn bootstrapped() -> String {
    format!("\"$HOME\"/{}", name())
}

/// Copies the program `own` to `name`.
async fn put(host: &SshHost, own: &Path, name: &str) -> Result<(), SshError> {
    let own = std::fs::read(own);
    let own = own.map_err(|error| host.error(SshFault::OwnProgram(error)))?;
    // A partial copy must not get the final name.
    let put = format!(
        "new={name}.$$; cd \"$HOME\" && mkdir -p .cache/swath && cat > $new && \
         test $(wc -c < $new) -eq {} && chmod 755 $new && mv -f $new {name} && echo {DONE} || \
         {{ rm -f $new; exit 1; }}",
        own.len()
    );
    let mut run = host.run(&by_sh(&put)).await?;
    // Before the login ssh reads nothing, which must not count as silence.
    if let Err(unheard) = run.output.listen(|line| ends(line, BEGUN)).await {
        return Err(host.why(&mut run, unheard, Command::Copy).await);
    }
    let began = Instant::now();
    if let Some(mut input) = run.input.take() {
        for part in own.chunks(PART_BYTES) {
            // After a failure the answer has the error.
            if !timeout(host.patience, input.write_all(part)).await.is_ok_and(|it| it.is_ok()) {
                break;
            }
        }
    }
    // The rest in flight takes at most as long as the data before.
    run.output.give(host.patience + began.elapsed());
    match run.output.listen(|line| ends(line, DONE)).await {
        Ok(()) => Ok(()),
        Err(unheard) => {
            let why = host.why(&mut run, unheard, Command::Copy).await;
            Err(host.error(SshFault::NotPut(Box::new(why))))
        }
    }
}

/// Runs a script by `sh`, whatever the login shell is.
fn by_sh(script: &str) -> String {
    format!("exec sh -c '{script}'")
}

/// The exit code of a shell for a missing command.
const MISSING: i32 = 127;
/// The marker before the result of the check.
const FOUND: &str = "swath-is";
/// The marker of success.
const DONE: &str = "swath-is-put";
/// Bytes per write.
const PART_BYTES: usize = 64 << 10;
