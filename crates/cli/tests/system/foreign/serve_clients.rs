//! `swath serve` and the programs that people use already.

use crate::support::Home;
use crate::support::serve::{Served, other, succeeds};
use crate::support::xattrs;

/// 3 MiB that are the same every time, and not the same anywhere.
fn bytes() -> Vec<u8> {
    (0..3 << 18).flat_map(|n: u32| n.wrapping_mul(0x9E37_79B9).to_le_bytes()).collect()
}

/// A tree of some files, served to everybody without encryption.
fn served() -> (Home, Served) {
    let home = Home::new();
    home.write("tree/big.bin", bytes());
    home.write("tree/deep/er/small.txt", "small\n");
    home.write("tree/deep/a name, with #?%.dat", "odd\n");
    home.write("tree/empty", "");
    let server = home.serve(&["tree", "--anonymous", "--plain"]);
    (home, server)
}

/// curl in the working folder.
fn curl(home: &Home, args: &[&str]) -> String {
    let args = [&["-sS", "--max-time", "30"], args].concat();
    succeeds(&home.work(), "curl", &args).expect("curl is there")
}

#[test]
fn curl_gets_wholes_and_ranges() {
    let (home, server) = served();
    let url = server.at("big.bin");
    curl(&home, &[&url, "-o", "whole"]);
    assert_eq!(home.read("whole"), bytes());
    for (range, from, to) in
        [("0-99", 0, 100), ("1000-", 1000, 3 << 20), ("-77", (3 << 20) - 77, 3 << 20)]
    {
        let status = curl(&home, &["-r", range, &url, "-o", "part", "-w", "%{http_code}"]);
        assert_eq!((status.as_str(), home.read("part")), ("206", bytes()[from..to].to_vec()));
    }
    let several = curl(&home, &["-r", "0-1,100-101", &url, "-i", "--output", "-"]);
    assert!(several.contains("content-type: multipart/byteranges; boundary="), "{several}");
    assert_eq!(several.matches("content-range: bytes ").count(), 2, "{several}");
    let past = curl(&home, &["-r", "99999999-", &url, "-i"]);
    assert!(past.starts_with("HTTP/1.1 416 "), "{past}");
    assert!(past.contains("content-range: bytes */3145728"), "{past}");
    curl(&home, &[&server.at("empty"), "-o", "none"]);
    assert_eq!(home.read("none"), b"");
    curl(&home, &[&server.at("deep/a%20name,%20with%20%23%3F%25.dat"), "-o", "odd"]);
    assert_eq!(home.read("odd"), b"odd\n");
}

#[test]
fn curl_asks_on_conditions() {
    let (home, server) = served();
    let url = server.at("big.bin");
    let head = curl(&home, &["-I", &url]);
    assert!(head.contains("content-length: 3145728\r\n"), "{head}");
    let value = |name: &str| {
        let line = head.lines().find(|line| line.starts_with(name)).unwrap();
        line.split_once(": ").unwrap().1.trim().to_owned()
    };
    let (etag, modified) = (value("etag"), value("last-modified"));
    assert!(etag.starts_with('"'), "a strong one: {etag}");
    let status = |fields: &[&str]| {
        let mut args = vec![url.as_str(), "-o", "out", "-w", "%{http_code}"];
        for field in fields {
            args.extend(["-H", field]);
        }
        curl(&home, &args)
    };
    assert_eq!(status(&[&format!("If-None-Match: {etag}")]), "304");
    assert_eq!(status(&[&format!("If-Modified-Since: {modified}")]), "304");
    assert_eq!(status(&["If-None-Match: \"x\""]), "200");
    assert_eq!(status(&[&format!("If-Match: {etag}")]), "200");
    assert_eq!(status(&["If-Match: \"x\""]), "412");
    assert_eq!(status(&["If-Unmodified-Since: Mon, 01 Jan 2001 00:00:00 GMT"]), "412");
    assert_eq!(status(&["Range: bytes=0-9", &format!("If-Range: {etag}")]), "206");
    assert_eq!(status(&["Range: bytes=0-9", "If-Range: \"x\""]), "200");
    // Another version is another one.
    home.write("tree/big.bin", "other");
    assert_eq!(status(&[&format!("If-None-Match: {etag}")]), "200");
    assert_eq!(status(&[&format!("If-Match: {etag}")]), "412");
}

