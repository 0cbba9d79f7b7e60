//! One run of one tool: a fresh network, a fresh server, one client, one check.
//!
//! Timed is the client, from its start to its end; the server runs before it. Afterwards every file is
//! compared with the original.

use std::any::Any;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use swath_netlab::access::AccessSpec;
use swath_netlab::star::{Lab, ServerKind, WebServer};
use swath_netlab::wan::{LabError, Namespace, Schedule};

use super::cell::RATE_MBIT_PER_S;
use super::{Cell, Tool, Way, ssh};
use crate::check::empty;
use crate::machine::find_program;
use crate::results::Run;
use crate::server::{
    GRIDFTP_PORT, Running, Swath, failed, gridftp, rsync, start, system, to_nobody,
};
use crate::swarm::{self, Case, Client, Origin};
use crate::third_party::{self, Outcome, Places, run_client, swath_copy};
use crate::tree_data::{difference, difference_behind_links};
use crate::tree_run::wait_for;
use crate::xrootd::xrootd;

/// Copies the data of a cell once with a tool, for `limit` at most. The data is in the folder `ds` of
/// what is served.
///
/// # Errors
/// When the laboratory does not work; a tool that fails is a run with a failure.
pub fn copy_once(
    cell: &Cell,
    tool: Tool,
    limit: Duration,
    places: &Places,
) -> Result<Outcome, LabError> {
    let mut outcome = match (&cell.way, tool) {
        (Way::ThirdParty(row), Tool::ThirdParty(tool)) => {
            third_party::run_once(row, tool, limit, places)?
        }
        (_, Tool::BitTorrent | Tool::SwathTorrent) => torrent_once(cell, tool, limit, places)?,
        _ => fetch_once(cell, tool, limit, places)?,
    };
    for (folder, word) in [(&places.target, "TARGET"), (&places.served, "SERVED")] {
        outcome.command = outcome.command.replace(&folder.display().to_string(), word);
    }
    Ok(outcome)
}

/// Fetches the one file of a cell by BitTorrent from one seeder.
fn torrent_once(
    cell: &Cell,
    tool: Tool,
    limit: Duration,
    places: &Places,
) -> Result<Outcome, LabError> {
    let (origin, client) = match tool {
        Tool::BitTorrent => (Origin::Libtorrent, Client::Libtorrent),
        _ => (Origin::Swath, Client::Swath),
    };
    // Two access links delay each packet in both directions, so each has a quarter of the round trip.
    let link = AccessSpec::new(RATE_MBIT_PER_S, Duration::from_secs_f64(cell.rtt_ms / 4e3));
    let row = swarm::Row {
        name: "radioastron",
        title: "one seeder",
        size_bytes: cell.data.bytes(),
        origin: Some(link),
        mirrors: Vec::new(),
        sites: vec![link],
        cases: Vec::new(),
    };
    // Seeders keep files of their own beside the data, which others must not copy.
    let seeded = places.served.join("seeded");
    let link_data = || {
        fs::create_dir_all(&seeded)?;
        empty(&seeded)?;
        fs::hard_link(places.served.join(SOURCE).join(ONLY_FILE), seeded.join(ONLY_FILE))
    };
    link_data().map_err(system("link the data"))?;
    let folders = swarm::Places {
        swath: places.swath.clone(),
        served: seeded,
        target: places.target.clone(),
        trace: None,
    };
    let case = Case { name: tool.name(), origin, client };
    let ran = swarm::run_once(&row, case, limit, &folders, &folders.served.join(ONLY_FILE))?;
    let elapsed_s = if ran.is_stopped { limit.as_secs_f64() } else { ran.last_s() };
    let (failure, is_stopped) = (ran.failure, ran.is_stopped);
    let run = Run { elapsed_s, failure, is_stopped, ..Run::default() };
    Ok(Outcome { run, command: tool.settings().0.to_owned(), said: String::new() })
}

