//! Files full of holes: a copy takes no more of the disk than its original.

use std::fs;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::Path;

use swath_jobs::Compare;

use crate::trees::{assert_same, bytes, write};
use crate::ways::Way;

/// Blocks of 512 bytes that a file takes.
fn blocks(path: &Path) -> u64 {
    let file = fs::File::open(path).unwrap();
    file.sync_all().unwrap();
    file.metadata().unwrap().blocks()
}

/// `None` where the file system has no holes of a block.
fn plant(tree: &Path) -> Option<()> {
    let make = |name: &str, size_bytes: u64| {
        let file = fs::File::create(tree.join(name)).unwrap();
        file.set_len(size_bytes).unwrap();
        file
    };
    // A block of data in every 64 KiB, as an array has it of which few elements are set.
    let array = make("array", 24 << 20);
    for n in 0..384 {
        array.write_all_at(&bytes(n, 4096), n * (64 << 10) + (n % 16) * 4096).unwrap();
    }
    // Whole MiB of data beside whole MiB of holes, and an odd end.
    let image = make("image", (9 << 20) + 4321);
    image.write_all_at(&bytes(1, 3 << 20), 2 << 20).unwrap();
    image.write_all_at(&bytes(2, 100), (7 << 20) + 5000).unwrap();
    // Less data than a file has that begins at a page of the virtual file.
    let few = make("few", (3 << 20) + 700_000);
    few.write_all_at(&bytes(3, 5000), (3 << 20) + 333_333).unwrap();
    make("void", 4 << 20);
    for file in [array, image, few] {
        file.sync_all().unwrap();
    }
    // Zeros that are there stay there.
    write(tree.join("zeros"), vec![0; 3 << 20]);
    fs::hard_link(tree.join("array"), tree.join("further name")).unwrap();
    let has_holes = blocks(&tree.join("array")) < 2 * 384 * 8;
    if !has_holes {
        println!("skipped: the folder for temporary files keeps no holes of 4 KiB");
    }
    has_holes.then_some(())
}

#[tokio::test(flavor = "multi_thread")]
async fn holes_of_a_block_stay_holes() {
    // Each extent took as many whole MiB as it touched: a file of single blocks took sixteen times
    // what it should.
    for way in Way::all().await {
        let Some(()) = plant(&way.path("tree")) else { return };
        way.whole(|copy| copy.compare = Compare::Nothing).await;
        assert_same(&way.path("tree"), &way.path("copy"));
        for name in ["array", "further name", "image", "few", "void", "zeros"] {
            let [ours, theirs] = ["tree", "copy"].map(|of| blocks(&way.path(of).join(name)));
            println!("{name}: {ours} blocks, {theirs} in the copy");
            // Where data lies in pieces a file system may need a block more to say where.
            assert!(theirs <= ours + 16, "{}: {name}: {theirs} blocks for {ours}", way.name);
        }
        assert!(blocks(&way.path("copy/zeros")) >= 3 << 11, "zeros that were written are");
    }
}
