//! One run of one tool that copies a tree from servers in namespaces.

use std::fs::File;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use swath_netlab::star::{Lab, StarSpec};
use swath_netlab::wan::{LabError, Namespace, Schedule};

use crate::check::empty;
use crate::data::{make_file, same_content};
use crate::machine::find_program;
use crate::measure::{Ending, end_with_us, measure};
use crate::results::Run;
use crate::serving::{Identity, Spent};
use crate::tool::as_typed;
use crate::tree_data::{Shape, difference, files, make_tree};

/// A tool with its settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TreeTool {
    /// `swath cp` over TLS.
    Swath,
    /// The same a second time: it remembers the first one.
    SwathSecond,
    /// `swath cp` without encryption.
    SwathPlain,
    /// `swath get` of one file as large as the whole tree, over TLS.
    SwathOneFile,
    /// `swath get` of a list of all files, over TLS.
    SwathList,
    /// rsync from its daemon, without encryption.
    Rsync,
    /// The same through socat, over TLS.
    RsyncTls,
    /// tar through netcat, without encryption.
    Tar,
    /// tar through socat, over TLS.
    TarTls,
}

impl TreeTool {
    /// Every tool, in the order of the table.
    pub const ALL: [TreeTool; 9] = [
        TreeTool::Swath,
        TreeTool::SwathSecond,
        TreeTool::SwathPlain,
        TreeTool::SwathOneFile,
        TreeTool::SwathList,
        TreeTool::Rsync,
        TreeTool::RsyncTls,
        TreeTool::Tar,
        TreeTool::TarTls,
    ];

    /// Name on the command line, in tables and pictures.
    pub fn name(self) -> &'static str {
        match self {
            TreeTool::Swath => "swath",
            TreeTool::SwathSecond => "swath-second",
            TreeTool::SwathPlain => "swath-plain",
            TreeTool::SwathOneFile => "swath-one-file",
            TreeTool::SwathList => "swath-list",
            TreeTool::Rsync => "rsync",
            TreeTool::RsyncTls => "rsync-tls",
            TreeTool::Tar => "tar",
            TreeTool::TarTls => "tar-tls",
        }
    }

    /// The program behind it, if it is there.
    pub fn program(self, swath: &Path) -> Option<PathBuf> {
        match self {
            TreeTool::Rsync => find_program("rsync"),
            TreeTool::RsyncTls => find_program("socat").and(find_program("rsync")),
            TreeTool::Tar => find_program("nc").and(find_program("tar")),
            TreeTool::TarTls => find_program("socat").and(find_program("tar")),
            _ => Some(swath.to_owned()).filter(|path| path.is_file()),
        }
    }

    fn is_swath(self) -> bool {
        self.takes_several() || matches!(self, TreeTool::SwathOneFile | TreeTool::SwathList)
    }

    /// Whether it can take from several servers at once.
    pub fn takes_several(self) -> bool {
        matches!(self, TreeTool::Swath | TreeTool::SwathSecond | TreeTool::SwathPlain)
    }
}

/// Where a study keeps its files.
#[derive(Clone, Debug)]
pub struct Places {
    /// The tree.
    pub tree: PathBuf,
    /// One file as large as the tree, in a folder of its own.
    pub one_file: PathBuf,
    /// The folder into which clients write.
    pub target: PathBuf,
    /// What socat shows as a server.
    pub identity: Identity,
}

impl Places {
    /// Makes folders below `scratch`, a new folder, with what the tools need of the data.
    ///
    /// # Errors
    /// What does not work, in words.
    pub fn make(scratch: &Path, shape: Shape, tools: &[TreeTool]) -> Result<Self, String> {
        let folder = |name: &str| {
            let path = scratch.join(name);
            let made = std::fs::create_dir(&path);
            made.map(|()| path).map_err(|e| format!("cannot write to {}: {e}", scratch.display()))
        };
        let identity =
            Identity::make(&folder("own")?).map_err(|e| format!("a certificate: {e}"))?;
        let (tree, one_file) = (folder("tree")?, folder("one")?);
        if tools.iter().any(|tool| *tool != TreeTool::SwathOneFile) {
            make_tree(&tree, shape).map_err(|e| format!("the tree: {e}"))?;
        }
        if tools.contains(&TreeTool::SwathOneFile) {
            make_file(&one_file, shape.bytes())
                .and_then(|path| std::fs::rename(path, one_file.join(ONE_FILE)))
                .map_err(|e| format!("the file: {e}"))?;
        }
        let target = folder("target")?;
        Ok(Self { tree, one_file, target, identity })
    }
}

