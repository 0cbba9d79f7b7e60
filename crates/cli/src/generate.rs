//! Shell completions and man pages, from the same definition as the help.

use std::io::{self, Write as _};
use std::path::Path;

use clap::CommandFactory as _;
use clap_complete::Shell;

use crate::args::Cli;
use crate::exit::{Exit, fail};

/// Completions for a shell, to standard output.
pub fn completions(shell: Shell) -> Exit {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "swath", &mut script);
    print(&script)
}

/// The man page to standard output, or one page per command into a folder.
pub fn man(dir: Option<&Path>) -> Exit {
    let command = Cli::command();
    if let Some(dir) = dir {
        return match std::fs::create_dir_all(dir)
            .and_then(|()| clap_mangen::generate_to(command, dir))
        {
            Ok(()) => Exit::Done,
            Err(error) => fail(
                Exit::Target,
                &format!("cannot write man pages into {}: {error}", dir.display()),
            ),
        };
    }
    let mut page = Vec::new();
    match clap_mangen::Man::new(command).render(&mut page) {
        Ok(()) => print(&page),
        Err(error) => fail(Exit::Internal, &format!("cannot make the man page: {error}")),
    }
}

fn print(bytes: &[u8]) -> Exit {
    match io::stdout().write_all(bytes) {
        Ok(()) => Exit::Done,
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Exit::Done,
        Err(error) => fail(Exit::Target, &format!("cannot write: {error}")),
    }
}
