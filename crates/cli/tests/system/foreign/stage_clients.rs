//! Files in depots, fetched by clients of others.

use swath_netlab::faulty::Content;

use crate::support::Home;
use crate::support::net::{honest, sha256, url};
use crate::support::serve::succeeds;

const SIZE: u64 = 9_000_017;

#[test]
fn aria2_fetches_what_a_depot_holds() {
    let home = Home::new();
    let content = Content::random(1, SIZE);
    let origin = honest(&content);
    let depot = home.depot("20M", &[]);
    let (source, at, digest) = (url(&origin), depot.named(), sha256(&content));
    let stage = ["stage", &source, "--at", &at, "--for", "1h", "-o", "staged.meta4"];
    home.run([&stage[..], &["--digest", &digest]].concat()).code_is(0);
    origin.die();
    let args = ["--no-conf", "--console-log-level=warn", "-d", "aria", "staged.meta4"];
    if succeeds(&home.work(), "aria2c", &args).is_some() {
        home.holds("aria/data.bin", &content);
    }
}
