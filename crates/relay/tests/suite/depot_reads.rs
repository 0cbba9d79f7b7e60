//! What is stored in a depot and read from it: ranges, conditions, what is missing, what is lost.

use std::fs;
use std::io::Write as _;

use serde_json::json;
use swath_netlab::faulty::Content;
use swath_store::depot::DepotOptions;

use crate::support::{Relay, connect, lending, lending_as, until};

const SIZE: u64 = 300_017;

#[test]
fn what_is_stored_in_parts_is_read_as_from_any_server() {
    let content = Content::random(1, SIZE);
    let folder = tempfile::tempdir().unwrap();
    let size_bytes = 10_000_000;
    let disk = DepotOptions { size_bytes, ..DepotOptions::in_folder(folder.path()) };
    let media = [(lending_as(disk), "disk"), (lending(10 << 20), "memory")];
    for (options, medium) in media {
        let depot = Relay::start(options);
        let lease = depot.allocate(SIZE, 600, "");
        depot.put(&lease, 100_000, SIZE, &content.read(100_000, SIZE)).is(204);
        depot.put(&lease, 0, SIZE, &content.read(0, 100_000)).is(204);
        let told = depot.ask("GET", &lease.read, "", b"").is(200);
        assert!(told.body == content.read(0, SIZE), "{medium}");
        let part = depot.ask("GET", &lease.read, "Range: bytes=99990-100009\r\n", b"").is(206);
        assert!(part.body == content.read(99_990, 100_010), "{medium}");
        let last = depot.ask("GET", &lease.read, "Range: bytes=-17\r\n", b"").is(206);
        assert!(last.body == content.read(SIZE - 17, SIZE), "{medium}");
        let head = depot.ask("HEAD", &lease.read, "", b"").is(200);
        assert_eq!(head.field("content-length"), Some("300017"));
        assert_eq!(head.field("accept-ranges"), Some("bytes"));
        assert!(head.field("etag").unwrap().starts_with("\"depot-"), "{head:?}");
        assert_eq!(head.field("swath-held"), None);
        assert_eq!(depot.status(&lease)["medium"], medium);
        assert!(depot.metric("swath_depot_read_bytes_total") >= SIZE);
    }
}

#[test]
fn a_body_without_a_range_is_the_whole() {
    let depot = Relay::start(lending(1 << 20));
    let lease = depot.allocate(1000, 600, "");
    depot.ask("PUT", &lease.write, "", &[7; 999]).is(400);
    depot.ask("PUT", &lease.write, "", &[7; 1001]).is(400);
    depot.ask("PUT", &lease.write, "", &[7; 1000]).is(204);
    assert_eq!(depot.ask("GET", &lease.read, "", b"").is(200).body, [7; 1000]);
}

#[test]
fn what_is_not_held_is_named() {
    let depot = Relay::start(lending(1 << 20));
    let lease = depot.allocate(1000, 600, "");
    let told = depot.ask("GET", &lease.read, "", b"").is(416);
    assert_eq!(told.field("swath-held"), Some(""));
    depot.put(&lease, 100, 1000, &[1; 100]).is(204);
    depot.put(&lease, 300, 1000, &[2; 100]).is(204);
    for range in ["0-10", "100-200", "250-260", "0-"] {
        let told = depot.ask("GET", &lease.read, &format!("Range: bytes={range}\r\n"), b"").is(416);
        assert_eq!(told.field("swath-held"), Some("100-199, 300-399"));
        assert_eq!(told.field("content-range"), Some("bytes */1000"));
    }
    depot.ask("GET", &lease.read, "", b"").is(416);
    depot.ask("GET", &lease.read, "Range: bytes=1000-\r\n", b"").is(416);
    let told = depot.ask("GET", &lease.read, "Range: bytes=150-199\r\n", b"").is(206);
    assert_eq!(told.body, [1; 50]);
    // Of many parts a field names the first ones.
    for at in (400..1000).step_by(4) {
        depot.put(&lease, at, 1000, &[3]).is(204);
    }
    let told = depot.ask("HEAD", &lease.read, "", b"").is(200);
    let held = told.field("swath-held").unwrap();
    assert!(held.ends_with(", ...") && held.split(", ").count() == 65, "{held}");
    assert_eq!(depot.status(&lease)["held"].as_array().unwrap().len(), 151);
}

