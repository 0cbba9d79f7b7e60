//! Shell completions and man pages, generated from the definition of the help.

use std::io::{self, Write};
use std::path::Path;

use clap::CommandFactory as _;
use clap_complete::Shell;
use clap_mangen::Man;

use swath_model::path::visible;

use crate::args::{Cli, GET_EXAMPLES};
use crate::exit::{Exit, fail};
use crate::say;

/// Prints the completion script of a shell.
pub fn completions(shell: Shell) -> Exit {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "swath", &mut script);
    say::out(&script, Exit::Done)
}

/// Prints the man page of swath or of one command, or writes all pages into a folder.
pub fn man(command: Option<&str>, dir: Option<&Path>) -> Exit {
    if let Some(name) = command
        && find(&built(), name).is_none()
    {
        let what = "there is no command of this name; its parts are joined by '-', as in keys-new";
        return fail(Exit::Usage, &format!("{}: {what}", visible(name)));
    }
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

/// Returns the complete definition, without the command `help`.
fn built() -> clap::Command {
    let mut command = Cli::command().disable_help_subcommand(true);
    command.build();
    command
}

/// Returns the man page of swath or of one of its commands.
fn page(name: Option<&str>) -> io::Result<Vec<u8>> {
    let whole = built();
    let command = match name.and_then(|name| find(&whole, name)) {
        Some(command) => command.clone(),
        None => whole.clone(),
    };
    let usage = command.clone().render_usage().to_string();
    let is_whole = name.is_none();
    // The requested name may be an alias.
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
    // The sections below the options in --help.
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
    // As running text, which is wrapped.
    let others = format!("{first}{}", others.join(", ")).replace('-', "\\-");
    writeln!(out, ".SH \"SEE ALSO\"\n{others}")?;
    Ok(out)
}

/// Finds a command, or a subcommand as `COMMAND-SUBCOMMAND`.
fn find<'w>(whole: &'w clap::Command, name: &str) -> Option<&'w clap::Command> {
    whole.find_subcommand(name).or_else(|| {
        let (outer, inner) = name.split_once('-')?;
        whole.find_subcommand(outer)?.find_subcommand(inner)
    })
}

/// Writes a section whose lines are not wrapped.
fn section(out: &mut impl Write, title: &str, text: &str) -> io::Result<()> {
    writeln!(out, ".SH \"{title}\"\n.nf")?;
    for line in text.lines() {
        let line = line.replace('\\', "\\\\").replace('-', "\\-");
        // A leading dot or quote would be a roff request.
        let guard = if line.starts_with(['.', '\'']) { "\\&" } else { "" };
        writeln!(out, "{guard}{line}")?;
    }
    writeln!(out, ".fi")
}

const ENVIRONMENT: &str = "\
BEARER_TOKEN, BEARER_TOKEN_FILE, XDG_RUNTIME_DIR
        sources of the bearer token, in this order
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
        options for all transfers; see 'swath config show'
SWATH_STATE, XDG_STATE_HOME
        the remembered network: $SWATH_STATE (off: none), else swath/state.db in
        $XDG_STATE_HOME or ~/.local/state
SWATH_LOG
        a debug log on standard error, for example debug or swath_source=trace; serve and
        relay always print warnings there";

const FILES: &str = "\
NAME.swath.part
        the partial data of NAME; removed when the file is complete
NAME.swath
        its journal of durable and verified data, from which the same command resumes";
