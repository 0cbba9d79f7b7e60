//! Every kind of source does what all must do.

use std::sync::Arc;
use std::time::Duration;

use swath_model::{LaneId, Pool, Range, SwathId};
use swath_netlab::faulty::{Behaviour, Certificate, Content, Server};
use swath_source::{
    Class, Fault, FaultPeriod, Faults, FilePart, JoinedSource, LaneError, LaneEventKind, Limit,
    MemorySource, Net, NetOptions, Opening, Source, Trust, Wrapped, conformance, open,
};
use tokio::sync::mpsc::unbounded_channel;
use tokio::time::{Instant, timeout};
use url::Url;

fn opened(net: &Net, url: &Url) -> Arc<dyn Source> {
    open(Opening { net, url, trust: Trust::Named, sealed: None }).unwrap()
}

#[tokio::test]
async fn memory_is_a_source() {
    conformance::run(async |content| {
        let source: Arc<dyn Source> = MemorySource::of("data.bin", content);
        source
    })
    .await;
}

#[tokio::test]
async fn a_source_may_grow() {
    conformance::run_growing(async |content| {
        let (source, holdings) = MemorySource::growing("data.bin", content);
        (source as Arc<dyn Source>, holdings)
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_limited_source_is_a_source() {
    for (bytes_per_s, lanes) in [(None, Some(1)), (Some(40_000), None), (Some(50_000_000), Some(3))]
    {
        conformance::run(async |content| {
            let source = MemorySource::of("data.bin", content);
            let limited = Wrapped::around(source, Limit::new(bytes_per_s, lanes));
            assert_eq!(limited.limits().connections, lanes);
            limited
        })
        .await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_limit_is_kept_by_all_lanes_together() {
    let content = vec![7; 600_000];
    let limited =
        Wrapped::around(MemorySource::of("data.bin", content), Limit::new(Some(100_000), None));
    let pool = Pool::new(16, 64 << 10);
    let (sender, mut events) = unbounded_channel();
    let began = Instant::now();
    let lanes: Vec<_> = (0..3)
        .map(|at| {
            let lane = Arc::clone(&limited).open_lane(LaneId(at), &pool, sender.clone());
            let at = u64::from(at);
            lane.fetch(SwathId(at), Range::of_len(at * 200_000, 200_000));
            lane
        })
        .collect();
    let mut done = 0;
    while done < lanes.len() {
        done +=
            usize::from(matches!(events.recv().await.unwrap().kind, LaneEventKind::Done { .. }));
    }
    let took_s = began.elapsed().as_secs_f64();
    assert!((5.8..6.2).contains(&took_s), "{took_s} s for 6 s of data");
    assert!(
        lanes.iter().all(|lane| lane.meter().holds() > 0),
        "the waiting is no fault of the source"
    );
}

#[tokio::test(start_paused = true)]
async fn a_faulty_source_is_a_source_between_its_faults() {
    let periods = vec![FaultPeriod { from_s: 0.1, to_s: 3.0, fault: Fault::Stalls }];
    let faults = Faults { delay: Duration::from_millis(80), periods, ..Faults::default() };
    conformance::run(async |content| {
        Wrapped::around(MemorySource::of("data.bin", content), faults.clone())
    })
    .await;
}

#[tokio::test]
async fn a_wrapper_fits_around_any_kind_and_any_wrapper() {
    let net = Net::new(NetOptions::default()).unwrap();
    let servers = std::cell::RefCell::new(Vec::new());
    conformance::run(async |content| {
        let server = Server::builder().file("/f.bin", Content::bytes(content)).start().unwrap();
        let url = Url::parse(&server.url("/f.bin")).unwrap();
        servers.borrow_mut().push(server);
        let limited = Wrapped::around(opened(&net, &url), Limit::new(Some(50_000_000), Some(2)));
        Wrapped::around(limited, Faults::default())
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn faults_show_as_what_they_are() {
    let source = |fault| {
        let periods = vec![FaultPeriod { from_s: 0.0, to_s: 10.0, fault }];
        let source = MemorySource::of("data.bin", vec![0; 100]);
        Wrapped::around(source, Faults { periods, ..Faults::default() })
    };
    for (fault, class) in [
        (Fault::Down, Class::Transient),
        (Fault::Short, Class::Transient),
        (Fault::Refuses(503), Class::Busy(Duration::from_secs(1))),
        (Fault::Refuses(404), Class::Missing),
    ] {
        let error = source(fault).describe().await.unwrap_err();
        assert_eq!(error.class(), class, "{fault:?}");
    }
    let stalls = source(Fault::Stalls);
    assert!(timeout(Duration::from_secs(9), stalls.describe()).await.is_err(), "it says nothing");
    assert!(stalls.describe().await.is_ok(), "and comes back");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_is_a_source() {
    let net = Net::new(NetOptions::default()).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let number = std::cell::Cell::new(0);
    conformance::run(async |content| {
        number.set(number.get() + 1);
        let path = folder.path().join(format!("data {}.bin", number.get()));
        std::fs::write(&path, content).unwrap();
        opened(&net, &Url::from_file_path(&path).unwrap())
    })
    .await;
}

#[tokio::test]
async fn what_a_web_server_has_is_a_source() {
    for (fallback_only, is_tls) in [(false, false), (false, true), (true, false), (true, true)] {
        let servers = std::cell::RefCell::new(Vec::new());
        let options = NetOptions { fallback_only, insecure: is_tls, ..NetOptions::default() };
        let net = Net::new(options).unwrap();
        conformance::run(async |content| {
            let mut server = Server::builder().file("/f.bin", Content::bytes(content));
            if is_tls {
                server = server.tls(Certificate::SelfSigned);
            }
            let server = server.start().unwrap();
            let url = Url::parse(&server.url("/f.bin")).unwrap();
            servers.borrow_mut().push(server);
            opened(&net, &url)
        })
        .await;
    }
}

/// Files of these sizes, the last one as large as need be, on a server.
fn joined(
    net: &Net,
    content: &[u8],
    sizes: impl Iterator<Item = usize>,
) -> (Server, Arc<JoinedSource>) {
    let mut server = Server::builder();
    let (mut files, mut rest) = (Vec::new(), content);
    for size in sizes.chain([usize::MAX]) {
        let (file, behind) = rest.split_at(size.min(rest.len()));
        let path = format!("/data/{}.bin", files.len());
        server = server.file(&path, Content::bytes(file));
        files.push((file.len() as u64, path));
        rest = behind;
    }
    let server = server.start().unwrap();
    let url = |path: &str| Url::parse(&server.url(path)).unwrap();
    let files: Vec<_> = files.iter().map(|(bytes, path)| (*bytes, url(path))).collect();
    let source = JoinedSource::new(net, url("/data/"), Trust::Named, files);
    (server, source)
}

#[tokio::test]
async fn several_files_are_a_source() {
    let odd = [0, 1, 2, 0, 0, 16_383, 16_385, 70_001, 99_999, 0];
    for fallback_only in [false, true] {
        for sizes in [Vec::new(), odd.to_vec(), vec![0; 3], vec![701; 400]] {
            let net = Net::new(NetOptions { fallback_only, ..NetOptions::default() }).unwrap();
            let servers = std::cell::RefCell::new(Vec::new());
            conformance::run(async |content| {
                let (server, source) = joined(&net, &content, sizes.iter().copied());
                servers.borrow_mut().push(server);
                source as Arc<dyn Source>
            })
            .await;
        }
    }
}

/// The content in the middle of files of these sizes, the last one as large as need be: the first begins
/// long before the content, and all end behind it.
fn cut(
    net: &Net,
    content: &[u8],
    sizes: impl Iterator<Item = usize>,
) -> (Server, Arc<JoinedSource>) {
    let mut server = Server::builder();
    let (mut parts, mut rest) = (Vec::new(), content);
    for (number, size) in sizes.chain([usize::MAX]).enumerate() {
        let (part, behind) = rest.split_at(size.min(rest.len()));
        rest = behind;
        let before = [400_001, 0, 3][number % 3];
        let file = [&vec![7; before], part, &vec![9; 1 + number % 2 * 70_000]].concat();
        let path = format!("/data/{number}.bin");
        server = server.file(&path, Content::bytes(file.clone()));
        let range = Range::of_len(before as u64, part.len() as u64);
        parts.push((path, file.len() as u64, range));
    }
    let server = server.start().unwrap();
    let url = |path: &str| Url::parse(&server.url(path)).unwrap();
    let part = |(path, file_bytes, range): &(String, u64, Range)| FilePart {
        url: url(path),
        file_bytes: *file_bytes,
        range: *range,
    };
    let parts: Vec<FilePart> = parts.iter().map(part).filter(|it| !it.range.is_empty()).collect();
    let source = JoinedSource::of_parts(net, url("/data/"), Trust::Named, parts);
    (server, source)
}

#[tokio::test]
async fn parts_of_files_are_a_source() {
    for fallback_only in [false, true] {
        for sizes in [Vec::new(), vec![1, 2, 16_383, 16_385, 70_001, 99_999], vec![701; 400]] {
            let net = Net::new(NetOptions { fallback_only, ..NetOptions::default() }).unwrap();
            let servers = std::cell::RefCell::new(Vec::new());
            conformance::run(async |content| {
                let (server, source) = cut(&net, &content, sizes.iter().copied());
                servers.borrow_mut().push(server);
                source as Arc<dyn Source>
            })
            .await;
        }
    }
}

#[tokio::test]
async fn only_the_user_names_files_of_this_machine() {
    let net = Net::new(NetOptions::default()).unwrap();
    let url = Url::parse("file:///etc/passwd").unwrap();
    for trust in [Trust::Listed, Trust::Discovered] {
        let refused = open(Opening { net: &net, url: &url, trust, sealed: None });
        assert!(matches!(refused, Err(LaneError::NotForOthers { .. })), "{trust:?}");
    }
    // Nor does a redirect lead there.
    let server = Server::builder()
        .file("/f.bin", Content::random(1, 1000))
        .behaviour(Behaviour::redirect(url.to_string()))
        .start()
        .unwrap();
    let source = opened(&net, &Url::parse(&server.url("/f.bin")).unwrap());
    let refused = source.describe().await.unwrap_err();
    assert!(
        matches!(refused, LaneError::RedirectInvalid { .. } | LaneError::Scheme { .. }),
        "{refused}"
    );
}

#[tokio::test]
async fn what_is_no_ordinary_file_is_no_source() {
    let net = Net::new(NetOptions::default()).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let pipe = folder.path().join("pipe");
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    // A file whose size is not what can be read would come empty.
    let status = std::path::PathBuf::from("/proc/self/status");
    for path in [pipe, folder.path().to_owned(), folder.path().join("nothing"), status] {
        let source = opened(&net, &Url::from_file_path(&path).unwrap());
        let refused = source.describe().await.unwrap_err();
        assert!(matches!(refused, LaneError::Unreadable { .. }), "{}: {refused}", path.display());
    }
}
