//! A real XRootD server.

use std::fs;
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::Home;
use swath_netlab::reserve_port;

/// XRootD by HTTPS, which copies from and to others; for everybody, without tokens. Killed when dropped.
pub struct Xrootd {
    child: Child,
    /// Its address.
    pub url: String,
}

impl Drop for Xrootd {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn openssl(folder: &Path, args: &str) -> bool {
    let mut openssl = Command::new("openssl");
    openssl.args(args.split(' ')).current_dir(folder);
    openssl.stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok_and(|it| it.success())
}

impl Xrootd {
    /// Makes an authority (`ca/ca.pem`, one for all servers of the home) and a certificate of this machine by
    /// it, and starts a server of `FOLDER/data` as nobody: it refuses to run as root. Without it, says that the
    /// test is skipped.
    pub fn start(home: &Home, folder: &str) -> Option<Xrootd> {
        let at = |name: &str| home.path(folder).join(name);
        let has_plugin = Command::new("sh")
            .args(["-c", "ldconfig -p | grep -q libXrdHttpTPC && command -v xrootd"])
            .stdout(Stdio::null())
            .status();
        // SAFETY: geteuid has no preconditions.
        let is_root = unsafe { libc::geteuid() } == 0;
        if !is_root || !has_plugin.is_ok_and(|it| it.success()) {
            println!("skipped: needs root, xrootd-server and xrootd-server-plugins");
            return None;
        }
        for name in ["data", "admin", "run"] {
            fs::create_dir_all(at(name)).unwrap();
        }
        let authority = home.path("ca");
        if !authority.exists() {
            fs::create_dir(&authority).unwrap();
            let made = "req -x509 -newkey rsa:2048 -nodes -keyout ../ca.key -out ca.pem -subj /CN=Test -days 2";
            assert!(openssl(&authority, made) && openssl(&authority, "rehash ."), "openssl");
        }
        fs::write(at("ext"), "subjectAltName=DNS:localhost,IP:127.0.0.1\n").unwrap();
        let made = [
            "req -newkey rsa:2048 -nodes -keyout host.key -out host.csr -subj /CN=localhost",
            "x509 -req -in host.csr -CA ../ca/ca.pem -CAkey ../ca.key -CAserial ../ca.serial -CAcreateserial -out host.pem -days 2 -extfile ext",
        ];
        assert!(made.iter().all(|args| openssl(&home.path(folder), args)), "openssl");
        fs::copy(at("host.key"), at("own.key")).unwrap();
        let (port, data) = (reserve_port(), reserve_port());
        let shown = |name: &str| at(name).display().to_string();
        let config = format!(
            "xrd.port {data}\nall.export /\noss.localroot {}\nall.adminpath {}\nall.pidpath {}\n\
             xrd.tls {} {}\nxrd.tlsca certdir {}\nxrd.protocol XrdHttp:{port} libXrdHttp.so\n\
             http.desthttps no\nhttp.selfhttps2http no\nhttp.exthandler xrdtpc libXrdHttpTPC.so\n\
             xrootd.chksum max 20 adler32\nhttp.listingdeny no\n",
            shown("data"),
            shown("admin"),
            shown("run"),
            shown("host.pem"),
            shown("own.key"),
            authority.display(),
        );
        fs::write(at("config"), config).unwrap();
        let above = home.work().parent().unwrap().to_owned();
        for open in [home.work().to_owned(), home.path(folder), above, authority] {
            fs::set_permissions(open, fs::Permissions::from_mode(0o755)).unwrap();
        }
        let chown = Command::new("chown").args(["-R", "nobody"]).arg(home.path(folder)).status();
        assert!(chown.unwrap().success());
        fs::set_permissions(at("own.key"), fs::Permissions::from_mode(0o400)).unwrap();
        let mut command = Command::new("xrootd");
        command.args(["-c", &shown("config"), "-l", &shown("run/log"), "-n", folder]);
        command.current_dir(at("run")).stdout(Stdio::null()).stderr(Stdio::null());
        let child = command.uid(NOBODY).gid(NOBODY).spawn();
        let xrootd = Xrootd { child: child.unwrap(), url: format!("https://localhost:{port}/") };
        let began = Instant::now();
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            assert!(began.elapsed() < Duration::from_secs(60), "xrootd does not start");
            std::thread::sleep(Duration::from_millis(50));
        }
        Some(xrootd)
    }
}

/// `nobody` and `nogroup` of Debian.
const NOBODY: u32 = 65_534;
