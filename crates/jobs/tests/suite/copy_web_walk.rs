//! Walks through web folders: how far they lead, where links count from, and what is left out.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::{Arc, Mutex};

use swath_jobs::copy::CopyKind;
use swath_jobs::{
    Address, Control, CopySpec, EntryError, FileError, JobError, JobEvent, JobObserver, JobSpec,
    Note, Outcome, Streams, Work,
};
use swath_netlab::faulty::{Behaviour, Builder, Content, Server};
use tempfile::TempDir;

use crate::support::{folder, jobs};
use crate::ways::copy_of;

fn text(text: &str) -> Content {
    Content::bytes(text.as_bytes().to_vec())
}

/// Adds a page with links to these names.
fn page(builder: Builder, path: &str, names: &[&str]) -> Builder {
    let links: String = names.iter().map(|name| format!("<a href='{name}'>x</a>")).collect();
    builder.file_as(path, "text/html", text(&links))
}

/// A multistatus with these addresses; those of folders end in `/`.
fn properties(hrefs: &[&str]) -> Behaviour {
    let of = |href: &&str| {
        let kind = if href.ends_with('/') { "<D:collection/>" } else { "" };
        format!(
            "<D:response><D:href>{href}</D:href><D:propstat><D:prop><D:resourcetype>{kind}\
             </D:resourcetype></D:prop></D:propstat></D:response>"
        )
    };
    let responses: String = hrefs.iter().map(of).collect();
    Behaviour::Properties(format!("<D:multistatus xmlns:D='DAV:'>{responses}</D:multistatus>"))
}

/// How a copy ended.
struct Copied {
    ended: Result<Outcome, JobError>,
    /// Names and errors of what failed.
    failed: Vec<(String, FileError)>,
    notes: Vec<Note>,
    home: TempDir,
}

impl Copied {
    /// Copies a folder to `x/`.
    async fn of(from: &str) -> Copied {
        let home = folder();
        let to = format!("{}/", home.path().join("x").display());
        let spec = copy_of(&[from, &to], |_| {});
        Copied::run(spec, home).await
    }

    async fn run(spec: JobSpec, home: TempDir) -> Copied {
        let told = Arc::new(Mutex::new((Vec::new(), Vec::new())));
        let keeps = Arc::clone(&told);
        let observer: Arc<dyn JobObserver> = Arc::new(move |event: JobEvent| match event {
            JobEvent::FileFailed { name, error, .. } => keeps.lock().unwrap().0.push((name, error)),
            JobEvent::Note(note) => keeps.lock().unwrap().1.push(note),
            _ => {}
        });
        let ended = jobs().run(&spec, &Streams::default(), &observer, &Control::default()).await;
        let (failed, notes) = std::mem::take(&mut *told.lock().unwrap());
        Copied { ended, failed, notes, home }
    }

    /// Returns the files that arrived, with their text.
    fn files(&self) -> BTreeMap<String, String> {
        let mut files = BTreeMap::new();
        read(&self.home.path().join("x"), "", &mut files);
        files
    }

    fn names(&self) -> Vec<String> {
        self.files().into_keys().collect()
    }

    fn is_whole(&self) -> bool {
        matches!(self.ended, Ok(Outcome::Files(_))) && self.failed.is_empty()
    }

    /// Returns the error of the only entry that failed, which has this name.
    fn error_of(&self, name: &str) -> &EntryError {
        match &self.failed[..] {
            [(own, FileError::Entry(error))] if own == name => error,
            other => panic!("{other:?}"),
        }
    }
}

