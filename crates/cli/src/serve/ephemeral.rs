//! `swath serve --ephemeral`: for one copy, started by ssh and ended with it.

use std::net::{Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};

use swath_serve::Server;

use super::args::Serve;
use crate::cp::ssh::Hello;

/// Settle what is served, and where in it the folder that was named is; `None` for other servers.
/// The error is a sentence.
pub fn prepare(args: &mut Serve) -> Result<Option<String>, String> {
    if !args.ephemeral {
        return Ok(None);
    }
    args.listen = vec![SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0))];
    let [folder] = args.folders.as_slice() else {
        return Err("--ephemeral serves one folder".to_owned());
    };
    if !args.write || folder.is_dir() {
        return Ok(Some("/".to_owned()));
    }
    // What is to be written may not be there yet: it is reached by the first folder above it that is,
    // and made when the tree comes.
    let whole: PathBuf = folder.components().collect();
    let mut above = whole.as_path();
    let mut path = String::from("/");
    while !above.is_dir() {
        if above.symlink_metadata().is_ok() {
            return Err(format!("{} is no folder", above.display()));
        }
        let name = above.file_name();
        let name = name.ok_or_else(|| format!("{} names no folder", folder.display()))?;
        let name = name.to_str().ok_or_else(|| format!("{} is no text", folder.display()))?;
        path.insert_str(0, &format!("/{}", encoded(name)));
        above = match above.parent() {
            Some(above) if above != Path::new("") => above,
            _ => Path::new("."),
        };
    }
    args.folders = vec![above.to_owned()];
    Ok(Some(path))
}

/// The line that whoever started this reads.
pub fn hello(server: &Server, path: &str, token: Option<&str>) -> String {
    let fingerprint = server.identity().map(|identity| identity.fingerprint().to_string());
    let hello = Hello {
        swath: env!("CARGO_PKG_VERSION").to_owned(),
        port: server.addresses().first().map_or(0, SocketAddr::port),
        path: path.to_owned(),
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

/// A name as it stands in an address.
fn encoded(name: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    name.bytes()
        .map(|byte| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") })
        .collect()
}
