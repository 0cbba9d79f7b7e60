//! Extended attributes, in every direction.

use std::fs;
use std::io::{Read as _, Write as _};
use std::os::unix::fs::symlink;
use std::path::Path;

use swath_jobs::CopySpec;
use swath_jobs::copy::CopyError;

use crate::support::folder;
use crate::trees::{FILES, assert_same, chmod, entries, inode, plant, set_xattr, write, xattrs};
use crate::ways::{Served, Way, copied, copy_of};

/// The extended attributes of a file, by name.
type Xattrs = Vec<(String, Vec<u8>)>;

/// What of a tree has which extended attributes.
fn seen(tree: &Path) -> Vec<(String, Xattrs)> {
    let of = |path: &Path| (path.display().to_string(), xattrs(&tree.join(path)));
    entries(tree).iter().map(|path| of(path)).filter(|(_, all)| !all.is_empty()).collect()
}

/// A tree with something of everything, of which some has extended attributes; `false`, with a
/// message, where the file system takes none.
fn planted(tree: &Path) -> bool {
    plant(tree);
    fs::hard_link(tree.join("page.bin"), tree.join("page once more.bin")).unwrap();
    if !set_xattr(&tree.join("large.bin"), "user.origin", b"telescope 7") {
        println!("skipped: this file system takes no extended attributes");
        return false;
    }
    for n in 0..100 {
        let path = tree.join(format!("many/{}/{n}.dat", n % 7));
        assert!(set_xattr(&path, "user.origin", b"telescope 7"));
        if n % 10 == 0 {
            assert!(set_xattr(&path, "user.number", n.to_string().as_bytes()));
        }
    }
    for (name, value) in
        [("user.z", &b""[..]), ("user.a", b"\0\xff\n"), ("user.name, \u{e9}", b"x")]
    {
        for path in ["page.bin", "empty", "sparse", "many", "many/3", "nothing in it"] {
            assert!(set_xattr(&tree.join(path), name, value), "{path}");
        }
    }
    assert!(set_xattr(&tree.join("many/1/1.dat"), "user.long", &[b'v'; 2000]));
    true
}

fn remove(path: &Path, name: &str) {
    rustix::fs::lremovexattr(path, name).unwrap();
}

fn with_them(copy: &mut CopySpec) {
    copy.preserve.xattrs = true;
}

#[tokio::test(flavor = "multi_thread")]
async fn they_are_copied_if_wanted_and_set_right_again_without_the_content() {
    for way in Way::all().await {
        let (tree, copy) = (way.path("tree"), way.path("copy"));
        if !planted(&tree) {
            return;
        }
        way.whole(|_| {}).await;
        assert_same(&tree, &copy);
        assert_eq!(seen(&copy), []);
        way.whole(with_them).await;
        assert_same(&tree, &copy);
        assert!(seen(&tree).len() > 100);
        assert_eq!(seen(&copy), seen(&tree));
        // Again: nothing moves.
        let before = inode(copy.join("large.bin"));
        let again = way.whole(with_them).await;
        assert_eq!((again.kept_files, again.transfer.fetched_bytes), (FILES, 0));
        assert_eq!(seen(&copy), seen(&tree));
        // Other values, one more, one less, and one that only the copy has; on files and folders.
        assert!(set_xattr(&tree.join("large.bin"), "user.origin", b"telescope 8"));
        assert!(set_xattr(&tree.join("many/2/2.dat"), "user.more", b"1"));
        // Here a file of two names, and each of them a file of its own there.
        assert!(set_xattr(&tree.join("page.bin"), "user.a", b"of both names"));
        remove(&tree.join("many/3"), "user.z");
        remove(&tree.join("empty"), "user.a");
        assert!(set_xattr(&copy.join("a name, with #?%.dat"), "user.mine", b"1"));
        // One that nobody may write to.
        assert!(set_xattr(&tree.join("many/4/4.dat"), "user.closed", b"1"));
        chmod(tree.join("many/4/4.dat"), 0o444);
        assert_ne!(seen(&copy), seen(&tree));
        assert_eq!(way.whole(with_them).await.transfer.fetched_bytes, 0);
        assert_eq!(seen(&copy), seen(&tree));
        assert_eq!(inode(copy.join("large.bin")), before);
        assert_same(&tree, &copy);
        // Who does not ask leaves alone what stays there.
        way.whole(|_| {}).await;
        assert_eq!(seen(&copy), seen(&tree));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn of_a_part_several_names_stay_names_of_one_file() {
    for way in Way::all().await {
        let (tree, copy) = (way.path("tree"), way.path("copy"));
        if !planted(&tree) {
            return;
        }
        way.whole(|copy| {
            with_them(copy);
            copy.preserve.links = true;
            copy.include = ["many/3", "page*"].map(str::to_owned).to_vec();
        })
        .await;
        let is_of_part =
            |path: &str| path.starts_with("page") || path == "many" || path.starts_with("many/3");
        let wanted: Vec<_> = seen(&tree).into_iter().filter(|(path, _)| is_of_part(path)).collect();
        assert_eq!(seen(&copy), wanted);
        assert_eq!(inode(copy.join("page.bin")), inode(copy.join("page once more.bin")));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn links_have_none_to_take_over_and_single_files_have() {
    for way in Way::all().await {
        write(way.path("tree/file"), "x\n");
        symlink("file", way.path("tree/link")).unwrap();
        way.whole(with_them).await;
        assert_same(&way.path("tree"), &way.path("copy"));
    }
    let home = folder();
    let (file, to) = (home.path().join("file"), home.path().join("to"));
    write(&file, "x\n");
    fs::create_dir(&to).unwrap();
    let has_one = set_xattr(&file, "user.run", b"7");
    let server = Served::taking(&to).await;
    let (file, there) = (file.display().to_string(), server.opened(""));
    copied(copy_of(&[&file, &there], with_them)).await.unwrap();
    assert_eq!(xattrs(&to.join("file")).len(), usize::from(has_one));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_knows_nothing_of_them_is_not_taken_for_one_that_has_none() {
    // As a server answers that passes over what it does not know.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/tree/", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        while let Ok((mut client, _)) = listener.accept() {
            std::thread::spawn(move || {
                let mut head = [0; 4096];
                while client.read(&mut head).is_ok_and(|bytes| bytes > 0) {
                    let answer = "HTTP/1.1 200 OK\r\ncontent-type: application/vnd.swath.index\r\n\
                                  swath-walk: 1\r\ncontent-length: 9\r\n\r\nswathidx\x01";
                    if client.write_all(answer.as_bytes()).is_err() {
                        return;
                    }
                }
            });
        }
    });
    let home = folder();
    let copy = home.path().join("copy");
    let spec = copy_of(&[&url, &copy.display().to_string()], with_them);
    let error = copied(spec).await.unwrap_err();
    let CopyError::Fetch { error, .. } = *error else { panic!("{error}") };
    let reasons = error.with_reasons();
    assert!(reasons.contains("does not support extended attributes"), "{reasons}");
    assert!(!copy.exists());
}
