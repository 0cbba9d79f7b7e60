//! How well super-seeding does in swarms of every size, in virtual time, by the model of the tests:
//! `cargo run --release -p swath-swarm --example swarm_bench` prints the table (a minute).

#[path = "../tests/suite/model.rs"]
mod model;

fn main() {
    println!(
        "{:>6} {:>7} {:>12} {:>12} {:>14}",
        "sites", "pieces", "× bound", "worst", "copies, worst"
    );
    let equal = |sites: usize| vec![1.0; sites + 1];
    let unequal = |sites: usize| {
        let rest = (0..sites).map(|site| 0.25 + 1.5 * site as f64 / (sites - 1) as f64);
        std::iter::once(1.0).chain(rest).collect::<Vec<f64>>()
    };
    for (up, pieces) in [
        (equal(8), 512),
        (unequal(8), 512),
        (equal(100), 100),
        (equal(100), 500),
        (unequal(100), 500),
        (equal(1000), 500),
        (equal(1000), 1000),
        (equal(1000), 2000),
    ] {
        let sites = up.len() - 1;
        let bound_s = model::bound(pieces, &up);
        let ran: Vec<model::Ran> =
            (1..=SEEDS).map(|seed| model::run(pieces, &up, true, seed)).collect();
        let mut times: Vec<f64> = ran.iter().map(|ran| ran.seconds / bound_s).collect();
        times.sort_by(f64::total_cmp);
        let copies = ran.iter().map(|ran| ran.copies).fold(0.0, f64::max);
        let (median, worst) = (times[times.len() / 2], times[times.len() - 1]);
        println!("{sites:>6} {pieces:>7} {median:>12.2} {worst:>12.2} {copies:>14.2}");
    }
}

const SEEDS: u64 = 5;
