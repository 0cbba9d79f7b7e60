//! The web servers of others behind emulated links. Needs root, and skips itself without them.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::time::Duration;

use swath_netlab::star::{LinkSpec, ServerKind, StarSpec, WebServer};
use swath_netlab::wan::LabError;

use crate::wan::lab;

#[test]
fn web_servers_serve_a_folder_and_stop_with_the_value() {
    let Some(lab) = lab(&StarSpec::new(vec![LinkSpec::new(100, 1); 2])) else { return };
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("data"), b"0123456789").unwrap();
    for (link, kind) in [ServerKind::Nginx, ServerKind::Apache].into_iter().enumerate() {
        let server = match WebServer::start(kind, &lab.servers()[link], folder.path()) {
            Ok(server) => server,
            Err(LabError::ServerMissing { program }) => {
                println!("skipped: {program} is not installed");
                continue;
            }
            Err(e) => panic!("{e}"),
        };
        let address = SocketAddr::from((lab.server_address(link), 80));
        let ask = || {
            lab.client().run(|| {
                let system = |cause| LabError::System { doing: "ask".to_owned(), cause };
                let mut stream = TcpStream::connect_timeout(&address, Duration::from_secs(10))
                    .map_err(system)?;
                let request = b"GET /data HTTP/1.1\r\nHost: x\r\nRange: bytes=2-4\r\n\
                                Connection: close\r\n\r\n";
                stream.write_all(request).map_err(system)?;
                let mut answer = String::new();
                stream.read_to_string(&mut answer).map_err(system)?;
                Ok(answer)
            })
        };
        let answer = ask().unwrap();
        assert!(answer.starts_with("HTTP/1.1 206 "), "{answer}");
        assert!(answer.ends_with("\r\n\r\n234"), "{answer}");
        drop(server);
        assert!(ask().is_err(), "{kind:?} still answers");
    }
}

#[test]
fn a_missing_folder_is_named() {
    let Some(lab) = lab(&StarSpec::new(vec![LinkSpec::new(100, 1)])) else { return };
    let missing = Path::new("/nonexistent/folder");
    let error = WebServer::start(ServerKind::Nginx, &lab.servers()[0], missing).unwrap_err();
    assert!(error.to_string().contains("/nonexistent/folder"), "{error}");
}
