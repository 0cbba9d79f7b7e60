//! Names that others choose, in a folder where a link was planted.

use std::os::unix::fs::symlink;

use crate::support::Home;
use crate::support::net::{honest, url};
use swath_netlab::faulty::{Algorithm, Content, MetalinkFile, metalink};

/// A Metalink's `sub/f` was written through a link `sub` that lay in the folder of `-d`, to where
/// the link led.
#[test]
fn names_of_metalinks_and_lists_follow_no_link_below_the_folder() {
    let content = Content::random(3, 300_001);
    let server = honest(&content);
    let urls = [url(&server)];
    let file = |name| MetalinkFile {
        name,
        content: &content,
        urls: &urls,
        digests: &[Algorithm::Sha256],
        piece_bytes: None,
    };
    let home = Home::new();
    home.write("one.meta4", metalink(&[file("sub/f")]));
    home.write("deep.meta4", metalink(&[file("real/sub/new/f")]));
    home.write("two.meta4", metalink(&[file("sub/f"), file("other/f")]));
    home.write("list", format!("{}\n  out=sub/f\n", urls[0]));
    home.write("folders", format!("{}\n  out=f\n  dir=sub\n", urls[0]));
    std::fs::create_dir_all(home.path("d/real")).unwrap();
    std::fs::create_dir(home.path("outside")).unwrap();
    symlink("../outside", home.path("d/sub")).unwrap();
    symlink("../../outside", home.path("d/real/sub")).unwrap();
    let refused = |args: &[&str], link: &str, dir: &str| {
        let said = format!("{link} is a symbolic link: links below {dir} are not followed");
        for more in [&[][..], &["--overwrite"]] {
            let ran = home.run(["get"].iter().chain(args).chain(more));
            assert_ne!(ran.code(), 0, "{ran}");
            ran.says(&[&said]);
        }
        assert!(home.path("outside").read_dir().unwrap().next().is_none(), "{args:?}");
    };
    refused(&["one.meta4", "-d", "d"], "d/sub", "d");
    refused(&["deep.meta4", "-d", "d"], "d/real/sub", "d");
    refused(&["two.meta4", "-d", "d"], "d/sub", "d");
    refused(&["-i", "list", "-d", "d"], "d/sub", "d");
    refused(&["-i", "folders", "-d", "d"], "d/sub", "d");
    home.holds("d/other/f", &content);

    // In the folder where swath runs, it is the same.
    symlink("outside", home.path("sub")).unwrap();
    refused(&["one.meta4"], "sub", ".");

    // A file that somebody put behind the link is not taken for the one that is wanted.
    home.write("outside/f", content.read(0, content.size_bytes()));
    home.run(["get", "one.meta4", "-d", "d"]).code_is(5).says(&["d/sub is a symbolic link"]);
}

/// Links that the user names are the user's own.
#[test]
fn the_folder_that_the_user_names_may_be_a_link() {
    let content = Content::random(4, 300_001);
    let server = honest(&content);
    let home = Home::new();
    let one = MetalinkFile {
        name: "new/f",
        content: &content,
        urls: &[url(&server)],
        digests: &[Algorithm::Sha256],
        piece_bytes: None,
    };
    home.write("one.meta4", metalink(&[one]));
    std::fs::create_dir(home.path("outside")).unwrap();
    symlink("outside", home.path("d")).unwrap();
    home.run(["get", "one.meta4", "-d", "d"]).code_is(0).never_says(&["/proc/"]);
    home.holds("outside/new/f", &content);
    let names: Vec<_> = home.path("outside/new").read_dir().unwrap().collect();
    assert_eq!(names.len(), 1, "no side file stays");
    // Complete already, and found at the same place.
    home.run(["get", "one.meta4", "-d", "d"]).code_is(0).never_says(&["/proc/"]);
    home.run(["get", "one.meta4", "-o", "d/other"]).code_is(0);
    home.holds("outside/other", &content);
}
