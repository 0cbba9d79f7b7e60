//! `swath serve --ephemeral`: for one copy, started by ssh and ended with it.

use std::net::{Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};

use crate::failure::Failure;
use swath_formats::percent;
use swath_serve::{Filter, Only, Server};

use super::args::Serve;
use swath_jobs::ssh::Hello;

/// What is served for one copy.
pub struct Served {
    /// Where in it that is what was named.
    path: String,
    /// Nothing but this.
    pub only: Option<Only>,
}

/// Settle what is served; `None` for other servers.
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
    // What is to be written may not be there yet: it is reached by the first folder above it that is,
    // and made when the tree comes.
    let whole: PathBuf = folder.components().collect();
    let mut above = whole.as_path();
    let mut path = String::from("/");
    while !above.is_dir() {
        // A single file may be there, and is replaced.
        let is_replaced = args.file_name.is_some() && above == whole;
        if above.symlink_metadata().is_ok() && !is_replaced {
            return Err(Failure::input(format!("{} is no folder", above.display())));
        }
        let name = above.file_name();
        let odd = |what: &str| Failure::input(format!("{} {what}", folder.display()));
        let name = name.ok_or_else(|| odd("names no folder"))?;
        let name = name.to_str().ok_or_else(|| odd("is no text"))?;
        path.insert_str(0, &format!("/{}", percent::encode(name.as_bytes())));
        above = match above.parent() {
            Some(above) if above != Path::new("") => above,
            _ => Path::new("."),
        };
    }
    args.folders = vec![above.to_owned()];
    Ok(Some(Served { path, only: None }))
}

/// The line that whoever started this reads.
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

/// Waits until nobody holds standard input open any more.
pub async fn abandoned() {
    let (gone, is_gone) = tokio::sync::oneshot::channel();
    std::thread::spawn(move || {
        let _ = std::io::copy(&mut std::io::stdin().lock(), &mut std::io::sink());
        let _ = gone.send(());
    });
    let _ = is_gone.await;
}