#[test]
fn curl_is_told_digests_and_where_the_metalink_is() {
    let (home, server) = served();
    let url = server.at("big.bin");
    let sum = succeeds(&home.work(), "sha256sum", &["tree/big.bin"]).unwrap();
    let sum = sum.split(' ').next().unwrap();
    let asked = curl(&home, &["-I", "-H", "Want-Digest: adler32", &url]);
    let adler = asked.lines().find_map(|line| line.strip_prefix("digest: adler32="));
    assert!(adler.is_some_and(|hex| hex.trim().len() == 8), "{asked}");
    assert!(!curl(&home, &["-I", &url]).contains("digest"), "unasked");
    let asked = curl(&home, &["-I", "-H", "Want-Repr-Digest: sha-256=9, md5=1", &url]);
    assert!(asked.contains("repr-digest: sha-256=:"), "{asked}");
    let link = asked.lines().find(|line| line.starts_with("link: ")).unwrap();
    assert!(link.contains("rel=describedby"), "{link}");
    let metalink = curl(&home, &[&format!("{url}?metalink")]);
    assert!(metalink.contains(&format!("<hash type=\"sha-256\">{sum}</hash>")), "{metalink}");
    assert!(metalink.contains("<size>3145728</size>"), "{metalink}");
    assert!(metalink.contains(&format!(">{url}</url>")), "{metalink}");
    // All of it works for swath itself: the digest is found and checked.
    let ran = home.run(["get", &url, "-o", "got"]);
    ran.code_is(0).says(&["sha-256"]);
    assert_eq!(home.read("got"), bytes());
    // A Metalink that proves nothing is offered to nobody: it cost six round trips.
    home.write("tree/large.bin", vec![7; 9 << 20]);
    let url = server.at("large.bin");
    let link = || curl(&home, &["-I", &url]).lines().any(|line| line.starts_with("link: "));
    assert!(!link());
    curl(&home, &["-I", "-H", "Want-Repr-Digest: sha-512=1", &url]);
    assert!(link());
    home.run(["get", &url, "-o", "large"]).code_is(0).says(&["sha-512"]);
}

#[test]
fn curl_speaks_two_over_tls() {
    let home = Home::new();
    home.write("tree/big.bin", bytes());
    let server = home.serve(&["tree"]);
    let url = server.at("big.bin");
    let token = format!("Authorization: Bearer {}", server.token());
    let told = "%{http_version} %{http_code}";
    for (version, says) in [("--http2", "2 200"), ("--http1.1", "1.1 200")] {
        let args = ["-k", version, "-H", &token, &url, "-o", "whole", "-w", told];
        assert_eq!(curl(&home, &args), says);
        assert_eq!(home.read("whole"), bytes());
    }
    let args = ["-k", "--http2", "-H", &token, "-r", "5-9", &url, "-o", "part", "-w", told];
    assert_eq!(curl(&home, &args), "2 206");
    assert_eq!(home.read("part"), bytes()[5..10]);
    // Without the token, or with another one, there is nothing.
    assert_eq!(curl(&home, &["-k", &url, "-o", "none", "-w", told]), "2 401");
    let wrong = ["-k", "-H", "Authorization: Bearer x", &url, "-o", "none", "-w", told];
    assert_eq!(curl(&home, &wrong), "2 401");
    let as_password = format!("anybody:{}", server.token());
    let basic = ["-k", "-u", &as_password, &url, "-o", "whole", "-w", told];
    assert_eq!(curl(&home, &basic), "2 200");
    assert!(server.words.contains("fingerprint  sha-256:"), "{}", server.words);
    // Health is for those who watch, and says nothing else.
    assert_eq!(curl(&home, &["-k", &server.at("health")]), "well\n");
}

#[test]
fn wget_resumes_and_mirrors() {
    let (home, server) = served();
    home.write("big.bin", &bytes()[..1 << 20]);
    let Some(said) = succeeds(&home.work(), "wget", &["-c", &server.at("big.bin")]) else { return };
    assert!(said.contains("206 Partial Content"), "{said}");
    assert_eq!(home.read("big.bin"), bytes());
    // Links and pipes answer 404, and their names on a page led there: `wget -r` ended with 8.
    std::os::unix::fs::symlink("big.bin", home.path("tree/link")).unwrap();
    std::os::unix::fs::symlink("/etc/<passwd>", home.path("tree/out")).unwrap();
    succeeds(&home.work(), "mkfifo", &["tree/pipe"]).unwrap();
    succeeds(&home.work(), "wget", &["-r", "-np", "-nH", "-P", "mirror", &server.url]);
    assert_eq!(home.read("mirror/deep/er/small.txt"), b"small\n");
    assert_eq!(home.read("mirror/big.bin"), bytes());
    let names = std::fs::read_dir(home.path("mirror/deep")).unwrap();
    let has_odd = names.flatten().any(|name| {
        name.file_type().unwrap().is_file() && std::fs::read(name.path()).unwrap() == b"odd\n"
    });
    assert!(has_odd, "the name that has to be escaped");
}

