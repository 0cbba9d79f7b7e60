//! What holds for all transfers: the configuration file, its sections of hosts, and variables.

use swath_netlab::faulty::{Behaviour, Certificate, Content, ca_pem};
use swath_netlab::reserve_port;

use crate::support::Home;
use crate::support::net::{building, honest, server, sha256, url};

fn content() -> Content {
    Content::random(13, 300_000)
}

fn configured(text: &str) -> Home {
    let home = Home::new();
    let folder = home.home().join(".config/swath");
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("config.toml"), text).unwrap();
    home
}

#[test]
fn settings_hold_for_all_transfers_and_the_command_line_wins() {
    let content = content();
    let server = honest(&content);
    let home = configured("dir = \"~/in\"\nconnections = 1\n");
    home.run(["get", &url(&server)]).code_is(0);
    let name = home.home().join("in/data.bin");
    assert_eq!(std::fs::read(&name).unwrap(), content.read(0, content.size_bytes()));
    home.run(["get", &url(&server), "-o", "here.bin"]).code_is(0);
    home.run(["get", &url(&server), "-d", "there"]).code_is(0);
    home.holds("here.bin", &content);
    home.holds("there/data.bin", &content);
    home.swath(["get", &url(&server)]).env("SWATH_DIR", "env").run().code_is(0);
    home.holds("env/data.bin", &content);
    home.swath(["get", &url(&server)]).env("SWATH_CONFIG", "off").run().code_is(0);
    home.holds("data.bin", &content);
}

#[test]
fn files_without_digests_are_refused_where_that_is_set() {
    let content = content();
    let server = honest(&content);
    let home = configured("require-digest = true\n");
    home.run(["get", &url(&server)]).code_is(4);
    home.run(["cp", &url(&server), "copy.bin"]).code_is(4);
    home.lacks("copy.bin");
    home.run(["get", &url(&server), "--digest", &sha256(&content)]).code_is(0);
    home.swath(["get", &url(&server), "-d", "free"])
        .env("SWATH_REQUIRE_DIGEST", "no")
        .run()
        .code_is(0);
    home.holds("free/data.bin", &content);
}

/// The token opens its own server and is shown to no other, on another port of the same host either.
#[test]
fn a_hosts_token_opens_that_host_alone() {
    let content = content();
    let locked = server(&content, Behaviour::RequireAuthorization("Bearer sesame".to_owned()));
    let other = honest(&content);
    let section = format!(
        "[hosts.\"127.0.0.1:{}\"]\ntoken-file = \"data.token\"\nconnections = 2\n",
        locked.port()
    );
    let home = configured(&section);
    std::fs::write(home.home().join(".config/swath/data.token"), "sesame\n").unwrap();
    home.run(["get", &url(&locked), "-vv"]).code_is(0).never_says(&["sesame"]);
    home.holds("data.bin", &content);
    home.run(["get", &url(&other), &url(&locked), "-d", "both"]).code_is(0);
    // What is typed wins.
    home.run(["get", &url(&locked), "-d", "typed", "--token", "wrong"]).code_is(7).says(&["401"]);
    assert!(locked.log().has_credentials() && !other.log().has_credentials());
    // A Metalink that names the server is opened by it too.
    let list = format!("{}\n\tdir=again\n", url(&locked));
    home.swath(["get", "-i", "-"]).input(list).run().code_is(0);
}

#[test]
fn a_hosts_section_limits_its_connections() {
    let content = Content::random(14, 8 << 20);
    let busy = server(&content, Behaviour::ConnectionRate { bytes_per_s: 4 << 20 });
    let section = format!("[hosts.\"127.0.0.1:{}\"]\nconnections = 2\n", busy.port());
    let home = configured(&section);
    home.run(["get", &url(&busy), "-x", "6"]).code_is(0);
    home.holds("data.bin", &content);
    // On a machine under load a connection is given up now and then, and another one opened; without
    // the limit there are six from the start.
    let connections = busy.log().connections_at_once();
    assert!((1..=4).contains(&connections), "{connections}");
}

