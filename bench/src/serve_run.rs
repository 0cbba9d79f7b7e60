//! One run of one tool against one server over loopback, both measured.
//!
//! Server and client share a namespace that has nothing but its loopback device. The server is
//! started for the run and ended after it, so that what it took is what the run took.

use std::fs::{self, File};
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::os::fd::AsRawFd as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use swath_netlab::wan::{LabError, Namespace};

use crate::check::{empty, failure_of};
use crate::crowd::Fared;
use crate::machine::find_program;
use crate::measure::{Ending, measure};
use crate::results::Run;
use crate::serving::{Identity, Server, Serving, Spent};
use crate::tool::as_typed;
use crate::tree_data::difference;

/// What is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Question {
    /// One large file from disk to disk: how near to what the disk allows?
    Copy,
    /// One file in memory, several times, to a client that throws it away: how much processor
    /// time does the server need?
    Cpu,
    /// Many idle clients and many that fetch: how much memory, and is it fair?
    Clients,
    /// A tree of nothing but names: how fast is the walk, how large is the index?
    Million,
}

/// A tool with its settings, and the server that it is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServeTool {
    /// Copies the file without the page cache: the limit.
    Dd,
    /// Writes zeros without the page cache: what writing alone costs.
    DdWrite,
    /// swath's server over TLS, with `swath cp` or with the client of the question.
    Swath,
    /// The same without encryption.
    SwathPlain,
    /// rsync from its daemon.
    Rsync,
    /// `swath get` from nginx.
    NginxGet,
    /// curl from nginx.
    NginxCurl,
    /// nginx with sendfile, with the client of the question.
    Nginx,
    /// nginx over TLS, with the client of the question.
    NginxTls,
    /// curl keeps the index that swath makes; no server takes part in less.
    Index,
    /// `swath du`.
    Du,
    /// `swath cp --dry-run`.
    DryRun,
    /// `swath cp`.
    Cp,
    /// find prints what an index has: a walk by one thread without a server.
    Find,
}

/// What is served, and where it goes.
#[derive(Clone, Debug)]
pub struct Places {
    /// What servers over TLS show.
    pub identity: Identity,
    /// For configurations and what programs say, in memory.
    pub scratch: PathBuf,
    /// The folder that is served.
    pub root: PathBuf,
    /// Name of its one large file, if it has one.
    pub file: String,
    /// Size of that file, or of all files.
    pub size_bytes: u64,
    /// Files in it.
    pub files: u64,
    /// Folders in it.
    pub folders: u64,
    /// The folder for the client's copy.
    pub target: PathBuf,
}

impl Places {
    /// Files and folders.
    pub fn entries(&self) -> u64 {
        self.files + self.folders
    }
}

impl Question {
    /// Every question, in the order of measurement.
    pub const ALL: [Question; 4] =
        [Question::Copy, Question::Cpu, Question::Clients, Question::Million];

    /// Name on the command line, in tables and pictures.
    pub fn name(self) -> &'static str {
        match self {
            Question::Copy => "copy",
            Question::Cpu => "cpu",
            Question::Clients => "clients",
            Question::Million => "million",
        }
    }

    /// Who takes part, in the order of the table.
    pub fn tools(self) -> &'static [ServeTool] {
        use ServeTool::{
            Cp, Dd, DdWrite, DryRun, Du, Find, Index, Nginx, NginxCurl, NginxGet, NginxTls, Rsync,
            Swath, SwathPlain,
        };
        match self {
            Question::Copy => &[Dd, DdWrite, SwathPlain, Swath, Rsync, NginxGet, NginxCurl],
            Question::Cpu | Question::Clients => &[SwathPlain, Nginx, Swath, NginxTls],
            Question::Million => &[Find, Index, Du, DryRun, Cp, Rsync],
        }
    }
}