fn fetch_once(
    cell: &Cell,
    tool: Tool,
    limit: Duration,
    places: &Places,
) -> Result<Outcome, LabError> {
    empty(&places.target).map_err(system("empty the target folder"))?;
    let lab = Lab::star(&cell.star())?;
    lab.play(&Schedule::default());
    let server = &lab.servers()[0];
    let address = lab.server_address(0).to_string();
    let own = places.own("server")?;
    let output = places.target.join(OUTPUT);
    let source = places.served.join(SOURCE);
    // What is another text in each run, and the word for it in the command that is kept.
    let mut changing: Vec<(String, &str)> = Vec::new();
    let mut serving: Vec<Box<dyn Any>> = Vec::new();
    let mut command = match tool {
        Tool::Swath => {
            let listen = format!("{address}:{SWATH_PORT}");
            let swath = Swath::start(&places.swath, server, &listen, &places.served, &own, &[])?;
            changing.extend([(swath.token.clone(), "TOKEN"), (swath.fingerprint.clone(), "HEX")]);
            let sources = [swath];
            let to = format!("{}/", output.display());
            let command = swath_copy(&places.swath, &sources, &to, &[&sources[0]]);
            serving.push(Box::new(sources));
            command
        }
        Tool::Http => {
            let web = WebServer::start(ServerKind::Nginx, server, &places.served)?;
            serving.push(Box::new(web));
            curl(&format!("http://{address}"), &output)
        }
        _ => {
            if tool == Tool::Xrdcp {
                places.own(OUTPUT)?;
            }
            serving.push(Box::new(serve(tool, server, &address, places, &own)?));
            client(tool, &address, &source, &output, &own)
        }
    };
    if let Some(syq) = find_program("syq").filter(|_| tool == Tool::Syq) {
        changing.push((syq.display().to_string(), "syq"));
    }
    let mut outcome = run_client(&mut command, limit, lab.client(), places)?;
    // Before the folder is emptied in which they write.
    drop(serving);
    for (text, word) in changing {
        outcome.command = outcome.command.replace(&text, word);
    }
    if outcome.run.failure.is_none() {
        // xrdcp copies the folder itself, not what is in it.
        let copied = if tool == Tool::Xrdcp { output.join(SOURCE) } else { output };
        let compared = match tool.follows_links() {
            true => difference_behind_links(&source, &copied),
            false => difference(&source, &copied),
        };
        outcome.run.failure = compared.unwrap_or_else(|error| Some(error.to_string()));
    }
    empty(&places.target).map_err(system("empty the target folder"))?;
    Ok(outcome)
}

/// Starts the server of a tool other than swath.
fn serve(
    tool: Tool,
    namespace: &Namespace,
    address: &str,
    places: &Places,
    own: &Path,
) -> Result<Running, LabError> {
    let source = places.served.join(SOURCE);
    match tool {
        Tool::GridFtp => {
            to_nobody(own).map_err(system("hand over a folder"))?;
            gridftp(namespace, address, own)
        }
        Tool::Rclone => {
            let mut command = Command::new("rclone");
            command.args(["serve", "http", "--read-only", "--copy-links", "--addr"]);
            command.arg(format!("{address}:{RCLONE_PORT}")).arg(source);
            let running = start(command, namespace, own, Stdio::null())?;
            wait_for(namespace, RCLONE_PORT).map_err(|_| failed("rclone", own))?;
            Ok(running)
        }
        Tool::Rsync => rsync(namespace, &source, own),
        Tool::Ftp => vsftpd(namespace, &places.served, own),
        Tool::Xrdcp => xrootd(namespace, XROOTD_PORT, &places.served, own, None),
        _ => ssh::sshd(namespace, address, own),
    }
}

