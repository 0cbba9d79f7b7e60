//! The transfers of a world, by the real executor in virtual time. Those that overlap run beside each
//! other in one runtime.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use swath_source::LocalSource;
use swath_store::simulated::Faults;
use swath_transfer::observe::Event;
use swath_transfer::{Destination, Engine, EngineOptions, Range, Request, Stop};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};
use url::Url;

use super::background::Background;
use super::link::{Link, Offer};
use super::plans::{Plan, World};
use super::remote::{Remote, Traits, ready_s};
use crate::forecast::progress::{Marks, PARTS, look};

/// What became of a transfer.
#[derive(Clone, Debug)]
pub struct Simulated {
    /// The transfer.
    pub plan: Plan,
    /// How long it took, in seconds.
    pub took_s: f64,
    /// How much of that passes before the first byte can come.
    pub ready_s: f64,
    /// What it said of its progress.
    pub marks: Marks,
    /// What its links offered when it said that.
    pub mark_offers: [Option<Offer>; PARTS.len()],
    /// What its links offered when it began and when it had ended.
    pub offers: [Offer; 2],
    /// What they offer on average over the whole time of the world, in bytes per second.
    pub mean_offer_bytes_per_s: f64,
}

/// Lets the transfers of a world happen, and returns them in the order of their begins.
///
/// # Errors
/// Why the executor cannot start, or which transfer failed.
pub fn run(world: &World) -> Result<Vec<Simulated>, String> {
    fastrand::seed(world.seed);
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_time().start_paused(true).build();
    runtime.map_err(|error| format!("cannot start a runtime: {error}"))?.block_on(all(world))
}

async fn all(world: &World) -> Result<Vec<Simulated>, String> {
    let options = EngineOptions {
        buffer_bytes: BUFFER_BYTES,
        memory_bytes: BUFFERS * BUFFER_BYTES,
        ..EngineOptions::default()
    };
    let engine = Engine::simulated(options, Arc::new(SoundDisk))
        .map_err(|error| format!("cannot start: {error}"))?;
    let mut random = fastrand::Rng::with_seed(!world.seed);
    let links: Vec<Arc<Link>> = (world.sites.iter())
        .map(|site| {
            let background = Background::new(world.setting, random.fork());
            Arc::new(Link::new(site.link_bytes_per_s, background))
        })
        .collect();
    let (began, mut running) = (Instant::now(), JoinSet::new());
    let mut done: Vec<Option<Simulated>> = vec![None; world.plans.len()];
    for (number, plan) in world.plans.iter().enumerate() {
        sleep_until(began + Duration::from_secs_f64(plan.at_s)).await;
        let sources = plan.from.iter().map(|&at| {
            let traits = Traits {
                bytes: plan.bytes,
                files: plan.files,
                file_s: world.sites[at].file_s,
                rtt_s: world.rtt_s(at, plan.to),
                start_s: plan.start_s,
            };
            (world.sites[at].name.clone(), Remote::new(&links[at], traits))
        });
        let own = plan.from.iter().map(|&at| Arc::clone(&links[at])).collect();
        let transfer = one(engine.clone(), plan.clone(), sources.collect(), own);
        running.spawn(async move { (number, transfer.await) });
    }
    while let Some(ended) = running.join_next().await {
        let (number, ended) = ended.map_err(|error| error.to_string())?;
        let failed = |error| format!("seed {}: transfer {number} failed: {error}", world.seed);
        done[number] = Some(ended.map_err(failed)?);
    }
    let world_s = began.elapsed().as_secs_f64();
    let mut done: Vec<Simulated> = done.into_iter().flatten().collect();
    for Simulated { plan, ready_s, mean_offer_bytes_per_s, .. } in &mut done {
        *mean_offer_bytes_per_s = sum(plan.from.iter().map(|&at| &*links[at])).bytes / world_s;
        let nearest = plan.from.iter().map(|&at| world.rtt_s(at, plan.to)).fold(1.0, f64::min);
        *ready_s = self::ready_s(plan.start_s, nearest);
    }
    Ok(done)
}

/// Executes one transfer.
async fn one(
    engine: Engine,
    plan: Plan,
    sources: Vec<(String, Remote)>,
    links: Vec<Arc<Link>>,
) -> Result<Simulated, String> {
    let offer = || sum(links.iter().map(|link| &**link));
    let at_begin = offer();
    let range = Range::new(0, plan.bytes);
    // The bytes are thrown away; nothing would be learned from a disk that takes no time.
    let mut request =
        Request { destination: Destination::Nowhere { range }, ..Request::to_file("") };
    for (name, remote) in sources {
        let url = Url::parse(&format!("simulated://{name}/")).map_err(|error| error.to_string())?;
        request = request.source(LocalSource::new(url, Arc::new(remote)));
    }
    let (mut marks, mut mark_offers) = (Marks::default(), [None; PARTS.len()]);
    let mut observer = |event: &Event| {
        look(&mut marks, event);
        for (mark, at_mark) in marks.iter().zip(&mut mark_offers) {
            if mark.is_some() && at_mark.is_none() {
                *at_mark = Some(offer());
            }
        }
    };
    let began = Instant::now();
    let ended = engine.get_observed(request, &mut observer, &Stop::default()).await;
    ended.map_err(|error| error.to_string())?;
    let took_s = began.elapsed().as_secs_f64();
    let offers = [at_begin, offer()];
    let (ready_s, mean_offer_bytes_per_s) = (0.0, 0.0);
    Ok(Simulated { plan, took_s, ready_s, marks, mark_offers, offers, mean_offer_bytes_per_s })
}

/// Returns what several links offer together.
fn sum<'a>(links: impl Iterator<Item = &'a Link>) -> Offer {
    links.map(Link::offer).fold(Offer::default(), |all, one| Offer {
        bytes_per_s: all.bytes_per_s + one.bytes_per_s,
        bytes: all.bytes + one.bytes,
    })
}

/// A disk without faults.
struct SoundDisk;

impl Faults for SoundDisk {
    fn before_write(&self, _: u64, _: usize) -> io::Result<()> {
        Ok(())
    }

    fn before_step(&self) -> io::Result<()> {
        Ok(())
    }

    fn synced(&self, _: &std::fs::File) {}
}

/// Nobody writes into buffers, so their size costs nothing. With this one a lane at 10 Gbit/s is
/// looked at as often as the planner looks.
const BUFFER_BYTES: usize = 8 << 20;
/// Enough for all lanes of transfers that run beside each other.
const BUFFERS: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::forecast::world::Setting;

    #[test]
    fn a_seed_is_the_same_transfers() {
        let world = World::of(Setting::Changing, 3, 8);
        let (once, twice) = (run(&world).unwrap(), run(&world).unwrap());
        assert_eq!(once.len(), 8);
        for (one, other) in once.iter().zip(&twice) {
            assert_eq!(one.took_s, other.took_s, "{:?}", one.plan);
            let fastest = one.plan.from.iter().map(|&at| world.sites[at].link_bytes_per_s);
            let bound_s = one.plan.bytes as f64 / fastest.sum::<f64>();
            assert!(one.took_s > bound_s, "{} {bound_s}", one.took_s);
            assert!(one.took_s < 60.0 + 20.0 * bound_s, "{} {bound_s}", one.took_s);
        }
    }
}
