//! The help of the whole program: its commands in groups, and a few examples.

use std::fmt::Write as _;

use clap::Command;

/// Returns the command line with its commands in groups. Each command keeps its own description.
pub fn grouped(command: Command) -> Command {
    let header = command.get_styles().get_header();
    let heading = |title: &str| format!("{header}{title}:{header:#}\n");
    let mut text = String::new();
    for (title, names) in GROUPS {
        text.push_str(&heading(title));
        for name in names {
            let about = match command.find_subcommand(name) {
                Some(command) => described(command),
                None => HELP.to_owned(),
            };
            row(name, &about, &mut text);
        }
        text.push('\n');
    }
    let (usage, options) = (heading("Usage"), heading("Options"));
    let (usage, examples) = (usage.trim_end(), heading("Examples"));
    command.help_template(format!(
        "{{about}}\n\n{usage} {{usage}}\n\n{text}{options}{{options}}\n\n{examples}{EXAMPLES}"
    ))
}

fn described(command: &Command) -> String {
    let about = command.get_about().map(ToString::to_string).unwrap_or_default();
    let aliases: Vec<&str> = command.get_visible_aliases().collect();
    match aliases.as_slice() {
        [] => about,
        aliases => format!("{about} [alias: {}]", aliases.join(", ")),
    }
}

/// Adds a command with its description, in lines of at most [`COLUMNS`].
fn row(name: &str, about: &str, text: &mut String) {
    let mut line = format!("  {name:<NAME_COLUMNS$}");
    for word in about.split(' ') {
        if line.chars().count() + 1 + word.chars().count() > COLUMNS {
            let _ = writeln!(text, "{}", line.trim_end());
            line = " ".repeat(2 + NAME_COLUMNS);
        }
        line.push(' ');
        line.push_str(word);
    }
    let _ = writeln!(text, "{}", line.trim_end());
}

const GROUPS: [(&str, &[&str]); 7] = [
    ("Fetch and copy", &["get", "cp", "follow", "forecast"]),
    ("Look and check", &["ls", "du", "probe", "verify"]),
    ("Serve and publish", &["serve", "publish", "keys", "seed", "track"]),
    ("Copies that servers carry out", &["attach", "cancel", "jobs"]),
    ("Relays", &["relay", "stage", "routes"]),
    ("Past transfers", &["history", "tune", "study"]),
    ("The program itself", &["config", "completions", "man", "help"]),
];
const HELP: &str = "Print this message or the help of a command";
const EXAMPLES: &str = "  \
  swath get https://a.example/run7.h5 https://b.example/run7.h5    one file from two mirrors
  swath cp https://a.example:8470/run7/ ./run7/                    a folder; again: what differs
  swath serve ./run7                                               prints the command to fetch it";
/// The widest name, and the gap behind it.
const NAME_COLUMNS: usize = 12;
/// The usual width of a terminal.
const COLUMNS: usize = 80;

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn each_command_is_in_one_group() {
        let command = crate::args::Cli::command();
        let shown = command.get_subcommands().filter(|command| !command.is_hide_set());
        let own: BTreeSet<&str> = shown.map(Command::get_name).chain(["help"]).collect();
        let named = GROUPS.iter().flat_map(|(_, names)| names.iter().copied());
        assert_eq!(named.clone().count(), own.len());
        assert_eq!(named.collect::<BTreeSet<_>>(), own);
    }
}
