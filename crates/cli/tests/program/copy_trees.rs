//! `swath cp`: whole trees from real servers.

use std::fs;
use std::os::unix::fs::MetadataExt as _;

use crate::support::Home;
use crate::support::serve::Served;
use crate::support::trees::{assert_same, bytes, plant, seen};

fn serve(home: &Home, tree: &str) -> Served {
    home.serve(&[tree, "--anonymous", "--plain"])
}

#[test]
fn a_tree_arrives_as_it_is() {
    let home = Home::new();
    plant(&home);
    let server = serve(&home, "tree");
    let ran = home.run(["cp", &server.url, "copy"]);
    ran.code_is(0).says(&[
        "308 files",
        "folders",
        "2 links",
        "verified by the checksum of every block",
    ]);
    assert_same(&home.path("tree"), &home.path("copy"));
    let blocks = fs::metadata(home.path("copy/sparse")).unwrap();
    assert!(blocks.blocks() < 3 * 2048, "holes of a MiB and more are holes");
    assert_eq!(home.names(), ["copy", "tree"]);
}

#[test]
fn over_tls_with_token_and_fingerprint() {
    let home = Home::new();
    plant(&home);
    let server = home.serve(&["tree"]);
    home.write("token", server.token());
    let refused = home.run(["cp", &server.url, "copy", "--bearer-file", "token"]);
    refused.code_is(7).says(&["certificate is not trusted", "--fingerprint"]);
    let line = server.words.lines().find(|line| line.starts_with("fingerprint ")).unwrap();
    let print = line.split_whitespace().last().unwrap();
    let wrong =
        format!("{}{}", &print[..print.len() - 1], if print.ends_with('0') { '1' } else { '0' });
    let refused =
        home.run(["cp", &server.url, "copy", "--bearer-file", "token", "--fingerprint", &wrong]);
    refused.code_is(7).says(&["its fingerprint is", "not the one given"]);
    refused.never_says(&["--fingerprint trusts"]);
    let nobody = home.run(["cp", &server.url, "copy", "--fingerprint", print]);
    nobody.code_is(7).says(&["401"]);
    assert!(!home.exists("copy"));
    let ran =
        home.run(["cp", &server.url, "copy", "--bearer-file", "token", "--fingerprint", print]);
    ran.code_is(0);
    assert_same(&home.path("tree"), &home.path("copy"));
}

#[test]
fn what_is_in_the_way_is_said_before_it_costs_anything() {
    let home = Home::new();
    plant(&home);
    let server = serve(&home, "tree");
    home.write("copy/large.bin/within", "a folder where a file is to be\n");
    home.run(["cp", &server.url, "copy"]).code_is(5).says(&[
        "copy has entries of another kind than the source: large.bin (a folder there, a file",
    ]);
    fs::remove_dir_all(home.path("copy")).unwrap();
    home.write("copy/many", "a file where a folder is to be\n");
    home.run(["cp", &server.url, "copy"])
        .code_is(5)
        .says(&["many (a file there, a folder in the source); nothing was copied"]);
    assert_eq!(home.read("copy/many"), b"a file where a folder is to be\n");
}

#[test]
fn a_server_that_is_killed_and_comes_back() {
    let home = Home::new();
    plant(&home);
    home.write("tree/wide.bin", bytes(9, 24 << 20));
    // All of it would take half a minute.
    let slowly = ["tree", "--anonymous", "--plain", "--limit-rate", "1M"];
    let server = home.serve_lasting(&slowly);
    let address = server.address().to_string();
    let child = home.swath(["cp", &server.url, "copy"]).start();
    home.wait_for_bytes("copy.swath.part/large.bin", 1 << 20);
    server.signal(9);
    drop(server);
    let again = home.serve_at(&address, &["tree", "--anonymous", "--plain"]);
    child.wait().code_is(0);
    drop(again);
    assert_same(&home.path("tree"), &home.path("copy"));
}