impl ServeTool {
    /// Name on the command line, in tables and pictures.
    pub fn name(self) -> &'static str {
        match self {
            ServeTool::Dd => "dd",
            ServeTool::DdWrite => "dd-write",
            ServeTool::Swath => "swath",
            ServeTool::SwathPlain => "swath-plain",
            ServeTool::Rsync => "rsync",
            ServeTool::NginxGet => "nginx-get",
            ServeTool::NginxCurl => "nginx-curl",
            ServeTool::Nginx => "nginx",
            ServeTool::NginxTls => "nginx-tls",
            ServeTool::Index => "index",
            ServeTool::Du => "du",
            ServeTool::DryRun => "dry-run",
            ServeTool::Cp => "cp",
            ServeTool::Find => "find",
        }
    }

    /// The server of it, if it has one.
    fn server(self) -> Option<Server> {
        match self {
            ServeTool::Dd | ServeTool::DdWrite | ServeTool::Find => None,
            ServeTool::Swath => Some(Server::Swath { tls: true }),
            ServeTool::SwathPlain
            | ServeTool::Index
            | ServeTool::Du
            | ServeTool::DryRun
            | ServeTool::Cp => Some(Server::Swath { tls: false }),
            ServeTool::Rsync => Some(Server::Rsync),
            ServeTool::NginxGet | ServeTool::NginxCurl | ServeTool::Nginx => {
                Some(Server::Nginx { tls: false })
            }
            ServeTool::NginxTls => Some(Server::Nginx { tls: true }),
        }
    }

    /// The programs of server and client, as far as they are there.
    pub fn programs(self, question: Question, swath: &Path) -> Option<Programs> {
        let swath = || Some(swath.to_owned()).filter(|path| path.is_file());
        let server = match self.server() {
            None => None,
            Some(Server::Swath { .. }) => Some(swath()?),
            Some(Server::Nginx { .. }) => Some(find_program("nginx")?),
            Some(Server::Rsync) => Some(find_program("rsync")?),
        };
        let client = match (self, question) {
            (ServeTool::Dd | ServeTool::DdWrite, _) => find_program("dd"),
            (ServeTool::Find, _) => find_program("find"),
            (ServeTool::Rsync, _) => find_program("rsync"),
            (_, Question::Clients) => std::env::current_exe().ok(),
            (ServeTool::NginxCurl | ServeTool::Index, _) | (_, Question::Cpu) => {
                find_program("curl")
            }
            _ => swath(),
        };
        Some(Programs { server, client: client? })
    }

    fn command(self, question: Question, client: &Path, places: &Places) -> Command {
        let url = self.server().map(Server::url).unwrap_or_default();
        let file = format!("{url}{}", places.file);
        let output = places.target.join(OUTPUT);
        let mut command = Command::new(client);
        match (self, question) {
            (_, Question::Cpu) => {
                command.args(["-q", "-s", "-f", "-k", "--http1.1"]);
                for _ in 0..CPU_TIMES {
                    command.args(["-o", "/dev/null", &file]);
                }
            }
            (_, Question::Clients) => {
                let address = url.split('/').nth(2).unwrap_or_default();
                command.args(["crowd", "--address", address, "--large", &places.file]);
                command.args(["--bytes", &places.size_bytes.to_string()]);
                if url.starts_with("https") {
                    command.arg("--ca").arg(&places.identity.certificate);
                }
            }
            (ServeTool::Dd | ServeTool::DdWrite, _) => {
                let source = places.root.join(&places.file);
                let is_copy = self == ServeTool::Dd;
                let from = if is_copy { &source } else { Path::new("/dev/zero") };
                command.args([with("if=", from), with("of=", &output)]);
                if is_copy {
                    command.arg("iflag=direct");
                } else {
                    command.args([&format!("count={}", places.size_bytes), "iflag=count_bytes"]);
                }
                command.args(["oflag=direct", "bs=4M", "status=none"]);
            }
            (ServeTool::Find, _) => {
                command.arg(&places.root).args(["-mindepth", "1", "-printf", "%y%s%m%T@%P\\n"]);
            }
            (ServeTool::Rsync, _) => {
                command.args(["-a", "--whole-file", &url]).arg(output);
            }
            (ServeTool::NginxGet, _) => {
                command.args(["get", "--quiet", "--overwrite", &file, "-d"]);
                command.arg(&places.target).args(["-o", OUTPUT]);
            }
            (ServeTool::NginxCurl, _) => {
                command.args(["-q", "-s", "-f", "-o"]).arg(output).arg(file);
            }
            (ServeTool::Index, _) => {
                command.args(["-q", "-s", "-f", "-o"]).arg(output);
                command.arg(format!("{url}?swath=index"));
            }
            (ServeTool::Du, _) => {
                command.args(["du", &url]);
            }
            (ServeTool::DryRun, _) => {
                command.args(["cp", "--dry-run", &url]).arg(output);
            }
            _ => {
                command.args(["cp", "--quiet"]);
                if url.starts_with("https") {
                    command.arg("--ca").arg(&places.identity.certificate);
                }
                command.arg(url).arg(output);
            }
        }
        command
    }
}

