//! Mirrors that allow one connection are compared with others too.

use std::sync::Arc;
use std::time::Duration;

use swath_transfer::{Engine, EngineOptions, Lanes, Request};
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::time::{sleep, timeout};

use crate::support::Asked;

const SIZE: u64 = 1_000_000;

/// Serves ranges of a file of this byte, and at most so many connections at once.
async fn mirror(byte: u8, connections: usize) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/data.bin", listener.local_addr().unwrap());
    tokio::spawn(async move {
        let allowed = Arc::new(Semaphore::new(connections));
        while let Ok((mut stream, _)) = listener.accept().await {
            let permit = Arc::clone(&allowed).try_acquire_owned();
            tokio::spawn(async move {
                match permit {
                    Ok(_permit) => serve(stream, byte).await,
                    Err(_) => refuse(&mut stream).await,
                }
            });
        }
    });
    url
}

async fn serve(mut stream: TcpStream, byte: u8) -> Option<()> {
    let mut input = Vec::new();
    loop {
        let asked = Asked::next(&mut stream, &mut input, SIZE).await?;
        asked.begin(&mut stream, SIZE).await?;
        let mut left = asked.len();
        while left > 0 {
            let part = left.min(20_000);
            stream.write_all(&vec![byte; part as usize]).await.ok()?;
            sleep(Duration::from_millis(20)).await;
            left -= part;
        }
    }
}

async fn refuse(stream: &mut TcpStream) -> Option<()> {
    Asked::next(stream, &mut Vec::new(), SIZE).await?;
    let head =
        "HTTP/1.1 503 Busy\r\nRetry-After: 1\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
    stream.write_all(head.as_bytes()).await.ok()
}

/// The third mirror refused every question beside its lane, and the transfer ended without a file.
#[tokio::test]
async fn a_mirror_of_one_connection_decides() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("data.bin");
    let options = EngineOptions { buffer_bytes: 64 << 10, ..EngineOptions::default() };
    let engine = Engine::start(options).unwrap();
    let mut request = Request::to_file(&path);
    request.plan.lanes = Lanes::Fixed(2);
    for (byte, connections) in [(0, 8), (1, 8), (0, 1)] {
        request = request.url(&mirror(byte, connections).await).unwrap();
    }
    let ended = timeout(Duration::from_secs(90), engine.get(request)).await.expect("an end");
    ended.expect("two mirrors of three agree");
    assert!(std::fs::read(&path).unwrap() == vec![0; SIZE as usize], "another file");
}
