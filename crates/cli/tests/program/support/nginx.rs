//! A real nginx that limits its clients, and what it has noted of them.

use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use swath_netlab::faulty::Content;
use swath_netlab::reserve_port;

/// One request, as nginx has noted it.
#[derive(Debug)]
pub struct Noted {
    pub port: u16,
    pub status: u16,
    pub sent_bytes: u64,
}

/// A running nginx with a folder of its own; ends with this.
pub struct Nginx {
    folder: tempfile::TempDir,
    child: Child,
    ports: Vec<u16>,
}

impl Drop for Nginx {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Nginx {
    /// One server for each of `limits` (directives of its own), all with the same files; `None`, said
    /// aloud, where nginx is not installed.
    pub fn start(files: &[(&str, &Content)], limits: &[&str]) -> Option<Nginx> {
        let found = ["/usr/sbin/nginx", "/usr/local/sbin/nginx", "/usr/bin/nginx"];
        let Some(binary) = found.into_iter().find(|path| Path::new(path).exists()) else {
            println!("skipped: nginx is not installed");
            return None;
        };
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name).display().to_string();
        std::fs::create_dir(at("www")).unwrap();
        for (name, content) in files {
            let bytes = content.read(0, content.size_bytes());
            let path = folder.path().join("www").join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, bytes).unwrap();
        }
        let ports: Vec<u16> = limits.iter().map(|_| reserve_port()).collect();
        let temporary: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
            .map(|kind| format!("{kind}_temp_path {};\n", at(kind)))
            .concat();
        let servers: String = ports
            .iter()
            .zip(limits)
            .map(|(port, limits)| {
                format!("server {{ listen 127.0.0.1:{port}; root {}; {limits} }}\n", at("www"))
            })
            .collect();
        // SAFETY: has no conditions.
        let user = if unsafe { libc::geteuid() } == 0 { "user root;" } else { "" };
        let config = format!(
            "daemon off; master_process off; {user} pid {}; error_log {} crit;
             events {{ worker_connections 256; }}
             http {{ sendfile on; {temporary}
               limit_conn_zone $server_port zone=each:1m;
               log_format noted '$server_port $status $bytes_sent';
               access_log {} noted;
               {servers} }}",
            at("pid"),
            at("error.log"),
            at("access.log"),
        );
        std::fs::write(at("nginx.conf"), config).unwrap();
        let child = Command::new(binary)
            .args(["-c", &at("nginx.conf"), "-e", &at("error.log"), "-p", &at("")])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut server = Nginx { folder, child, ports };
        for &port in &server.ports {
            wait_for_port(&mut server.child, port);
        }
        Some(server)
    }

    /// The address of a file at the server with this number.
    pub fn url(&self, server: usize, name: &str) -> String {
        format!("http://127.0.0.1:{}/{name}", self.ports[server])
    }

    /// The port of the server with this number.
    pub fn port(&self, server: usize) -> u16 {
        self.ports[server]
    }

    /// The requests so far that have ended, in the order of their ends.
    pub fn noted(&self) -> Vec<Noted> {
        let log = std::fs::read_to_string(self.folder.path().join("access.log")).unwrap();
        log.lines()
            .filter_map(|line| {
                let mut words = line.split(' ');
                Some(Noted {
                    port: words.next()?.parse().ok()?,
                    status: words.next()?.parse().ok()?,
                    sent_bytes: words.next()?.parse().ok()?,
                })
            })
            .collect()
    }
}

/// Starts a server that listens on this port, and waits until it does. `None` where it cannot be started.
pub fn listening(start: impl Fn(u16) -> Option<Child>) -> Option<(Child, u16)> {
    let port = reserve_port();
    let mut child = start(port)?;
    wait_for_port(&mut child, port);
    Some((child, port))
}

/// Waits until a program listens on its reserved port; fails if it ends before.
#[track_caller]
pub fn wait_for_port(child: &mut Child, port: u16) {
    let began = Instant::now();
    while TcpStream::connect(("127.0.0.1", port)).is_err() {
        if let Some(status) = child.try_wait().unwrap() {
            panic!("it ended before it listened on port {port}: {status}");
        }
        assert!(began.elapsed() < LIMIT, "nothing listens on port {port}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Long, because other work may keep the machine busy.
const LIMIT: Duration = Duration::from_secs(90);
