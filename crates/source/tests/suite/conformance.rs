//! What every kind of lane must do with every kind of server: the same list for the lane of our
//! own and for the one by way of the library.

use std::sync::Arc;
use std::time::Duration;

use crate::support::driver::{Outcome, download, download_with};
use swath_netlab::faulty::{
    Algorithm, Behaviour, Certificate, Content, DigestField, Pipelining, RangeLie, Scope, Server,
};
use swath_source::{Class, HttpSource, LaneError, Net, NetOptions, Source, Trust};
use url::Url;

const SIZE: u64 = 300_007;

/// One server, one lane kind, one download.
struct Case {
    server: Server,
    content: Content,
    source: Arc<HttpSource>,
}

fn options(fallback_only: bool) -> NetOptions {
    NetOptions { fallback_only, timeout: Duration::from_secs(60), ..NetOptions::default() }
}

fn case(fallback_only: bool, rules: Vec<Behaviour>) -> Case {
    case_of(fallback_only, Content::random(1, SIZE), rules)
}

fn case_of(fallback_only: bool, content: Content, rules: Vec<Behaviour>) -> Case {
    let mut builder = Server::builder().file("/f.bin", content.clone());
    for rule in rules {
        builder = builder.behaviour(rule);
    }
    let server = builder.start().unwrap();
    let net = Net::new(options(fallback_only)).unwrap();
    let url = Url::parse(&server.handle().url("/f.bin")).unwrap();
    let source = HttpSource::new(&net, url, Trust::Named);
    Case { server, content, source }
}

impl Case {
    async fn run(&self) -> Outcome {
        download(&self.source).await
    }

    fn all(&self) -> Vec<u8> {
        self.content.read(0, self.content.size_bytes())
    }

    async fn complete(&self) -> Outcome {
        let outcome = self.run().await;
        assert!(
            outcome.is(&self.all()),
            "errors: {:?}, covered {:?}",
            outcome.errors,
            outcome.covered
        );
        outcome
    }

    async fn first_error(&self) -> LaneError {
        let outcome = self.run().await;
        assert!(!outcome.done);
        outcome.errors.into_iter().next().expect("an error")
    }
}

