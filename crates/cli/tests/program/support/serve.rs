//! `swath serve` while a test talks to it, and the programs that talk.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use super::Home;
use swath_netlab::{is_reserved, reserve_port};

/// The last line of what is said by whoever has made its certificate and no token.
pub const FINGERPRINT: &str = "fingerprint ";

/// A server that stands. Killed when dropped.
pub struct Served {
    child: Child,
    /// `http://127.0.0.1:PORT/`.
    pub url: String,
    /// All that it said when it stood.
    pub words: String,
    /// What it has said on standard error so far.
    said: Arc<Mutex<String>>,
}

impl Home {
    /// `swath serve` with these arguments, on a free port of the loopback interface.
    pub fn serve(&self, args: &[&str]) -> Served {
        self.serve_at("127.0.0.1:0", args)
    }

    /// The same at a reserved port, where it can stand again later (`serve_at`).
    pub fn serve_lasting(&self, args: &[&str]) -> Served {
        self.serve_at(&reserved_address(), args)
    }

    /// The same at this address.
    pub fn serve_at(&self, address: &str, args: &[&str]) -> Served {
        let swath = self.swath(["serve", "--listen", lasting(address)].iter().chain(args));
        Served::of(swath, args)
    }
}

/// Returns an address of the loopback interface where servers of this test can stand again and again.
pub fn reserved_address() -> String {
    format!("127.0.0.1:{}", reserve_port())
}

/// Returns `address`; fails if its port could be taken by others before a server binds it.
#[track_caller]
pub fn lasting(address: &str) -> &str {
    let port = address.rsplit(':').next().and_then(|port| port.parse().ok());
    assert!(
        port.is_some_and(|port| port == 0 || is_reserved(port)),
        "reserve the port of {address}"
    );
    address
}

impl Served {
    /// Start it; `args` are those by which it is seen what it will say.
    pub fn of(mut swath: super::Swath, args: &[&str]) -> Served {
        let mut child = swath.command().spawn().expect("it starts");
        let said = Arc::new(Mutex::new(String::new()));
        let (hears, errors) = (Arc::clone(&said), BufReader::new(child.stderr.take().unwrap()));
        std::thread::spawn(move || {
            for line in errors.lines().map_while(Result::ok) {
                eprintln!("{line}");
                hears.lock().unwrap().push_str(&(line + "\n"));
            }
        });
        let mut lines = BufReader::new(child.stdout.take().unwrap());
        let (mut url, mut words) = (None, String::new());
        // The line of the token, or of there being none, is the last one, if there is any.
        while !words.contains("\ntoken ") {
            let mut line = String::new();
            if lines.read_line(&mut line).unwrap() == 0 {
                break;
            }
            if line.trim_start().starts_with("http") {
                url.get_or_insert_with(|| line.trim().to_owned());
            }
            words.push_str(&line);
            let is_last = match args.contains(&FINGERPRINT) {
                true => line.starts_with(FINGERPRINT),
                false => args.contains(&"--token-file") && url.is_some(),
            };
            if is_last {
                break;
            }
        }
        // What else it prints must not stop it.
        std::thread::spawn(move || std::io::copy(&mut lines, &mut std::io::sink()));
        let url = url.unwrap_or_else(|| panic!("no address: {words}"));
        Served { child, url, words, said }
    }

    /// Wait until it has said this on standard error, and forget what it has said up to then.
    #[track_caller]
    pub fn says(&self, words: &str) {
        let began = Instant::now();
        while began.elapsed() < HANG_LIMIT {
            let mut said = self.said.lock().unwrap();
            if let Some(at) = said.find(words) {
                said.drain(..at + words.len());
                return;
            }
            drop(said);
            std::thread::sleep(Duration::from_millis(5));
        }
        panic!("{words:?} is missing: {}", self.said.lock().unwrap());
    }

    /// The address of something it serves.
    pub fn at(&self, path: &str) -> String {
        format!("{}{path}", self.url)
    }

    pub fn address(&self) -> SocketAddr {
        let after_scheme = self.url.split_once("://").unwrap().1;
        after_scheme.trim_end_matches('/').parse().unwrap()
    }

    /// The token that it made.
    pub fn token(&self) -> &str {
        let line = self.words.lines().find(|line| line.starts_with("token ")).unwrap();
        line.split_whitespace().last().unwrap()
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    pub fn signal(&self, signal: i32) {
        let pid = self.pid().to_string();
        let status = Command::new("kill").arg(format!("-{signal}")).arg(pid).status();
        assert!(status.is_ok_and(|status| status.success()), "the signal was sent");
    }

    /// Wait for its end; answers its exit code.
    pub fn wait(mut self) -> Option<i32> {
        let began = Instant::now();
        while began.elapsed() < HANG_LIMIT {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status.code();
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        panic!("it does not end");
    }

    /// Send bytes as they are, and read until the server closes: the last request must ask for that.
    #[track_caller]
    pub fn raw(&self, request: &[u8]) -> Vec<u8> {
        let mut tcp = TcpStream::connect(self.address()).unwrap();
        tcp.set_read_timeout(Some(HANG_LIMIT)).unwrap();
        // The server may close before it has read all, and has answered then.
        let _ = tcp.write_all(request);
        let mut answer = Vec::new();
        let mut part = [0; 65536];
        loop {
            match tcp.read(&mut part) {
                Ok(bytes @ 1..) => answer.extend_from_slice(&part[..bytes]),
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                    panic!("it keeps the connection: {}", String::from_utf8_lossy(&answer));
                }
                // A reset behind an early answer is an end too.
                Ok(0) | Err(_) => return answer,
            }
        }
    }

    /// One request without its last line, and all that is answered, as text.
    #[track_caller]
    pub fn answer_to(&self, request: &str) -> String {
        let request = format!("{request}\r\nHost: h\r\nConnection: close\r\n\r\n");
        String::from_utf8_lossy(&self.raw(request.as_bytes())).into_owned()
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What has not happened by then never will.
const HANG_LIMIT: Duration = Duration::from_secs(90);

/// Run a program of others in a folder; answers its exit code and what it printed. `None` where it
/// is not installed; the test says so.
pub fn other(folder: &Path, program: &str, args: &[&str]) -> Option<(i32, String)> {
    let ran = Command::new(program)
        .args(args)
        .current_dir(folder)
        .env_remove("http_proxy")
        .env_remove("https_proxy")
        .env("HOME", folder)
        .stdin(Stdio::null())
        .output();
    match ran {
        Ok(ran) => {
            let text = [ran.stdout, ran.stderr].concat();
            Some((ran.status.code().unwrap_or(-1), String::from_utf8_lossy(&text).into_owned()))
        }
        Err(_) => {
            println!("skipped: {program} is not installed");
            None
        }
    }
}

/// As [`other`], where it has to succeed.
#[track_caller]
pub fn succeeds(folder: &Path, program: &str, args: &[&str]) -> Option<String> {
    let (code, text) = other(folder, program, args)?;
    assert_eq!(code, 0, "{program} {args:?}:\n{text}");
    Some(text)
}
