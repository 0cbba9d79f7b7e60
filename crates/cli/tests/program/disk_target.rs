//! Where the file goes: names that are taken, folders that cannot be written, disks that are full.
//! Every test looks at the exit code, at what the user reads and at what is left on the disk.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, SystemTime};

use crate::support::Home;
use swath_netlab::faulty::{Algorithm, Behaviour, Content, Server};

const MIB: u64 = 1 << 20;

fn serve(content: &Content) -> Server {
    Server::builder().file("/data.bin", content.clone()).start().unwrap()
}

fn slow(content: &Content, rate: u64) -> Server {
    Server::builder()
        .file("/data.bin", content.clone())
        .behaviour(Behaviour::rate(rate))
        .start()
        .unwrap()
}

fn digest(content: &Content) -> String {
    format!("sha-256:{}", content.digest_hex(Algorithm::Sha256))
}

fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let began = std::time::Instant::now();
    while !holds() {
        assert!(began.elapsed() < Duration::from_secs(90), "waited in vain until {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_file_that_exists_is_refused_before_anything_is_fetched() {
    let home = Home::new();
    let server = serve(&Content::random(1, MIB));
    home.write("data.bin", "old");
    home.run(["get", &server.url("/data.bin")])
        .code_is(5)
        .says(&["data.bin is another file: it has 3 bytes", "--overwrite"]);
    assert!(server.sent_bytes() < 10_000, "nothing was fetched");
    assert_eq!(home.names(), ["data.bin"]);
    assert_eq!(home.read("data.bin"), b"old");
}

#[test]
fn overwrite_leaves_the_old_file_alone_until_the_new_one_is_complete() {
    let home = Home::new();
    let content = Content::random(2, 6 * MIB);
    let server = slow(&content, 250_000);
    home.write("data.bin", "old");
    let mut running = home
        .swath(["get", &server.url("/data.bin"), "--overwrite", "--digest", &digest(&content)])
        .start();
    until("some of it has come", || server.sent_bytes() > MIB / 4);
    assert!(!running.is_over());
    assert_eq!(home.read("data.bin"), b"old");
    server.set(Behaviour::rate(0));
    running.wait().code_is(0);
    assert_eq!(home.read("data.bin"), content.read(0, 6 * MIB));
    assert_eq!(home.names(), ["data.bin"]);
}

#[test]
fn a_wrong_file_does_not_replace_the_old_one() {
    let home = Home::new();
    let content = Content::random(2, MIB);
    let server = serve(&content);
    home.write("data.bin", "old");
    let other = digest(&Content::random(3, MIB));
    home.run(["get", &server.url("/data.bin"), "--overwrite", "--digest", &other])
        .code_is(4)
        .says(&["does not match", "kept 1.05 MB in data.bin.swath.part"]);
    assert_eq!(home.read("data.bin"), b"old");
}

#[test]
fn a_folder_of_the_name_is_never_replaced() {
    let home = Home::new();
    let server = serve(&Content::random(1, MIB));
    fs::create_dir(home.path("data.bin")).unwrap();
    for more in [None, Some("--overwrite")] {
        let url = server.url("/data.bin");
        home.run(["get", &url].into_iter().chain(more)).code_is(5).says(&["data.bin is a folder"]);
    }
    assert!(home.path("data.bin").is_dir());
    assert_eq!(home.names(), ["data.bin"]);
    assert!(server.log().is_empty(), "nobody was asked");
}

/// `--overwrite -o /dev/null` as root used to replace the device by a file. Never try it on one
/// that others use.
#[test]
fn links_pipes_and_devices_are_never_replaced() {
    let home = Home::new();
    let server = serve(&Content::random(4, MIB));
    home.write("elsewhere", "precious");
    symlink("elsewhere", home.path("link")).unwrap();
    assert!(Command::new("mkfifo").arg(home.path("pipe")).status().unwrap().success());
    let mut places = vec![("link", "symbolic link"), ("pipe", "pipe")];
    let own = Command::new("mknod").arg(home.path("device")).args(["c", "1", "3"]).output();
    if own.is_ok_and(|made| made.status.success()) {
        places.push(("device", "device"));
    }
    let names = home.names();
    for (name, what) in places {
        for more in [&[][..], &["--overwrite"]] {
            let url = server.url("/data.bin");
            let ran = home.run([&["get", &url, "-o", name], more].concat());
            ran.code_is(5).says(&[&format!("{name} is a {what}, not a file")]);
            ran.never_says(&["use --overwrite"]);
        }
        assert!(!home.path(name).symlink_metadata().unwrap().is_file());
    }
    assert_eq!(home.names(), names);
    assert_eq!(home.read("elsewhere"), b"precious");
    assert!(server.log().is_empty(), "nobody was asked");
}

#[test]
fn a_name_that_belongs_to_side_files_is_refused() {
    let home = Home::new();
    let server = Server::builder().file("/x.swath", Content::random(4, MIB)).start().unwrap();
    let ran = home.run(["get", &server.url("/x.swath")]);
    ran.code_is(5).says(&["x.swath cannot be a file's name here", "-o"]);
    home.run(["get", &server.url("/x.swath"), "-o", "x"]).code_is(0);
    assert_eq!(home.names(), ["x"]);
}

#[test]
fn a_link_in_place_of_the_part_file_is_not_followed() {
    let home = Home::new();
    let server = serve(&Content::random(4, MIB));
    home.write("elsewhere", "precious");
    symlink("elsewhere", home.path("data.bin.swath.part")).unwrap();
    home.run(["get", &server.url("/data.bin")])
        .code_is(5)
        .says(&["data.bin.swath.part", "not created by swath"]);
    assert_eq!(home.read("elsewhere"), b"precious");
    assert!(!home.exists("data.bin"));
}

#[test]
fn two_programs_do_not_write_one_file() {
    let home = Home::new();
    let content = Content::random(5, 4 * MIB);
    let server = slow(&content, 200_000);
    let first = home.swath(["get", &server.url("/data.bin")]).start();
    until("the first one writes", || home.exists("data.bin.swath.part"));
    home.run(["get", &server.url("/data.bin")])
        .code_is(5)
        .says(&["data.bin is being written by another swath", "another name"]);
    server.set(Behaviour::rate(0));
    first.wait().code_is(0);
    assert_eq!(home.read("data.bin"), content.read(0, 4 * MIB));
    assert_eq!(home.names(), ["data.bin"]);
}

#[test]
fn a_folder_that_does_not_exist_is_made() {
    let home = Home::new();
    let content = Content::random(6, 1000);
    let server = serve(&content);
    home.run(["get", &server.url("/data.bin"), "-d", "new/and/deep"]).code_is(0);
    assert_eq!(home.read("new/and/deep/data.bin"), content.read(0, 1000));
    // Relative to the folder, as the help says.
    home.run(["get", &server.url("/data.bin"), "-d", "new", "-o", "x/y.bin"]).code_is(0);
    assert_eq!(home.read("new/x/y.bin"), content.read(0, 1000));
}

#[test]
fn a_file_where_the_folder_should_be_is_named() {
    let home = Home::new();
    let server = serve(&Content::random(6, 1000));
    home.write("plain", "a file");
    home.run(["get", &server.url("/data.bin"), "-d", "plain"])
        .code_is(5)
        .says(&["cannot write into plain", "Not a directory"]);
    assert_eq!(home.read("plain"), b"a file");
}

#[test]
fn a_read_only_folder_is_named_with_the_reason() {
    let Some(home) = Home::of_nobody() else { return };
    let server = serve(&Content::random(6, 1000));
    let folder = home.path("ro");
    fs::create_dir(&folder).unwrap();
    home.hand_over();
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o555)).unwrap();
    home.run(["get", &server.url("/data.bin"), "-d", "ro"])
        .code_is(5)
        .says(&["cannot write into ro", "Permission denied"]);
    assert_eq!(fs::read_dir(&folder).unwrap().count(), 0);
}

