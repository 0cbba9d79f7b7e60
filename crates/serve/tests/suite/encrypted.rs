//! Encrypted connections: HTTP/1.1 and HTTP/2, certificates that change, and clients that do not encrypt.

use std::time::Duration;

use bytes::Bytes;
use h2::RecvStream;
use h2::client::SendRequest;
use http::{Request, Response};
use swath_serve::{Identity, Tls};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::support::{Served, TOKEN, Tree, auth, bytes};
use crate::tls;

fn served() -> (Tree, Served) {
    let tree = Tree::of(&[("tree/a.txt", "alpha\n"), ("tree/there", "x")]);
    tree.write("tree/big.bin", bytes(1, 300_000));
    tree.folder("tree/folder");
    let server = tree.plan(&["tree"]).encrypted().writes().start();
    (tree, server)
}

/// A connection by HTTP/2.
async fn by_two(server: &Served) -> SendRequest<Bytes> {
    let fingerprint = server.fingerprint.as_ref().unwrap();
    let stream = tls::connect(server.address, fingerprint, "h2").await.unwrap();
    // An answer that is not read holds up no other one of its connection.
    let mut builder = h2::client::Builder::new();
    builder.initial_connection_window_size(1 << 24);
    let (client, connection) = builder.handshake(stream).await.unwrap();
    tokio::spawn(connection);
    client.ready().await.unwrap()
}

fn request(method: &str, path: &str, fields: &[(&str, &str)]) -> Request<()> {
    let url = format!("https://h{path}");
    let request = Request::builder().method(method).uri(url);
    fields.iter().fold(request, |it, (name, value)| it.header(*name, *value)).body(()).unwrap()
}

/// Status and body.
async fn answer(
    response: impl Future<Output = Result<Response<RecvStream>, h2::Error>>,
) -> Result<(u16, Vec<u8>), h2::Error> {
    body_of(response.await?).await
}

async fn body_of(response: Response<RecvStream>) -> Result<(u16, Vec<u8>), h2::Error> {
    let (head, mut body) = response.into_parts();
    let mut all = Vec::new();
    while let Some(part) = body.data().await {
        let part = part?;
        body.flow_control().release_capacity(part.len())?;
        all.extend_from_slice(&part);
    }
    Ok((head.status.as_u16(), all))
}

async fn get(
    client: &mut SendRequest<Bytes>,
    path: &str,
    fields: &[(&str, &str)],
) -> (u16, Vec<u8>) {
    let (response, _) = client.send_request(request("GET", path, fields), true).unwrap();
    answer(response).await.unwrap()
}

#[tokio::test]
async fn files_come_by_http2() {
    let (_tree, server) = served();
    let mut client = by_two(&server).await;
    let shown = format!("Bearer {TOKEN}");
    let login = ("authorization", shown.as_str());
    let whole = get(&mut client, "/big.bin", &[login]).await;
    assert!(whole == (200, bytes(1, 300_000)));
    let part = get(&mut client, "/big.bin", &[login, ("range", "bytes=5-9")]).await;
    assert_eq!(part, (206, bytes(1, 300_000)[5..10].to_vec()));
    // Without the token, or with another one, there is nothing.
    assert_eq!(get(&mut client, "/big.bin", &[]).await.0, 401);
    assert_eq!(get(&mut client, "/big.bin", &[("authorization", "Bearer x")]).await.0, 401);
    // The password of anybody is the token too.
    use base64::Engine as _;
    let password = format!("anybody:{TOKEN}");
    let basic = base64::engine::general_purpose::STANDARD.encode(password);
    let basic = format!("Basic {basic}");
    assert_eq!(get(&mut client, "/a.txt", &[("authorization", &basic)]).await.0, 200);
    // Health is for those who watch, and says nothing else.
    assert_eq!(get(&mut client, "/health", &[]).await, (200, b"well\n".to_vec()));
}

