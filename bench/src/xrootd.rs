//! XRootD by HTTPS with third-party copies, for everybody; and the certificates that it and others
//! on these addresses show.

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use swath_netlab::wan::{LabError, Namespace};

use crate::server::{Running, as_nobody, failed, start, system, to_nobody};
use crate::tree_run::wait_for;

/// An authority and a certificate of every server by it.
#[derive(Clone, Debug)]
pub struct Certificates {
    folder: PathBuf,
}

impl Certificates {
    /// Makes them with openssl in a folder.
    pub fn make(folder: &Path) -> io::Result<Certificates> {
        fs::create_dir_all(folder.join("ca"))?;
        fs::write(folder.join("ext"), format!("subjectAltName={NAMES}\n"))?;
        let made = [
            "req -x509 -newkey rsa:2048 -nodes -keyout ca.key -out ca/ca.pem -subj /CN=Bench -days 9",
            "req -newkey rsa:2048 -nodes -keyout host.key -out host.csr -subj /CN=localhost",
            "x509 -req -in host.csr -CA ca/ca.pem -CAkey ca.key -CAcreateserial -out host.pem -days 9 -extfile ext",
            "rehash ca",
        ];
        for args in made {
            let mut openssl = Command::new("openssl");
            openssl.args(args.split(' ')).current_dir(folder);
            if !openssl.stdout(Stdio::null()).stderr(Stdio::null()).status()?.success() {
                return Err(io::Error::other(format!("openssl {args}")));
            }
        }
        Ok(Certificates { folder: folder.to_owned() })
    }

    /// Returns the folder of the authority, as OpenSSL looks through it.
    pub fn authorities(&self) -> PathBuf {
        self.folder.join("ca")
    }

    /// Returns the certificate of the authority.
    pub fn authority(&self) -> PathBuf {
        self.folder.join("ca/ca.pem")
    }

    /// Returns the certificate of the servers.
    pub fn certificate(&self) -> PathBuf {
        self.folder.join("host.pem")
    }

    /// Returns the key of the servers.
    pub fn key(&self) -> PathBuf {
        self.folder.join("host.key")
    }
}

/// Starts XRootD on a folder, which must be nobody's for writing. With certificates it serves HTTPS
/// on `port` and its own protocol on the next one; without, its own protocol on `port` alone.
pub fn xrootd(
    namespace: &Namespace,
    port: u16,
    folder: &Path,
    own: &Path,
    certificates: Option<&Certificates>,
) -> Result<Running, LabError> {
    let prepare = || {
        for name in ["admin", "run"] {
            fs::create_dir_all(own.join(name))?;
        }
        let at = |name: &str| own.join(name).display().to_string();
        let mut config = format!(
            "xrd.port {}\nall.export /\noss.localroot {}\nall.adminpath {}\nall.pidpath {}\n",
            port + u16::from(certificates.is_some()),
            folder.display(),
            at("admin"),
            at("run"),
        );
        if let Some(certificates) = certificates {
            // It refuses a key that is not its own.
            fs::copy(certificates.key(), own.join("key"))?;
            fs::set_permissions(own.join("key"), fs::Permissions::from_mode(0o400))?;
            config += &format!(
                "xrd.tls {} {}\nxrd.tlsca certdir {}\nxrd.protocol XrdHttp:{port} libXrdHttp.so\n\
                 http.desthttps no\nhttp.selfhttps2http no\n\
                 http.exthandler xrdtpc libXrdHttpTPC.so\n",
                certificates.certificate().display(),
                at("key"),
                certificates.authorities().display(),
            );
        }
        fs::write(own.join("config"), config)?;
        to_nobody(own)
    };
    prepare().map_err(system("prepare XRootD"))?;
    let mut command = as_nobody("xrootd");
    command.arg("-c").arg(own.join("config")).arg("-l").arg(own.join("run/log"));
    let running = start(command, namespace, own, Stdio::null())?;
    wait_for(namespace, &port.to_string()).map_err(|_| failed("xrootd", own))?;
    Ok(running)
}

/// Where servers of the rows may be.
const NAMES: &str = "DNS:localhost,IP:127.0.0.1,IP:10.79.0.1,IP:10.79.0.2,IP:10.79.0.3";
