//! Something on the way cuts answers short.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use swath_jobs::copy::CopyError;
use swath_jobs::{JobEvent, JobSpec};
use swath_transfer::observe::Event;

use crate::support::folder;
use crate::trees::{assert_same, bytes, plant, write};
use crate::ways::{Served, copied, copy_of, observed};

/// What it does with answers that have blocks.
#[derive(Clone, Copy, Debug)]
enum Cuts {
    /// So many bytes of so many are let through, and then it closes.
    Closes(fn(u64) -> u64),
    /// Then it says nothing more.
    FallsSilent(fn(u64) -> u64),
    /// So much of what is asked for is asked for.
    AsksForLess(fn(u64) -> u64),
    /// The same, and it says that the file ends there.
    EndsThere(fn(u64) -> u64),
}

/// Something before a server that cuts; it is there until the test's process ends.
struct Cutting {
    url: String,
    /// Answers that were cut.
    cuts: Arc<AtomicUsize>,
}

fn cutting(server: &Served, cuts: Cuts) -> Cutting {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (url, there) = (format!("http://{}/", listener.local_addr().unwrap()), server.address);
    let count = Arc::new(AtomicUsize::new(0));
    let counts = Arc::clone(&count);
    std::thread::spawn(move || {
        for client in listener.incoming().map_while(Result::ok) {
            let count = Arc::clone(&counts);
            std::thread::spawn(move || pass(client, there, cuts, &count));
        }
    });
    Cutting { url, cuts: count }
}

/// One request, and what of its answer is let through.
fn pass(mut client: TcpStream, there: SocketAddr, cuts: Cuts, count: &AtomicUsize) -> Option<()> {
    let mut head = head(&mut client)?;
    let is_cut = head.contains("swath=sealed");
    count.fetch_add(usize::from(is_cut), Ordering::Relaxed);
    head.insert_str(head.len() - 2, "connection: close\r\n");
    if let Cuts::AsksForLess(less) | Cuts::EndsThere(less) = cuts
        && let Some(begin) = head.find("bytes=").filter(|_| is_cut)
    {
        let line_end = begin + head[begin..].find('\r')?;
        let (start, end) = head[begin + 6..line_end].split_once('-')?;
        let (start, end): (u64, u64) = (start.parse().ok()?, end.parse().ok()?);
        let range = format!("bytes={start}-{}", start + less(end + 1 - start) - 1);
        head.replace_range(begin..line_end, &range);
    }
    let mut server = TcpStream::connect(there).ok()?;
    server.write_all(head.as_bytes()).ok()?;
    let mut answer = self::head(&mut server)?;
    if let Cuts::EndsThere(_) = cuts
        && is_cut
        && let Some(begin) = answer.to_ascii_lowercase().find("content-range: bytes ")
    {
        let line_end = begin + answer[begin..].find('\r')?;
        let slash = begin + answer[begin..line_end].find('/')?;
        let last: u64 = answer[begin..slash].rsplit('-').next()?.parse().ok()?;
        answer.replace_range(slash + 1..line_end, &(last + 1).to_string());
    }
    client.write_all(answer.as_bytes()).ok()?;
    let length = answer.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse().unwrap())
    });
    let (Cuts::Closes(through)
    | Cuts::FallsSilent(through)
    | Cuts::AsksForLess(through)
    | Cuts::EndsThere(through)) = cuts;
    let whole = !is_cut || matches!(cuts, Cuts::AsksForLess(_) | Cuts::EndsThere(_));
    let bytes = length.filter(|_| !whole).map_or(u64::MAX, through);
    std::io::copy(&mut server.take(bytes), &mut client).ok()?;
    if is_cut {
        if !matches!(cuts, Cuts::FallsSilent(_)) {
            let _ = client.shutdown(Shutdown::Write);
        }
        // Until the client has had enough: what it has not read yet would be lost with the connection.
        let _ = client.read_to_end(&mut Vec::new());
    }
    Some(())
}

/// All up to the empty line.
fn head(from: &mut TcpStream) -> Option<String> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        from.read_exact(&mut byte).ok()?;
        head.extend(byte);
    }
    String::from_utf8(head).ok()
}

/// Less than a block, however much was asked for.
const NO_BLOCK: fn(u64) -> u64 = |bytes| (bytes / 2).min(100_000);

fn to(copy: &Path, urls: &[&str], timeout_ms: u64) -> JobSpec {
    let mut spec = copy_of(&[urls, &[copy.to_str().unwrap()]].concat(), |_| {});
    spec.network.timeout_ms = timeout_ms;
    spec
}

