//! `swath cp` where something on the way cuts answers short.

use std::io::{Read, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::support::Home;
use crate::support::serve::Served;
use crate::support::trees::{assert_same, bytes, plant};

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

/// The address of something before this server that cuts; it is there until the test ends.
fn cutting(server: &Served, cuts: Cuts) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (url, there) = (format!("http://{}/", listener.local_addr().unwrap()), server.address());
    std::thread::spawn(move || {
        for client in listener.incoming().map_while(Result::ok) {
            std::thread::spawn(move || pass(client, there, cuts));
        }
    });
    url
}

/// One request, and what of its answer is let through.
fn pass(mut client: TcpStream, there: SocketAddr, cuts: Cuts) -> Option<()> {
    let mut head = head(&mut client)?;
    let is_cut = head.contains("swath=sealed");
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
        REQUESTS.fetch_add(1, Ordering::Relaxed);
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
    // What was let through is seen to arrive before the connection is seen to end.
    std::thread::sleep(Duration::from_millis(if whole { 0 } else { 100 }));
    if let (Cuts::FallsSilent(_), true) = (cuts, is_cut) {
        // Until the client has had enough.
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

#[test]
fn answers_that_never_hold_a_block_are_no_progress() {
    // Each byte that came counted as progress: it asked again for ever, and said nothing of it.
    std::thread::scope(|scope| {
        for cuts in [Cuts::Closes(NO_BLOCK), Cuts::FallsSilent(NO_BLOCK)] {
            for size_bytes in [5_000, 20_000_000] {
                scope.spawn(move || {
                    let home = Home::new();
                    home.write("tree/one.bin", bytes(1, size_bytes));
                    let server = home.serve(&["tree", "--anonymous", "--plain"]);
                    let url = cutting(&server, cuts);
                    let ran = home.run(["cp", &url, "copy", "--timeout", "12"]);
                    let words = "each answer ends before a block is complete: ";
                    ran.code_is(7).says(&[&format!("  {url}: {words}")]);
                    let told = ran.stderr.matches("they are useless").count();
                    assert_eq!(told, 1, "{ran}");
                    assert!(!home.exists("copy"));
                });
            }
        }
    });
    // Who gives less than a block at a time is left out at once.
    let home = Home::new();
    home.write("tree/one.bin", bytes(1, 5_000));
    let server = home.serve(&["tree", "--anonymous", "--plain"]);
    let ran = home.run(["cp", &cutting(&server, Cuts::AsksForLess(NO_BLOCK)), "copy"]);
    ran.code_is(7).says(&["gives only 2516 bytes of what is asked for at a time"]);
}

/// Requests to a server that says of each part that the file ends with it.
static REQUESTS: AtomicUsize = AtomicUsize::new(0);

/// A server that took the end of each part for the end of the tree had done all that was asked of it,
/// and was asked again at once: 329,299 times in 55 seconds, whatever `--timeout` said.
#[test]
fn a_server_that_ends_the_tree_before_its_index_does_is_left_out() {
    for (less, size_bytes) in
        [(NO_BLOCK, 5_000), (NO_BLOCK, 20_000_000), (|it| it.min(600_000), 20_000_000)]
    {
        let less: fn(u64) -> u64 = less;
        let home = Home::new();
        home.write("tree/one.bin", bytes(1, size_bytes));
        let server = home.serve(&["tree", "--anonymous", "--plain"]);
        let url = cutting(&server, Cuts::EndsThere(less));
        let before = REQUESTS.load(Ordering::Relaxed);
        home.run(["cp", &url, "copy", "--timeout", "4"]).code_is(7).says(&["expected"]);
        assert!(!home.exists("copy"));
        let asked = REQUESTS.load(Ordering::Relaxed) - before;
        assert!(asked <= 20, "{asked} requests");
        // Beside an honest replica it does no harm.
        home.run(["cp", &server.url, &url, "copy", "--timeout", "12"]).code_is(0);
        assert_same(&home.path("tree"), &home.path("copy"));
    }
}

#[test]
fn answers_with_a_block_each_are_progress() {
    let through = |bytes: u64| bytes.min(600_000);
    for (cuts, size_bytes) in [
        (Cuts::Closes(through), 15_000_000),
        (Cuts::FallsSilent(through), 3_000_000),
        (Cuts::AsksForLess(through), 15_000_000),
    ] {
        let home = Home::new();
        home.write("tree/one.bin", bytes(1, size_bytes));
        let server = home.serve(&["tree", "--anonymous", "--plain"]);
        let ran = home.run(["cp", &cutting(&server, cuts), "copy", "--timeout", "12"]);
        ran.code_is(0).never_says(&["they are useless"]);
        assert_same(&home.path("tree"), &home.path("copy"));
    }
}

#[test]
fn another_replica_brings_what_is_cut_short() {
    for cuts in [Cuts::Closes(NO_BLOCK), Cuts::FallsSilent(NO_BLOCK)] {
        let home = Home::new();
        plant(&home);
        let server = home.serve(&["tree", "--anonymous", "--plain"]);
        let url = cutting(&server, cuts);
        let ran = home.run(["cp", &url, &server.url, "copy", "--timeout", "12"]);
        ran.code_is(0);
        assert_same(&home.path("tree"), &home.path("copy"));
    }
}
