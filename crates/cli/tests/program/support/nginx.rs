//! A real nginx that limits its clients, and what it has noted of them.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use swath_netlab::faulty::Content;
use swath_netlab::free_port;

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
        // A port that was free may be somebody else's in a moment: nginx ends then.
        (0..20)
            .find_map(|_| Nginx::begin(binary, files, limits))
            .or_else(|| panic!("nginx does not start"))
    }

    fn begin(binary: &str, files: &[(&str, &Content)], limits: &[&str]) -> Option<Nginx> {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name).display().to_string();
        std::fs::create_dir(at("www")).unwrap();
        for (name, content) in files {
            let bytes = content.read(0, content.size_bytes());
            let path = folder.path().join("www").join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, bytes).unwrap();
        }
        let ports: Vec<u16> = limits.iter().map(|_| free_port()).collect();
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
        let answers = |&port| std::net::TcpStream::connect(("127.0.0.1", port)).is_ok();
        for _ in 0..400 {
            if server.child.try_wait().unwrap().is_some() {
                return None;
            }
            if server.ports.iter().all(answers) {
                std::thread::sleep(Duration::from_millis(50));
                return server.child.try_wait().unwrap().is_none().then_some(server);
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        panic!("nginx does not answer");
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

/// A server that listens on a port of its own. What is free now may be somebody else's in a moment, and
/// the server ends then: it is started again on another one. `None` where it cannot be started.
pub fn listening(start: impl Fn(u16) -> Option<Child>) -> Option<(Child, u16)> {
    for _ in 0..20 {
        let port = free_port();
        let mut child = start(port)?;
        for _ in 0..800 {
            if child.try_wait().unwrap().is_some() {
                break;
            }
            if std::net::TcpStream::connect(("127.0.0.1", port)).is_ok() {
                // Whoever has the port would answer; a server that has lost it ends at once.
                std::thread::sleep(Duration::from_millis(50));
                if child.try_wait().unwrap().is_none() {
                    return Some((child, port));
                }
                break;
            }
            std::thread::sleep(Duration::from_millis(25));
        }
        let _ = child.kill();
        let _ = child.wait();
    }
    panic!("no server starts");
}