/// Each scenario as a test of its own, for both kinds of lane.
macro_rules! conformance {
    ($($name:ident($library:ident) $body:block)*) => {
        mod own { $(#[tokio::test] async fn $name() { super::scenarios::$name(false).await })* }
        mod library { $(#[tokio::test] async fn $name() { super::scenarios::$name(true).await })* }
        mod scenarios {
            use super::*;
            $(pub async fn $name($library: bool) $body)*
        }
    };
}

conformance! {
    a_correct_server(library) {
        let case = case(library, vec![]);
        let outcome = case.complete().await;
        assert_eq!((outcome.lanes, outcome.errors.len(), outcome.facts.len()), (1, 0, 1));
        let facts = &outcome.facts[0];
        assert_eq!(facts.size_bytes, Some(SIZE));
        assert!(facts.ranges && facts.etag.is_some() && facts.last_modified.is_some());
        assert_eq!(case.source.quirks().fallback, library);
    }

    files_of_every_awkward_size(library) {
        for size in [0, 1, 2, 16_383, 16_384, 16_385, 50_000, 50_001, 65_536] {
            let outcome = case_of(library, Content::random(size, size), vec![]).complete().await;
            assert_eq!(outcome.covered.total_bytes(), size);
        }
    }

    digests_are_read(library) {
        let case = case(library, vec![
            Behaviour::DigestHeader { field: DigestField::ReprDigest, algorithm: Algorithm::Sha256, right: true },
        ]);
        let outcome = case.complete().await;
        assert_eq!(outcome.facts[0].digests.len(), 1);
        assert_eq!(outcome.facts[0].digests[0].to_hex(), case.content.digest_hex(Algorithm::Sha256));
        let record = &case.server.handle().log().records[0];
        assert!(record.header("want-repr-digest").is_some() && record.header("want-digest").is_some());
    }

    no_ranges(library) {
        let case = case(library, vec![Behaviour::NoRanges]);
        let outcome = case.complete().await;
        assert!(!outcome.facts[0].ranges);
        assert_eq!(case.source.quirks().ranges, Some(false));
        assert_eq!(case.server.handle().log().len(), 1, "one stream serves all");
    }

    chunked(library) {
        for chunk_bytes in [1000, 16 * 1024, 70_001] {
            case(library, vec![Behaviour::Chunked { chunk_bytes }]).complete().await;
        }
        case(library, vec![Behaviour::Chunked { chunk_bytes: 7000 }, Behaviour::NoRanges]).complete().await;
    }

    the_end_of_the_connection_ends_the_body(library) {
        case(library, vec![Behaviour::CloseDelimited, Behaviour::NoRanges]).complete().await;
    }

    http_1_0(library) {
        case(library, vec![Behaviour::Http10]).complete().await;
    }

    closing_after_each_answer(library) {
        let case = case(library, vec![Behaviour::Close]);
        let outcome = case.complete().await;
        assert!(outcome.errors.is_empty(), "{:?}", outcome.errors);
    }

    keep_alive_limits(library) {
        let case = case(library, vec![Behaviour::KeepAlive { max_requests: 2, timeout: Duration::from_secs(60) }]);
        let outcome = case.complete().await;
        assert!(outcome.errors.is_empty(), "{:?}", outcome.errors);
    }

    interim_answers(library) {
        case(library, vec![Behaviour::Junk100]).complete().await;
    }

    a_slow_head(library) {
        case(library, vec![Behaviour::SlowHead { byte_every: Duration::from_micros(300) }]).complete().await;
    }

    busy_and_then_not(library) {
        let case = case(library, vec![]);
        case.server.handle().add(Behaviour::busy(503, 0).first(2));
        let outcome = case.complete().await;
        assert!(outcome.errors[0].code() == Some(503));
        assert_eq!(outcome.lanes, 1, "the lane goes on after a refusal");
    }

    statuses_have_their_classes(library) {
        for (code, class) in [(401, Class::Unauthenticated), (403, Class::Forbidden), (404, Class::Missing), (410, Class::Gone),
            (500, Class::Transient), (418, Class::Unsupported)]
        {
            let error = case(library, vec![Behaviour::status(code)]).first_error().await;
            assert_eq!(error.class(), class, "{error}");
            assert!(error.to_string().contains(&code.to_string()), "{error}");
        }
        let error = case(library, vec![Behaviour::busy(429, 0)]).first_error().await;
        assert_eq!(error.class(), Class::Busy(Duration::ZERO));
    }

    truncated_bodies(library) {
        let case = case(library, vec![Behaviour::Truncate { after_bytes: 30_000 }]);
        let outcome = case.complete().await;
        assert!(outcome.errors.iter().all(|error| matches!(error, LaneError::Truncated { .. })), "{:?}", outcome.errors);
    }

    dropped_and_reset_connections(library) {
        for reset in [false, true] {
            let case = case(library, vec![Behaviour::Drop { after_bytes: 120_000, reset }]);
            case.complete().await;
        }
    }

    a_stall_is_survived(library) {
        let stall = Behaviour::Stall { after_bytes: 60_000, lasts: Duration::from_millis(300), scope: Scope::Server };
        case(library, vec![stall]).complete().await;
    }

    lying_about_ranges(library) {
        for lie in [RangeLie::Header(1), RangeLie::Both(1), RangeLie::Missing, RangeLie::Garbage] {
            // What it says of ranges cannot be believed; the whole file is asked for instead.
            let case = case(library, vec![Behaviour::ContentRange(lie)]);
            let outcome = case.complete().await;
            assert!(outcome.errors.is_empty(), "{lie:?}: {:?}", outcome.errors);
            let log = case.server.handle().log();
            assert!(log.records.iter().any(|record| record.header("range").is_none()), "{lie:?}");
        }
        case(library, vec![Behaviour::ContentRange(RangeLie::UnknownTotal)]).run().await;
    }

    an_error_page_with_status_200(library) {
        let error = case(library, vec![Behaviour::HtmlPage]).first_error().await;
        assert_eq!(error, LaneError::Html);
    }

    a_compressed_body_is_refused(library) {
        let error = case(library, vec![Behaviour::Gzip]).first_error().await;
        assert_eq!(error, LaneError::Encoded { encoding: "gzip".to_owned() });
    }

    another_size_than_expected(library) {
        let case = case(library, vec![]);
        case.source.expect(swath_source::Expected { size_bytes: Some(SIZE + 1), proved: false });
        let error = case.first_error().await;
        assert_eq!(error, LaneError::SizeMismatch { expected: SIZE + 1, actual: SIZE });
    }

    a_file_that_changes(library) {
        let content = Content::random(2, SIZE);
        let case = case(library, vec![Behaviour::ChangeAfter { bytes: 60_000, content }]);
        let outcome = case.run().await;
        assert!(!outcome.done);
        assert!(outcome.errors.iter().any(|error| matches!(error, LaneError::Changed { .. })), "{:?}", outcome.errors);
    }

    garbage_and_endless_heads(library) {
        let error = case(library, vec![Behaviour::GiantHead { bytes: 200_000 }]).first_error().await;
        assert!(matches!(error, LaneError::NotHttp { .. } | LaneError::Reset { .. } | LaneError::Connect { .. }), "{error:?}");
        let error = case(library, vec![Behaviour::GarbageStatus("SSH-2.0-none".to_owned())]).first_error().await;
        assert!(matches!(error, LaneError::NotHttp { .. } | LaneError::Reset { .. } | LaneError::Connect { .. }), "{error:?}");
    }

    no_answer_at_all(library) {
        for reset in [false, true] {
            let error = case(library, vec![Behaviour::Unanswered { reset }]).first_error().await;
            assert_eq!(error.class(), Class::Transient, "{error}");
        }
    }

    nobody_listens(library) {
        let case = case(library, vec![]);
        case.server.handle().die();
        let error = case.first_error().await;
        assert!(matches!(error, LaneError::Connect { .. }), "{error:?}");
    }

    redirects_within_and_across_hosts(library) {
        let elsewhere = case(library, vec![]);
        for status in [301, 302, 303, 307, 308] {
            let to = elsewhere.server.handle().url("/f.bin");
            let case = case(library, vec![]);
            case.server.handle().put("/start", Content::random(9, 10));
            case.server.handle().add(Behaviour::Redirect { status, to }.first(1));
            let outcome = case.run().await;
            assert!(outcome.is(&elsewhere.all()), "{:?}", outcome.errors);
            assert_eq!(case.server.handle().log().len(), 1, "the new address is remembered");
            let seen = elsewhere.server.handle().url("/f.bin");
            assert_eq!(outcome.facts[0].final_url.as_ref().map(Url::as_str), Some(seen.as_str()));
        }
    }

    redirects_without_end(library) {
        let error = case(library, vec![Behaviour::RedirectLoop { status: 302 }]).first_error().await;
        assert!(matches!(error, LaneError::RedirectLoop { .. }), "{error:?}");
        let to_itself = Behaviour::Redirect { status: 302, to: "/f.bin".to_owned() };
        let error = case(library, vec![to_itself]).first_error().await;
        assert!(matches!(error, LaneError::RedirectLoop { .. }), "{error:?}");
    }

    an_expired_redirect_is_asked_for_again(library) {
        let old = case(library, vec![]);
        let new = case(library, vec![]);
        let start = case(library, vec![Behaviour::redirect(old.server.handle().url("/f.bin"))]);
        let source = Arc::clone(&start.source);
        let mut bench = crate::support::Bench::on(source, swath_model::Pool::new(8, 65536));
        bench.fetch(0, 0, 1000);
        let first = bench.settled(1).await;
        assert!(first.failed.is_empty(), "{:?}", first.failed);
        old.server.handle().add(Behaviour::status(403));
        start.server.handle().set(Behaviour::redirect(new.server.handle().url("/f.bin")));
        bench.fetch(1, 1000, 2000);
        let second = bench.settled(1).await;
        assert!(second.failed.is_empty(), "{:?}", second.failed);
        assert_eq!(new.server.handle().log().len(), 1);
    }

    pipelining_that_breaks(library) {
        for how in [Pipelining::Close, Pipelining::Reset, Pipelining::Lose] {
            let case = case(library, vec![Behaviour::Pipelining(how), Behaviour::ConnectionRate { bytes_per_s: 2_000_000 }]);
            // What is lost is not waited for.
            let outcome = download_with(&case.source, Duration::from_millis(1500)).await;
            assert!(outcome.is(&case.all()), "{how:?}: {:?}", outcome.errors);
            // The library never sends ahead, so it learns nothing.
            assert!(library || !case.source.quirks().pipelines, "{how:?}");
        }
    }

    a_metalink_in_place_of_the_file(library) {
        let metalink = Behaviour::Metalink("<metalink/>".to_owned());
        let case = case(library, vec![metalink]);
        let net = Net::new(NetOptions { metalinks: true, ..options(library) }).unwrap();
        let source = HttpSource::new(&net, case.source.url().clone(), Trust::Named);
        let mut bench = crate::support::Bench::on(source, swath_model::Pool::new(8, 65536));
        bench.fetch(0, 0, 1000);
        let story = bench.settled(1).await;
        assert_eq!(story.done.len(), 1, "{:?}", story.failed);
        assert_eq!(story.facts[0].content_type.as_deref(), Some("application/metalink4+xml"));
        assert_eq!(story.facts[1].size_bytes, Some(SIZE), "the file's own facts follow");
        assert_eq!(story.chunks[0].2, case.content.read(0, 1000));
    }

    over_tls(library) {
        let content = Content::random(3, SIZE);
        let server = Server::builder().file("/f.bin", content.clone()).tls(Certificate::Valid).start().unwrap();
        let folder = tempfile::tempdir().unwrap();
        let ca = folder.path().join("ca.pem");
        std::fs::write(&ca, swath_netlab::faulty::ca_pem().unwrap()).unwrap();
        let url = Url::parse(&server.handle().url_as("localhost", "/f.bin")).unwrap();
        let trusting = Net::new(NetOptions { ca_files: vec![ca], ..options(library) }).unwrap();
        let outcome = download(&HttpSource::new(&trusting, url.clone(), Trust::Named)).await;
        assert!(outcome.is(&content.read(0, SIZE)), "{:?}", outcome.errors);
        let careless = Net::new(NetOptions { insecure: true, ..options(library) }).unwrap();
        let outcome = download(&HttpSource::new(&careless, url.clone(), Trust::Named)).await;
        assert!(outcome.is(&content.read(0, SIZE)), "{:?}", outcome.errors);
        let strict = Net::new(options(library)).unwrap();
        let outcome = download(&HttpSource::new(&strict, url, Trust::Named)).await;
        assert!(matches!(outcome.errors[..], [LaneError::Tls { .. }]), "{:?}", outcome.errors);
    }
}
