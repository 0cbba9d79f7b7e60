//! A machine that ssh leads to, by an sshd of its own on the loopback interface.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::Home;
use swath_netlab::reserve_port;

/// A machine that ssh leads to; the same one, in truth. Ended when dropped.
pub struct Machine {
    sshd: Child,
    /// How ssh is called to find it: as `box`, and as `behind` where only ssh leads.
    pub ssh: String,
}

impl Drop for Machine {
    fn drop(&mut self) {
        let _ = self.sshd.kill();
        let _ = self.sshd.wait();
    }
}

pub fn succeeds(command: &mut Command) -> bool {
    command.stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok_and(|it| it.success())
}

/// `None` where there is no sshd.
pub fn machine(home: &Home, path: &str) -> Option<Machine> {
    machine_with(home, path, "")
}

/// One whose sshd is told more.
pub fn machine_with(home: &Home, path: &str, more: &str) -> Option<Machine> {
    let sshd = ["/usr/sbin/sshd", "/usr/bin/sshd"].into_iter().find(|it| Path::new(it).exists());
    let Some(sshd) = sshd else {
        println!("skipped: there is no sshd");
        return None;
    };
    let at = |name: &str| home.home().join(name);
    for key in ["host", "user"] {
        let mut make = Command::new("ssh-keygen");
        assert!(succeeds(make.args(["-q", "-t", "ecdsa", "-N", "", "-f"]).arg(at(key))));
    }
    fs::copy(at("user.pub"), at("authorized")).unwrap();
    fs::set_permissions(at("authorized"), fs::Permissions::from_mode(0o600)).unwrap();
    // Without it sshd does not start, as root at least.
    let _ = fs::create_dir("/run/sshd");
    let port = reserve_port();
    let show = |name: &str| at(name).display().to_string();
    fs::write(
        at("sshd_config"),
        format!(
            "Port {port}\nListenAddress 127.0.0.1\nHostKey {}\nAuthorizedKeysFile {}\nUsePAM no\n\
             StrictModes no\nPidFile none\nPermitRootLogin prohibit-password\n\
             PasswordAuthentication no\nKbdInteractiveAuthentication no\n\
             SetEnv PATH={path}:/usr/bin:/bin HOME={}\n{more}",
            show("host"),
            show("authorized"),
            show("far")
        ),
    )
    .unwrap();
    fs::create_dir(at("far")).unwrap();
    let user = String::from_utf8(Command::new("id").arg("-un").output().unwrap().stdout).unwrap();
    // ssh computes its default algorithms in portable C, and these faster, with its crypto library.
    fs::write(
        at("ssh_config"),
        format!(
            "Host *\nUser {}\nIdentityFile {}\nIdentitiesOnly yes\nUserKnownHostsFile {}\n\
             StrictHostKeyChecking accept-new\nBatchMode yes\nLogLevel ERROR\n\
             KexAlgorithms ecdh-sha2-nistp256\nCiphers aes128-gcm@openssh.com\n\
             Host box\nHostName 127.0.0.1\nPort {port}\n\
             Host behind\nHostName 255.255.255.255\nProxyCommand nc 127.0.0.1 {port}\n",
            user.trim(),
            show("user"),
            show("known"),
        ),
    )
    .unwrap();
    let sshd = Command::new(sshd)
        .args(["-D", "-e", "-f"])
        .arg(at("sshd_config"))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(fs::File::create(at("sshd.log")).unwrap())
        .spawn()
        .unwrap();
    let machine = Machine { sshd, ssh: format!("ssh -F {}", show("ssh_config")) };
    let began = Instant::now();
    let words: Vec<&str> = machine.ssh.split(' ').collect();
    while !succeeds(Command::new(words[0]).args(&words[1..]).args(["box", "true"])) {
        let said = fs::read_to_string(at("sshd.log")).unwrap_or_default();
        assert!(began.elapsed() < Duration::from_secs(20), "no way in: {said}");
        std::thread::sleep(Duration::from_millis(50));
    }
    Some(machine)
}

/// The folder of the program under test.
pub fn own_folder() -> String {
    Path::new(env!("CARGO_BIN_EXE_swath")).parent().unwrap().display().to_string()
}

/// Command lines of what runs for the copies of this test, here and there.
pub fn running(home: &Home) -> Vec<String> {
    let (config, far) = (home.home().join("ssh_config"), home.home().join("far"));
    let pids = fs::read_dir("/proc").unwrap().filter_map(|entry| Some(entry.ok()?.path()));
    let read = |path: &Path| {
        let text = fs::read(path).unwrap_or_default();
        String::from_utf8_lossy(&text).replace('\0', " ")
    };
    let of = |path: std::path::PathBuf| {
        let (line, environment) = (read(&path.join("cmdline")), read(&path.join("environ")));
        let is_there = environment.contains(&*far.to_string_lossy()) && line.contains(" serve ");
        (is_there || line.contains(&*config.to_string_lossy())).then_some(line)
    };
    pids.filter_map(of).collect()
}

/// Wait until nothing runs for them any more, on either side.
pub fn wait_for_none(home: &Home) {
    let began = Instant::now();
    while !running(home).is_empty() {
        assert!(began.elapsed() < Duration::from_secs(20), "{:?}", running(home));
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// A machine whose accounts have a login shell that [`Shelled::becomes`] another one. `None` where
/// there is no sshd.
pub fn shelled(home: &Home, path: &str, more: &str) -> Option<Shelled> {
    let shell = home.home().join("shell");
    let shelled = |machine| Shelled { machine, shell: shell.clone() };
    write_shell(&shell, RUN);
    machine_with(home, path, &format!("ForceCommand {}\n{more}", shell.display())).map(shelled)
}

/// See [`shelled`].
pub struct Shelled {
    pub machine: Machine,
    shell: std::path::PathBuf,
}

impl Shelled {
    /// It does this now; [`RUN`] runs what it was told to.
    pub fn becomes(&self, script: &str) {
        write_shell(&self.shell, script);
    }
}

fn write_shell(path: &Path, script: &str) {
    fs::write(path, format!("#!/bin/sh\n{script}\n")).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
}

/// What a login shell does.
pub const RUN: &str = "exec /bin/sh -c \"$SSH_ORIGINAL_COMMAND\"";
