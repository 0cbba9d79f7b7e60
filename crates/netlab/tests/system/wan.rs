//! The emulator end to end: real namespaces, real TCP. Needs root and skips
//! itself otherwise. Limits are wide: the machine may be busy.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::time::{Duration, Instant};

use swath_netlab::star::{Lab, LinkSpec, StarSpec};
use swath_netlab::wan::{Change, LabError, Schedule, Step, Target};

/// How long is waited for what comes at once on a machine that has nothing else to do.
const PATIENCE: Duration = Duration::from_secs(60);

/// Builds the star, or says why this test does not run.
pub fn lab(spec: &StarSpec) -> Option<Lab> {
    match Lab::star(spec) {
        Ok(lab) => Some(lab),
        Err(LabError::NeedsRoot) => {
            println!("skipped: needs root");
            None
        }
        Err(e) if !Path::new("/dev/net/tun").exists() => {
            println!("skipped: {e}");
            None
        }
        Err(e) => panic!("{e}"),
    }
}

/// Serves `size_bytes` to each connection on port 9 of a server's namespace, on its own thread.
fn serve_bytes(lab: &Lab, link: usize, size_bytes: usize) {
    let listener = lab.servers()[link].run(|| {
        TcpListener::bind((Ipv4Addr::UNSPECIFIED, 9))
            .map_err(|cause| LabError::System { doing: "listen".to_owned(), cause })
    });
    let listener = listener.unwrap();
    std::thread::spawn(move || {
        while let Ok((mut connection, _)) = listener.accept() {
            let _ = connection.write_all(&vec![7; size_bytes]);
        }
    });
}

/// Connects from the client's namespace; also answers how long that took.
fn connect(lab: &Lab, link: usize, limit: Duration) -> Result<(TcpStream, Duration), LabError> {
    let address = SocketAddr::from((lab.server_address(link), 9));
    lab.client().run(|| {
        let start = Instant::now();
        let stream = TcpStream::connect_timeout(&address, limit);
        let stream =
            stream.map_err(|cause| LabError::System { doing: "connect".to_owned(), cause })?;
        Ok((stream, start.elapsed()))
    })
}

/// Connects until that is, or is not, possible.
fn until_connects(lab: &Lab, link: usize, wanted: bool) {
    let begin = Instant::now();
    while connect(lab, link, Duration::from_secs(1)).is_ok() != wanted {
        assert!(begin.elapsed() < PATIENCE, "link {link} was to connect: {wanted}");
    }
}

#[test]
fn a_link_has_its_rate_and_its_round_trip() {
    let Some(lab) = lab(&StarSpec::new(vec![LinkSpec::new(40, 30)])) else { return };
    serve_bytes(&lab, 0, 2_000_000);
    // No handshake is faster than the link; on a busy machine some are slower.
    let trips = (0..20).map(|_| connect(&lab, 0, PATIENCE).unwrap().1);
    let round_trip = trips.min().unwrap();
    let (mut stream, _) = connect(&lab, 0, PATIENCE).unwrap();
    assert!(round_trip >= Duration::from_millis(60), "{round_trip:?}");
    assert!(round_trip < Duration::from_millis(200), "{round_trip:?}");
    let start = Instant::now();
    let mut body = Vec::new();
    stream.read_to_end(&mut body).unwrap();
    // 2 MB at 40 Mbit/s with framing take 0.41 s, and slow start comes on top.
    let elapsed = start.elapsed();
    assert_eq!(body.len(), 2_000_000);
    assert!(elapsed >= Duration::from_millis(400), "{elapsed:?}");
    assert!(elapsed < PATIENCE, "{elapsed:?}");
    let counters = lab.counters()[0];
    assert!(counters.down.bytes > 2_000_000 && counters.up.packets > 0);
    assert_eq!(counters.down.lost, 0);
}

#[test]
fn a_schedule_silences_a_link_and_brings_it_back() {
    let Some(lab) = lab(&StarSpec::new(vec![LinkSpec::new(100, 5); 2])) else { return };
    serve_bytes(&lab, 0, 1000);
    serve_bytes(&lab, 1, 1000);
    let silence = |silent| {
        let (at, change) = (Duration::from_millis(50), Change::Silent(silent));
        lab.play(&Schedule::new(vec![Step { at, target: Target::both(0), change }]));
    };
    silence(true);
    until_connects(&lab, 0, false);
    // The other link goes on.
    connect(&lab, 1, PATIENCE).unwrap();
    let counters = lab.counters()[0];
    assert!(counters.up.dropped + counters.down.dropped >= 1, "{counters:?}");
    silence(false);
    until_connects(&lab, 0, true);
}