#[test]
fn a_name_that_is_too_long_is_refused_and_one_that_just_fits_is_not() {
    let home = Home::new();
    let content = Content::random(6, 3 * MIB);
    let server = serve(&content);
    let long = "n".repeat(256);
    home.run(["get", &server.url("/data.bin"), "-o", &long]).code_is(5).says(&["too long"]);
    assert_eq!(home.names(), [""; 0]);
    // The side files have longer names than the file itself.
    let fits = "n".repeat(255);
    home.run(["get", &server.url("/data.bin"), "-o", &fits]).code_is(0);
    assert_eq!(home.names(), std::slice::from_ref(&fits));
    assert_eq!(home.read(&fits), content.read(0, 3 * MIB));
}

#[test]
fn a_full_device_as_output_is_an_error() {
    let home = Home::new();
    let server = serve(&Content::random(9, 4 * MIB));
    let full = fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let mut swath = home.swath(["get", &server.url("/data.bin"), "-o", "-"]);
    swath.command().stdout(full);
    swath.run().code_is(5).says(&["No space left on device"]);
    // A device is no file that can be replaced by renaming.
    home.run(["get", &server.url("/data.bin"), "-o", "/dev/full"]).code_is(5).says(&["/dev/full"]);
    assert!(!Path::new("/dev/full.swath.part").exists());
}

