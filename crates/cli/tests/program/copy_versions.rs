//! Files of which there is another version while they are copied: what arrives is of one of them.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::time::{Duration, SystemTime};

use crate::support::Home;
use crate::support::serve::Served;
use crate::support::ways::Way;

const BYTES: usize = 24 << 20;

/// As long as any other version, and with the same time.
fn write_version(path: &Path, byte: u8) {
    let mut file = fs::File::options().write(true).create(true).truncate(false).open(path).unwrap();
    file.write_all(&vec![byte; BYTES]).unwrap();
    file.set_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(1_577_836_800)).unwrap();
}

#[test]
fn a_file_that_is_replaced_while_it_is_copied_is_of_one_version() {
    // With the same size and time at the end as at the beginning it was a mixture, and called verified:
    // where the change was noticed, too, for what had come by then was kept.
    for in_place in [true, false] {
        for (way, home) in Way::all() {
            let big = home.path("tree/big");
            write_version(&big, b'A');
            let running = way.start(&home, &["--limit-rate", "12M"]);
            home.wait_for_bytes("copy.swath.part/big", 6 << 20);
            let now = if in_place { big.clone() } else { home.path("next") };
            write_version(&now, b'B');
            if !in_place {
                fs::rename(&now, &big).unwrap();
            }
            running.wait().code_is(0);
            let copy = home.read("copy/big");
            let first = copy[0];
            assert!(copy.len() == BYTES && copy.iter().all(|&byte| byte == first), "{}", way.name);
            // Who reads a file that was replaced goes on with the one that it has.
            assert!(first == b'B' || !in_place, "{}: {}", way.name, char::from(first));
        }
    }
}

#[test]
fn files_that_share_a_block_with_one_that_was_replaced_are_of_one_version_too() {
    // The tail of a file came once more, with the block that it shares with the next one, and that
    // one had been noticed: of two versions, and called verified.
    for after in [0, 1, 3, 5] {
        for (way, home) in Way::all() {
            let name = |number: usize| format!("tree/f{number}");
            let version = |path: &Path, byte| {
                home.write(path.to_str().unwrap(), vec![byte; 400_000]);
                let file = fs::File::options().write(true).open(home.path(path)).unwrap();
                let time = SystemTime::UNIX_EPOCH + Duration::from_secs(1_577_836_800);
                file.set_modified(time).unwrap();
            };
            (0..7).for_each(|number| version(Path::new(&name(number)), b'A'));
            let running = way.start(&home, &["--limit-rate", "2M"]);
            home.wait_for_bytes(&format!("copy.swath.part/f{after}"), 1);
            for number in 0..7 {
                version(Path::new("next"), b'B');
                fs::rename(home.path("next"), home.path(name(number))).unwrap();
            }
            running.wait().code_is(0);
            for number in 0..7 {
                let copy = home.read(&format!("copy/f{number}"));
                let first = copy[0];
                let is_one = copy.len() == 400_000 && copy.iter().all(|&byte| byte == first);
                assert!(is_one, "{} f{number} after {after}", way.name);
            }
        }
    }
}

/// Stands before a server and says that nothing has changed there, whatever it says itself.
fn denying(server: &Served) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let behind = server.address().to_string();
    // It ends with the test's process.
    std::thread::spawn(move || {
        for tcp in listener.incoming() {
            let (Ok(mut tcp), behind) = (tcp, behind.clone()) else { return };
            std::thread::spawn(move || {
                let _ = tcp.set_read_timeout(Some(Duration::from_secs(20)));
                let (mut head, mut byte) = (Vec::new(), [0]);
                while !head.ends_with(b"\r\n\r\n") && matches!(tcp.read(&mut byte), Ok(1)) {
                    head.push(byte[0]);
                }
                let head = String::from_utf8(head).unwrap();
                if head.contains("swath=changed") {
                    let text = "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
                    let _ = tcp.write_all(text.as_bytes());
                    return;
                }
                let Ok(mut server) = TcpStream::connect(behind) else { return };
                let once = head.replace("\r\n\r\n", "\r\nConnection: close\r\n\r\n");
                let _ = server.write_all(once.as_bytes());
                let _ = std::io::copy(&mut server, &mut tcp);
            });
        }
    });
    url
}

#[test]
fn what_a_server_disowns_is_not_there_whatever_else_it_says() {
    // It was given its name, and called verified.
    let home = Home::new();
    home.write("tree/big", "");
    write_version(&home.path("tree/big"), b'A');
    home.write("tree/small", "small\n");
    let server = home.serve(&["tree", "--anonymous", "--plain"]);
    let url = denying(&server);
    let running = home.swath(["cp", &url, "copy", "--limit-rate", "12M"]).start();
    home.wait_for_bytes("copy.swath.part/big", 6 << 20);
    // It grows until the end, so that the second look finds it changed as well.
    let mut big = fs::File::options().append(true).open(home.path("tree/big")).unwrap();
    let mut running = running;
    while !running.is_over() {
        big.write_all(b"more").unwrap();
        std::thread::sleep(Duration::from_millis(2));
    }
    running.wait().code_is(8).says(&["not copied: big"]);
    assert!(!home.exists("copy/big"));
    assert_eq!(home.read("copy/small"), b"small\n");
}