#[test]
fn what_is_no_swath_server_is_said() {
    let home = Home::new();
    home.write("tree/file", "x\n");
    let server = serve(&home, "tree");
    home.run(["cp", &server.at("missing/"), "copy"]).code_is(7).says(&["404"]);
    home.write("file", "x\n");
    home.run(["cp", &server.url, "file"]).code_is(5).says(&["file is not a folder"]);
    let web = swath_netlab::faulty::Server::builder()
        .file("/tree/", swath_netlab::faulty::Content::random(1, 1000))
        .start()
        .unwrap();
    home.run(["cp", &web.url("/tree/"), "copy"]).code_is(7).says(&["no folder of a swath server"]);
    assert_eq!(home.names(), ["file", "tree"]);
}

#[test]
fn ls_and_du_tell_what_is_there() {
    let home = Home::new();
    plant(&home);
    let server = serve(&home, "tree");
    let out = |args: &[&str]| {
        let ran = home.run(args);
        ran.code_is(0);
        String::from_utf8(ran.stdout.clone()).unwrap()
    };
    let plain = out(&["ls", &server.url]);
    assert!(plain.starts_with("deep/\nmany/\nnothing in it/\n"), "{plain}");
    let long = out(&["ls", "-l", &server.url]);
    let page = long.lines().find(|line| line.ends_with("  page.bin")).unwrap();
    assert_eq!(page.trim(), "0751  1.05 MB  2001-09-09 01:46:40  page.bin");
    assert!(long.contains("  link -> large.bin\n"), "{long}");
    let all = out(&["ls", "-R", &server.url]);
    assert!(all.contains("\nmany/3/3.dat\n"), "{all}");
    assert_eq!(all.lines().count(), seen(&home.path("tree")).lines().count());
    let json = out(&["ls", "--json", "-R", &server.at("many/3/")]);
    let first: serde_json::Value = serde_json::from_str(json.lines().next().unwrap()).unwrap();
    assert_eq!(first["name"], "10.dat");
    assert_eq!(first["size"], 10 * 7919 % 40_000);
    let sizes = out(&["du", &server.url]);
    assert!(sizes.contains("  5.00 MB  large.bin\n"), "{sizes}");
    assert!(sizes.trim_end().ends_with("  in 308 files and 69 folders"), "{sizes}");
}

#[test]
fn a_dry_run_tells_and_delete_removes() {
    let home = Home::new();
    plant(&home);
    let server = serve(&home, "tree");
    let out = |args: &[&str]| {
        let ran = home.run(args);
        ran.code_is(0);
        String::from_utf8(ran.stdout.clone()).unwrap()
    };
    let all = out(&["cp", "-n", &server.url, "copy"]);
    assert!(!home.exists("copy") && all.contains("copy      5.00 MB  large.bin\n"), "{all}");
    assert_eq!(all.lines().count(), seen(&home.path("tree")).lines().count());
    home.run(["cp", &server.url, "copy"]).code_is(0);
    assert_eq!(out(&["cp", "-n", "--delete", &server.url, "copy"]), "");
    home.write("copy/many/3/surplus", "x\n");
    home.write("copy/older/deep/surplus", "x\n");
    std::os::unix::fs::symlink("../tree", home.path("copy/out")).unwrap();
    fs::remove_file(home.path("copy/empty")).unwrap();
    let told = out(&["cp", "-n", "--delete", &server.url, "copy"]);
    assert_eq!(
        told.lines().map(|line| line.split_whitespace().last().unwrap()).collect::<Vec<_>>(),
        ["empty", "many/3/surplus", "older", "older/deep", "older/deep/surplus", "out"],
    );
    assert!(home.exists("copy/older/deep/surplus") && !home.exists("copy/empty"));
    home.run(["cp", &server.url, "copy"]).code_is(0);
    assert!(home.exists("copy/older/deep/surplus") && home.exists("copy/empty"));
    let removed = home.run(["cp", "--delete", &server.url, "copy"]);
    removed.code_is(0).says(&["5 removed"]);
    assert_same(&home.path("tree"), &home.path("copy"));
    assert!(home.exists("tree/large.bin"), "a link was removed and not followed");
}
