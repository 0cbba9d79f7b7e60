//! What jobs do for others ends at the rights of whoever ordered them, and links that a tree brought lead
//! no command out of the user's folder.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::Arc;

use swath_jobs::copy::CopyError;
use swath_jobs::{CopySpec, Environment, JobError, JobSpec, Jobs, Outcome};
use swath_store::tree::{Decide, Deed, Grant, PlaceGrant};
use swath_transfer::sending::Received;
use swath_transfer::{GetError, PartialError};

use crate::support::folder;
use crate::trees::{names, write};
use crate::ways::{Served, copied, copy_of};

/// Permits to write one name, or only to create it.
struct Name {
    name: &'static str,
    may_replace: bool,
}

impl Decide for Name {
    fn permits(&self, deed: Deed, path: &[u8]) -> bool {
        path == self.name.as_bytes() && (self.may_replace || deed == Deed::Create)
    }

    fn permits_all_reading(&self) -> bool {
        false
    }
}

/// Runs a job that may do no more than this at this place.
async fn run(spec: JobSpec, place: &Path, name: Name) -> Result<Received, Box<CopyError>> {
    let grant = PlaceGrant::at(place.to_owned(), Grant::of(Arc::new(name), Vec::new()));
    let jobs = Jobs::new(Environment { grant, ..Environment::default() });
    match jobs.start(spec).wait().await {
        Ok(Outcome::Copied(copied)) => Ok(copied.received),
        Err(JobError::Copy(error)) => Err(error),
        ended => panic!("{ended:?}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn who_may_write_one_name_changes_no_other() {
    let home = folder();
    let at = |path: &str| home.path().join(path);
    let here = |path: &str| at(path).display().to_string();
    write(at("source/x"), "new");
    write(at("source/y"), "new");
    let plant = || {
        for path in ["b/x", "b/y", "b/z"] {
            write(at(path), "old");
        }
    };
    let text = |path: &str| fs::read_to_string(at(path)).unwrap();
    let server = Served::reading(&at("source")).await;
    let all = |copy: &mut CopySpec| (copy.delete, copy.allow_empty) = (true, true);
    let name = |may_replace| Name { name: "x", may_replace };
    // A tree into all of the folder, of a server and of this machine.
    for from in [server.at(""), here("source/")] {
        plant();
        assert!(run(copy_of(&[&from, &here("b")], all), &at("b"), name(true)).await.is_err());
        assert_eq!((text("b/y"), text("b/z")), ("old".into(), "old".into()), "{from}");
    }
    // The file alone: what else is there is no surplus.
    fs::remove_dir_all(at("b")).unwrap();
    plant();
    let spec = || copy_of(&[&here("source/x"), &here("b/")], |_| {});
    let received = run(spec(), &at("b"), name(true)).await.unwrap();
    assert_eq!((received.removed, text("b/x"), text("b/z")), (0, "new".into(), "old".into()));
    assert_eq!(names(&at("b")), ["x", "y", "z"]);
    // Who may only create replaces nothing.
    write(at("b/x"), "older");
    assert!(run(spec(), &at("b"), name(false)).await.is_err());
    assert_eq!(text("b/x"), "older");
    fs::remove_file(at("b/x")).unwrap();
    run(spec(), &at("b"), name(false)).await.unwrap();
    assert_eq!(text("b/x"), "new");
    // Nor does anything elsewhere change.
    write(at("b/x"), "older");
    assert!(run(spec(), &at("other"), name(true)).await.is_err());
    assert_eq!(text("b/x"), "older");
    // A user's own command replaces that one file too.
    copied(spec()).await.unwrap();
    assert_eq!(names(&at("b")), ["x", "y", "z"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_link_that_a_tree_brought_is_no_destination() {
    let home = folder();
    let at = |path: &str| home.path().join(path);
    let here = |path: &str| at(path).display().to_string();
    write(at("source/t/file"), "x");
    fs::create_dir_all(at("outside")).unwrap();
    fs::create_dir_all(at("real")).unwrap();
    symlink("real", at("data")).unwrap();
    symlink("../outside", at("real/t")).unwrap();
    let server = Served::reading(&at("source")).await;
    for from in [server.at("t"), here("source/t")] {
        let ended = copied(copy_of(&[&from, &here("data/")], |_| {})).await;
        let Err(error) = ended else { panic!("{from}: {ended:?}") };
        let CopyError::Fetch { error, .. } = *error else { panic!("{from}: {error:?}") };
        assert!(matches!(*error, GetError::Tree(PartialError::LinkOnTheWay { .. })), "{error:?}");
    }
    assert_eq!(names(&at("outside")), [""; 0]);
    // The user's own words are followed.
    copied(copy_of(&[&server.at("t/"), &here("data/t")], |_| {})).await.unwrap();
    assert_eq!(names(&at("outside")), ["file"]);
    fs::remove_file(at("real/t")).unwrap();
    copied(copy_of(&[&server.at("t"), &here("data/")], |_| {})).await.unwrap();
    assert_eq!(names(&at("real/t")), ["file"]);
}
