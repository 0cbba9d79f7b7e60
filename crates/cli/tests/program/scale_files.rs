//! Much of everything: a list of many small files, large ordered streams. What must hold is that
//! every file is right and that memory stays bounded.
//!
//! `SWATH_FILES=100000` asks for that many files in place of a few.

use std::fmt::Write as _;
use std::process::Stdio;

use crate::support::Home;
use swath_netlab::faulty::{Content, Server};

#[test]
fn a_list_of_many_small_files_arrives_whole_over_few_connections() {
    let files: u64 =
        std::env::var("SWATH_FILES").ok().and_then(|text| text.parse().ok()).unwrap_or(2000);
    let home = Home::new();
    let sizes = [0, 1, 100, 4096, 10_000, 30_000];
    let of = |number: u64| Content::random(number, sizes[number as usize % sizes.len()]);
    let mut builder = Server::builder();
    for number in 0..files {
        builder = builder.file(&format!("/f{number}.dat"), of(number));
    }
    let server = builder.start().unwrap();
    let mut list = String::new();
    for number in 0..files {
        writeln!(list, "{}", server.url(&format!("/f{number}.dat"))).unwrap();
    }
    home.write("list.txt", list);
    let running = home
        .swath(["get", "-i", "list.txt", "-d", "out"])
        .limit(std::time::Duration::from_secs(30 + files / 50))
        .start();
    let (ran, peak) = running.watch();
    ran.code_is(0);
    println!(
        "{files} files in {:?}, peak memory {} MiB, {} connections",
        ran.elapsed,
        peak >> 20,
        server.connections()
    );
    for number in 0..files {
        let content = of(number);
        assert!(
            home.read(&format!("out/f{number}.dat")) == content.read(0, content.size_bytes()),
            "file {number}"
        );
    }
    assert_eq!(
        std::fs::read_dir(home.path("out")).unwrap().count() as u64,
        files,
        "and nothing else"
    );
    assert!(peak <= 256 << 20, "{peak} bytes");
    assert!(server.connections() <= 64 + files / 50, "{} connections", server.connections());
    // A second time everything is there and nothing is asked for.
    server.clear_log();
    std::fs::remove_file(home.path("out/f5.dat")).unwrap();
    home.run(["get", "-i", "list.txt", "-d", "out"])
        .code_is(0)
        .says(&["already existed and were not fetched"]);
    assert_eq!(server.log().on("/f5.dat").count(), 1);
    assert!(server.log().on("/f5.dat").count() == server.log().len(), "nothing else was asked for");
    server.clear_log();
    home.run(["get", "-i", "list.txt", "-d", "out", "-q"]).code_is(0);
    assert!(server.log().is_empty());
}

#[test]
fn an_ordered_stream_stays_within_its_memory() {
    let home = Home::new();
    let size = 600 << 20;
    let server = Server::builder().file("/data.bin", Content::sparse(1, size)).start().unwrap();
    let mut swath = home.swath(["get", &server.url("/data.bin"), "-o", "-"]);
    swath
        .command()
        .stdout(Stdio::from(std::fs::OpenOptions::new().write(true).open("/dev/null").unwrap()));
    let (ran, peak) = swath.start().watch();
    ran.code_is(0);
    println!("600 MiB to standard output in {:?}, peak memory {} MiB", ran.elapsed, peak >> 20);
    assert!(peak <= 128 << 20, "{peak} bytes");
}

#[test]
fn a_huge_sparse_file_stays_within_its_memory() {
    let home = Home::new();
    let size: u64 = 3 << 30;
    let server = Server::builder().file("/data.bin", Content::sparse(1, size)).start().unwrap();
    let (ran, peak) = home.swath(["get", &server.url("/data.bin"), "--sparse"]).start().watch();
    ran.code_is(0);
    println!("3 GiB of almost nothing in {:?}, peak memory {} MiB", ran.elapsed, peak >> 20);
    assert_eq!(home.path("data.bin").metadata().unwrap().len(), size);
    assert!(peak <= 256 << 20, "{peak} bytes");
}