/// One copy.
#[derive(Clone, Debug)]
pub struct Copied {
    /// The client's side.
    pub run: Run,
    /// What the servers took meanwhile, without their children.
    pub servers: Spent,
}

/// Between which places.
#[derive(Clone, Debug)]
pub enum Between {
    /// Server and client on the loopback interface of one namespace.
    Loopback,
    /// Servers at the ends of emulated links.
    Star(StarSpec),
}

/// Runs `tool` once. Also tells the command line.
///
/// An error means that the surroundings did not work; a tool that fails is a run with a failure.
pub fn run_once(
    between: &Between,
    tool: TreeTool,
    program: &Path,
    places: &Places,
) -> Result<(Run, String), LabError> {
    let (copies, typed) = copy(between, tool, program, places)?;
    Ok((copies.into_iter().next_back().map(|copied| copied.run).unwrap_or_default(), typed))
}

/// The same with every copy that was made: two of [`TreeTool::SwathSecond`] unless the first fails.
///
/// # Errors
/// See [`run_once`].
pub fn copy(
    between: &Between,
    tool: TreeTool,
    program: &Path,
    places: &Places,
) -> Result<(Vec<Copied>, String), LabError> {
    let system = |doing: &str| {
        let doing = doing.to_owned();
        move |cause| LabError::System { doing, cause }
    };
    empty(&places.target).map_err(system("empty the target folder"))?;
    let (lab, alone);
    let (client, servers): (&Namespace, Vec<(&Namespace, String)>) = match between {
        Between::Loopback => {
            alone = Namespace::new("bench-trees")?;
            (&alone, vec![(&alone, "127.0.0.1".to_owned())])
        }
        Between::Star(star) => {
            lab = Lab::star(star)?;
            lab.play(&Schedule::default());
            let servers = lab.servers().iter().enumerate();
            let servers = servers.map(|(at, it)| (it, lab.server_address(at).to_string()));
            (lab.client(), servers.collect())
        }
    };
    let serving = servers
        .iter()
        .map(|(namespace, address)| Serving::start(tool, program, namespace, address, places))
        .collect::<Result<Vec<Serving>, LabError>>()?;
    let command = client_command(tool, program, &serving, places);
    let mut command = command.map_err(system("prepare a tool"))?;
    let typed = as_typed(&command);
    command.env_clear().env("PATH", std::env::var_os("PATH").unwrap_or_default());
    command.env("HOME", &places.target);
    let said = places.target.join("said");
    let log = File::create(&said).map_err(system("make a log"))?;
    command.stdout(log.try_clone().map_err(system("make a log"))?).stderr(log);
    client.confine(&mut command);
    let output = places.target.join(OUTPUT);
    let mut copies: Vec<Copied> = Vec::new();
    for copy in 0..if tool == TreeTool::SwathSecond { 2 } else { 1 } {
        if copy > 0 {
            std::fs::remove_dir_all(&output).map_err(system("remove the copy"))?;
        }
        let before = serving.iter().map(Serving::spent).fold(Spent::default(), Spent::with);
        let measured = measure(&mut command, LIMIT, || ()).map_err(system("run a tool"))?;
        let mut servers = serving.iter().map(Serving::spent).fold(Spent::default(), Spent::with);
        servers.cpu = servers.cpu.saturating_sub(before.cpu);
        let failure = match measured.ending {
            Ending::Code(0) if tool == TreeTool::SwathOneFile => {
                let same = same_content(&places.one_file.join(ONE_FILE), &output);
                (!same.map_err(system("compare"))?).then(|| "the file is wrong".to_owned())
            }
            Ending::Code(0) => difference(&places.tree, &output).map_err(system("compare"))?,
            other => {
                let words = std::fs::read_to_string(&said).unwrap_or_default();
                let last = words.lines().rfind(|line| !line.trim().is_empty()).unwrap_or_default();
                Some(format!("{other:?}: {last}"))
            }
        };
        let run = Run {
            elapsed_s: measured.elapsed.as_secs_f64(),
            cpu_s: measured.cpu.as_secs_f64(),
            peak_memory_bytes: measured.peak_memory_bytes,
            is_stopped: measured.is_stopped(),
            wire_bytes: 0,
            sync_s: 0.0,
            figures: Vec::new(),
            failure,
        };
        let has_failed = run.failure.is_some();
        copies.push(Copied { run, servers });
        if has_failed {
            break;
        }
    }
    drop(serving);
    empty(&places.target).map_err(system("empty the target folder"))?;
    Ok((copies, typed))
}

