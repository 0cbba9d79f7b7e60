//! Swarms in virtual time, by [`crate::model`]: how long they take, and how much the origin sends.

use crate::model::{bound, run};

#[track_caller]
fn is_within(pieces: u32, up: &[f64], seeds: u64, time_max: f64, copies_max: f64) {
    for seed in 1..=seeds {
        let ran = run(pieces, up, true, seed);
        let plain = run(pieces, up, false, seed);
        let time = ran.seconds / bound(pieces, up);
        let plain_time = plain.seconds / bound(pieces, up);
        println!(
            "{} leechers, {pieces} pieces, seed {seed}: {time:.3} × bound, {:.2} copies; without \
             super-seeding {plain_time:.3} × bound, {:.2} copies",
            up.len() - 1,
            ran.copies,
            plain.copies
        );
        assert!(time <= time_max && ran.copies <= copies_max, "{time} {}", ran.copies);
        assert!(time <= plain_time * 1.05, "it slows the swarm: {plain_time}");
    }
}

#[test]
fn eight_sites_get_a_dataset_of_which_the_origin_sends_one_copy() {
    is_within(512, &[1.0; 9], 3, 1.25, 1.3);
}

#[test]
fn a_hundred_sites_get_it_of_less_than_two_copies() {
    // The bound needs all links to be busy from the start, which a piece for each site cannot do.
    is_within(100, &[1.0; 101], 3, 1.75, 1.75);
}

#[test]
fn slow_sites_do_not_hold_up_the_others() {
    let mut up = vec![1.0; 9];
    up[1..4].fill(0.2);
    is_within(256, &up, 3, 1.4, 1.6);
}
