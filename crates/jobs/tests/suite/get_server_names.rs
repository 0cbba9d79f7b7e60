//! Names that servers give files (`Content-Disposition`).

use swath_jobs::{JobError, Outcome, ServerNames, SpecError};
use swath_netlab::faulty::{Behaviour, Builder, Content, Server};

use crate::fetching::{Fetch, Place, Ran, stuck_each};

const SIZE: u64 = 300_000;

/// How archives serve files: every address ends in `content`, and the server tells the name.
fn archive(files: &[(&str, &Content, &str)]) -> Builder {
    files.iter().fold(Server::builder(), |builder, (path, content, given)| {
        let value = format!("attachment; filename=\"{given}\"");
        let header = Behaviour::Header { name: "Content-Disposition".to_owned(), value };
        builder.file(path, (*content).clone()).behaviour_on(path, header)
    })
}

fn asking(fetch: Fetch, names: ServerNames) -> Fetch {
    fetch.get(|get| get.server_names = names)
}

fn counts(ran: &Ran) -> (u64, u64) {
    match &ran.ended {
        Ok(Outcome::Files(files)) | Err(JobError::Files(files)) => (files.complete, files.failed),
        ended => panic!("{ended:?}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_gets_the_name_that_its_server_gives_it() {
    let content = Content::random(1, SIZE);
    let server = archive(&[("/files/run7.h5/content", &content, "run7.h5")]).start().unwrap();
    let url = server.url("/files/run7.h5/content");
    for (names, expected) in [
        (ServerNames::Auto, "run7.h5"),
        (ServerNames::Always, "run7.h5"),
        (ServerNames::Never, "content"),
    ] {
        let place = Place::new();
        asking(place.of_urls([url.clone()]), names).run().await.is_whole();
        place.holds_only(expected, &content);
    }
    // The user has named it.
    let place = Place::new();
    let named = place.of_urls([url.clone()]).named(&place, "mine");
    asking(named, ServerNames::Always).run().await.is_whole();
    place.holds_only("mine", &content);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_address_that_names_a_file_is_believed_unless_told_otherwise() {
    let content = Content::random(2, SIZE);
    let server = archive(&[("/data.bin", &content, "other.bin")]).start().unwrap();
    for (names, expected) in [(ServerNames::Auto, "data.bin"), (ServerNames::Always, "other.bin")] {
        let place = Place::new();
        asking(place.of_urls([server.url("/data.bin")]), names).run().await.is_whole();
        place.holds_only(expected, &content);
    }
}

/// Paths, hidden files and names of our own side files are no names.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_no_safe_name_is_not_taken() {
    let content = Content::random(3, SIZE);
    for (given, expected) in [
        ("../../etc/passwd", "passwd"),
        ("..\\\\evil.h5", "evil.h5"),
        (".bashrc", "content"),
        ("..", "content"),
        ("x.swath.part", "content"),
        ("", "content"),
    ] {
        let server = archive(&[("/content", &content, given)]).start().unwrap();
        let place = Place::new();
        asking(place.of_urls([server.url("/content")]), ServerNames::Auto).run().await.is_whole();
        place.holds_only(expected, &content);
    }
    // There is no other name then.
    let server = archive(&[("/", &content, "..")]).start().unwrap();
    let ran = asking(Place::new().of_urls([server.url("/")]), ServerNames::Auto).run().await;
    assert!(matches!(ran.ended, Err(JobError::Spec(SpecError::NoName { .. }))), "{:?}", ran.ended);
}

/// Whoever names the file could otherwise choose which of the user's files it replaces.
#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_replaced_because_a_server_names_it() {
    let content = Content::random(4, SIZE);
    let server = archive(&[("/content", &content, "Makefile")]).start().unwrap();
    let place = Place::new();
    std::fs::write(place.path("Makefile"), "all:").unwrap();
    let fetch = asking(place.of_urls([server.url("/content")]), ServerNames::Auto);
    let ran = fetch.overwrite().run().await;
    assert!(matches!(ran.ended, Err(JobError::Transfer { .. })), "{:?}", ran.ended);
    place.holds("Makefile", &Content::bytes(*b"all:"));
    // The same file again is complete.
    std::fs::remove_file(place.path("Makefile")).unwrap();
    for _ in 0..2 {
        let fetch = asking(place.of_urls([server.url("/content")]), ServerNames::Auto);
        fetch.run().await.is_whole();
        place.holds_only("Makefile", &content);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_came_before_is_found_under_the_name() {
    let content = Content::random(5, 3_000_000);
    let server = archive(&[("/content", &content, "run7.h5")]).start().unwrap();
    server.set_on("/content", stuck_each(1_000_000));
    let place = Place::new();
    let fetch = || asking(place.of_urls([server.url("/content")]), ServerNames::Auto);
    let stopped = fetch().with(|spec| spec.plan.connections = Some(1)).stopped_after(500_000);
    assert!(stopped.run().await.ended.is_err());
    place.lacks("run7.h5");
    assert!(place.names().contains(&"run7.h5.swath.part".to_owned()), "{:?}", place.names());
    server.clear_on("/content");
    let value = "inline; filename=x; filename*=UTF-8''run7.h5".to_owned();
    server.set_on("/content", Behaviour::Header { name: "Content-Disposition".to_owned(), value });
    let before = server.sent_bytes();
    fetch().run().await.is_whole();
    place.holds_only("run7.h5", &content);
    assert!(server.sent_bytes() - before < 3_000_000, "it began anew");
}

#[tokio::test(flavor = "multi_thread")]
async fn files_of_a_list_get_names_of_their_own() {
    let [one, two, three] = [6, 7, 8].map(|seed| Content::random(seed, SIZE));
    let server = archive(&[
        ("/1/content", &one, "one.h5"),
        ("/2/content", &two, "two.h5"),
        ("/3/content", &three, "one.h5"),
    ])
    .start()
    .unwrap();
    let list: String =
        [1, 2].iter().map(|number| server.url(&format!("/{number}/content")) + "\n").collect();
    let place = Place::new();
    let ran = asking(place.list(&list), ServerNames::Auto).run().await;
    assert_eq!(counts(&ran), (2, 0), "{}", ran.told());
    place.holds("one.h5", &one);
    place.holds("two.h5", &two);
    assert_eq!(place.names().len(), 2);
    // By their addresses alone both have one name.
    let ran = asking(Place::new().list(&list), ServerNames::Never).run().await;
    assert_eq!(counts(&ran), (1, 1));
    // And where the server gives one name twice, the second fails.
    let list = list + &server.url("/3/content") + "\n";
    for at_once in [1, 16] {
        let place = Place::new();
        let list = asking(place.list(&list), ServerNames::Auto);
        let ran = list.get(|get| get.files_at_once = Some(at_once)).overwrite().run().await;
        assert_eq!(counts(&ran), (2, 1), "{}", ran.told());
        place.holds("two.h5", &two);
        let whole = std::fs::read(place.path("one.h5")).unwrap();
        assert!([&one, &three].iter().any(|it| whole == it.read(0, SIZE)), "two are mixed");
    }
}
