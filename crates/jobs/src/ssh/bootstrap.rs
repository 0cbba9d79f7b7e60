//! Putting this very program on the other side of ssh.

use std::path::Path;
use std::time::Instant;

use tokio::io::AsyncWriteExt as _;
use tokio::time::timeout;

use super::error::{Command, SshError, SshFault};
use super::listen::{BEGUN, ends};
use super::machine::Machine;
use crate::event::Note;

/// Put it into the other side's cache, if it is not there; answers how it is called there.
pub async fn bootstrap(
    machine: &Machine,
    own: &Path,
    note: &(dyn Fn(Note) + Sync),
) -> Result<String, SshError> {
    let here = std::env::consts::ARCH;
    let (name, program) = (name(), bootstrapped());
    let look = format!(
        "is=; cd \"$HOME\"; test -x {name} && is=there; echo {FOUND} $is on $(uname -s) $(uname -m)"
    );
    let mut run = machine.run(&by_sh(&look)).await?;
    // A shell that refuses the line may show it.
    let found = |line: &str| Some(line.split_once(FOUND)?.1.trim().to_owned());
    let found = |line: &str| found(line).filter(|found| !found.contains('$'));
    let found = match run.output.listen(found).await {
        Ok(found) => found,
        Err(unheard) => return Err(machine.why(&mut run, unheard, Command::Look).await),
    };
    drop(run);
    let (is_there, kind) = match found.strip_prefix("there on ") {
        Some(kind) => (true, kind),
        None => (false, found.strip_prefix("on ").unwrap_or(&found)),
    };
    if kind != format!("Linux {here}") {
        let kind = kind.to_owned();
        return Err(machine.error(SshFault::OtherMachine { kind }));
    }
    if is_there {
        return Ok(program);
    }
    put(machine, own, &name).await?;
    note(Note::Bootstrapped { host: machine.host.clone(), path: format!("~/{name}") });
    Ok(program)
}

/// Where it is there, below the home folder.
fn name() -> String {
    format!(".cache/swath/swath-{}-{}", env!("CARGO_PKG_VERSION"), std::env::consts::ARCH)
}

/// What a shell there runs: the swath of its PATH, or the one that was put there. Which of them there
/// is is looked at first, because a shell complains of a command that is not there.
pub fn found() -> String {
    let look = format!(
        "command -v swath >/dev/null 2>&1 && exec swath \"$@\"; \
         test -x {own} && exec {own} \"$@\"; exit {MISSING}",
        own = bootstrapped()
    );
    format!("sh -c '{look}' swath")
}

/// What a shell there calls it.
fn bootstrapped() -> String {
    format!("\"$HOME\"/{}", name())
}

/// Put the program `own` there as `name`.
async fn put(machine: &Machine, own: &Path, name: &str) -> Result<(), SshError> {
    let own = std::fs::read(own);
    let own = own.map_err(|error| machine.error(SshFault::OwnProgram(error)))?;
    // Half of it, because the connection broke or this was killed, must not get the name.
    let put = format!(
        "new={name}.$$; cd \"$HOME\" && mkdir -p .cache/swath && cat > $new && \
         test $(wc -c < $new) -eq {} && chmod 755 $new && mv -f $new {name} && echo {DONE} || \
         {{ rm -f $new; exit 1; }}",
        own.len()
    );
    let mut run = machine.run(&by_sh(&put)).await?;
    // Before ssh is in it takes nothing, which is not to count as silence.
    if let Err(unheard) = run.output.listen(|line| ends(line, BEGUN)).await {
        return Err(machine.why(&mut run, unheard, Command::Copy).await);
    }
    let began = Instant::now();
    if let Some(mut input) = run.input.take() {
        for part in own.chunks(PART_BYTES) {
            // Where that fails the answer says why, or that there is none.
            if !timeout(machine.patience, input.write_all(part)).await.is_ok_and(|it| it.is_ok()) {
                break;
            }
        }
    }
    // What is on its way still needs no longer than all that went before.
    run.output.give(machine.patience + began.elapsed());
    match run.output.listen(|line| ends(line, DONE)).await {
        Ok(()) => Ok(()),
        Err(unheard) => {
            let why = machine.why(&mut run, unheard, Command::Copy).await;
            Err(machine.error(SshFault::NotPut(Box::new(why))))
        }
    }
}

/// Whatever shell the account has.
fn by_sh(script: &str) -> String {
    format!("exec sh -c '{script}'")
}

/// A shell's word for a command that is not there.
const MISSING: i32 = 127;
/// Before what was found there.
const FOUND: &str = "swath-is";
/// When all of it is there.
const DONE: &str = "swath-is-put";
/// Written at a time.
const PART_BYTES: usize = 64 << 10;