/// Runs to its end in a copy of which no answer ever holds a block.
async fn fails_without_a_block(cuts: Cuts, size_bytes: usize) {
    let home = folder();
    let (tree, copy) = (home.path().join("tree"), home.path().join("copy"));
    write(tree.join("one.bin"), bytes(1, size_bytes));
    let server = Served::reading(&tree).await;
    let cut = cutting(&server, cuts);
    let notes = Arc::new(Mutex::new(String::new()));
    let keeps = Arc::clone(&notes);
    let spec = to(&copy, &[&cut.url], 12_000);
    let ended = observed(&spec, move |event| {
        if let JobEvent::Transfer(Event::Note { text, .. }) = event {
            keeps.lock().unwrap().push_str(&text);
        }
    });
    let CopyError::Fetch { error, .. } = *ended.await.unwrap_err() else { panic!("{cuts:?}") };
    let words = error.with_reasons();
    let why = format!("{}: each answer ends before a block is complete: ", cut.url);
    assert!(words.contains(&why), "{words}");
    let notes = std::mem::take(&mut *notes.lock().unwrap());
    assert_eq!(notes.matches("they are useless").count(), 1, "{notes}");
    assert!(!copy.exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn answers_that_never_hold_a_block_are_no_progress() {
    // Each byte that came counted as progress: it asked again for ever, and said nothing of it.
    tokio::join!(
        fails_without_a_block(Cuts::Closes(NO_BLOCK), 5_000),
        fails_without_a_block(Cuts::Closes(NO_BLOCK), 20_000_000),
        fails_without_a_block(Cuts::FallsSilent(NO_BLOCK), 5_000),
        fails_without_a_block(Cuts::FallsSilent(NO_BLOCK), 20_000_000),
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn who_gives_less_than_a_block_at_a_time_is_left_out_at_once() {
    let home = folder();
    let (tree, copy) = (home.path().join("tree"), home.path().join("copy"));
    write(tree.join("one.bin"), bytes(1, 5_000));
    let server = Served::reading(&tree).await;
    let less = cutting(&server, Cuts::AsksForLess(NO_BLOCK));
    let error = copied(to(&copy, &[&less.url], 60_000)).await.unwrap_err();
    let CopyError::Fetch { error, .. } = *error else { panic!("{error}") };
    let words = error.with_reasons();
    assert!(words.contains("gives only 2516 bytes of what is asked for at a time"), "{words}");
}

/// A server that took the end of each part for the end of the tree had done all that was asked of it,
/// and was asked again at once: 329,299 times in 55 seconds, whatever the time limit said.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_ends_the_tree_before_its_index_does_is_left_out() {
    for (less, size_bytes) in
        [(NO_BLOCK, 5_000), (NO_BLOCK, 8_000_000), (|it| it.min(600_000), 8_000_000)]
    {
        let less: fn(u64) -> u64 = less;
        let home = folder();
        let (tree, copy) = (home.path().join("tree"), home.path().join("copy"));
        write(tree.join("one.bin"), bytes(1, size_bytes));
        let server = Served::reading(&tree).await;
        let ending = cutting(&server, Cuts::EndsThere(less));
        let error = copied(to(&copy, &[&ending.url], 4_000)).await.unwrap_err();
        let CopyError::Fetch { error, .. } = *error else { panic!("{error}") };
        let words = error.with_reasons();
        assert!(words.contains("expected"), "{words}");
        assert!(!copy.exists());
        let asked = ending.cuts.load(Ordering::Relaxed);
        assert!(asked <= 20, "{asked} requests");
        // Beside an honest replica it does no harm.
        copied(to(&copy, &[&server.at(""), &ending.url], 60_000)).await.unwrap();
        assert_same(&tree, &copy);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn answers_with_a_block_each_are_progress() {
    let through = |bytes: u64| bytes.min(600_000);
    for (cuts, size_bytes) in [
        (Cuts::Closes(through), 9_000_000),
        (Cuts::FallsSilent(through), 2_000_000),
        (Cuts::AsksForLess(through), 9_000_000),
    ] {
        let home = folder();
        let (tree, copy) = (home.path().join("tree"), home.path().join("copy"));
        write(tree.join("one.bin"), bytes(1, size_bytes));
        let server = Served::reading(&tree).await;
        let cut = cutting(&server, cuts);
        copied(to(&copy, &[&cut.url], 60_000))
            .await
            .unwrap_or_else(|error| panic!("{cuts:?}: {error}"));
        assert!(cut.cuts.load(Ordering::Relaxed) > 2);
        assert_same(&tree, &copy);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn another_replica_brings_what_is_cut_short() {
    for cuts in [Cuts::Closes(NO_BLOCK), Cuts::FallsSilent(NO_BLOCK)] {
        let home = folder();
        let (tree, copy) = (home.path().join("tree"), home.path().join("copy"));
        plant(&tree);
        let server = Served::reading(&tree).await;
        let cut = cutting(&server, cuts);
        copied(to(&copy, &[&cut.url, &server.at("")], 60_000)).await.unwrap();
        assert_same(&tree, &copy);
    }
}