/// What runs for a tool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Programs {
    server: Option<PathBuf>,
    client: PathBuf,
}

/// Runs `tool` once. Also tells the command lines.
///
/// An error means that the surroundings did not work; a tool that fails is a run with a failure.
pub fn run_once(
    namespace: &Namespace,
    question: Question,
    tool: ServeTool,
    programs: &Programs,
    places: &Places,
) -> Result<(Run, String), LabError> {
    let system = |doing: &str| {
        let doing = doing.to_owned();
        move |cause| LabError::System { doing, cause }
    };
    empty(&places.target).map_err(system("empty the target folder"))?;
    empty(&places.scratch).map_err(system("empty the scratch folder"))?;
    let source = places.root.join(&places.file);
    if question == Question::Copy {
        // SAFETY: sync has no preconditions.
        unsafe { libc::sync() };
        drop_from_cache(&source).map_err(system("drop the file from the page cache"))?;
    }
    let serving = match (tool.server(), &programs.server) {
        (Some(server), Some(program)) => Some(Serving::start(
            server,
            program,
            namespace,
            &places.root,
            &places.identity,
            &places.scratch,
        )?),
        _ => None,
    };
    let mut command = tool.command(question, &programs.client, places);
    let mut typed = as_typed(&command);
    if let Some(serving) = &serving {
        typed = format!("{} & {typed}", serving.command());
    }
    command.env_clear().env("PATH", std::env::var_os("PATH").unwrap_or_default());
    command.env("HOME", &places.scratch);
    let (said, complained) = (places.scratch.join("said"), places.scratch.join("complained"));
    command.stdout(File::create(&said).map_err(system("make a log"))?);
    command.stderr(File::create(&complained).map_err(system("make a log"))?);
    namespace.confine(&mut command);
    let measured = measure(&mut command, LIMIT, || ()).map_err(system("run a tool"))?;
    let spent = serving.map(Serving::end).transpose().map_err(system("end a server"))?;

    let output = places.target.join(OUTPUT);
    let mut sync_s = 0.0;
    if question == Question::Copy {
        let begin = Instant::now();
        // SAFETY: sync has no preconditions.
        unsafe { libc::sync() };
        sync_s = begin.elapsed().as_secs_f64();
    }
    let (failure, fared) = match (measured.ending, tool, question) {
        (Ending::Code(0), _, Question::Clients) => match read_fared(&said) {
            Ok(fared) => (None, Some(fared)),
            Err(e) => (Some(format!("no figures: {e}")), None),
        },
        (Ending::Code(0), ServeTool::Index, _) => (wrong_index(&output, places), None),
        (Ending::Code(0), ServeTool::DdWrite, _) => (wrong_size(&output, places.size_bytes), None),
        (Ending::Code(0), ServeTool::Cp | ServeTool::Rsync, Question::Million) => {
            (difference(&places.root, &output).map_err(system("compare"))?, None)
        }
        (Ending::Code(0), ServeTool::Find | ServeTool::Du | ServeTool::DryRun, _) => {
            (wrong_words(tool, &said, places), None)
        }
        (ending, _, Question::Copy) => {
            let at = if output.is_dir() { output.join(&places.file) } else { output };
            (failure_of(ending, &source, Some(&at), &complained), None)
        }
        (ending, ..) => (failure_of(ending, &source, None, &complained), None),
    };
    empty(&places.target).map_err(system("empty the target folder"))?;
    let elapsed_s = fared.map_or(measured.elapsed.as_secs_f64(), |fared| fared.elapsed_s);
    let run = Run {
        elapsed_s,
        cpu_s: measured.cpu.as_secs_f64(),
        peak_memory_bytes: measured.peak_memory_bytes,
        is_stopped: measured.is_stopped(),
        wire_bytes: 0,
        sync_s,
        figures: figures(question, spent, fared, elapsed_s, places),
        failure,
    };
    Ok((run, typed))
}

