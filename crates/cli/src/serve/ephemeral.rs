//! `swath serve --ephemeral`: serves one copy; started by ssh, and ends with it.

use std::net::{Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};

use crate::failure::Failure;
use swath_formats::percent;
use swath_serve::{Filter, Only, Server};

use super::args::Serve;
use swath_jobs::ssh::Hello;

/// The folder or file of one copy.
pub struct Served {
    /// The path of the named folder or file on the server.
    path: String,
    /// Restricts the server to this file.
    pub only: Option<Only>,
}

/// Prepares the arguments for one copy; `None` without `--ephemeral`.
pub fn prepare(args: &mut Serve) -> Result<Option<Served>, Failure> {
    if !args.ephemeral {
        return Ok(None);
    }
    args.listen = vec![SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0))];
    let [folder] = args.folders.as_slice() else {
        return Err(Failure::input("--ephemeral serves one folder"));
    };
    if !args.write && folder.is_file() {
        let own = folder.file_name().map(|name| name.to_string_lossy().into_owned());
        let name = args.file_name.clone().or(own).unwrap_or_default();
        let offered = swath_jobs::copy::offered(folder, Some(&name), Filter::default());
        let failed = |error| Failure::input(format!("cannot serve {}: {error}", folder.display()));
        let (above, only) = offered.map_err(failed)?;
        args.folders = vec![above];
        return Ok(Some(Served { path: "/".to_owned(), only: Some(only) }));
    }
    if !args.write || folder.is_dir() {
        return Ok(Some(Served { path: "/".to_owned(), only: None }));
    }
    // A destination that does not exist is created by the upload; the first existing folder above it
    // is served.
    let whole: PathBuf = folder.components().collect();
    let mut above = whole.as_path();
    let mut path = String::from("/");
    while !above.is_dir() {
        // A single file may be replaced.
        let is_replaced = args.file_name.is_some() && above == whole;
        if above.symlink_metadata().is_ok() && !is_replaced {
            return Err(Failure::input(format!("{} is not a folder", above.display())));
        }
        let name = above.file_name();
        let odd = |what: &str| Failure::input(format!("{} {what}", folder.display()));
        let name = name.ok_or_else(|| odd("does not name a folder"))?;
        let name = name.to_str().ok_or_else(|| odd("is not valid UTF-8"))?;
        path.insert_str(0, &format!("/{}", percent::encode(name.as_bytes())));
        above = match above.parent() {
            Some(above) if above != Path::new("") => above,
            _ => Path::new("."),
        };
    }
    args.folders = vec![above.to_owned()];
    Ok(Some(Served { path, only: None }))
}

/// Returns the line for the program that started this server.
pub fn hello(server: &Server, served: &Served, token: Option<&str>) -> String {
    let fingerprint = server.identity().map(|identity| identity.fingerprint().to_string());
    let hello = Hello {
        swath: env!("CARGO_PKG_VERSION").to_owned(),
        port: server.addresses().first().map_or(0, SocketAddr::port),
        path: served.path.clone(),
        is_file: matches!(served.only, Some(Only::File(_))),
        token: token.unwrap_or_default().to_owned(),
        fingerprint: fingerprint.unwrap_or_default(),
    };
    serde_json::to_string(&hello).unwrap_or_default() + "\n"
}

/// Waits until standard input is closed.
pub async fn abandoned() {
    let (gone, is_gone) = tokio::sync::oneshot::channel();
    std::thread::spawn(move || {
        let _ = std::io::copy(&mut std::io::stdin().lock(), &mut std::io::sink());
        let _ = gone.send(());
    });
    let _ = is_gone.await;
}
