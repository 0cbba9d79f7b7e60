//! A tree that is fetched while its server goes away and comes back: who waits is told of both, as
//! those are who send one.

use std::fs;

use crate::support::Home;
use crate::support::depot::until;
use crate::support::trees::{assert_same, bytes};

const SERVE: [&str; 3] = ["tree", "--plain", "--anonymous"];
/// All of it would take a quarter of a minute.
const SLOWLY: [&str; 2] = ["--limit-rate", "1M"];

/// Fetch a tree whose server goes in the middle and comes back: at once, or when that was told. Answers all
/// that was printed.
fn fetched(is_away: bool, more: &[&str]) -> String {
    let home = Home::new();
    fs::create_dir(home.path("tree")).unwrap();
    home.write("tree/wide.bin", bytes(9, 16 << 20));
    home.write("tree/small", "small\n");
    let server = home.serve_lasting(&[&SERVE[..], &SLOWLY].concat());
    let address = server.address().to_string();
    let mut copying = home.swath(["cp", &server.url, "copy"].iter().chain(more));
    let said = fs::File::create(home.path("said")).unwrap();
    copying.command().stdout(said.try_clone().unwrap()).stderr(said);
    let copying = copying.start();
    home.wait_for_bytes("copy.swath.part/wide.bin", 1 << 20);
    drop(server);
    let said = || String::from_utf8(home.read("said")).unwrap();
    if is_away {
        until("it is told", || said().contains("retrying for up to"));
    }
    let _server = home.serve_at(&address, &SERVE);
    copying.wait().code_is(0);
    for words in ["not using", "left out", "410 Gone"] {
        assert!(!said().contains(words), "{}", said());
    }
    assert_same(&home.path("tree"), &home.path("copy"));
    said()
}

fn count(said: &str, words: &str) -> usize {
    said.lines().filter(|line| line.contains(words)).count()
}

#[test]
fn whoever_fetches_is_told_that_a_server_went_and_came_back() {
    // "source 1 is left out: the server answered 410 Gone" was said of the only source there was,
    // which then brought all the rest, and nothing while it was away.
    for is_away in [false, true] {
        let said = fetched(is_away, &[]);
        assert_eq!(count(&said, "retrying for up to"), 1, "{said}");
        assert_eq!(count(&said, "reconnected after"), 1, "{said}");
    }
}

#[test]
fn programs_hear_of_no_source_that_is_lost() {
    let said = fetched(true, &["--json"]);
    assert!(!said.contains("\"state\":\"bad\""), "{said}");
    assert!(said.contains("reconnected after"), "{said}");
}

#[test]
fn a_source_without_its_disk_does_not_cost_what_has_come() {
    // The server came back with an empty folder where its disk had been: all that had come was thrown
    // away, "0 files" were copied, and the copy ended with 0. So did the same command an hour later.
    let home = Home::new();
    fs::create_dir_all(home.path("bare/sub")).unwrap();
    home.write("other/new.bin", bytes(3, 1 << 20));
    home.write("tree/sub/wide.bin", bytes(9, 16 << 20));
    home.write("tokens", "secret write\n");
    home.write("token", "secret");
    fn serve(folder: &str) -> [&str; 3] {
        [folder, "--plain", "--anonymous"]
    }
    let server = home.serve_lasting(&[&serve("tree")[..], &SLOWLY].concat());
    let address = server.address().to_string();
    let url = server.url.clone();
    let copy = ["cp", &url, "copy"];
    let copying = home.swath(copy).start();
    home.wait_for_bytes("copy.swath.part/sub/wide.bin", 2 << 20);
    drop(server);
    let mut server = home.serve_at(&address, &serve("bare"));
    let refusal = "an unfinished copy of another tree: none of its files is in this one";
    let refused = ["copy.swath.part is", refusal, "--no-resume"];
    copying.wait().code_is(3).says(&refused);
    for folder in ["bare", "other"] {
        drop(server);
        server = home.serve_at(&address, &serve(folder));
        home.run(copy).code_is(3).says(&refused);
        assert!(!home.exists("copy"));
    }
    drop(server);
    let _server = home.serve_at(&address, &serve("tree"));
    let ran = home.run(["cp", &url, "copy", "--json"]);
    let out = ran.code_is(0).out();
    let end: serde_json::Value = serde_json::from_str(out.lines().last().unwrap()).unwrap();
    assert!(end["resumed_bytes"].as_u64().unwrap() > 1 << 20, "{end}");
    assert_same(&home.path("tree"), &home.path("copy"));
    // Whoever sends hears the same, and can say that it is right.
    fs::create_dir(home.path("store")).unwrap();
    let receiver = home.serve(&["store", "--write", "--plain", "--token-file", "tokens"]);
    let to = receiver.at("new/");
    let send = |from: &str, more: &[&str]| {
        let args = ["cp", from, &to, "--bearer-file", "token"];
        home.swath(args.iter().chain(more)).start()
    };
    let sending = send("tree/", &SLOWLY);
    home.wait_for_bytes("store/new.swath.part/sub/wide.bin", 1 << 20);
    sending.signal(libc::SIGINT);
    sending.wait().code_is(130);
    send("bare/", &[]).wait().code_is(3).says(&[refusal, "--no-resume"]);
    assert!(!home.exists("store/new"));
    send("bare/", &["--no-resume"]).wait().code_is(0);
    assert_eq!(home.names_in("store/new"), ["sub"]);
}

#[test]
fn a_served_folder_that_was_removed_is_called_that() {
    // "the answer ended after 9 bytes, before its end", for ever.
    let home = Home::new();
    home.write("tree/file", "bytes\n");
    let server = home.serve(&SERVE);
    home.run(["cp", &server.url, "copy"]).code_is(0);
    fs::remove_dir_all(home.path("tree")).unwrap();
    let why = "404 Not Found: the folder has been removed since it was served";
    home.run(["cp", &server.url, "other"]).code_is(7).says(&[why]);
}
