//! What the commands need to know of a laboratory, whichever it is.

use std::time::Duration;

use swath_netlab::mesh::Mesh;
use swath_netlab::star::Lab;
use swath_netlab::wan::{Change, LinkCounters, Schedule, Target};

/// A running star or mesh.
pub trait Room: Sync {
    /// What a word of an order or a script means; `None` when there is no such link.
    fn targets(&self, word: &str) -> Option<Vec<Target>>;

    /// Changes a link now.
    fn change(&self, target: Target, change: Change);

    /// Starts the clock of a schedule.
    fn play(&self, schedule: &Schedule);

    /// Returns what each link has carried, with the names of its directions down and up.
    fn counters(&self) -> Vec<([String; 2], LinkCounters)>;

    /// Processor time of the emulator.
    fn engine_cpu_time(&self) -> Duration;
}

impl Room for Lab {
    fn targets(&self, word: &str) -> Option<Vec<Target>> {
        let count = self.servers().len();
        if word == "all" {
            return Some((0..count).map(Target::both).collect());
        }
        let link = word.parse::<usize>().ok()?.checked_sub(1)?;
        (link < count).then(|| vec![Target::both(link)])
    }

    fn change(&self, target: Target, change: Change) {
        self.change(target, change);
    }

    fn play(&self, schedule: &Schedule) {
        self.play(schedule);
    }

    fn counters(&self) -> Vec<([String; 2], LinkCounters)> {
        let counters = self.counters().into_iter().enumerate();
        counters
            .map(|(link, c)| (["down", "up"].map(|way| format!("{} {way}", link + 1)), c))
            .collect()
    }

    fn engine_cpu_time(&self) -> Duration {
        self.engine_cpu_time()
    }
}

impl Room for Mesh {
    fn targets(&self, word: &str) -> Option<Vec<Target>> {
        self.spec().targets(word)
    }

    fn change(&self, target: Target, change: Change) {
        self.change(target, change);
    }

    fn play(&self, schedule: &Schedule) {
        self.play(schedule);
    }

    fn counters(&self) -> Vec<([String; 2], LinkCounters)> {
        let name = |site: usize| &self.spec().sites[site].name;
        let links = self.spec().links.iter().zip(self.counters());
        let named = links.map(|(link, counters)| {
            let (near, far) = (name(link.near), name(link.far));
            ([format!("{far}:{near}"), format!("{near}:{far}")], counters)
        });
        named.collect()
    }

    fn engine_cpu_time(&self) -> Duration {
        self.engine_cpu_time()
    }
}