fn read(dir: &Path, above: &str, files: &mut BTreeMap<String, String>) {
    for entry in fs::read_dir(dir).into_iter().flatten() {
        let entry = entry.unwrap();
        let name = format!("{above}{}", entry.file_name().to_str().unwrap());
        match entry.file_type().unwrap().is_dir() {
            true => read(&entry.path(), &format!("{name}/"), files),
            false => {
                files.insert(name, fs::read_to_string(entry.path()).unwrap());
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn links_count_from_where_a_page_is_found() {
    let builder = Server::builder()
        .file("/pub/latest/", text(""))
        .behaviour_on("/pub/latest/", Behaviour::redirect("/pub/v2/"))
        .file("/pub/v2/a.bin", text("a"))
        .file("/pub/v2/sub/", text(""))
        .behaviour_on("/pub/v2/sub/", Behaviour::redirect("/store/7/"))
        .file("/store/7/b.bin", text("b"))
        .file_as("/pub/based/", "text/html", text("<base href='/pub/v2/'><a href=a.bin>a</a>"));
    let builder = page(builder, "/pub/v2/", &["../", "a.bin", "sub/"]);
    let server = page(builder, "/store/7/", &["../", "b.bin"]).start().unwrap();
    let copied = Copied::of(&server.url("/pub/latest/")).await;
    assert!(copied.is_whole(), "{:?}", copied.failed);
    assert_eq!(copied.names(), ["a.bin", "sub/b.bin"]);
    let copied = Copied::of(&server.url("/pub/based/")).await;
    assert!(copied.is_whole() && copied.names() == ["a.bin"], "{:?}", copied.failed);
}

#[tokio::test(flavor = "multi_thread")]
async fn links_in_circles_end_and_are_named() {
    // Two links of a mirror to its own folder: each level had twice as many pages.
    let mut builder = Server::builder();
    let mut level = vec!["/m/".to_owned()];
    for _ in 0..6 {
        for at in &level {
            builder = page(builder, at, &["../", "Release", "here/", "too/", "own/"])
                .file(&format!("{at}Release"), text("same"));
            builder = page(builder, &format!("{at}own/"), &["../", "f"])
                .file(&format!("{at}own/f"), text("own"));
        }
        let below = |at: &String| [format!("{at}here/"), format!("{at}too/")];
        level = level.iter().flat_map(below).collect();
    }
    let server = builder.start().unwrap();
    let copied = Copied::of(&server.url("/m/")).await;
    assert!(copied.is_whole(), "{:?}", copied.failed);
    assert_eq!(copied.names(), ["Release", "own/f"]);
    let mut left_out: Vec<&str> = copied
        .notes
        .iter()
        .filter_map(|note| match note {
            Note::SameFolder { folder, same_as } => {
                assert!(same_as.ends_with("/m/"), "{same_as}");
                Some(&**folder)
            }
            _ => None,
        })
        .collect();
    left_out.sort_unstable();
    assert_eq!(left_out, ["here", "too"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_folder_that_redirects_to_one_of_the_copy_is_copied_once() {
    let builder = Server::builder()
        .file("/pub/latest/", text(""))
        .behaviour_on("/pub/latest/", Behaviour::redirect("/pub/v2/"))
        .file("/pub/v2/up/", text(""))
        .behaviour_on("/pub/v2/up/", Behaviour::redirect("/pub/"))
        .file("/pub/v2/f", text("f"));
    let builder = page(builder, "/pub/", &["latest/", "v2/"]);
    let server = page(builder, "/pub/v2/", &["../", "f", "up/"]).start().unwrap();
    let copied = Copied::of(&server.url("/pub/")).await;
    assert!(copied.is_whole() && copied.names() == ["v2/f"], "{:?}", copied.failed);
    assert_eq!(copied.notes.len(), 2, "{:?}", copied.notes);
}

/// An array of several dimensions has the same names at each level (Zarr).
#[tokio::test(flavor = "multi_thread")]
async fn folders_with_the_same_names_below_one_another_are_no_circle() {
    let builder = page(Server::builder(), "/z/", &["../", "0/", "1/"]);
    let mut builder = builder;
    let mut level: Vec<String> = vec!["/z/0/".into(), "/z/1/".into()];
    for _ in 0..2 {
        for at in &level {
            builder = page(builder, at, &["../", "0/", "1/"]);
        }
        let below = |at: &String| [format!("{at}0/"), format!("{at}1/")];
        level = level.iter().flat_map(below).collect();
    }
    for at in &level {
        builder = page(builder, at, &["../", "0"]).file(&format!("{at}0"), text(at));
    }
    let server = builder.start().unwrap();
    let copied = Copied::of(&server.url("/z/")).await;
    assert!(copied.is_whole(), "{:?}", copied.failed);
    assert_eq!(copied.names().len(), 8);
    // Without files nothing shows that it is one, but at some depth it is said.
    let mut builder = Server::builder();
    for levels in 0..20 {
        builder = page(builder, &format!("/c/{}", "c/".repeat(levels)), &["c/"]);
    }
    let server = builder.start().unwrap();
    let copied = Copied::of(&server.url("/c/")).await;
    assert!(matches!(copied.error_of("c/c/c/c/c/c"), EntryError::Repeats { levels: 6 }));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_chain_of_folders_without_end_ends_at_the_longest_path() {
    let mut builder = Server::builder();
    let mut at = "/d/".to_owned();
    for level in 0..140 {
        builder = page(builder, &at, &["../", &format!("{level}/")]);
        at.push_str(&format!("{level}/"));
    }
    let server = builder.start().unwrap();
    let copied = Copied::of(&server.url("/d/")).await;
    let [(name, FileError::Entry(EntryError::Path(_)))] = &copied.failed[..] else {
        panic!("{:?}", copied.failed)
    };
    assert!(name.starts_with("0/1/2/") && name.ends_with("/128"), "{name}");
    assert!(server.log().len() < 300);
}

#[tokio::test(flavor = "multi_thread")]
async fn folders_without_a_slash_in_their_links_are_entered() {
    let builder = Server::builder()
        .file("/d/sub", text(""))
        .behaviour_on("/d/sub", Behaviour::redirect("/d/sub/"))
        .file("/d/f.txt", text("f"))
        .file("/d/sub/g.txt", text("g"));
    // As the pages of serve-index, which link upwards without a slash, too.
    let builder = page(builder, "/d/", &["/", "/d/sub", "/d/f.txt"]);
    let server = page(builder, "/d/sub/", &["/", "/d", "/d/sub/g.txt"]).start().unwrap();
    let copied = Copied::of(&server.url("/d/")).await;
    assert!(copied.is_whole(), "{:?}", copied.failed);
    assert_eq!(copied.names(), ["f.txt", "sub/g.txt"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_copied_is_named_and_a_failure() {
    let far = page(Server::builder(), "/other/", &["x"]).start().unwrap();
    let builder = Server::builder()
        .file("/d/f", text("f"))
        .file("/d/far/", text(""))
        .behaviour_on("/d/far/", Behaviour::redirect(far.url("/other/")));
    let server = page(builder, "/d/", &["../", "f", "far/"]).start().unwrap();
    let copied = Copied::of(&server.url("/d/")).await;
    assert!(matches!(&copied.ended, Err(JobError::Files(files)) if files.failed == 1));
    assert!(
        matches!(copied.error_of("far"), EntryError::OtherServer { to } if to.ends_with("/other/"))
    );
    assert_eq!(copied.names(), ["f"]);

    // A listing of entries that are elsewhere is no empty folder.
    let builder = Server::builder()
        .behaviour_on("/w/", Behaviour::status(405))
        .behaviour_on("/w/", properties(&["/elsewhere/", "/elsewhere/a.bin"]));
    let server = builder.start().unwrap();
    let copied = Copied::of(&server.url("/w/")).await;
    assert!(matches!(&copied.ended, Err(JobError::Files(files)) if files.failed == 2));
    let builder = Server::builder()
        .behaviour_on("/w/", Behaviour::status(405))
        .behaviour_on("/w/", properties(&["/w/"]));
    let copied = Copied::of(&builder.start().unwrap().url("/w/")).await;
    assert!(copied.is_whole(), "an empty folder");
}

#[tokio::test(flavor = "multi_thread")]
async fn addresses_in_other_letters_are_the_same() {
    for (typed, written) in [
        ("/home/[Ref]/", "/home/%5BRef%5D/"),
        ("/home/%5BRef%5D/", "/home/%5bRef%5d/"),
        ("/~ada/", "/%7Eada/"),
        ("/mus%C3%A9e/", "/mus%c3%a9e/"),
    ] {
        // The server knows the typed ones only, as a simple one would.
        let files = |builder: Builder| {
            builder
                .file(&format!("{typed}a.bin"), text("a"))
                .file(&format!("{typed}s(1)/b.bin"), text("b"))
                .file(&format!("{typed}s%281%29/b.bin"), text("b"))
        };
        let (a, sub) = (format!("{written}a.bin"), format!("{written}s%281%29/"));
        let b = format!("{sub}b.bin");
        let pages = page(files(Server::builder()), typed, &[&a, &sub]);
        let server = page(pages, &format!("{typed}s%281%29/"), &["../", &b]).start().unwrap();
        let copied = Copied::of(&server.url(typed)).await;
        assert!(copied.is_whole(), "{typed} {written} {:?}", copied.failed);
        assert_eq!(copied.names(), ["a.bin", "s(1)/b.bin"]);

        let server = files(Server::builder())
            .behaviour_on(typed, Behaviour::status(405))
            .behaviour_on(typed, properties(&[written, &a, &sub]))
            .behaviour_on(&format!("{typed}s%281%29/"), properties(&[&sub, &b]))
            .start()
            .unwrap();
        let copied = Copied::of(&server.url(typed)).await;
        assert!(copied.is_whole(), "WebDAV: {typed} {written} {:?}", copied.failed);
        assert_eq!(copied.names(), ["a.bin", "s(1)/b.bin"]);
    }
}

/// XRootD without pages answers 503, sabre/dav 501.
#[tokio::test(flavor = "multi_thread")]
async fn servers_without_pages_are_listed_by_webdav() {
    for status in [403, 500, 501, 503] {
        let server = Server::builder()
            .file("/d/a", text("a"))
            .file("/d/sub/b", text("b"))
            .behaviour_on("/d/", Behaviour::status(status))
            .behaviour_on("/d/", properties(&["/d/", "/d/a", "/d/sub/"]))
            .behaviour_on("/d", Behaviour::status(status))
            .behaviour_on("/d", properties(&["/d/"]))
            .behaviour_on("/d/sub/", Behaviour::status(status))
            .behaviour_on("/d/sub/", properties(&["/d/sub/", "/d/sub/b"]))
            .start()
            .unwrap();
        let copied = Copied::of(&server.url("/d/")).await;
        assert!(copied.is_whole(), "{status} {:?} {:?}", copied.ended, copied.failed);
        assert_eq!(copied.names(), ["a", "sub/b"], "{status}");
        // Also where the user leaves out the slash.
        let home = folder();
        fs::create_dir(home.path().join("x")).unwrap();
        let to = home.path().join("x").display().to_string();
        let copied = Copied::run(copy_of(&[&server.url("/d"), &to], |_| {}), home).await;
        assert!(copied.is_whole(), "named {status} {:?} {:?}", copied.ended, copied.failed);
        assert_eq!(copied.names(), ["d/a", "d/sub/b"], "named {status}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_address_of_webdav_is_asked_for_its_properties_first() {
    let builder =
        Server::builder().file("/d/a", text("a")).behaviour_on("/d/", properties(&["/d/", "/d/a"]));
    // The page is made for people.
    let server = page(builder, "/d/", &["welcome.html"]).start().unwrap();
    let home = folder();
    let from = Address::new(server.url("/d/").replace("http://", "dav://"));
    let kind = CopyKind::Fetch { from: vec![from], to: home.path().join("x") };
    let copied = Copied::run(JobSpec::new(Work::Copy(CopySpec::new(kind))), home).await;
    assert!(copied.is_whole() && copied.names() == ["a"], "{:?}", copied.failed);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_page_of_many_files_is_read_to_its_end() {
    let row = |number: u32| {
        format!(
            "<tr><td><img src='/icons/unknown.gif' alt='[   ]'></td><td><a href='f{number:06}.dat'>\
             f{number:06}.dat</a></td><td align='right'>2026-11-20 10:00</td><td align='right'>500\
             </td></tr>\n"
        )
    };
    let rows: String = (0..60_000).map(row).collect();
    // Larger than usual pages are.
    let server = Server::builder()
        .file_as("/d/", "text/html", text(&format!("<a href='../'>up</a>{rows}")))
        .file("/d/f059999.dat", text("last"))
        .start()
        .unwrap();
    let home = folder();
    let to = format!("{}/", home.path().join("x").display());
    let spec =
        copy_of(&[&server.url("/d/"), &to], |copy| copy.include = vec!["f059999.dat".into()]);
    let copied = Copied::run(spec, home).await;
    assert!(copied.is_whole() && copied.names() == ["f059999.dat"], "{:?}", copied.failed);
}