#[test]
fn what_is_held_stays_as_it_is() {
    let depot = Relay::start(lending(1 << 20));
    let lease = depot.allocate(1000, 600, "");
    depot.put(&lease, 100, 1000, &[1; 100]).is(204);
    // The same bytes are taken again, others are not; what adjoins is.
    depot.put(&lease, 150, 1000, &[1; 20]).is(204);
    depot.put(&lease, 150, 1000, &[9; 20]).is(409);
    depot.put(&lease, 200, 1000, &[3; 100]).is(204);
    depot.put(&lease, 990, 999, &[3; 9]).is(409);
    depot.ask("PUT", &lease.write, "Content-Range: bytes 990-1009/*\r\n", &[3; 20]).is(413);
    depot.ask("PUT", &lease.write, "Content-Range: bytes 0-9/1000\r\n", &[3; 20]).is(400);
    depot.ask("PUT", &lease.write, "Content-Range: bytes */1000\r\n", &[3; 20]).is(400);
    assert_eq!(depot.status(&lease)["held"], json!([[100, 300]]));
    let told = depot.ask("GET", &lease.read, "Range: bytes=150-249\r\n", b"").is(206);
    assert_eq!(told.body, [[1; 50], [3; 50]].concat());
}

#[test]
fn conditions_are_held_against_the_version_that_the_reader_names() {
    let depot = Relay::start(lending(1 << 20));
    let lease = depot.allocate(1000, 600, "");
    depot.ask("PUT", &lease.write, "", &[7; 1000]).is(204);
    let part = "Range: bytes=150-199\r\n";
    let told = depot.ask("GET", &lease.read, part, b"").is(206);
    let etag = told.field("etag").unwrap().to_owned();
    let ask =
        |target: &str, more: &str| depot.ask("GET", target, &format!("{part}{more}\r\n"), b"");
    ask(&lease.read, &format!("If-None-Match: {etag}")).is(304);
    ask(&lease.read, &format!("If-Match: {etag}")).is(206);
    ask(&lease.read, "If-Match: \"x\"").is(412);
    assert_eq!(ask(&lease.read, "If-Range: \"x\"").is(200).body.len(), 1000);
    // The depot does not know how it was called where it came from; whoever reads does.
    let named = format!("{}?etag=%22v1%22", lease.read);
    let told = ask(&named, "If-Match: \"v1\"").is(206);
    assert_eq!(told.field("etag"), Some("\"v1\""));
    ask(&named, &format!("If-Match: {etag}")).is(412);
}

#[test]
fn who_goes_away_in_the_middle_finds_what_came() {
    let depot = Relay::start(lending(1 << 20));
    let lease = depot.allocate(1000, 600, "");
    let mut tcp = connect(depot.address);
    let head = format!(
        "PUT {} HTTP/1.1\r\nHost: a\r\nContent-Range: bytes 400-999/1000\r\nContent-Length: 600\r\n\r\n",
        lease.write
    );
    tcp.write_all(&[head.as_bytes(), &[4; 100]].concat()).unwrap();
    drop(tcp);
    until("what came is kept", || depot.status(&lease)["held"] == json!([[400, 500]]));
    depot.put(&lease, 500, 1000, &[5; 500]).is(204);
    assert_eq!(depot.status(&lease)["held_bytes"], 600);
}

#[test]
fn files_that_are_taken_away_are_missed_and_their_lease_can_be_given_up() {
    // What lay there stayed "held"; who read it got a 500, and nobody was told why.
    let folder = tempfile::tempdir().unwrap();
    let size_bytes = 10_000_000;
    let disk = DepotOptions { size_bytes, ..DepotOptions::in_folder(folder.path()) };
    let depot = Relay::start(lending_as(disk));
    let lease = depot.allocate(1000, 600, "");
    depot.ask("PUT", &lease.write, "", &[7; 1000]).is(204);
    for entry in fs::read_dir(folder.path().join("leases")).unwrap() {
        fs::remove_file(entry.unwrap().path()).unwrap();
    }
    let status = format!("{}?status", lease.read);
    for target in [&lease.read, &status] {
        let told = depot.ask("GET", target, "", b"").is(410).says("removed from the depot's disk");
        // That is no lease's end.
        assert_eq!((told.field("swath-lost"), told.field("swath-lease")), (Some("1"), None));
    }
    depot.put(&lease, 0, 1000, b"more").is(410);
    depot.ask("DELETE", &lease.manage, "", b"").is(204);
    // The depot goes on.
    let other = depot.allocate(1000, 600, "");
    depot.ask("PUT", &other.write, "", &[8; 1000]).is(204);
    assert_eq!(depot.ask("GET", &other.read, "", b"").is(200).body, [8; 1000]);
}
