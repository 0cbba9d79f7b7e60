//! How fast a tree is walked into an index: `walk_speed DIR [THREADS]`.

use std::convert::Infallible;
use std::time::Instant;

use swath_model::index::Index;
use swath_store::tree::{Root, WalkOptions, walk};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args_os().skip(1);
    let folder = arguments.next().ok_or("which folder?")?;
    let threads = arguments.next().and_then(|text| text.to_str()?.parse().ok()).unwrap_or(4);
    let root = Root::open(folder.as_ref())?;
    for _ in 0..3 {
        let mut index = Index::new();
        let began = Instant::now();
        walk(&root, &WalkOptions { threads, ..WalkOptions::default() }, |entry| {
            index.push(entry).map(drop).ok();
            Ok::<_, Infallible>(())
        })?;
        let took_s = began.elapsed().as_secs_f64();
        let entries = index.entries();
        println!(
            "{entries} entries in {took_s:.3} s, {:.0} a second; index {:.1} MiB",
            entries as f64 / took_s,
            index.memory_bytes() as f64 / 1_048_576.0
        );
    }
    Ok(())
}
