//! Prints the speed of every hasher on one core:
//! `cargo run --release -p swath-model --example digest_speed`.

// What is measured here is real time.
#![allow(clippy::disallowed_methods)]

use std::time::Instant;

use swath_model::digest::{Algorithm, Blake3Tree, Hasher};

fn main() {
    let input: Vec<u8> = (0..256u32 << 20).map(|i| (i ^ (i >> 9)) as u8).collect();
    for slice_bytes in [64 << 10, 256 << 10, 1 << 20] {
        for algorithm in Algorithm::ALL {
            let mut hasher = Hasher::new(algorithm);
            report(&format!("{algorithm} in slices of {} KiB", slice_bytes >> 10), &input, || {
                input.chunks(slice_bytes).for_each(|slice| hasher.update(slice));
            });
            std::hint::black_box(hasher.finish());
        }
    }
    for group_bytes in [16 << 10, 64 << 10, 256 << 10, 1 << 20] {
        let name = format!("blake3 tree, groups of {} KiB, last first", group_bytes >> 10);
        let mut tree = Blake3Tree::with_group(input.len() as u64, group_bytes).unwrap();
        report(&name, &input, || {
            for (group, bytes) in input.chunks(group_bytes as usize).enumerate().rev() {
                tree.add(group as u64, bytes).unwrap();
            }
            std::hint::black_box(tree.root().unwrap());
        });
    }
}

fn report(name: &str, input: &[u8], work: impl FnOnce()) {
    let start = Instant::now();
    work();
    let rate = input.len() as f64 / start.elapsed().as_secs_f64() / 1e9;
    println!("{name:<50} {rate:6.2} GB/s");
}