/// A server that stands; stopped when dropped.
struct Serving {
    child: Child,
    /// What a client is told.
    address: String,
}

impl Drop for Serving {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Serving {
    fn start(
        tool: TreeTool,
        program: &Path,
        namespace: &Namespace,
        address: &str,
        places: &Places,
    ) -> Result<Serving, LabError> {
        let failed = |cause| LabError::System { doing: "start a server".to_owned(), cause };
        let mut command = Command::new(program);
        let listen = format!("{address}:{PORT}");
        match tool {
            TreeTool::Swath
            | TreeTool::SwathSecond
            | TreeTool::SwathPlain
            | TreeTool::SwathOneFile
            | TreeTool::SwathList => {
                command.args(["serve", "--anonymous", "--listen", &listen]);
                if tool == TreeTool::SwathPlain {
                    command.arg("--plain");
                }
                let is_one = tool == TreeTool::SwathOneFile;
                command.arg(if is_one { &places.one_file } else { &places.tree });
            }
            TreeTool::Rsync => {
                command.args(["--daemon", "--no-detach", "--port", PORT, "--config"]);
                command.arg(rsync_configuration(places).map_err(failed)?);
            }
            TreeTool::RsyncTls => {
                let configuration = rsync_configuration(places).map_err(failed)?;
                command = Command::new("socat");
                command.args(["-b", SOCAT_BYTES, &socat_listens(address, places)]);
                command.arg(format!("EXEC:rsync --daemon --config {}", configuration.display()));
            }
            TreeTool::TarTls => {
                command = Command::new("sh");
                let script = "exec tar c -C \"$1\" . | socat -u -b \"$2\" - \"$3\"";
                command.args(["-c", script, "sh"]).arg(&places.tree);
                command.args([SOCAT_BYTES, &socat_listens(address, places)]);
            }
            TreeTool::Tar => {
                command = Command::new("sh");
                let script = "exec tar c -C \"$1\" . | nc -N -l \"$2\" \"$3\"";
                command.args(["-c", script, "sh"]).arg(&places.tree).args([address, PORT]);
            }
        }
        // Nothing of ours, and nothing of an earlier run.
        let home = places.target.join("server");
        std::fs::create_dir_all(&home).map_err(failed)?;
        command.env_clear().env("PATH", std::env::var_os("PATH").unwrap_or_default());
        command.env("HOME", home);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        end_with_us(&mut command);
        namespace.confine(&mut command);
        let mut child = command.spawn().map_err(failed)?;
        let mut told = format!("{address}:{PORT}");
        if !tool.is_swath() {
            wait_for(namespace, PORT).map_err(failed)?;
        } else if let Some(stdout) = child.stdout.take() {
            let mut lines = BufReader::new(stdout).lines();
            let url = lines.by_ref().map_while(Result::ok).find(|line| line.contains("://"));
            told = url.unwrap_or_default().trim().to_owned();
            std::thread::spawn(move || lines.for_each(drop));
        }
        Ok(Serving { child, address: told })
    }

