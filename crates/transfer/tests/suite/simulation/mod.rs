//! The whole system in virtual time: the real executor, planner, verifiers and store, with sources in
//! memory that lie, stall and vanish, and a disk that fails, fills up and tears. One seed decides
//! everything.
//!
//! `SWATH_SIMULATION_SEED=N` runs one scenario again, `SWATH_SIMULATION_COUNT=N` more of them. `system` runs
//! four times as many as the suite.

mod disk;
mod growing;
mod late_digest;
mod mirrors;
mod scenario;

use scenario::Scenario;

#[test]
fn whatever_happens_the_file_is_right_or_is_not_there() {
    let count = number("SWATH_SIMULATION_COUNT").unwrap_or(crate::SIMULATIONS);
    match number("SWATH_SIMULATION_SEED") {
        Some(seed) => Scenario::of(seed).run().iter().for_each(|told| println!("{told}")),
        None => (0..count).for_each(|seed| drop(Scenario::of(seed).run())),
    }
}

#[test]
fn a_seed_tells_the_same_story_twice() {
    for seed in 0..20 {
        let (once, twice) = (Scenario::of(seed).run(), Scenario::of(seed).run());
        for (number, (one, other)) in once.iter().zip(&twice).enumerate() {
            assert_eq!(one, other, "seed {seed}, event {number}");
        }
        assert_eq!(once.len(), twice.len(), "seed {seed}");
    }
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}
