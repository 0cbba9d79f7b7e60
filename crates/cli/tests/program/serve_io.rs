//! `--io` of those who send: large files are read past the page cache, and what arrives is the same.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::FileExt as _;

use crate::support::serve::{Served, succeeds};
use crate::support::trees::{assert_same, bytes};
use crate::support::{Home, peak_bytes};

/// `auto` reads no smaller ones past the cache.
const LARGE_BYTES: usize = 64 << 20;

fn plant(home: &Home) {
    home.write("tree/large", bytes(1, LARGE_BYTES + 12_345));
    home.write("tree/middle", bytes(2, (3 << 20) + 1));
    home.write("tree/small", bytes(3, 300_000));
    let sparse = fs::File::create(home.path("tree/sparse")).unwrap();
    sparse.set_len((LARGE_BYTES as u64) + 4321).unwrap();
    sparse.write_all_at(&bytes(4, 3 << 20), (5 << 20) + 777).unwrap();
    sparse.write_all_at(&bytes(5, 100_001), (40 << 20) - 5).unwrap();
}

/// Bytes of a file that are in the page cache, as another program tells; `None` if there is none.
fn cached_bytes(home: &Home, name: &str) -> Option<u64> {
    let path = home.path(name).display().to_string();
    let text = succeeds(&home.work(), "fincore", &["-b", "-n", "-o", "RES", &path])?;
    text.trim().parse().ok()
}

/// Nothing of the tree is in the page cache; `None` where that cannot be had.
fn cold(home: &Home) -> Option<()> {
    for name in home.names_in("tree") {
        let file = fs::File::open(home.path("tree").join(&name)).unwrap();
        file.sync_all().unwrap();
        // SAFETY: a plain system call on a descriptor that `file` keeps open.
        unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) };
        if cached_bytes(home, &format!("tree/{name}"))? != 0 {
            println!("skipped: the folder for temporary files keeps {name} in memory");
            return None;
        }
    }
    Some(())
}

#[test]
fn a_tree_is_the_same_however_it_was_read_and_stays_out_of_the_page_cache() {
    let home = Home::new();
    plant(&home);
    for (io, passes_by) in
        [("auto", ["large"].as_slice()), ("direct", &["large", "middle"]), ("buffered", &[])]
    {
        let is_cold = cold(&home);
        let server = home.serve(&["tree", "--anonymous", "--plain", "--io", io]);
        home.run(["cp", &server.url, "copy/", "--quiet", "--connections", "1"]).code_is(0);
        if is_cold.is_some() {
            for name in ["large", "middle"] {
                let cached = cached_bytes(&home, &format!("tree/{name}")).unwrap();
                let size_bytes = home.path(format!("tree/{name}")).metadata().unwrap().len();
                println!("--io {io}: {cached} of {size_bytes} bytes of {name} are in the cache");
                // What was in it may have been pushed out again by whoever else is here.
                if passes_by.contains(&name) {
                    assert_eq!(cached, 0, "--io {io}: {name}");
                }
            }
        }
        assert_same(&home.path("tree"), &home.path("copy"));
        fs::remove_dir_all(home.path("copy")).unwrap();
    }
}

#[test]
fn a_tree_that_is_sent_is_read_as_io_says() {
    let home = Home::new();
    plant(&home);
    for (io, passes_by) in [("auto", true), ("threads", true), ("buffered", false)] {
        let is_cold = cold(&home);
        home.run(["cp", "tree/", "copy/", "--quiet", "--connections", "1", "--io", io]).code_is(0);
        if is_cold.is_some() {
            let cached = cached_bytes(&home, "tree/large").unwrap();
            println!("--io {io}: {cached} bytes are in the cache");
            assert!(cached == 0 || !passes_by, "--io {io}: {cached}");
        }
        assert_same(&home.path("tree"), &home.path("copy"));
        fs::remove_dir_all(home.path("copy")).unwrap();
    }
}

#[test]
fn a_file_that_several_want_comes_into_the_cache() {
    let home = Home::new();
    home.write("tree/large", bytes(1, LARGE_BYTES));
    let Some(()) = cold(&home) else { return };
    let server = home.serve(&["tree", "--anonymous", "--plain"]);
    let query = format!("swath=data&walk={}", walk(&server));
    let fetch = || {
        assert_eq!(get(&server, &query, None).1.len(), LARGE_BYTES);
        cached_bytes(&home, "tree/large").unwrap()
    };
    assert_eq!(fetch(), 0);
    // Whoever else is here may push it out again now and then.
    assert!((0..5).any(|_| fetch() == LARGE_BYTES as u64));
}

#[test]
fn a_file_system_without_direct_reads_is_read_without_a_word() {
    let Ok(folder) = tempfile::Builder::new().prefix("swath-test-").tempdir_in("/dev/shm") else {
        println!("skipped: there is no /dev/shm");
        return;
    };
    let home = Home::new();
    fs::write(folder.path().join("file"), bytes(6, (5 << 20) + 3)).unwrap();
    let from = folder.path().display().to_string();
    let server = home.serve(&[&from, "--anonymous", "--plain", "--io", "direct"]);
    let ran = home.run(["cp", &server.url, "copy/", "--quiet"]);
    ran.code_is(0);
    assert_eq!(ran.stderr, "");
    assert_same(folder.path(), &home.path("copy"));
}

