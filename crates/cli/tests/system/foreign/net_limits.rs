//! A real nginx that limits its clients: what is learnt of it holds for all files of a run, and its
//! owner's wishes are kept. Without nginx, the suite of `jobs` asks the same of a host of its own.

use std::time::Duration;

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
