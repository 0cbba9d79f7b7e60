//! How the program reaches what it was given: logins by redirects, zones of link-local addresses,
//! proxies that refuse, and what nobody asked for.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use crate::support::Home;

/// What a test's server is asked: the lines of each request.
type Asked = Arc<Mutex<Vec<Vec<String>>>>;

/// A server that answers each request with what `answer` makes of its lines, or never (`None`); its
/// address and what it was asked.
fn served(
    answer: impl Fn(&[String]) -> Option<Vec<u8>> + Send + Sync + 'static,
) -> (String, Asked) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let (asked, answer) = (Asked::default(), Arc::new(answer));
    let heard = Arc::clone(&asked);
    std::thread::spawn(move || {
        for conn in listener.incoming().map_while(Result::ok) {
            let (heard, answer) = (Arc::clone(&heard), Arc::clone(&answer));
            std::thread::spawn(move || one(conn, &heard, &*answer));
        }
    });
    (url, asked)
}

fn one(mut conn: TcpStream, heard: &Asked, answer: &dyn Fn(&[String]) -> Option<Vec<u8>>) {
    let mut input = BufReader::new(conn.try_clone().unwrap());
    loop {
        let mut lines = Vec::new();
        loop {
            let mut line = String::new();
            match input.read_line(&mut line) {
                Ok(1..) if line.trim().is_empty() => break,
                Ok(1..) => lines.push(line.trim_end().to_owned()),
                _ => return,
            }
        }
        heard.lock().unwrap().push(lines.clone());
        match answer(&lines) {
            Some(bytes) if conn.write_all(&bytes).is_ok() => {}
            Some(_) => return,
            None => loop {
                std::thread::park();
            },
        }
    }
}

/// Who is asked for a path, and what the request shows as `Cookie`.
fn path(lines: &[String]) -> &str {
    lines[0].split(' ').nth(1).unwrap()
}

fn cookie(lines: &[String]) -> &str {
    lines.iter().find_map(|line| line.strip_prefix("Cookie: ")).unwrap_or_default()
}

fn whole(body: &str, more: &str) -> Option<Vec<u8>> {
    Some(format!("HTTP/1.1 200 OK\r\n{more}Content-Length: {}\r\n\r\n{body}", body.len()).into())
}

fn moved(to: &str, more: &str) -> Option<Vec<u8>> {
    let head = format!("HTTP/1.1 302 Found\r\n{more}Location: {to}\r\nContent-Length: 0\r\n\r\n");
    Some(head.into())
}

/// NASA's Earthdata and many portals log their users in so: without the cookie it was a circle, and
/// said to be redirects without end.
#[test]
fn a_login_by_redirects_and_a_cookie_leads_to_the_file() {
    let (url, asked) = served(|lines| match (path(lines), cookie(lines)) {
        ("/file.bin", "sid=7") => whole("data", ""),
        ("/file.bin", _) => moved("/login?next=/file.bin", ""),
        (_, _) => moved("/file.bin", "Set-Cookie: sid=7; Path=/; HttpOnly\r\n"),
    });
    let home = Home::new();
    home.swath(["get", &format!("{url}/file.bin")]).run().code_is(0);
    assert_eq!(home.read("file.bin"), b"data");
    // Nothing of it is stored: the next transfer logs in again.
    let before = asked.lock().unwrap().len();
    home.swath(["get", "--overwrite", &format!("{url}/file.bin")]).run().code_is(0);
    assert!(cookie(&asked.lock().unwrap()[before]).is_empty());
    home.swath(["probe", &format!("{url}/file.bin")]).run().code_is(0);
}

#[test]
fn a_cookie_goes_to_no_other_server_and_a_circle_stays_one() {
    let (other, heard) = served(|_| whole("data", ""));
    let (url, asked) = served(move |lines| match path(lines) {
        "/away" => moved(&format!("{other}/file"), "Set-Cookie: sid=secret; Path=/\r\n"),
        _ => moved("/circle", "Set-Cookie: same=1; Path=/\r\n"),
    });
    let home = Home::new();
    home.swath(["get", "-o", "x", &format!("{url}/away")]).run().code_is(0);
    assert!(heard.lock().unwrap().iter().all(|lines| cookie(lines).is_empty()));
    let ran = home.swath(["get", "-o", "y", &format!("{url}/circle")]).run();
    ran.code_is(7).says(&["the redirects never end"]);
    assert!(asked.lock().unwrap().len() < 50);
    // A server that sets another one each time is a circle too.
    let count = Mutex::new(0);
    let (url, asked) = served(move |_| {
        let mut count = count.lock().unwrap();
        *count += 1;
        moved("/", &format!("Set-Cookie: n={count}\r\n"))
    });
    home.swath(["get", "-o", "z", &url]).run().code_is(7).says(&["the redirects never end"]);
    assert!(asked.lock().unwrap().len() < 50);
}

/// A server named a Metalink on a host that never answers: the file waited three times --timeout.
#[test]
fn a_metalink_that_nobody_asked_for_does_not_hold_up_the_file() {
    let (url, asked) = served(|lines| match path(lines) {
        "/file.bin" => whole(
            "data",
            "Link: </file.bin.meta4>; rel=describedby; type=\"application/metalink4+xml\"\r\n",
        ),
        _ => None,
    });
    let home = Home::new();
    // It would wait longer than any test may last.
    home.swath(["get", "--timeout", "600", &format!("{url}/file.bin")])
        .run()
        .code_is(0)
        .says(&["did not arrive within", "continuing without it"]);
    assert_eq!(home.read("file.bin"), b"data");
    let asked = asked.lock().unwrap();
    assert_eq!(asked.iter().filter(|lines| path(lines).ends_with(".meta4")).count(), 1);
}

/// The address of a machine on the same cable was called invalid.
#[test]
fn a_zone_says_which_interface_leads_to_a_link_local_address() {
    let home = Home::new();
    let get = |url: &str| home.swath(["get", "--timeout", "8", url]).run();
    get("http://[fe80::1%25lo]:1/f.bin").code_is(7).says(&["[fe80::1]:1"]).never_says(&["invalid"]);
    get("http://[fe80::1%25no-such-if]/f.bin").code_is(2).says(&["no network interface"]);
    home.write("list", "http://[fe80::1%25lo]:1/f.bin\n");
    home.swath(["get", "-i", "list"]).run().code_is(6).says(&["a zone"]);
}
