//! Many files at once share one small pool: whatever one keeps, the others go on.

use std::collections::HashSet;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use swath_model::digest::{Algorithm, Hasher};
use swath_transfer::{Engine, EngineOptions, GetError, Request};
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::support::Asked;

const FILES: usize = 8;
const SIZE: u64 = 4 << 20;
const BUFFER_BYTES: usize = 64 << 10;
const POOL_BYTES: usize = 16 * BUFFER_BYTES;

/// What the servers have sent in all, and whose beginning has been asked for.
#[derive(Clone)]
struct Served {
    bytes: watch::Sender<u64>,
    begun: Arc<Mutex<HashSet<String>>>,
}

/// A server of files of zeros under any name. Whoever asks first for the beginning of one gets it
/// when `gate_bytes` of others have been sent.
async fn server(served: Served, gate_bytes: u64) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(serve(stream, served.clone(), gate_bytes));
        }
    });
    url
}

async fn serve(mut stream: TcpStream, served: Served, gate_bytes: u64) -> Option<()> {
    let mut input = Vec::new();
    loop {
        let asked = Asked::next(&mut stream, &mut input, SIZE).await?;
        asked.begin(&mut stream, SIZE).await?;
        let bytes = asked.len();
        if asked.start == 0 && served.begun.lock().unwrap().insert(asked.path) {
            served.bytes.subscribe().wait_for(|&bytes| bytes >= gate_bytes).await.ok()?;
        }
        stream.write_all(&vec![0; bytes as usize]).await.ok()?;
        served.bytes.send_modify(|sum| *sum += bytes);
    }
}

/// Fetch [`FILES`] files at once, each from two servers, each with this digest.
async fn fetch_all(folder: &Path, digest: &str, gate_bytes: u64) -> Vec<Result<(), GetError>> {
    let served = Served { bytes: watch::Sender::new(0), begun: Arc::default() };
    let servers = [server(served.clone(), gate_bytes).await, server(served, gate_bytes).await];
    let engine = Engine::start(EngineOptions {
        memory_bytes: POOL_BYTES,
        buffer_bytes: BUFFER_BYTES,
        ..EngineOptions::default()
    })
    .unwrap();
    let mut transfers = JoinSet::new();
    for at in 0..FILES {
        let mut request = Request::to_file(folder.join(format!("{at}"))).digest(digest).unwrap();
        for server in &servers {
            request = request.url(&format!("{server}{at}")).unwrap();
        }
        let engine = engine.clone();
        transfers.spawn(async move { engine.get(request).await.map(|_| ()) });
    }
    timeout(LIMIT, transfers.join_all()).await.expect("all come to an end")
}

#[tokio::test]
async fn what_waits_for_a_late_beginning_does_not_starve_it() {
    // Each file's digest kept up to half of the buffers for itself, all files together kept all
    // of them, and the beginnings that they waited for could not be read.
    let folder = tempfile::tempdir().unwrap();
    let zeros = Hasher::digest(Algorithm::Sha256, &vec![0; SIZE as usize]);
    let ended = fetch_all(folder.path(), &zeros.to_string(), 4 * POOL_BYTES as u64).await;
    for result in ended {
        result.expect("it is fetched and verified");
    }
}

#[tokio::test]
async fn several_files_are_compared_at_the_same_time() {
    // Each comparison took two of four buffers one by one: two halves waited for each other.
    let folder = tempfile::tempdir().unwrap();
    let wrong = format!("sha-256:{}", "0".repeat(64));
    for result in fetch_all(folder.path(), &wrong, 0).await {
        let error = result.expect_err("the digest is wrong");
        assert!(matches!(error, GetError::Digest { .. }), "{error}");
    }
}

#[tokio::test]
async fn memory_that_is_not_there_is_refused() {
    let start = |memory_bytes| {
        let options = EngineOptions { memory_bytes, ..EngineOptions::default() };
        Engine::start(options).err().map(|error| error.to_string())
    };
    for bytes in [0, 1, 1 << 20, usize::MAX / 2, usize::MAX] {
        let words = start(bytes).expect("no such memory");
        assert!(words.starts_with(&format!("cannot use {bytes} bytes for buffers")), "{words}");
    }
    assert_eq!(start(4 << 20), None);
}

/// Long, because other work may keep the machine busy; it takes a second.
const LIMIT: Duration = Duration::from_secs(80);
