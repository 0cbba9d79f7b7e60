//! An ssh server for one run, with a key of its own.

use std::fs;
use std::io;
use std::path::Path;
use std::process::{Command, Stdio};

use swath_netlab::wan::{LabError, Namespace};

use crate::machine::find_program;
use crate::server::{Running, failed, start, system};
use crate::tree_run::wait_for;

/// Makes keys and a configuration in a folder, and starts a server in a namespace. Clients call ssh
/// with [`options`].
pub fn sshd(namespace: &Namespace, address: &str, own: &Path) -> Result<Running, LabError> {
    prepare(address, own).map_err(system("prepare an ssh server"))?;
    // It insists on being called by its whole path.
    let mut command = Command::new(find_program("sshd").unwrap_or_default());
    command.args(["-D", "-e", "-f"]).arg(own.join("sshd_config"));
    let running = start(command, namespace, own, Stdio::null())?;
    wait_for(namespace, PORT).map_err(|_| failed("sshd", own))?;
    Ok(running)
}

/// Returns the options with which ssh reaches the server of this folder.
pub fn options(own: &Path) -> Vec<String> {
    let key = own.join("user").display().to_string();
    let settings = [
        "StrictHostKeyChecking=no",
        "UserKnownHostsFile=/dev/null",
        "LogLevel=ERROR",
        // It does not outlive a server that vanished.
        "ServerAliveInterval=5",
    ];
    let mut options = vec!["-F".to_owned(), "none".to_owned(), "-i".to_owned(), key];
    options.extend(settings.iter().flat_map(|setting| ["-o".to_owned(), (*setting).to_owned()]));
    options
}

fn prepare(address: &str, own: &Path) -> io::Result<()> {
    for name in ["host", "user"] {
        let mut command = Command::new("ssh-keygen");
        command.args(["-q", "-t", "ed25519", "-N", "", "-f"]).arg(own.join(name));
        if !command.status()?.success() {
            return Err(io::Error::other("ssh-keygen failed"));
        }
    }
    // sshd demands this folder, which its service makes elsewhere.
    fs::create_dir_all("/run/sshd")?;
    let at = |name: &str| own.join(name).display().to_string();
    let configuration = format!(
        "ListenAddress {address}\nHostKey {}\nAuthorizedKeysFile {}\nPermitRootLogin yes\nStrictModes no\nUsePAM no\n\
         PidFile none\nLogLevel ERROR\n",
        at("host"),
        at("user.pub"),
    );
    fs::write(own.join("sshd_config"), configuration)
}

const PORT: &str = "22";
