//! Several replicas of one tree: they share the work, and another tree is left out.

use std::process::Command;
use std::sync::{Arc, Mutex};

use swath_jobs::JobEvent;
use swath_transfer::observe::Event;

use crate::support::folder;
use crate::trees::{assert_same, bytes, plant, write};
use crate::ways::{Served, copy_of, observed};

#[tokio::test(flavor = "multi_thread")]
async fn three_replicas_share_the_work_and_another_tree_is_left_out() {
    let home = folder();
    let mut servers = Vec::new();
    for name in ["tree", "one", "two", "other"] {
        let tree = home.path().join(name);
        if name == "tree" {
            plant(&tree);
            write(tree.join("wide.bin"), bytes(9, 12 << 20));
        } else {
            let mut copies = Command::new("cp");
            copies.args(["-a", "tree", name]).current_dir(home.path());
            assert!(copies.status().unwrap().success());
        }
        if name == "other" {
            write(tree.join("many/2/2.dat"), "another size");
        }
        servers.push(Served::reading(&tree).await);
        // Slowly enough that all have time to take part.
        servers.last().unwrap().limit(Some(5 << 20));
    }
    let copy = home.path().join("copy");
    let mut places: Vec<String> = servers.iter().map(|server| server.at("")).collect();
    places.push(copy.display().to_string());
    let spec = copy_of(&places.iter().map(String::as_str).collect::<Vec<_>>(), |_| {});
    let bad = Arc::new(Mutex::new(Vec::new()));
    let keeps = Arc::clone(&bad);
    let received = observed(&spec, move |event| {
        if let JobEvent::Transfer(Event::Note { text, .. }) = event
            && text.contains("is left out")
        {
            keeps.lock().unwrap().push(text);
        }
    });
    let received = received.await.unwrap();
    assert!(received.is_whole, "{received:?}");
    let bad = std::mem::take(&mut *bad.lock().unwrap());
    assert!(bad.len() == 1 && bad[0].contains("many/2/2.dat"), "{bad:?}");
    let brought = received.transfer.sources.iter().filter(|source| source.bytes > 0).count();
    assert_eq!(brought, 3, "{:?}", received.transfer.sources);
    assert_same(&home.path().join("tree"), &copy);
}
