//! The tools that are compared, and how each is called.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::machine::find_program;

/// A tool with its settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tool {
    /// swath as it is.
    Swath,
    /// swath with the planner of the MDTP paper.
    SwathMdtp,
    /// swath with equal chunks.
    SwathFixed,
    /// swath with one mirror: the best one.
    SwathSingle,
    /// swath, held to one lane for each source.
    SwathOneLane,
    /// aria2 as it is.
    Aria2,
    /// aria2, one connection for each of six mirrors, pieces of 1 MiB.
    Aria2Tuned,
    /// aria2 with sixteen connections to one server.
    Aria2Sixteen,
    /// curl from the best mirror.
    Curl,
    /// Each link's exact share, known in advance.
    Oracle,
}

/// What a call of a tool is about.
#[derive(Debug)]
pub struct Request<'a> {
    /// Every replica.
    pub urls: &'a [String],
    /// Position of the fastest replica in `urls`.
    pub best: usize,
    /// Where the file goes.
    pub folder: &'a Path,
    /// Its name there.
    pub file: &'a str,
}

impl Tool {
    /// Every tool.
    pub const ALL: [Tool; 10] = [
        Tool::Swath,
        Tool::SwathMdtp,
        Tool::SwathFixed,
        Tool::SwathSingle,
        Tool::SwathOneLane,
        Tool::Aria2,
        Tool::Aria2Tuned,
        Tool::Aria2Sixteen,
        Tool::Curl,
        Tool::Oracle,
    ];

    /// Name on the command line, in tables and pictures.
    pub fn name(self) -> &'static str {
        match self {
            Tool::Swath => "swath",
            Tool::SwathMdtp => "mdtp",
            Tool::SwathFixed => "fixed",
            Tool::SwathSingle => "single",
            Tool::SwathOneLane => "swath-lane1",
            Tool::Aria2 => "aria2",
            Tool::Aria2Tuned => "aria2-tuned",
            Tool::Aria2Sixteen => "aria2-x16",
            Tool::Curl => "curl",
            Tool::Oracle => "oracle",
        }
    }

    /// The tool of this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|tool| tool.name() == name)
    }

    /// The program behind it, if it is there. `swath` is where the user says that it is, and
    /// the oracle is part of this program.
    pub fn program(self, swath: &Path) -> Option<PathBuf> {
        match self {
            Tool::Aria2 | Tool::Aria2Tuned | Tool::Aria2Sixteen => find_program("aria2c"),
            Tool::Curl => find_program("curl"),
            Tool::Oracle => std::env::current_exe().ok(),
            _ => Some(swath.to_owned()).filter(|path| path.is_file()),
        }
    }

    /// The call. The oracle's is made where the shares are known.
    pub fn command(self, program: &Path, request: &Request<'_>) -> Command {
        let mut command = Command::new(program);
        let Request { urls, best, folder, file } = *request;
        match self {
            Tool::Swath
            | Tool::SwathMdtp
            | Tool::SwathFixed
            | Tool::SwathSingle
            | Tool::SwathOneLane => {
                command.arg("get");
                match self {
                    Tool::SwathSingle => command.arg(&urls[best]).args(["--policy", "single"]),
                    Tool::SwathMdtp => command.args(urls).args(["--policy", "mdtp"]),
                    Tool::SwathFixed => command.args(urls).args(["--policy", "fixed"]),
                    Tool::SwathOneLane => command.args(urls).args(["--connections", "1"]),
                    _ => command.args(urls),
                };
                command.arg("-d").arg(folder).args(["-o", file, "--overwrite", "--quiet"]);
            }
            Tool::Aria2 | Tool::Aria2Tuned | Tool::Aria2Sixteen => {
                command.args(["--no-conf", "-q", "--allow-overwrite=true", "-d"]).arg(folder);
                command.args(["-o", file]);
                match self {
                    Tool::Aria2Tuned => command.args(["-s6", "-x1", "-k1M"]),
                    Tool::Aria2Sixteen => command.args(["-s16", "-x16", "-k1M"]),
                    _ => &mut command,
                };
                command.args(urls);
            }
            Tool::Curl => {
                command.args(["-q", "-s", "-f", "-o"]).arg(folder.join(file)).arg(&urls[best]);
            }
            Tool::Oracle => {}
        }
        command
    }
}

/// A command as a user would type it, for results.
pub fn as_typed(command: &Command) -> String {
    let program = Path::new(command.get_program()).file_name().unwrap_or_default();
    let mut text = program.to_string_lossy().into_owned();
    for argument in command.get_args() {
        text.push(' ');
        text.push_str(&argument.to_string_lossy());
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_found() {
        for tool in Tool::ALL {
            assert_eq!(Tool::named(tool.name()), Some(tool));
        }
        assert_eq!(Tool::named("wget"), None);
    }

    #[test]
    fn a_single_mirror_is_the_best_one() {
        let urls = ["http://a/f".to_owned(), "http://b/f".to_owned()];
        let request = Request { urls: &urls, best: 1, folder: Path::new("/out"), file: "f" };
        let typed = |tool: Tool| as_typed(&tool.command(Path::new("/bin/x"), &request));
        assert_eq!(typed(Tool::Curl), "x -q -s -f -o /out/f http://b/f");
        assert_eq!(
            typed(Tool::SwathSingle),
            "x get http://b/f --policy single -d /out -o f --overwrite --quiet"
        );
        assert!(typed(Tool::Aria2Tuned).ends_with("-s6 -x1 -k1M http://a/f http://b/f"));
    }
}
