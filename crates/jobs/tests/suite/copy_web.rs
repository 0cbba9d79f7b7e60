//! Folders that plain web servers list, and files of servers of others.

use std::fs;
use std::sync::{Arc, Mutex};

use swath_jobs::{
    Address, Control, GetFrom, GetTo, JobError, JobEvent, JobObserver, Outcome, Streams,
};
use swath_netlab::faulty::{Behaviour, Content, Server};

use crate::support::{folder, get, jobs};
use crate::trees::names;
use crate::ways::copy_of;

fn page(text: &str) -> Content {
    Content::bytes(text.as_bytes().to_vec())
}

/// A page may link to anything; nothing of it may land outside, and one bad name spoils only itself.
#[tokio::test(flavor = "multi_thread")]
async fn names_of_hostile_pages_stay_below_the_destination() {
    let links = "<a href=\"good.bin\">g</a><a href=\"..%2F..%2Fup.bin\">u</a>\
                 <a href=\"%2e%2e/up.bin\">u</a><a href=\"http://127.0.0.1:9/o.bin\">o</a>\
                 <a href=\"a%0Ab.bin\">n</a><a href=\"gone.bin\">x</a><a href=\"loop/\">l</a>\
                 <a href=\"good.bin/in.bin\">f</a>";
    let content = Content::random(7, 50_000);
    let server = Server::builder()
        .file_as("/data/", "text/html", page(links))
        .file_as("/data/loop/", "text/html", page("<a href=\"../\">up</a>"))
        .file("/data/good.bin", content.clone())
        .file("/data/good.bin/in.bin", content.clone())
        .start()
        .unwrap();
    let home = folder();
    let to = home.path().join("in/copy");
    let spec = copy_of(&[&server.url("/data/"), &to.display().to_string()], |_| {});
    let failed = Arc::new(Mutex::new(String::new()));
    let keeps = Arc::clone(&failed);
    let observer: Arc<dyn JobObserver> = Arc::new(move |event: JobEvent| {
        if let JobEvent::FileFailed { name, error, .. } = event {
            keeps.lock().unwrap().push_str(&format!("{name}: {error}\n"));
        }
    });
    let ended = jobs().run(&spec, &Streams::default(), &observer, &Control::default()).await;
    let Err(JobError::Files(files)) = ended else { panic!("{ended:?}") };
    assert_eq!((files.complete, files.is_stopped), (1, false));
    let failed = std::mem::take(&mut *failed.lock().unwrap());
    for name in ["..%2F..%2Fup.bin", "a%0Ab.bin", "gone.bin"] {
        assert!(failed.contains(name), "{name}: {failed}");
    }
    assert!(fs::read(to.join("good.bin")).unwrap() == content.read(0, 50_000));
    assert_eq!(names(&to), ["good.bin"]);
    assert_eq!(
        (names(home.path()), names(&home.path().join("in"))),
        (vec!["in".into()], vec!["copy".into()])
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn what_an_object_store_lists_is_copied_part_by_part() {
    let contents: Vec<Content> = (0..3).map(|seed| Content::random(seed, 30_000)).collect();
    let part = |keys: &[&str], more: &str| {
        let keys: String = keys
            .iter()
            .map(|key| format!("<Contents><Key>{key}</Key><Size>30000</Size></Contents>"))
            .collect();
        page(&format!(
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?><ListBucketResult xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">{keys}{more}</ListBucketResult>"
        ))
    };
    let more = "<IsTruncated>true</IsTruncated><NextContinuationToken>two</NextContinuationToken>";
    let first = "/b?list-type=2&prefix=run7%2F";
    let second = format!("{first}&continuation-token=two");
    let server = Server::builder()
        .file_as(first, "application/xml", part(&["run7/a.bin", "run7/x/b.bin"], more))
        .file_as(&second, "application/xml", part(&["run7/c.bin"], ""))
        .file("/b/run7/a.bin", contents[0].clone())
        .file("/b/run7/x/b.bin", contents[1].clone())
        .file("/b/run7/c.bin", contents[2].clone())
        .behaviour_on("/b/run7/", Behaviour::status(403))
        .start()
        .unwrap();
    let home = folder();
    let to = home.path().join("copy");
    let spec = copy_of(&[&server.url("/b/run7/"), &to.display().to_string()], |_| {});
    let ended = jobs().start(spec).wait().await;
    let Ok(Outcome::Files(files)) = ended else { panic!("{ended:?}") };
    assert_eq!(files.complete, 3);
    for (name, content) in ["a.bin", "x/b.bin", "c.bin"].into_iter().zip(&contents) {
        assert!(fs::read(to.join(name)).unwrap() == content.read(0, 30_000), "{name}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_folder_of_another_web_server_is_copied_and_not_stored_as_the_page_that_lists_it() {
    // It was, with success and "verified by nothing".
    let server = Server::builder()
        .file("/sub", page(""))
        .behaviour_on("/sub", Behaviour::redirect("/sub/"))
        .file_as("/sub/", "text/html", page("<a href=one>one</a>"))
        .file("/sub/one", page("a file"))
        .file("/moved", page(""))
        .behaviour_on("/moved", Behaviour::redirect("/file"))
        .file("/file", page("a file"))
        .start()
        .unwrap();
    let home = folder();
    let at = |path: &str| home.path().join(path);
    let copy = async |from: &str, to: &str| {
        let spec = copy_of(&[&server.url(from), &at(to).display().to_string()], |_| {});
        jobs().start(spec).wait().await.unwrap()
    };
    fs::create_dir(at("out")).unwrap();
    assert!(matches!(copy("/sub", "out").await, Outcome::Files(_)));
    assert_eq!(names(&at("out/sub")), ["one"]);
    assert!(matches!(copy("/sub/", "in").await, Outcome::Files(_)));
    assert_eq!(names(&at("in")), ["one"]);
    // Files come as ever, by way of others too.
    for name in ["file", "moved"] {
        assert!(matches!(copy(&format!("/{name}"), "out").await, Outcome::File(_)));
        assert_eq!(fs::read(at("out").join(name)).unwrap(), b"a file");
    }
    // Whoever wants the page gets it.
    let from = GetFrom::Replicas(vec![Address::new(server.url("/sub"))]);
    jobs().start(get(from, GetTo::File(at("page.html")))).wait().await.unwrap();
    assert_eq!(fs::read(at("page.html")).unwrap(), b"<a href=one>one</a>");
}