#[test]
fn a_hosts_proxy_takes_the_place_of_that_of_the_environment() {
    let content = content();
    let origin = honest(&content);
    let nowhere = &format!("http://127.0.0.1:{}", reserve_port());
    let direct = format!("[hosts.\"127.0.0.1:{}\"]\nproxy = \"direct\"\n", origin.port());
    let home = configured(&direct);
    let through = |home: &Home, name: &str| {
        home.swath(["get", &url(&origin), "-o", name]).env("http_proxy", nowhere).run()
    };
    through(&home, "direct.bin").code_is(0);
    home.holds("direct.bin", &content);
    let proxied = format!("[hosts.\"127.0.0.1\"]\nproxy = \"{nowhere}\"\n");
    let home = configured(&proxied);
    home.run(["get", &url(&origin), "--timeout", "8s"]).code_is(7).says(&["proxy"]);
}

#[test]
fn a_hosts_authorities_are_trusted_of_it_alone() {
    let content = content();
    let [one, other] =
        [(); 2].map(|()| building(&content).tls(Certificate::Valid).start().unwrap());
    let section = |key: &str| format!("[hosts.\"127.0.0.1:{}\"]\n{key}\n", one.port());
    let by_authority = configured(&section("ca = \"ca.pem\""));
    std::fs::write(by_authority.home().join(".config/swath/ca.pem"), ca_pem().unwrap()).unwrap();
    by_authority.run(["get", &url(&one)]).code_is(0);
    by_authority.holds("data.bin", &content);
    by_authority.run(["get", &url(&other), "-o", "other.bin"]).code_is(7);
    by_authority.lacks("other.bin");
}

#[test]
fn what_is_set_can_be_shown_and_checked() {
    let home =
        configured("timeout = 20\n\n[hosts.\"*.example\"]\nproxy = \"http://u:secret@p:1\"\n");
    let shown = home.swath(["config", "show"]).env("SWATH_LIMIT_RATE", "2M").run();
    shown.code_is(0).never_says(&["secret"]);
    for words in ["timeout = 20", "# line 1", "limit-rate = \"2M\"", "# SWATH_LIMIT_RATE"] {
        assert!(shown.out().contains(words), "{words}: {shown}");
    }
    // What is shown is a configuration file again.
    home.write("shown.toml", shown.out());
    home.run(["config", "check", "shown.toml"]).code_is(0);
    home.run(["config", "path"]).code_is(0);
    home.swath(["config", "check"])
        .env("SWATH_LIMT_RATE", "1M")
        .run()
        .code_is(0)
        .says(&["unknown variable SWATH_LIMT_RATE"]);
    for (text, words) in [
        ("server-names = \"some\"", "'server-names': must be auto, always or never"),
        ("timeout = \"soon\"", "line 1: 'timeout': 'soon' is not a time (examples: 30, 500ms, 2m)"),
        ("connections = [1]", "'connections' must be a text or a number, not a list"),
        (
            "[hosts.\"a/b\"]",
            "line 1: 'a/b' is not a host: use HOST, HOST:PORT or *.DOMAIN, optionally after http:// or https://",
        ),
        (
            "[hosts.a]\ntoken = \"x\"",
            "line 2: unknown key 'token' of a host (did you mean 'token-file'?)",
        ),
        ("[hosts.a]\nconnections = 0", "'connections': must be a number from 1 to 256"),
        (
            "[hosts.a]\nproxy = \"ftp://u:secret@p\"",
            "'proxy' of this host must be an address such as http://proxy.example:3128, or 'direct'",
        ),
        ("[hosts.a]\n[hosts.A]", "duplicate host A"),
        // Both were called valid.
        ("\nroute = \"widest\"", "line 2: the route 'widest' needs relays"),
        ("route = \"r1,r2\"", "the route contains 'r1', which is not among the relays (none)"),
        ("[hosts.a]\ntoken-file = \"none\"", "cannot read the token"),
        ("[hosts.a]\nca = \"none\"", "cannot read the certificates"),
        ("[hosts.a]\ncert = \"none\"", "cannot use the client certificate: "),
        ("[hosts.a]\nkey = \"none\"", "line 1: 'key' of this host needs 'cert'"),
    ] {
        let home = configured(text);
        home.run(["config", "check"]).code_is(6).says(&[words]).never_says(&["secret"]);
        // And no transfer begins.
        home.run(["get", "http://127.0.0.1:9/f"]).code_is(6).says(&[words]);
    }
    home.swath(["get", "http://127.0.0.1:9/f"])
        .env("SWATH_JOBS", "many")
        .run()
        .code_is(6)
        .says(&["SWATH_JOBS: must be a number from 1 to 256"]);
    home.swath(["get", "--help"]).env("SWATH_JOBS", "many").run().code_is(0);
}
