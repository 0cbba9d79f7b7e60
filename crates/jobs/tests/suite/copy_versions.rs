//! Files of which there is another version while they are copied: what arrives is of one of them, and
//! what changes, comes or goes meanwhile is in the copy as it is at the end.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

use crate::trees::{assert_same, bytes, write};
use crate::ways::{Served, Way, copy_of, meanwhile};

const BYTES: usize = 12 << 20;

/// As long as any other version, and with the same time.
fn write_version(path: &Path, byte: u8, length: usize) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    let mut file = fs::File::options().write(true).create(true).truncate(false).open(path).unwrap();
    file.write_all(&vec![byte; length]).unwrap();
    file.set_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(1_577_836_800)).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_is_replaced_while_it_is_copied_is_of_one_version() {
    // With the same size and time at the end as at the beginning it was a mixture, and called verified:
    // where the change was noticed, too, for what had come by then was kept.
    for in_place in [true, false] {
        for way in Way::all().await {
            let big = way.path("tree/big");
            write_version(&big, b'A', BYTES);
            let (now, next) = (big.clone(), way.path("next"));
            let replace = move || {
                write_version(if in_place { &now } else { &next }, b'B', BYTES);
                if !in_place {
                    fs::rename(next, now).unwrap();
                }
            };
            let received = way.meanwhile(2 << 20, 4 << 20, replace).await.unwrap();
            assert!(received.is_whole, "{received:?}");
            let copy = fs::read(way.path("copy/big")).unwrap();
            let first = copy[0];
            assert!(copy.len() == BYTES && copy.iter().all(|&byte| byte == first), "{}", way.name);
            // Who reads a file that was replaced goes on with the one that it has.
            assert!(first == b'B' || !in_place, "{}: {}", way.name, char::from(first));
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn files_that_share_a_block_with_one_that_was_replaced_are_of_one_version_too() {
    // The tail of a file came once more, with the block that it shares with the next one, and that
    // one had been noticed: of two versions, and called verified.
    for after in [0, 1, 3, 5] {
        for way in Way::all().await {
            let file = |number: usize| way.path(&format!("tree/f{number}"));
            (0..7).for_each(|number| write_version(&file(number), b'A', 400_000));
            let (all, next): (Vec<_>, _) = ((0..7).map(file).collect(), way.path("next"));
            let replace = move || {
                for path in all {
                    write_version(&next, b'B', 400_000);
                    fs::rename(&next, path).unwrap();
                }
            };
            let at_bytes = after * 400_000 + 1;
            way.meanwhile(at_bytes, 1_000_000, replace).await.unwrap();
            for number in 0..7 {
                let copy = fs::read(way.path(&format!("copy/f{number}"))).unwrap();
                let first = copy[0];
                let is_one = copy.len() == 400_000 && copy.iter().all(|&byte| byte == first);
                assert!(is_one, "{} f{number} after {after}", way.name);
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_changes_is_taken_in_its_new_state() {
    for way in Way::all().await {
        write(way.path("tree/a.bin"), bytes(1, 2 << 20));
        write(way.path("tree/log"), bytes(2, 6 << 20));
        write(way.path("tree/neighbour"), "near the log\n");
        write(way.path("tree/z.bin"), bytes(3, 2 << 20));
        let log = way.path("tree/log");
        let grow = move || {
            let mut log = fs::File::options().append(true).open(log).unwrap();
            log.write_all(b"one line more\n").unwrap();
        };
        let received = way.meanwhile(1 << 20, 2 << 20, grow).await.unwrap();
        assert!(received.is_whole, "{received:?}");
        assert_same(&way.path("tree"), &way.path("copy"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_goes_away_meanwhile_is_missed_by_nobody() {
    for way in Way::all().await {
        // So much that nothing holds it already when the first of it has come.
        write(way.path("tree/a.bin"), bytes(1, 8 << 20));
        write(way.path("tree/passing"), bytes(2, 2 << 20));
        write(way.path("tree/z.bin"), bytes(3, 1 << 20));
        let passing = way.path("tree/passing");
        let go = move || fs::remove_file(passing).unwrap();
        let received = way.meanwhile(1 << 20, 2 << 20, go).await.unwrap();
        assert!(received.is_whole, "{received:?}");
        assert_same(&way.path("tree"), &way.path("copy"));
    }
}

/// Stands before a server and says that nothing has changed there, whatever it says itself.
fn denying(server: &Served) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let behind = server.address;
    // It ends with the test's process.
    std::thread::spawn(move || {
        for mut tcp in listener.incoming().map_while(Result::ok) {
            std::thread::spawn(move || {
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

#[tokio::test(flavor = "multi_thread")]
async fn what_a_server_disowns_is_not_there_whatever_else_it_says() {
    // It was given its name, and called verified.
    let home = crate::support::folder();
    let (tree, copy) = (home.path().join("tree"), home.path().join("copy"));
    write_version(&tree.join("big"), b'A', BYTES);
    write(tree.join("small"), "small\n");
    let server = Served::reading(&tree).await;
    server.limit(Some(6 << 20));
    let spec = copy_of(&[&denying(&server), &copy.display().to_string()], |_| {});
    // It grows from then until the end, so that the second look finds it changed as well.
    let is_over = Arc::new(AtomicBool::new(false));
    let (big, ends) = (tree.join("big"), Arc::clone(&is_over));
    let grow = move || {
        std::thread::spawn(move || {
            let mut big = fs::File::options().append(true).open(big).unwrap();
            while !ends.load(Ordering::Relaxed) {
                big.write_all(b"more").unwrap();
                std::thread::sleep(Duration::from_millis(2));
            }
        });
    };
    let received = meanwhile(&spec, 2 << 20, grow).await;
    is_over.store(true, Ordering::Relaxed);
    let received = received.unwrap();
    assert_eq!((&received.changed[..], received.is_whole), (&["big".to_owned()][..], false));
    assert!(!copy.join("big").exists());
    assert_eq!(fs::read(copy.join("small")).unwrap(), b"small\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_single_file_that_is_written_to_is_of_one_version() {
    let home = crate::support::folder();
    let (file, copy) = (home.path().join("wide.bin"), home.path().join("copy.bin"));
    write(&file, bytes(8, BYTES));
    write(&copy, "as it was\n");
    let [from, to] = [&file, &copy].map(|path| path.display().to_string());
    let mut spec = copy_of(&[&from, &to], |_| {});
    spec.network.limit_bytes_per_s = Some(6 << 20);
    // Made before, since that takes its time.
    let last = bytes(7, BYTES);
    let (now, there) = (last.clone(), copy.clone());
    let overwrite = move || {
        assert_eq!(fs::read(there).unwrap(), b"as it was\n");
        fs::write(file, now).unwrap();
    };
    let received = meanwhile(&spec, 1 << 20, overwrite).await.unwrap();
    assert!(received.is_whole, "{received:?}");
    // Its old version, if all of that had been read.
    let came = fs::read(copy).unwrap();
    assert!(came == last || came == bytes(8, BYTES), "a mixture of both versions");
}
