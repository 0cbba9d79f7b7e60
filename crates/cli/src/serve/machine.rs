//! Names, addresses and limits of this machine.

use std::net::{IpAddr, SocketAddr};

use crate::exit::Exit;
use crate::failure::Failure;
use swath_serve::{Server, Tls};

/// Returns a self-signed certificate with all names of this machine.
pub fn self_signed(host: &str) -> Tls {
    let mut names = vec!["localhost".to_owned(), host.to_owned()];
    names.extend(own_addresses().iter().map(IpAddr::to_string));
    names.dedup();
    Tls::SelfSigned(names)
}

/// Returns the addresses for clients.
pub fn urls(listening: &[SocketAddr], is_tls: bool, host: &str) -> Vec<String> {
    let scheme = if is_tls { "https" } else { "http" };
    let mut urls = Vec::new();
    for address in listening {
        let port = address.port();
        if !address.ip().is_unspecified() {
            urls.push(format!("{scheme}://{address}/"));
            continue;
        }
        urls.push(format!("{scheme}://{host}:{port}/"));
        let others = own_addresses().into_iter().filter(|ip| !ip.is_loopback());
        // An IPv4 wildcard listens on IPv4 addresses only.
        let others = others.filter(|ip| address.is_ipv6() || ip.is_ipv4());
        urls.extend(others.map(|ip| format!("{scheme}://{}/", SocketAddr::new(ip, port))));
    }
    urls
}

/// Returns the names by which tokens mean a server: its addresses, without a port that goes without saying.
pub fn audiences(listening: &[SocketAddr], is_tls: bool, host: &str) -> Vec<String> {
    let port = if is_tls { ":443" } else { ":80" };
    let urls = urls(listening, is_tls, host).into_iter();
    urls.flat_map(|url| {
        let whole = url.trim_end_matches('/').to_owned();
        let short = whole.strip_suffix(port).map(str::to_owned);
        short.into_iter().chain([whole])
    })
    .collect()
}

/// Returns the addresses of this machine, loopback included.
pub fn own_addresses() -> Vec<IpAddr> {
    let all = if_addrs::get_if_addrs().unwrap_or_default();
    let is_link_local = |ip: &IpAddr| match ip {
        IpAddr::V4(ip) => ip.is_link_local(),
        IpAddr::V6(ip) => (ip.segments()[0] & 0xffc0) == 0xfe80,
    };
    let mut addresses: Vec<IpAddr> =
        all.iter().map(if_addrs::Interface::ip).filter(|ip| !is_link_local(ip)).collect();
    addresses.sort_unstable();
    addresses.dedup();
    addresses
}

pub fn hostname() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let name = name.trim();
    let is_fit = !name.is_empty()
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".-_".contains(&byte));
    if is_fit { name.to_owned() } else { "localhost".to_owned() }
}

/// Raises the limit of descriptors: each connection and each file needs one.
fn raise_descriptors() {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: plain system calls with a structure of our own.
    unsafe {
        if libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) == 0 {
            limit.rlim_cur = limit.rlim_max;
            libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit);
        }
    }
}

/// Raises the limit of open files as far as possible; fails if that is too low for any command.
pub fn enough_descriptors() -> Result<(), Failure> {
    raise_descriptors();
    match descriptors() {
        few @ 0..DESCRIPTORS_MIN => {
            let text = format!("{DESCRIPTORS_MIN} open files are needed, and {few} are allowed");
            let hint = "raise the system's limit (see 'ulimit -n')";
            Err(Failure::new(Exit::Internal, text).hint(hint))
        }
        _ => Ok(()),
    }
}

/// With fewer, a transfer of a small file hangs.
const DESCRIPTORS_MIN: u64 = 32;

/// Warns of a server that supports fewer connections than requested.
pub fn tell_of_fewer_connections(server: &Server, asked: u32) {
    let most = server.max_connections();
    if most < asked as usize {
        let limit = descriptors();
        crate::exit::warn(&format!(
            "serving {most} connections at once instead of {asked}: the limit of open files is {limit}"
        ));
    }
}

fn descriptors() -> u64 {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: a plain system call with a structure of our own.
    unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) };
    limit.rlim_cur
}