#[test]
fn a_reader_that_has_enough_ends_it_quietly() {
    let home = Home::new();
    // Far more than all buffers hold.
    let content = Content::random(10, 2048 * MIB);
    let server = serve(&content);
    let mut swath = home.swath(["get", &server.url("/data.bin"), "-o", "-"]);
    let (mut reader, writer) = std::io::pipe().unwrap();
    swath.command().stdout(writer);
    let running = swath.start();
    let mut head = [0; 1000];
    std::io::Read::read_exact(&mut reader, &mut head).unwrap();
    drop(reader);
    let ran = running.wait();
    assert_eq!(head[..], content.read(0, 1000)[..]);
    ran.code_is(5).says(&["closed"]).never_says(&["panic"]);
    assert!(server.sent_bytes() < 2048 * MIB);
    assert_eq!(home.names(), [""; 0]);
}

#[test]
fn the_modification_time_is_the_servers() {
    let home = Home::new();
    let server = serve(&Content::random(11, 1000));
    server.set(Behaviour::Modified("Fri, 13 Feb 2009 23:31:30 GMT".to_owned()));
    let said = server.url("/data.bin");
    home.run(["get", &said]).code_is(0);
    let modified = home.path("data.bin").metadata().unwrap().modified().unwrap();
    assert_eq!(modified, SystemTime::UNIX_EPOCH + Duration::from_secs(1_234_567_890));
}

#[test]
fn tiny_and_odd_sizes_arrive_whole() {
    for size in [0, 1, 4095, 4097, MIB + 1, 3 * MIB + 12345] {
        let home = Home::new();
        let content = Content::random(12, size);
        let servers = [serve(&content), serve(&content)];
        let urls = servers.each_ref().map(|server| server.url("/data.bin"));
        home.run(["get", &urls[0], &urls[1], "--digest", &digest(&content)]).code_is(0);
        assert_eq!(home.read("data.bin"), content.read(0, size), "{size}");
        assert_eq!(home.names(), ["data.bin"]);
    }
}

#[test]
fn a_sparse_file_takes_only_the_space_of_what_is_not_zero() {
    let home = Home::new();
    let size = 600 * MIB;
    let content = Content::sparse(13, size);
    let server = serve(&content);
    home.run(["get", &server.url("/data.bin"), "--sparse"]).code_is(0);
    let meta = home.path("data.bin").metadata().unwrap();
    assert_eq!(meta.len(), size);
    assert!(meta.blocks() * 512 < 32 * MIB, "{} bytes on the disk", meta.blocks() * 512);
    let file = Content::file(home.path("data.bin")).unwrap();
    assert_eq!(file.digest_hex(Algorithm::Blake3), content.digest_hex(Algorithm::Blake3));
}