/// The answer's head and body.
fn get(server: &Served, query: &str, range: Option<(usize, usize)>) -> (String, Vec<u8>) {
    let range =
        range.map_or_else(String::new, |(first, last)| format!("Range: bytes={first}-{last}\r\n"));
    let mut tcp = TcpStream::connect(server.address()).unwrap();
    let request = format!("GET /?{query} HTTP/1.1\r\nHost: h\r\n{range}Connection: close\r\n\r\n");
    tcp.write_all(request.as_bytes()).unwrap();
    let mut answer = Vec::new();
    tcp.read_to_end(&mut answer).unwrap();
    let end = answer.windows(4).position(|four| four == b"\r\n\r\n").unwrap() + 4;
    (String::from_utf8_lossy(&answer[..end]).into_owned(), answer.split_off(end))
}

fn walk(server: &Served) -> String {
    let (head, _) = get(server, "swath=index", None);
    let line = head.lines().find(|line| line.to_lowercase().starts_with("swath-walk:")).unwrap();
    line.split_once(':').unwrap().1.trim().to_owned()
}

#[test]
fn any_range_is_right() {
    let home = Home::new();
    let size_bytes = (5 << 20) + 999;
    let all = bytes(7, size_bytes);
    home.write("tree/file", &all);
    cold(&home);
    let server = home.serve(&["tree", "--anonymous", "--plain", "--io", "direct"]);
    let query = format!("swath=data&walk={}", walk(&server));
    for (first, last) in [
        (0, size_bytes - 1),
        (1, 1),
        (4095, 4096),
        (511, (2 << 20) + 513),
        ((1 << 20) - 1, 1 << 20),
        (5 << 20, size_bytes - 1),
        (size_bytes - 1, size_bytes - 1),
        (262_143, 3_000_001),
    ] {
        let (head, body) = get(&server, &query, Some((first, last)));
        assert!(head.starts_with("HTTP/1.1 206"), "{head}");
        assert!(body == all[first..=last], "{first}-{last}: {} bytes", body.len());
    }
}

#[test]
fn what_changes_while_it_is_read_past_the_cache_is_told() {
    let home = Home::new();
    let old = bytes(8, LARGE_BYTES);
    home.write("tree/file", &old);
    cold(&home);
    let server = home.serve(&["tree", "--anonymous", "--plain", "--io", "direct"]);
    let walk = walk(&server);
    let mut tcp = TcpStream::connect(server.address()).unwrap();
    let request = format!("GET /?swath=data&walk={walk} HTTP/1.1\r\nHost: h\r\n\r\n");
    tcp.write_all(request.as_bytes()).unwrap();
    let mut got = vec![0; 1 << 20];
    tcp.read_exact(&mut got).unwrap();
    // It has more to send than can be on its way.
    let file = fs::File::options().write(true).open(home.path("tree/file")).unwrap();
    file.write_all_at(b"new", LARGE_BYTES as u64 - 100).unwrap();
    let _ = tcp.read_to_end(&mut got);
    let begin = got.windows(4).position(|four| four == b"\r\n\r\n").unwrap() + 4;
    let body = &got[begin..];
    assert!(body.len() < LARGE_BYTES, "the answer ends early");
    assert!(body == &old[..body.len()], "what came by then is as it was");
    let (_, changed) = get(&server, &format!("swath=changed&walk={walk}"), None);
    assert_eq!(String::from_utf8_lossy(&changed).trim_end(), "0 changed");
    // A tree that is copied has what is there now.
    home.run(["cp", &server.url, "copy/", "--quiet"]).code_is(0);
    assert_same(&home.path("tree"), &home.path("copy"));
}

#[test]
fn many_clients_of_a_tree_take_little_memory() {
    // Each had a whole part on its way and another one read ahead: 200 clients took 400 MB.
    let home = Home::new();
    home.write("tree/file", bytes(9, LARGE_BYTES));
    for io in ["direct", "buffered"] {
        let server = home.serve(&["tree", "--anonymous", "--plain", "--io", io]);
        let walk = walk(&server);
        let mut clients: Vec<TcpStream> = (0..200)
            .map(|_| {
                let mut tcp = TcpStream::connect(server.address()).unwrap();
                let request = format!("GET /?swath=sealed&walk={walk} HTTP/1.1\r\nHost: h\r\n\r\n");
                tcp.write_all(request.as_bytes()).unwrap();
                tcp
            })
            .collect();
        let mut part = vec![0; 1 << 20];
        for _ in 0..4 {
            for client in &mut clients {
                client.read_exact(&mut part).unwrap();
            }
        }
        let peak = peak_bytes(server.pid()).unwrap();
        println!("--io {io}: {peak} bytes");
        assert!(peak < 200_000_000, "--io {io}: {peak} bytes");
    }
}
