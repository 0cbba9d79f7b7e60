//! `--io` of those who send: what arrives is the same, and many clients take little memory. (That large files
//! stay out of the page cache: `system/serve_io.rs`.)

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::fs::FileExt as _;

use crate::support::serve::Served;
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

#[test]
fn a_tree_is_the_same_however_it_was_read() {
    let home = Home::new();
    plant(&home);
    for io in ["auto", "direct", "buffered"] {
        let server = home.serve(&["tree", "--anonymous", "--plain", "--io", io]);
        home.run(["cp", &server.url, "copy/", "--quiet", "--connections", "1"]).code_is(0);
        assert_same(&home.path("tree"), &home.path("copy"));
        fs::remove_dir_all(home.path("copy")).unwrap();
    }
    for io in ["auto", "threads", "buffered"] {
        home.run(["cp", "tree/", "copy/", "--quiet", "--connections", "1", "--io", io]).code_is(0);
        assert_same(&home.path("tree"), &home.path("copy"));
        fs::remove_dir_all(home.path("copy")).unwrap();
    }
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

fn walk(server: &Served) -> String {
    let head = server.answer_to("GET /?swath=index HTTP/1.1");
    let line = head.lines().find_map(|line| line.strip_prefix("swath-walk: "));
    line.unwrap_or_else(|| panic!("{head}")).to_owned()
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