/// What the table has beside the client's time.
fn figures(
    question: Question,
    spent: Option<Spent>,
    fared: Option<Fared>,
    elapsed_s: f64,
    places: &Places,
) -> Vec<(String, f64)> {
    let mut figures = Vec::new();
    if let Some(spent) = spent {
        let cpu_s = spent.cpu.as_secs_f64();
        figures.push(("server CPU s", cpu_s));
        if question == Question::Cpu {
            let gigabytes = places.size_bytes as f64 * f64::from(CPU_TIMES) / 1e9;
            figures.push(("server CPU s/GB", cpu_s / gigabytes));
        }
        let mebibytes = spent.peak_memory_bytes as f64 / f64::from(1 << 20);
        figures.push(("server MiB", mebibytes));
    }
    if let Some(fared) = fared {
        figures.push(("slowest/median", fared.slowest_bytes_per_s / fared.median_bytes_per_s));
    }
    if question == Question::Million {
        figures.push(("entries/s", places.entries() as f64 / elapsed_s));
    }
    figures.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

/// Asks the kernel to forget what it has of a file that is written out.
fn drop_from_cache(path: &Path) -> io::Result<()> {
    let file = File::open(path)?;
    // SAFETY: a live descriptor and three integers.
    match unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) } {
        0 => Ok(()),
        error => Err(io::Error::from_raw_os_error(error)),
    }
}

fn read_fared(said: &Path) -> io::Result<Fared> {
    serde_json::from_str(&fs::read_to_string(said)?).map_err(io::Error::other)
}

/// An index is right when its end names as many entries and bytes as there are.
fn wrong_index(path: &Path, places: &Places) -> Option<String> {
    let mut end = vec![0];
    for mut number in [places.entries(), places.size_bytes] {
        while number >= 0x80 {
            end.push(number as u8 | 0x80);
            number >>= 7;
        }
        end.push(number as u8);
    }
    let tail = || -> io::Result<Vec<u8>> {
        let mut file = File::open(path)?;
        let back = i64::try_from(end.len() + DIGEST_BYTES).map_err(io::Error::other)?;
        file.seek(SeekFrom::End(-back))?;
        let mut tail = Vec::new();
        file.read_to_end(&mut tail)?;
        Ok(tail)
    };
    match tail() {
        Ok(tail) if tail.starts_with(&end) => None,
        Ok(_) => Some("the index has another end".to_owned()),
        Err(e) => Some(format!("no index: {e}")),
    }
}

fn wrong_size(path: &Path, bytes: u64) -> Option<String> {
    match path.metadata() {
        Ok(known) if known.len() == bytes => None,
        Ok(known) => Some(format!("{} bytes", known.len())),
        Err(e) => Some(format!("no file: {e}")),
    }
}

/// What is printed must have a line for every entry, or tell how many files there are.
fn wrong_words(tool: ServeTool, said: &Path, places: &Places) -> Option<String> {
    let text = match fs::read(said) {
        Ok(text) => text,
        Err(e) => return Some(format!("said nothing: {e}")),
    };
    if tool == ServeTool::Du {
        let text = String::from_utf8_lossy(&text);
        let sum = text.lines().last().unwrap_or_default();
        // "6 B  in 1,000 files and 1 folder"
        let count = sum.split(" in ").nth(1).and_then(|count| count.split(" file").next());
        let digits = count.unwrap_or_default().replace([',', ' '], "");
        let is_right = digits.parse() == Ok(places.files);
        return (!is_right).then(|| format!("{} files are '{sum}'", places.files));
    }
    let lines = text.iter().filter(|&&byte| byte == b'\n').count() as u64;
    (lines < places.entries()).then(|| format!("{lines} lines for {} entries", places.entries()))
}

fn with(option: &str, path: &Path) -> std::ffi::OsString {
    let mut text = std::ffi::OsString::from(option);
    text.push(path);
    text
}

