//! Files once more, after they are complete: what is there is held against what is known, and nothing is
//! fetched again.

use swath_netlab::faulty::{Algorithm, Behaviour, Content, DigestField, Server};
use swath_transfer::observe::{Event, SameBy};
use swath_transfer::{GetError, Unlike};

use crate::fetching::{Place, Ran, building, odd};

const SIZE: u64 = 1_000_003;

fn honest(content: &Content) -> Server {
    building(content).start().unwrap()
}

/// How the file that is there was found to be the one that is wanted.
#[track_caller]
fn same(ran: &Ran) -> SameBy {
    ran.is_whole();
    let present = ran.events.iter().find_map(|event| match event {
        swath_jobs::JobEvent::Transfer(Event::Present { same, .. }) => Some(*same),
        _ => None,
    });
    present.unwrap_or_else(|| panic!("it was fetched: {ran:?}"))
}

/// What tells it from the file that is wanted.
#[track_caller]
fn unlike(ran: &Ran) -> &Unlike {
    match ran.error() {
        GetError::Present { unlike, .. } => unlike,
        error => panic!("{error:?}"),
    }
}

/// Of mirrors, one that is out of date or does not answer does not decide alone.
#[tokio::test(flavor = "multi_thread")]
async fn most_mirrors_decide_whether_a_file_is_theirs() {
    let (new, old) = (Content::random(1, SIZE), Content::random(2, SIZE - 7));
    let (one, two, stale) = (honest(&new), honest(&new), honest(&old));
    let gone = honest(&new);
    gone.die();
    let place = Place::new();
    place.of(&[&one]).run().await.is_whole();
    let ran = place.of(&[&stale, &gone, &two, &one]).run().await;
    assert_eq!(same(&ran), SameBy::SizeAndTime);
    let ran = place.of(&[&stale, &gone]).run().await;
    assert!(matches!(unlike(&ran), Unlike::Size { .. }), "{ran:?}");
}

/// A digest that the server tells is worth more than size and time, which an edit can keep.
#[tokio::test(flavor = "multi_thread")]
async fn a_digest_that_the_server_tells_decides() {
    let content = Content::random(1, SIZE);
    let (field, algorithm) = (DigestField::ReprDigest, Algorithm::Sha256);
    let source = odd(&content, [Behaviour::DigestHeader { field, algorithm, right: true }]);
    let place = Place::new();
    place.of(&[&source]).run().await.is_whole();
    assert_eq!(same(&place.of(&[&source]).run().await), SameBy::ServersDigest);
    let mut changed = content.read(0, SIZE);
    changed[5] ^= 1;
    let path = place.path("data.bin");
    let time = std::fs::metadata(&path).unwrap().modified().unwrap();
    std::fs::write(&path, &changed).unwrap();
    std::fs::File::options().write(true).open(&path).unwrap().set_modified(time).unwrap();
    let ran = place.of(&[&source]).run().await;
    assert!(matches!(unlike(&ran), Unlike::Content(why) if why.contains("sha-256")), "{ran:?}");
}

/// Some servers know no HEAD.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_without_head_is_asked_for_a_byte() {
    let content = Content::random(1, SIZE);
    let source = odd(&content, [Behaviour::RefuseMethod("HEAD".to_owned())]);
    let place = Place::new();
    place.of(&[&source]).run().await.is_whole();
    let sent_bytes = source.sent_bytes();
    assert_eq!(same(&place.of(&[&source]).run().await), SameBy::SizeAndTime);
    assert!(source.sent_bytes() - sent_bytes < 10_000, "nothing was fetched");
}