#[tokio::test]
async fn files_come_by_http1_encrypted() {
    let (_tree, server) = served();
    let fingerprint = server.fingerprint.as_ref().unwrap();
    for (login, status) in [(auth(), 200), ("X: y".to_owned(), 401)] {
        let mut stream = tls::connect(server.address, fingerprint, "http/1.1").await.unwrap();
        let request =
            format!("GET /big.bin HTTP/1.1\r\nHost: h\r\n{login}\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut all = Vec::new();
        stream.read_to_end(&mut all).await.unwrap();
        assert!(all.starts_with(format!("HTTP/1.1 {status} ").as_bytes()));
        assert_eq!(all.ends_with(&bytes(1, 300_000)), status == 200);
    }
}

/// What the page said to paste ended with an untrusted certificate.
#[tokio::test]
async fn a_page_names_the_certificate_that_no_authority_signed() {
    let (_tree, server) = served();
    let mut client = by_two(&server).await;
    let (status, page) = get(&mut client, "/folder/", &[("authorization", &bearer())]).await;
    let page = String::from_utf8(page).unwrap();
    let options = format!(" --fingerprint {} --token @FILE", server.fingerprint.as_ref().unwrap());
    assert!(status == 200 && page.contains(&options), "{page}");
}

fn bearer() -> String {
    format!("Bearer {TOKEN}")
}

/// Thirty-two connections with unread answers took all descriptors of a server.
#[tokio::test]
async fn answers_that_nobody_takes_keep_nobody_else_waiting() {
    let (tree, _) = served();
    let server = tree.plan(&["tree"]).encrypted().max_connections(3).start();
    let shown = format!("Bearer {TOKEN}");
    let login = [("authorization", shown.as_str())];
    let (mut greedy, mut honest) = (by_two(&server).await, by_two(&server).await);
    let mut asked = Vec::new();
    for _ in 0..12 {
        let (response, _) = greedy.send_request(request("GET", "/big.bin", &login), true).unwrap();
        asked.push(Box::pin(response));
    }
    // Its own place, and those that all connections share.
    let mut heads = Vec::new();
    for _ in 0..4 {
        let (head, at, _) = futures_util::future::select_all(asked.iter_mut()).await;
        heads.push(head.unwrap());
        drop(asked.remove(at));
    }
    for _ in 0..20 {
        assert_eq!(get(&mut honest, "/a.txt", &login).await, (200, b"alpha\n".to_vec()));
    }
    let more =
        tokio::time::timeout(Duration::ZERO, futures_util::future::select_all(asked.iter_mut()));
    assert!(more.await.is_err(), "all others wait");
    // They come when those are taken.
    for head in heads {
        assert_eq!(body_of(head).await.unwrap().1.len(), 300_000);
    }
    for response in asked {
        assert_eq!(answer(response).await.unwrap().1.len(), 300_000);
    }
}

#[tokio::test]
async fn files_are_sent_by_http2() {
    let (tree, server) = served();
    let mut client = by_two(&server).await;
    let shown = format!("Bearer {TOKEN}");
    let login = [("authorization", shown.as_str())];
    for size in [0, 9, 700_000] {
        for expected in [201, 204] {
            let (response, mut body) =
                client.send_request(request("PUT", "/new.bin", &login), size == 0).unwrap();
            if size > 0 {
                body.send_data(bytes(2, size).into(), true).unwrap();
            }
            assert_eq!(answer(response).await.unwrap().0, expected);
            assert!(tree.read("tree/new.bin") == bytes(2, size));
        }
        std::fs::remove_file(tree.path("tree/new.bin")).unwrap();
    }
}

/// With HTTP/2 the stream was reset as soon as the answer stood, because nobody read the body: in every
/// second run a client knew only of the reset, or had a part of the answer.
#[tokio::test]
async fn a_refusal_reaches_who_still_sends() {
    let (tree, server) = served();
    let mut client = by_two(&server).await;
    let shown = format!("Bearer {TOKEN}");
    let (right, wrong) = (("authorization", shown.as_str()), ("authorization", "Bearer bad"));
    for size in [4, 100_000, 900_000] {
        for (status, path, login, more) in [
            (401, "/new", wrong, ("x", "y")),
            (412, "/there", right, ("if-none-match", "*")),
            (409, "/folder", right, ("x", "y")),
            (400, "/new", right, ("content-range", "bytes 0-0/1")),
        ] {
            for _ in 0..5 {
                let length = size.to_string();
                let fields = [login, more, ("content-length", length.as_str())];
                let (response, mut body) =
                    client.send_request(request("PUT", path, &fields), false).unwrap();
                body.send_data(bytes(2, size).into(), true).unwrap();
                let (found, text) = answer(response).await.unwrap();
                assert_eq!(found, status, "{path}");
                assert!(text.ends_with(b"\n"), "all of the answer: {text:?}");
            }
        }
    }
    assert_eq!(tree.names_in("tree"), ["a.txt", "big.bin", "folder", "there"]);
}

#[tokio::test]
async fn many_streams_of_one_connection_are_answered_side_by_side() {
    let (_tree, server) = served();
    let mut client = by_two(&server).await;
    let shown = format!("Bearer {TOKEN}");
    let login = ("authorization", shown.as_str());
    // One that nobody reads keeps none of the others waiting.
    let (held, _) = client.send_request(request("GET", "/big.bin", &[login]), true).unwrap();
    for n in 0..60 {
        let range = format!("bytes={n}-{n}");
        let one = get(&mut client, "/a.txt", &[login, ("range", &range)]).await;
        assert_eq!(one.0, if n < 6 { 206 } else { 416 });
    }
    assert!(answer(held).await.unwrap() == (200, bytes(1, 300_000)));
}

/// Where the server encrypts, an address of its own begins with `https`.
#[tokio::test]
async fn files_are_listed_and_moved_by_http2() {
    let (tree, server) = served();
    let mut client = by_two(&server).await;
    let shown = format!("Bearer {TOKEN}");
    let login = ("authorization", shown.as_str());
    let mut ask = async |method: &str, path: &str, field: (&str, &str)| {
        let request = request(method, path, &[login, field]);
        answer(client.send_request(request, true).unwrap().0).await.unwrap()
    };
    let (status, list) = ask("PROPFIND", "/", ("depth", "1")).await;
    assert_eq!(status, 207);
    let list = String::from_utf8(list).unwrap();
    assert!(list.contains("<D:href>/a.txt</D:href>") && list.ends_with("</D:multistatus>\n"));
    for (method, path, to, status) in [
        ("MOVE", "/a.txt", "https://h/moved.txt", 201),
        ("MOVE", "/moved.txt", "/again.txt", 201),
        ("MOVE", "/again.txt", "https://other.example/x", 502),
        ("COPY", "/again.txt", "/folder/copied.txt", 201),
        ("DELETE", "/again.txt", "", 204),
    ] {
        let (found, text) = ask(method, path, ("destination", to)).await;
        assert_eq!(found, status, "{method} {path}: {}", String::from_utf8_lossy(&text));
    }
    assert_eq!(tree.read("tree/folder/copied.txt"), b"alpha\n");
    assert_eq!(tree.names_in("tree"), ["big.bin", "folder", "there"]);
}

/// The answer was an alert of TLS, which programs called "improper HTTP".
#[test]
fn plain_http_is_told_of_https_where_that_is_spoken() {
    let (_tree, server) = served();
    for request in ["GET /a.txt HTTP/1.1", "PUT /b HTTP/1.1", "CONNECT h:1 HTTP/1.1"] {
        let answer = server.ask(request);
        assert_eq!(answer.is(400).text(), "this server speaks HTTPS\n");
        assert_eq!(answer.field("connection").as_deref(), Some("close"));
        assert!(answer.head().starts_with("HTTP/1.1 400 this server speaks HTTPS\r\n"));
    }
}

#[tokio::test]
async fn a_new_certificate_is_shown_to_whoever_comes_and_open_connections_go_on() {
    let (tree, server) = served();
    let old = server.fingerprint.clone().unwrap();
    let mut open = tls::connect(server.address, &old, "http/1.1").await.unwrap();
    let made = Identity::make_pem(vec!["localhost".to_owned()]).unwrap();
    let other = Identity::make_pem(vec!["localhost".to_owned()]).unwrap();
    let files = |certificates: &str, key: &str| Tls::Files {
        certificates: tree.write("cert.pem", certificates),
        key: tree.write("key.pem", key),
    };
    // One file was replaced and not yet the other: they do not belong together.
    let key_of = |pem: &str| pem[pem.find("-----BEGIN PRIVATE KEY").unwrap()..].to_owned();
    for wrong in [files(&made, &key_of(&other)), files("", &made), files(&made, "")] {
        assert!(server.renewal.renew(&wrong).is_err());
        tls::connect(server.address, &old, "h2").await.unwrap();
    }
    let shown = server.renewal.renew(&files(&made, &key_of(&made))).unwrap().unwrap();
    let new = shown.fingerprint().to_string();
    assert_ne!(new, old);
    tls::connect(server.address, &new, "http/1.1").await.unwrap();
    assert!(tls::connect(server.address, &old, "http/1.1").await.is_err());
    let request =
        format!("GET /a.txt HTTP/1.1\r\nHost: h\r\n{}\r\nConnection: close\r\n\r\n", auth());
    open.write_all(request.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    open.read_to_end(&mut answer).await.unwrap();
    assert!(answer.ends_with(b"\r\n\r\nalpha\n"));
}
