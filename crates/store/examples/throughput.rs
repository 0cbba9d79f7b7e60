//! Writes one file of known size as a transfer would, and prints seconds and CPU seconds.
use std::sync::Arc;
use std::time::Instant;
use swath_model::{Pool, Range};
use swath_store::{Disk, DiskOptions, IoMode, Record, Target, TargetSpec};

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let args: Vec<String> = std::env::args().collect();
    let mode: IoMode = args[1].parse().unwrap();
    let total: u64 = args[2].parse::<u64>().unwrap() << 20;
    let buffer: usize = args[3].parse::<usize>().unwrap() << 10;
    let depth: usize = args[4].parse().unwrap();
    let reserve = args[5] == "reserve";
    let dir = std::path::PathBuf::from(&args[6]);
    let pool = Pool::new((64 << 20) / buffer, buffer);
    let options =
        DiskOptions { ring_depth: depth, write_threads: depth, reserve, ..DiskOptions::default() };
    for _ in 0..5 {
        let disk = Disk::start_with(&pool, mode, options).unwrap();
        let (cpu0, t0) = (cpu(), Instant::now());
        let spec = TargetSpec {
            path: dir.join("bench.bin"),
            size_bytes: Some(total),
            overwrite: true,
            ..Default::default()
        };
        let (target, _) = Target::open(&disk, spec).await.unwrap();
        let opened = t0.elapsed();
        let target = Arc::new(target);
        let mut tasks = tokio::task::JoinSet::new();
        let lanes = 6;
        let share = total / lanes;
        for lane in 0..lanes {
            let (target, pool) = (Arc::clone(&target), pool.clone());
            let start = lane * share / buffer as u64 * buffer as u64;
            let end = if lane + 1 == lanes {
                total
            } else {
                (lane + 1) * share / buffer as u64 * buffer as u64
            };
            tasks.spawn(async move {
                let mut at = start;
                let mut inner = tokio::task::JoinSet::new();
                while at < end {
                    let mut b = pool.take().await;
                    let n = (end - at).min(buffer as u64) as usize;
                    b.advance(n);
                    let target = Arc::clone(&target);
                    inner.spawn(async move {
                        target.write(at, b).await.unwrap();
                    });
                    at += n as u64;
                    while inner.try_join_next().is_some() {}
                }
                while inner.join_next().await.is_some() {}
                Range::new(start, end)
            });
        }
        let mut records = vec![Record::Source { id: 0, name: "x".into() }];
        while let Some(r) = tasks.join_next().await {
            records.push(Record::Durable { range: r.unwrap(), source: 0 });
        }
        let written = t0.elapsed();
        target.commit(records).await.unwrap();
        let committed = t0.elapsed();
        target.finish(None).await.unwrap();
        let t = t0.elapsed();
        println!(
            "{} {}KiB d{} {:8} open {:.3} written {:.2} committed {:.2} total {:.2} s cpu {:.3} s/GB  {:.0} MB/s {:?}",
            disk.mode_name(),
            buffer >> 10,
            depth,
            args[5],
            opened.as_secs_f64(),
            written.as_secs_f64(),
            committed.as_secs_f64(),
            t.as_secs_f64(),
            (cpu() - cpu0) / (total as f64 / 1e9),
            total as f64 / 1e6 / t.as_secs_f64(),
            disk.stats().saturated
        );
        std::fs::remove_file(dir.join("bench.bin")).unwrap();
    }
}
fn cpu() -> f64 {
    let mut u = std::mem::MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: room for the result.
    let u = unsafe {
        libc::getrusage(libc::RUSAGE_SELF, u.as_mut_ptr());
        u.assume_init()
    };
    (u.ru_utime.tv_sec + u.ru_stime.tv_sec) as f64
        + (u.ru_utime.tv_usec + u.ru_stime.tv_usec) as f64 / 1e6
}
