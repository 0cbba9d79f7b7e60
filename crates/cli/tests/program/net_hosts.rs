//! Hosts that limit their clients, and hosts that are not there: what is learnt of one holds for all
//! files of a run, and its owner's wishes are kept.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use crate::support::net::honest;
use crate::support::nginx::Nginx;
use crate::support::{Home, Ran, on_time};
use swath_netlab::faulty::Content;

fn events(ran: &Ran) -> Vec<serde_json::Value> {
    let parsed = ran.out().lines().map(serde_json::from_str).collect::<Result<Vec<_>, _>>();
    parsed.unwrap_or_else(|error| panic!("{error}: {ran}"))
}

/// nginx with `limit_rate` sends each answer a burst and then one a second or so. The pauses were
/// called silence, eight connections were opened where four were allowed, and a hundred short requests
/// collected the burst again and again.
#[test]
fn answers_that_are_limited_are_few_and_long_and_never_called_silent() {
    let content = Content::random(901, 32 << 20);
    let limits = ["limit_rate 300k; limit_conn each 4;", "limit_rate 600k; limit_conn each 4;"];
    let Some(nginx) = Nginx::start(&[("f.bin", &content)], &limits) else { return };
    // What a machine does that has no time for the program looks as what a server does.
    on_time(|| limited_transfer(&nginx, &content));
}

/// One transfer from both servers; the error is what their owners, or the user, would not like.
fn limited_transfer(nginx: &Nginx, content: &Content) -> Result<(), String> {
    let home = Home::new();
    let before = nginx.noted().len();
    let ran = home
        .swath(["get", "--json", &nginx.url(0, "f.bin"), &nginx.url(1, "f.bin")])
        .limit(Duration::from_secs(240))
        .run();
    ran.code_is(0);
    home.holds_only("f.bin", content);
    for event in events(&ran) {
        let states = event["sources"].as_array().cloned().unwrap_or_default();
        let states = states.iter().map(|it| &it["state"]).chain([&event["state"]]);
        for state in states {
            if state == "silent" || state == "slow" {
                return Err(event.to_string());
            }
        }
    }
    let noted = nginx.noted().split_off(before);
    for server in 0..2 {
        let of_one = || noted.iter().filter(|it| it.port == nginx.port(server));
        let refused = of_one().filter(|it| it.status == 503).count();
        // What the samples at the end ask for is small.
        let answers = of_one().filter(|it| it.status == 206 && it.sent_bytes > 100_000).count();
        if refused > 2 || answers > 60 {
            return Err(format!("{refused} refusals, {answers} answers: {noted:?}"));
        }
    }
    let sent: u64 = noted.iter().map(|it| it.sent_bytes).sum();
    let most = content.size_bytes() / 10 * 11;
    if sent < most { Ok(()) } else { Err(format!("{sent} bytes of {}", content.size_bytes())) }
}

/// Each file of a list found out for itself, by a refusal, that its host serves two connections.
#[test]
fn files_of_a_list_wait_for_one_another_where_their_host_serves_two_connections() {
    let contents: Vec<Content> = (0..12).map(|seed| Content::random(seed, 150_000)).collect();
    let names: Vec<String> = (0..12).map(|at| format!("f{at}.bin")).collect();
    let files: Vec<(&str, &Content)> = names.iter().map(String::as_str).zip(&contents).collect();
    for status in [403, 429, 503] {
        let limits = format!("limit_rate 100k; limit_conn each 2; limit_conn_status {status};");
        let Some(nginx) = Nginx::start(&files, &[&limits]) else { return };
        let home = Home::new();
        let list: String = names.iter().map(|name| nginx.url(0, name) + "\n").collect();
        home.swath(["get", "-i", "-", "-d", "all"])
            .input(list)
            .limit(Duration::from_secs(120))
            .run()
            .code_is(0);
        for (name, content) in &files {
            home.holds(&format!("all/{name}"), content);
        }
        let refused = nginx.noted().iter().filter(|it| it.status == status).count();
        // Eight are tried at once before anything is known; a connection that has just ended may
        // still count.
        assert!(refused <= 24, "{refused} times {status}");
    }
}