/// The small file that idle clients ask for.
pub const SMALL_FILE: &str = "small.dat";
/// A file is fetched so often by the client of [`Question::Cpu`]: starting is then of no weight.
pub const CPU_TIMES: u32 = 4;
const OUTPUT: &str = "output";
const DIGEST_BYTES: usize = 32;
/// Nothing sensible takes longer.
const LIMIT: Duration = Duration::from_secs(300);

#[cfg(test)]
mod tests {
    use super::*;

    fn places(folder: &Path) -> Places {
        Places {
            identity: Identity { certificate: "/own/c".into(), key: "/own/k".into() },
            scratch: folder.join("scratch"),
            root: "/served".into(),
            file: "data".to_owned(),
            size_bytes: 300,
            files: 200,
            folders: 2,
            target: "/target".into(),
        }
    }

    #[test]
    fn every_tool_is_called_for_its_question() {
        let places = places(Path::new("/x"));
        let typed = |tool: ServeTool, question| {
            as_typed(&tool.command(question, Path::new("/bin/x"), &places))
        };
        assert_eq!(
            typed(ServeTool::Dd, Question::Copy),
            "x if=/served/data of=/target/output iflag=direct oflag=direct bs=4M status=none"
        );
        assert_eq!(
            typed(ServeTool::Swath, Question::Copy),
            "x cp --quiet --ca /own/c https://127.0.0.1:8470/ /target/output"
        );
        assert_eq!(
            typed(ServeTool::NginxTls, Question::Clients),
            "x crowd --address 127.0.0.1:8470 --large data --bytes 300 --ca /own/c"
        );
        let fetched = typed(ServeTool::Nginx, Question::Cpu);
        assert_eq!(fetched.matches("http://127.0.0.1:8470/data").count(), CPU_TIMES as usize);
        let index = typed(ServeTool::Index, Question::Million);
        assert!(index.ends_with("http://127.0.0.1:8470/?swath=index"), "{index}");
    }

    #[test]
    fn an_answer_that_lacks_something_does_not_count() {
        let folder = tempfile::tempdir().unwrap();
        let places = places(folder.path());
        let path = folder.path().join("said");
        let mut index = [b"swathidx\x01 records".as_slice(), &[0, 202, 1, 172, 2]].concat();
        index.extend([7; DIGEST_BYTES]);
        fs::write(&path, &index).unwrap();
        assert_eq!(wrong_index(&path, &places), None);
        fs::write(&path, &index[..index.len() - 1]).unwrap();
        assert!(wrong_index(&path, &places).is_some());
        fs::write(&path, "x").unwrap();
        assert!(wrong_index(&path, &places).unwrap().starts_with("no index: "));

        fs::write(&path, "x\n".repeat(202)).unwrap();
        assert_eq!(wrong_words(ServeTool::DryRun, &path, &places), None);
        fs::write(&path, "x\n".repeat(201)).unwrap();
        assert!(wrong_words(ServeTool::DryRun, &path, &places).is_some());
        fs::write(&path, "300 B  in 200 files and 2 folders\n").unwrap();
        assert_eq!(wrong_words(ServeTool::Du, &path, &places), None);
        fs::write(&path, "300 B  in 20 files and 2 folders\n").unwrap();
        assert!(wrong_words(ServeTool::Du, &path, &places).is_some());
    }

    #[test]
    fn figures_are_those_of_the_question() {
        let places = Places { size_bytes: 500_000_000, ..places(Path::new("/x")) };
        let spent = Spent { cpu: Duration::from_secs(1), peak_memory_bytes: 3 << 20 };
        let names = |question, spent, fared| -> Vec<String> {
            let figures = figures(question, spent, fared, 2.0, &places);
            figures.into_iter().map(|(name, value)| format!("{name} {value}")).collect()
        };
        assert_eq!(
            names(Question::Cpu, Some(spent), None),
            ["server CPU s 1", "server CPU s/GB 0.5", "server MiB 3"]
        );
        assert_eq!(names(Question::Million, None, None), ["entries/s 101"]);
        let fared = Fared { elapsed_s: 2.0, median_bytes_per_s: 4.0, slowest_bytes_per_s: 3.0 };
        let clients = names(Question::Clients, Some(spent), Some(fared));
        assert_eq!(clients.last().unwrap(), "slowest/median 0.75");
    }
}