#[test]
fn aria2_davix_and_rclone_get_files() {
    let (home, server) = served();
    let url = server.at("big.bin");
    let aria2 = ["-q", "-x8", "-s8", "-k1M", "--check-certificate=false", "-o", "aria", &url];
    if succeeds(&home.work(), "aria2c", &aria2).is_some() {
        assert_eq!(home.read("aria"), bytes());
    }
    if succeeds(&home.work(), "davix-get", &[&url, "davix"]).is_some() {
        assert_eq!(home.read("davix"), bytes());
    }
    let remote = format!(":http,url=\"{}\":", server.url);
    if succeeds(&home.work(), "rclone", &["-q", "copy", &remote, "rclone"]).is_some() {
        assert_eq!(home.read("rclone/big.bin"), bytes());
        assert_eq!(home.read("rclone/deep/er/small.txt"), b"small\n");
        assert_eq!(home.read("rclone/deep/a name, with #?%.dat"), b"odd\n");
        assert_eq!(home.read("rclone/empty"), b"");
    }
}

#[test]
fn a_stranger_s_client_fetches_a_dataset() {
    let (home, server) = served();
    home.write("tree/deep/more.bin", &bytes()[..700_000]);
    std::os::unix::fs::symlink("../empty", home.path("tree/deep/link")).unwrap();
    std::fs::hard_link(home.path("tree/big.bin"), home.path("tree/deep/other name")).unwrap();
    std::fs::hard_link(home.path("tree/deep/more.bin"), home.path("tree/deep/once more")).unwrap();
    let attribute = |name: &str, value: &str| {
        let path = home.path(format!("tree/deep/{name}"));
        xattrs::set(&path, "user.run", value.as_bytes())
    };
    // One set twice, another one, and one of a folder.
    std::fs::create_dir(home.path("tree/deep/a folder")).unwrap();
    let has_attributes =
        attribute("more.bin", "7") && attribute("other name", "8") && attribute("a folder", "7");
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/dataset.py");
    // The checks in plain Python are slow: a part of the tree has all there is to see.
    let url = server.at("deep/");
    let Some(_) = succeeds(&home.work(), "python3", &[script, &url, "copy"]) else { return };
    // It is as long as docs/protocol.md says, comments and empty lines left out.
    let text = std::fs::read_to_string(script).unwrap();
    let is_code = |line: &&str| !line.trim().is_empty() && !line.trim().starts_with('#');
    assert!(text.lines().filter(is_code).count() <= 129);
    let differences = other(&home.work(), "diff", &["-r", "--no-dereference", "tree/deep", "copy"]);
    assert_eq!(differences, Some((0, String::new())));
    // With all times and modes: for a copy nothing is left to do.
    home.run(["cp", "-n", &url, "copy"]).code_is(0).says(&["nothing to do"]);
    let modified = |path: &str| home.path(path).metadata().unwrap().modified().unwrap();
    assert_eq!(modified("copy/a folder"), modified("tree/deep/a folder"));
    assert_eq!(std::fs::read_link(home.path("copy/link")).unwrap().to_str(), Some("../empty"));
    if !has_attributes {
        println!("skipped: extended attributes, which this file system does not take");
        return;
    }
    for (name, value) in
        [("more.bin", "7"), ("once more", "7"), ("other name", "8"), ("a folder", "7")]
    {
        let all = xattrs::all(&home.path("copy").join(name));
        assert_eq!(all, [("user.run".to_owned(), value.into())], "{name}");
    }
}

/// TLS is what a server speaks unless told otherwise, and wrong arguments made a traceback.
#[test]
fn the_client_of_the_protocol_speaks_tls_and_has_a_usage() {
    let home = Home::new();
    home.write("tree/a.txt", "alpha\n");
    let server = home.serve(&["tree"]);
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/dataset.py");
    let run = |more: &[&str]| other(&home.work(), "python3", &[&[script], more].concat());
    let Some((code, said)) = run(&[]) else { return };
    assert!(code == 2 && said.starts_with("usage: dataset.py "), "{said}");
    let shown = server.words.lines().find_map(|line| line.strip_prefix("fingerprint  ")).unwrap();
    let run = |to: &str, how: &[&str]| {
        let usual = [server.url.as_str(), to, server.token()];
        run(&[&usual, how].concat()).unwrap()
    };
    for (to, how) in [("one", &["--fingerprint", shown][..]), ("two", &["--insecure"])] {
        let (code, said) = run(to, how);
        assert_eq!((code, said.as_str()), (0, ""));
        assert_eq!(home.read(&format!("{to}/a.txt")), b"alpha\n");
    }
    let another = format!("sha-256:{}", "0".repeat(64));
    let (code, said) = run("three", &["--fingerprint", &another]);
    assert!(code == 1 && said.starts_with("the server shows another certificate"), "{said}");
    let (code, said) = run("four", &[]);
    assert!(code != 0 && said.contains("CERTIFICATE_VERIFY_FAILED"), "{said}");
}

#[test]
fn a_server_fetches_nothing_from_a_host_that_ssh_does_not_reach() {
    let home = Home::new();
    let to = format!("http://127.0.0.1:{}/b/", swath_netlab::reserve_port());
    let by_ssh = home.run(["cp", "host:a/", &to]);
    by_ssh.code_is(7).says(&["ssh could not connect"]);
}
