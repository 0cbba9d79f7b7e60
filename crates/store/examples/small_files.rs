//! Writes many small files as a transfer of a list would, and prints what one costs.
use std::time::Instant;
use swath_model::Pool;
use swath_store::{Disk, IoMode, Target, TargetSpec};

fn main() {
    let args: Vec<String> = std::env::args().collect();
    let (count, at_a_time, threads): (u64, u64, usize) =
        (args[1].parse().unwrap(), args[2].parse().unwrap(), args[4].parse().unwrap());
    let dir = std::path::PathBuf::from(&args[3]);
    let rt = tokio::runtime::Builder::new_multi_thread().worker_threads(threads).build().unwrap();
    rt.block_on(async {
        let pool = Pool::new(128, 64 << 10);
        let options = swath_store::DiskOptions { worker_threads_max: args[5].parse().unwrap(), ..Default::default() };
        let disk = Disk::start_with(&pool, IoMode::Auto, options).unwrap();
        let (c0, t0) = (cpu(), Instant::now());
        let mut tasks = tokio::task::JoinSet::new();
        for t in 0..at_a_time {
            let (disk, pool, dir) = (disk.clone(), pool.clone(), dir.clone());
            tasks.spawn(async move {
                let mut i = t;
                while i < count {
                    let spec = TargetSpec { path: dir.join(format!("{}/{i}", i / 1000)), size_bytes: Some(10_000), resume: true, ..Default::default() };
                    let (target, _) = Target::open(&disk, spec).await.unwrap();
                    let mut b = pool.take().await;
                    b.advance(10_000);
                    drop(target.write(0, b).await.unwrap());
                    target.finish(None).await.unwrap();
                    i += at_a_time;
                }
            });
        }
        while let Some(r) = tasks.join_next().await { r.unwrap(); }
        let t = t0.elapsed().as_secs_f64();
        println!("{count} files, {at_a_time} at a time, workers {}: {:.2} s, {:.0} files/s, {:.1} us CPU each (user {:.1})", args[5], t, count as f64 / t, (cpu().0 - c0.0) / count as f64 * 1e6, (cpu().1 - c0.1) / count as f64 * 1e6);
    });
}
fn cpu() -> (f64, f64) {
    let mut u = std::mem::MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: room for the result.
    let u = unsafe {
        libc::getrusage(libc::RUSAGE_SELF, u.as_mut_ptr());
        u.assume_init()
    };
    (
        (u.ru_utime.tv_sec + u.ru_stime.tv_sec) as f64
            + (u.ru_utime.tv_usec + u.ru_stime.tv_usec) as f64 / 1e6,
        u.ru_utime.tv_sec as f64 + u.ru_utime.tv_usec as f64 / 1e6,
    )
}