/// Returns the client of a tool other than swath.
fn client(tool: Tool, address: &str, source: &Path, output: &Path, own: &Path) -> Command {
    let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
    if tool == Tool::Ftp {
        return curl(&format!("ftp://{address}"), output);
    }
    let mut command = Command::new(match tool {
        Tool::GridFtp => "globus-url-copy",
        Tool::TarSsh => "sh",
        _ => tool.name(),
    });
    match tool {
        Tool::GridFtp => {
            command.args(words(GRIDFTP_PARAMETERS));
            let from = format!("ftp://{address}:{GRIDFTP_PORT}{}/", source.display());
            command.arg(from).arg(format!("file://{}/", output.display()));
        }
        Tool::Rclone => {
            command.args(words(RCLONE_PARAMETERS));
            command.arg(format!(":http,url='http://{address}:{RCLONE_PORT}':"));
            command.arg(output);
        }
        Tool::Rsync => {
            command.args(["-a", "--whole-file", &format!("rsync://{address}/tree/")]).arg(output);
        }
        Tool::Xrdcp => {
            command.args(words(XRDCP_PARAMETERS));
            command.arg(format!("root://{address}:{XROOTD_PORT}//{SOURCE}/"));
            command.arg(format!("{}/", output.display()));
        }
        Tool::Syq => {
            // The server's host has the same program; syq would install one there.
            let program = find_program("syq").unwrap_or_default();
            let ssh = format!("ssh {}", ssh::options(own).join(" "));
            command.args(["cp", "--quiet", "--rsh", &ssh, "--syq-path"]).arg(program);
            command.args(["--from", &format!("root@{address}"), "--srcs-in"]).arg(source);
            command.arg("--into").arg(output);
        }
        _ => {
            // ssh ends with the shell, which ends with us.
            let script = "mkdir \"$1\" && from=$2 && to=$1 && shift 2 && \
                          setpriv --pdeathsig KILL ssh \"$@\" tar c -C \"$from\" . | \
                          tar x -C \"$to\"";
            command.args(["-c", script, "sh"]).arg(output).arg(source);
            command.args(ssh::options(own)).arg(format!("root@{address}"));
        }
    }
    command
}

/// Returns curl of the one file.
fn curl(server: &str, output: &Path) -> Command {
    let mut command = Command::new("curl");
    command.args(["-q", "-sSf", "--create-dirs", "-o"]).arg(output.join(ONLY_FILE));
    command.arg(format!("{server}/{SOURCE}/{ONLY_FILE}"));
    command
}

/// Starts vsftpd on a folder, for everybody.
fn vsftpd(namespace: &Namespace, folder: &Path, own: &Path) -> Result<Running, LabError> {
    let empty = own.join("empty");
    let configuration = own.join("vsftpd.conf");
    let text = format!(
        "listen=YES\nbackground=NO\nanonymous_enable=YES\nno_anon_password=YES\nlocal_enable=NO\n\
         write_enable=NO\nanon_root={}\nsecure_chroot_dir={}\n",
        folder.display(),
        empty.display()
    );
    fs::create_dir_all(empty)
        .and_then(|()| fs::write(&configuration, text))
        .map_err(system("configure vsftpd"))?;
    let mut command = Command::new("vsftpd");
    command.arg(configuration);
    let running = start(command, namespace, own, Stdio::null())?;
    wait_for(namespace, FTP_PORT).map_err(|_| failed("vsftpd", own))?;
    Ok(running)
}

/// The folder of the data in what is served.
pub const SOURCE: &str = "ds";
/// The name of the file if there is one.
const ONLY_FILE: &str = "file-0.dat";
const OUTPUT: &str = "output";
/// Of the study. `-fast` is what its manual recommends for GridFTP servers; without `-nodcau` it
/// wants certificates.
const GRIDFTP_PARAMETERS: &str = "-nodcau -fast -bs 4194304 -tcp-bs 2097152 -p 4 -cc 32 -pp -r -cd";
const RCLONE_PARAMETERS: &str =
    "copy --config= --transfers 32 --checkers 32 --multi-thread-streams 4";
const XRDCP_PARAMETERS: &str = "-r --silent --parallel 32 --streams 4";
const SWATH_PORT: u16 = 8470;
const RCLONE_PORT: &str = "8471";
const FTP_PORT: &str = "21";
const XROOTD_PORT: u16 = 1094;
