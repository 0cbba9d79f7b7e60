//! Shell completions and man pages, from the same definition as the help.

use std::io::{self, Write};
use std::path::Path;

use clap::CommandFactory as _;
use clap_complete::Shell;
use clap_mangen::Man;

use crate::args::{Cli, GET_EXAMPLES};
use crate::exit::{Exit, fail};
use crate::say;

/// Completions for a shell, to standard output.
pub fn completions(shell: Shell) -> Exit {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "swath", &mut script);
    say::out(&script, Exit::Done)
}

/// The page of swath, or of one command, to standard output; or all pages into a folder.
pub fn man(command: Option<&str>, dir: Option<&Path>) -> Exit {
    let Some(dir) = dir else {
        return match page(command) {
            Ok(page) => say::out(&page, Exit::Done),
            Err(error) => fail(Exit::Internal, &format!("cannot make the man page: {error}")),
        };
    };
    let write = || -> io::Result<()> {
        std::fs::create_dir_all(dir)?;
        std::fs::write(dir.join("swath.1"), page(None)?)?;
        for command in built().get_subcommands() {
            let name = command.get_name();
            std::fs::write(dir.join(format!("swath-{name}.1")), page(Some(name))?)?;
            for other in command.get_visible_aliases() {
                let text = format!(".so man1/swath-{name}.1\n");
                std::fs::write(dir.join(format!("swath-{other}.1")), text)?;
            }
            for below in command.get_subcommands() {
                let name = format!("{name}-{}", below.get_name());
                std::fs::write(dir.join(format!("swath-{name}.1")), page(Some(&name))?)?;
            }
        }
        Ok(())
    };
    match write() {
        Ok(()) => Exit::Done,
        Err(error) => {
            fail(Exit::Target, &format!("cannot write man pages into {}: {error}", dir.display()))
        }
    }
}

/// The definition with everything that is worked out filled in, without the command `help`.
fn built() -> clap::Command {
    let mut command = Cli::command().disable_help_subcommand(true);
    command.build();
    command
}

/// The man page of swath or of one of its commands.
fn page(name: Option<&str>) -> io::Result<Vec<u8>> {
    let whole = built();
    let command = match name.and_then(|name| find(&whole, name)) {
        Some(command) => command.clone(),
        None => whole.clone(),
    };
    let usage = command.clone().render_usage().to_string();
    let is_whole = name.is_none();
    // Not the name that was asked for, which may be another one of it.
    let name = command.get_name().to_owned();
    let more = command.get_after_long_help().map(ToString::to_string).unwrap_or_default();
    let others: Vec<String> = command
        .get_visible_aliases()
        .map(|other| format!("swath {other} is swath {name}"))
        .collect();
    let has_commands = command.has_subcommands();
    let man = Man::new(command).source(concat!("swath ", env!("CARGO_PKG_VERSION")));
    let mut out = Vec::new();
    man.render_title(&mut out)?;
    man.render_name_section(&mut out)?;
    let usage = usage.strip_prefix("Usage: ").unwrap_or(&usage);
    section(&mut out, "SYNOPSIS", usage)?;
    man.render_description_section(&mut out)?;
    if !others.is_empty() {
        section(&mut out, "OTHER NAMES", &others.join("\n"))?;
    }
    man.render_options_section(&mut out)?;
    if is_whole || has_commands {
        man.render_subcommands_section(&mut out)?;
    }
    let more = if is_whole { GET_EXAMPLES } else { more.as_str() };
    // What stands below the options in --help, in the order of man pages.
    let of_help = |title: &str| {
        more.split("\n\n").find_map(|part| part.strip_prefix(title)?.strip_prefix(":\n"))
    };
    for (title, name) in [("Signals", "SIGNALS"), ("Exit codes", "EXIT STATUS")] {
        if let Some(text) = of_help(title) {
            section(&mut out, name, text)?;
        }
    }
    if is_whole || name == "get" {
        section(&mut out, "ENVIRONMENT", ENVIRONMENT)?;
        section(&mut out, "FILES", FILES)?;
    }
    if let Some(examples) = of_help("Examples") {
        section(&mut out, "EXAMPLES", examples)?;
    }
    let others: Vec<String> = whole
        .get_subcommands()
        .map(clap::Command::get_name)
        .filter(|other| is_whole || *other != name)
        .map(|other| format!("swath-{other}(1)"))
        .collect();
    let first = if is_whole { "" } else { "swath(1), " };
    // As running text, whose lines are broken where the page ends.
    let others = format!("{first}{}", others.join(", ")).replace('-', "\\-");
    writeln!(out, ".SH \"SEE ALSO\"\n{others}")?;
    Ok(out)
}

/// A command, or one of a command's own as `COMMAND-ITS`.
fn find<'w>(whole: &'w clap::Command, name: &str) -> Option<&'w clap::Command> {
    whole.find_subcommand(name).or_else(|| {
        let (outer, inner) = name.split_once('-')?;
        whole.find_subcommand(outer)?.find_subcommand(inner)
    })
}

/// A section whose lines stay as they are.
fn section(out: &mut impl Write, title: &str, text: &str) -> io::Result<()> {
    writeln!(out, ".SH \"{title}\"\n.nf")?;
    for line in text.lines() {
        let line = line.replace('\\', "\\\\").replace('-', "\\-");
        // A line that begins with a dot or a quote would be an instruction.
        let guard = if line.starts_with(['.', '\'']) { "\\&" } else { "" };
        writeln!(out, "{guard}{line}")?;
    }
    writeln!(out, ".fi")
}

const ENVIRONMENT: &str = "\
BEARER_TOKEN, BEARER_TOKEN_FILE, XDG_RUNTIME_DIR
        where a bearer token is looked for, in this order
NETRC, HOME
        logins from $NETRC, else ~/.netrc
http_proxy, https_proxy, all_proxy, no_proxy
        proxies, as in curl
NO_COLOR
        no colours
SWATH_CONFIG, XDG_CONFIG_HOME
        the configuration file: $SWATH_CONFIG (off: none), else swath/config.toml in
        $XDG_CONFIG_HOME or ~/.config
SWATH_LIMIT_RATE, SWATH_CONNECTIONS, SWATH_TIMEOUT, …
        options for all transfers; 'swath config show' lists them
SWATH_STATE, XDG_STATE_HOME
        what is remembered of routes: $SWATH_STATE (off: nothing is), else swath/state.db in
        $XDG_STATE_HOME or ~/.local/state
SWATH_LOG
        what is told beside the progress, for example debug or swath_source=trace; serve and
        relay tell it on standard error, and warnings there in any case";

const FILES: &str = "\
NAME.swath.part
        the bytes of NAME so far; gone when the file is complete
NAME.swath
        its journal: what of it is durable and verified. The same command goes on from there";
