//! Names that others choose, in a folder where a link was planted.

use std::os::unix::fs::symlink;

use crate::support::Home;
use crate::support::net::{honest, url};
use swath_netlab::faulty::{Algorithm, Content, MetalinkFile, metalink};

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
    // Others below it are not.
    symlink("../../outside", home.path("outside/new/sub")).unwrap();
    let text = String::from_utf8(home.read("one.meta4")).unwrap();
    home.write("two.meta4", text.replace("new/f", "new/sub/f"));
    for more in [&[][..], &["--overwrite"]] {
        let ran = home.run(["get", "two.meta4", "-d", "d"].iter().chain(more));
        ran.code_is(5).says(&["d/new/sub is a symbolic link: links below d are not followed"]);
    }
}