/// The first files of a list lie on a host that is down: each was tried for ten seconds, and held a
/// job meanwhile.
#[test]
fn files_of_a_dead_host_hold_up_none_of_another_host() {
    let content = Content::random(902, 300_000);
    let good = honest(&content);
    let dead = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = dead.local_addr().unwrap().port();
    drop(dead);
    let mut list: String =
        (0..6).map(|at| format!("http://127.0.0.1:{port}/d{at}.bin\n")).collect();
    list.push_str(&good.url("/data.bin"));
    let home = Home::new();
    let ran = home
        .swath(["get", "--json", "-i", "-", "-j", "2"])
        .input(list)
        .limit(Duration::from_secs(120))
        .run();
    ran.code_is(8);
    home.holds("data.bin", &content);
    let at = |is: &dyn Fn(&serde_json::Value) -> bool| events(&ran).iter().position(is);
    let done = at(&|event| event["event"] == "finished");
    let failed = at(&|event| event["event"] == "failed");
    assert!(done.is_some() && done < failed, "{done:?} {failed:?}: {ran}");
}

/// A server that closed every further connection unanswered had 2,200 of them in three
/// seconds: what the first one brought made up for what befell the others.
#[test]
fn connections_that_are_closed_unanswered_are_tried_ever_more_rarely() {
    let content = Content::random(903, 3_000_000);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let connections = Arc::new(AtomicU32::new(0));
    let counted = Arc::clone(&connections);
    let is_served = Arc::new(AtomicBool::new(false));
    let served = content.clone();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { return };
            counted.fetch_add(1, Ordering::SeqCst);
            if is_served.swap(true, Ordering::SeqCst) {
                continue;
            }
            let is_served = Arc::clone(&is_served);
            let content = served.clone();
            std::thread::spawn(move || {
                while answer(&mut stream, &content).is_some() {}
                is_served.store(false, Ordering::SeqCst);
            });
        }
    });
    let home = Home::new();
    let url = format!("http://127.0.0.1:{port}/f.bin");
    home.swath(["get", "-x", "4", &url]).limit(Duration::from_secs(120)).run().code_is(0);
    home.holds_only("f.bin", &content);
    let connections = connections.load(Ordering::SeqCst);
    assert!((2..=200).contains(&connections), "{connections} connections");
}

/// Answers one request, for a range or for all, at a megabyte a second.
fn answer(stream: &mut std::net::TcpStream, content: &Content) -> Option<()> {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") {
        if stream.read(&mut byte).ok()? == 0 {
            return None;
        }
        head.push(byte[0]);
    }
    let head = String::from_utf8(head).ok()?;
    let size = content.size_bytes();
    let range = head.split("bytes=").nth(1).and_then(|it| it.split_whitespace().next());
    let (from, end) = match range.and_then(|range| range.split_once('-')) {
        Some((from, to)) => {
            (from.parse().ok()?, to.parse::<u64>().map_or(size, |last| (last + 1).min(size)))
        }
        None => (0, size),
    };
    let of_part = format!("Content-Range: bytes {from}-{}/{size}\r\n", end - 1);
    let (status, of_part) = match range {
        Some(_) => ("206 Partial Content", of_part),
        None => ("200 OK", String::new()),
    };
    let length = end - from;
    let head =
        format!("HTTP/1.1 {status}\r\n{of_part}Content-Length: {length}\r\nETag: \"a\"\r\n\r\n");
    stream.write_all(head.as_bytes()).ok()?;
    let mut at = from;
    while at < end {
        let part = (end - at).min(20_000);
        stream.write_all(&content.read(at, at + part)).ok()?;
        at += part;
        std::thread::sleep(Duration::from_millis(20));
    }
    Some(())
}
