//! `--io` of those who send: large files are read past the page cache, as another program tells.

use std::fs;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::FileExt as _;

use crate::support::Home;
use crate::support::serve::{Served, succeeds};
use crate::support::trees::{assert_same, bytes};

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
    let request = format!("GET /?swath=data&walk={} HTTP/1.0\r\n\r\n", walk(&server));
    let fetch = || {
        assert!(server.raw(request.as_bytes()).len() > LARGE_BYTES);
        cached_bytes(&home, "tree/large").unwrap()
    };
    assert_eq!(fetch(), 0);
    // Whoever else is here may push it out again now and then.
    assert!((0..5).any(|_| fetch() == LARGE_BYTES as u64));
}

fn walk(server: &Served) -> String {
    let head = server.answer_to("GET /?swath=index HTTP/1.1");
    let line = head.lines().find(|line| line.to_lowercase().starts_with("swath-walk:")).unwrap();
    line.split_once(':').unwrap().1.trim().to_owned()
}
