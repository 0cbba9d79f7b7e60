//! `swath get` and what proves a file: digests, pieces, those that are wrong themselves; and the
//! memory that proving takes.

mod support;

use support::Home;
use support::net::{honest, url};
use swath_netlab::faulty::Content;

#[test]
fn memory_has_bounds() {
    let source = honest(&Content::random(1, 1000));
    let home = Home::new();
    for size in ["1", "1M", "100000G", "9000000T"] {
        home.run(["get", &url(&source), "--memory", size])
            .code_is(2)
            .says(&["--memory", "it takes at least 4.19 MB", "can spare"])
            .never_says(&["panicked"]);
    }
    assert_eq!(source.sent_bytes(), 0, "nobody was asked");
    home.run(["get", &url(&source), "--memory", "5M"]).code_is(0);
}