    fn spent(&self) -> Spent {
        Spent::so_far(self.child.id()).unwrap_or_default()
    }
}

/// Writes what makes rsync a daemon for the tree.
fn rsync_configuration(places: &Places) -> std::io::Result<PathBuf> {
    let configuration = places.target.with_extension("rsyncd");
    std::fs::write(&configuration, crate::server::rsync_configuration(&places.tree))?;
    Ok(configuration)
}

/// How socat listens for one client that speaks TLS.
fn socat_listens(address: &str, places: &Places) -> String {
    let Identity { certificate, key } = &places.identity;
    let (certificate, key) = (certificate.display(), key.display());
    format!("OPENSSL-LISTEN:{PORT},bind={address},reuseaddr,cert={certificate},key={key},verify=0")
}

/// Wait until somebody listens at this port, without connecting (that would be the one client that
/// netcat serves).
pub(crate) fn wait_for(namespace: &Namespace, port: &str) -> std::io::Result<()> {
    let port: u16 = port.parse().map_err(std::io::Error::other)?;
    let wanted = format!(":{port:04X} ");
    for _ in 0..500 {
        let found = namespace.run(|| {
            let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
            Ok(read("/proc/thread-self/net/tcp") + &read("/proc/thread-self/net/tcp6"))
        });
        let found = found.map_err(std::io::Error::other)?;
        if found.lines().any(|line| line.contains(&wanted) && line.contains(" 0A ")) {
            return Ok(());
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    Err(std::io::ErrorKind::TimedOut.into())
}

fn client_command(
    tool: TreeTool,
    program: &Path,
    serving: &[Serving],
    places: &Places,
) -> std::io::Result<Command> {
    let mut command = Command::new(program);
    let output = places.target.join(OUTPUT);
    let first = serving.first().map_or("", |it| it.address.as_str());
    match tool {
        TreeTool::Swath | TreeTool::SwathSecond | TreeTool::SwathPlain => {
            command.args(["cp", "--quiet", "--insecure"]);
            command.args(serving.iter().map(|it| it.address.as_str())).arg(output);
        }
        TreeTool::SwathOneFile => {
            command.args(["get", "--quiet", "--insecure", &format!("{first}{ONE_FILE}"), "-o"]);
            command.arg(output);
        }
        TreeTool::SwathList => {
            let line = |path: String| format!("{first}{path}\n  out={path}\n");
            let list = places.target.join("list");
            let lines: String = files(&places.tree)?.into_iter().map(line).collect();
            std::fs::write(&list, lines)?;
            command.args(["get", "--quiet", "--insecure", "-i"]).arg(list).arg("-d").arg(output);
        }
        TreeTool::Rsync => {
            command.args(["-a", "--whole-file", &format!("rsync://{first}/tree/")]).arg(output);
        }
        TreeTool::RsyncTls => {
            command = Command::new("sh");
            let script = "RSYNC_CONNECT_PROG=\"$1\" exec rsync -a --whole-file \"$2\" \"$3\"";
            let through = format!("socat -b {SOCAT_BYTES} - OPENSSL:{first},verify=0");
            let url = format!("rsync://{first}/tree/");
            command.args(["-c", script, "sh", &through, &url]).arg(output);
        }
        TreeTool::TarTls => {
            command = Command::new("sh");
            let script = "mkdir \"$1\" && socat -u -b \"$2\" \"$3\" - | tar x -C \"$1\"";
            let from = format!("OPENSSL:{first},verify=0");
            command.args(["-c", script, "sh"]).arg(output).args([SOCAT_BYTES, &from]);
        }
        TreeTool::Tar => {
            command = Command::new("sh");
            let (host, port) = first.split_once(':').unwrap_or_default();
            let script = "mkdir \"$1\" && nc -d \"$2\" \"$3\" | tar x -C \"$1\"";
            command.args(["-c", script, "sh"]).arg(output).args([host, port]);
        }
    }
    Ok(command)
}

/// The name of the file in [`Places::one_file`].
pub const ONE_FILE: &str = "one.dat";
const OUTPUT: &str = "output";
const PORT: &str = "8470";
/// socat's own 8 KiB would make it slower.
const SOCAT_BYTES: &str = "262144";
/// A tool that is this slow has said what it has to say.
const LIMIT: Duration = Duration::from_secs(240);
