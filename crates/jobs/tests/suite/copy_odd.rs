//! Servers that say what no server of ours says: of the index, of the folder itself, of what they received.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpListener;

use swath_jobs::copy::CopyError;
use swath_model::index::Index;

use crate::support::folder;
use crate::trees::{names, top, write};
use crate::ways::{copied, copy_of};

/// A server that answers every request with these bytes and closes, until the test ends.
fn answering(answer: Vec<u8>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        std::thread::scope(|scope| {
            for mut stream in listener.incoming().map_while(Result::ok) {
                let answer = &answer;
                // A connection may stay without a request, and must not hold up the others.
                scope.spawn(move || {
                    let (mut request, mut part) = (Vec::new(), [0; 4096]);
                    while !request.windows(4).any(|end| end == b"\r\n\r\n") {
                        match stream.read(&mut part) {
                            Ok(bytes @ 1..) => request.extend_from_slice(&part[..bytes]),
                            _ => break,
                        }
                    }
                    let _ = stream.write_all(answer);
                });
            }
        });
    });
    url
}

#[tokio::test(flavor = "multi_thread")]
async fn an_index_that_is_none_leaves_nothing_behind() {
    let home = folder();
    let mut answer = b"HTTP/1.1 200 OK\r\ncontent-type: application/vnd.swath.index\r\n\
        swath-walk: 00112233\r\nconnection: close\r\n\r\nswathidx\x01"
        .to_vec();
    // A folder, and then something of no kind.
    answer.extend_from_slice(&[2, 0, 1, b'd', 0, 0, 7, 7, 7]);
    let copy = home.path().join("copy").display().to_string();
    let error = copied(copy_of(&[&answering(answer), &copy], |_| {})).await.unwrap_err();
    let CopyError::Fetch { error, kept, .. } = *error else { panic!("{error}") };
    let words = error.with_reasons();
    assert!(words.contains("entry 1 of the index is of no kind"), "{words}");
    assert_eq!(kept.known_bytes().unwrap_or(0), 0);
    assert_eq!(names(home.path()), [""; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_server_says_of_its_folder_is_no_reason_to_fail() {
    let home = folder();
    let at = |path: &str| home.path().join(path);
    fs::create_dir(at("usual")).unwrap();
    let usual = top(&at("usual")).0;
    let mut index = Index::new();
    index.complete();
    let very_long = format!("755 {}", "9".repeat(4000));
    for (told, mode) in [
        ("755", usual),
        ("", usual),
        ("rwx------ 1.000000000", usual),
        ("17777 1.000000000", usual),
        ("711 1.9999999999", usual),
        ("711 1e9", usual),
        ("711 1.000000000, 711 1.000000000", usual),
        (&very_long, usual),
        ("711 9223372036854775807.999999999", 0o711),
        ("711 -9223372036854775808.000000000", 0o711),
        ("7777 1.000000000", 0o1777),
        ("0 1.000000000", 0o700),
    ] {
        let head = format!(
            "HTTP/1.1 200 OK\r\ncontent-type: application/vnd.swath.index\r\n\
             swath-walk: 1\r\nswath-top: {told}\r\nconnection: close\r\n\r\n"
        );
        let url = answering([head.as_bytes(), index.wire_from(0)].concat());
        let copy = at("copy");
        copied(copy_of(&[&url, &copy.display().to_string()], |_| {})).await.unwrap();
        assert_eq!(top(&copy).0, mode, "{told}");
        fs::remove_dir(copy).unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_receiver_that_says_nothing_has_kept_nothing() {
    let home = folder();
    write(home.path().join("tree/file"), "x\n");
    let tree = home.path().join("tree/").display().to_string();
    let head = "HTTP/1.1 200 OK\r\ncontent-type: application/x-ndjson\r\nconnection: close\r\n\r\n";
    for said in ["", "{\"receiving\":\"abc\"}\n"] {
        let to = answering(format!("{head}{said}").into_bytes());
        let error = copied(copy_of(&[&tree, &format!("{to}new/")], |_| {})).await.unwrap_err();
        let CopyError::Broken { why, progress, .. } = *error else { panic!("{error}") };
        assert!(why.to_string().contains("ended without a message"), "{why}");
        assert_eq!(progress, swath_jobs::copy::SendProgress::Nothing);
    }
}
