//! Mirrors and Metalinks that servers name take part: what one server has sent when it falls silent is
//! not all of the file.

use swath_jobs::{Header, SecretRef};
use swath_netlab::faulty::{Algorithm, Behaviour, Content, MetalinkFile, Scope, Server, metalink};
use swath_source::Secret;

use crate::fetching::{FILE, Place, building, sent, stuck};

const SIZE: u64 = 6_000_001;

fn described(name: &str, content: &Content, urls: &[String]) -> String {
    let (digests, piece_bytes) = (&[Algorithm::Sha256][..], Some(262_144));
    metalink(&[MetalinkFile { name, content, urls, digests, piece_bytes }])
}

/// Sends this much of the file, and nothing any more.
fn half() -> Behaviour {
    let lasts = std::time::Duration::from_secs(3600);
    Behaviour::Stall { after_bytes: SIZE / 2, lasts, scope: Scope::Server }
}

/// Slow, but never silent: a server that falls silent does so for its Metalink, too.
fn slow() -> Behaviour {
    Behaviour::ConnectionRate { bytes_per_s: SIZE / 4 }
}

fn honest(content: &Content) -> Server {
    building(content).start().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn all_mirrors_of_a_metalink_take_part() {
    let content = Content::random(1, SIZE);
    let (one, two, place) = (stuck(&content, SIZE / 2), honest(&content), Place::new());
    let text = described("run/data.h5", &content, &[one.url(FILE), two.url(FILE)]);
    let ran = place.metalink(text).run().await;
    ran.is_whole().tells(&["pieces by sha-256"]);
    place.holds("run/data.h5", &content);
    assert!(sent(&two) >= SIZE / 2, "{} bytes", sent(&two));
}

#[tokio::test(flavor = "multi_thread")]
async fn mirrors_that_a_link_header_names_take_part() {
    let content = Content::random(3, SIZE);
    let (other, place) = (honest(&content), Place::new());
    let link = format!(
        "<{}>; rel=duplicate; pri=1; geo=ch, <ftp://x.invalid/f>; rel=duplicate",
        other.url(FILE)
    );
    let first = building(&content)
        .behaviour_on(FILE, half())
        .behaviour(Behaviour::header("Link", link))
        .start()
        .unwrap();
    let mut fetch = place.of(&[&first]);
    let value = SecretRef::Name("key".to_owned());
    fetch.spec.network.headers.push(Header { name: "X-Key".to_owned(), value });
    fetch.environment.secrets.insert("key".to_owned(), Secret::new("hush-hush"));
    let ran = fetch.run().await;
    ran.is_whole().tells(&["names 1 more mirror"]).never_tells(&["hush"]);
    place.holds_only("data.bin", &content);
    assert!(sent(&other) >= SIZE / 2, "{} bytes", sent(&other));
    let key = |server: &Server, key: Option<&str>| {
        server.log().records.iter().all(|record| record.header("x-key") == key)
    };
    assert!(key(&other, None) && key(&first, Some("hush-hush")), "the key is the first one's");
    // Nobody asks it where nothing is to be found out.
    let alone = building(&content)
        .behaviour(Behaviour::header("Link", format!("<{}>; rel=duplicate", other.url(FILE))))
        .start()
        .unwrap();
    other.clear_log();
    let fetch = place.of(&[&alone]).named(&place, "two").get(|get| get.discover = false);
    fetch.run().await.is_whole();
    assert!(other.log().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_metalink_that_a_link_header_names_is_used() {
    // On a busy machine it may come too late, and the file does not wait for it.
    for _ in 0..5 {
        let content = Content::random(3, SIZE);
        let (other, place) = (honest(&content), Place::new());
        let text = described("another-name.bin", &content, &[other.url(FILE)]);
        let beside = "</d.meta4>; rel=describedby; type=\"application/metalink4+xml\"";
        let first = Server::builder()
            .file(FILE, content.clone())
            .file("/d.meta4", Content::bytes(text))
            .behaviour_on(FILE, slow())
            .behaviour_on(FILE, Behaviour::header("Link", beside))
            .start()
            .unwrap();
        let ran = place.of(&[&first]).run().await;
        if ran.told().contains("Late {") {
            continue;
        }
        ran.is_whole().tells(&["pieces by sha-256"]);
        place.holds_only("data.bin", &content);
        assert!(sent(&other) > 0 && sent(&first) > 0, "{} {}", sent(&other), sent(&first));
        return;
    }
    panic!("the Metalink was late each time");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_metalink_by_content_negotiation_is_used() {
    let content = Content::random(3, SIZE);
    let (other, first, place) = (honest(&content), honest(&content), Place::new());
    first.set(slow());
    let urls = [other.url(FILE), first.url(FILE)];
    first.set(Behaviour::Metalink(described("data.bin", &content, &urls)));
    let ran = place.of(&[&first]).run().await;
    ran.is_whole().tells(&["pieces by sha-256", "Metalink"]).never_tells(&["stopped"]);
    place.holds_only("data.bin", &content);
    assert!(sent(&other) > 0, "the Metalink names it first");
}
