//! How well super-seeding does in swarms of every size, in virtual time, by the model of the tests:
//! `cargo run --release -p swath-swarm --example swarm_bench` prints the table (a minute).

#[path = "../tests/suite/model.rs"]
mod model;

fn main() {
    println!(
        "{:>6} {:>7} {:>12} {:>12} {:>14}",
        "sites", "pieces", "× bound", "worst", "copies, worst"
    );
    for (sites, pieces) in
        [(8, 512), (100, 100), (100, 500), (1000, 500), (1000, 1000), (1000, 2000)]
    {
        let up = vec![1.0; sites + 1];
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
