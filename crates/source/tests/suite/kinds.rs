//! Every kind of source does what all must do.

use std::sync::Arc;

use swath_netlab::faulty::{Behaviour, Certificate, Content, Server};
use swath_source::{
    LaneError, MemorySource, Net, NetOptions, Opening, Source, Trust, conformance, open,
};
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
    for path in [pipe, folder.path().to_owned(), folder.path().join("nothing")] {
        let source = opened(&net, &Url::from_file_path(&path).unwrap());
        let refused = source.describe().await.unwrap_err();
        assert!(matches!(refused, LaneError::Unreadable { .. }), "{}: {refused}", path.display());
    }
}
