//! Lock + release of free names, by some workers at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Error, Result};
use tokio::task::JoinSet;

use super::system::System;
use crate::cpu;
use crate::order::Order;
use crate::peers::Cycles;
use crate::stats::at;

/// What one cycle took.
#[derive(Clone, Copy)]
struct Sample {
    lock: Duration,
    release: Duration,
}

/// What one worker has seen.
#[derive(Default)]
struct Tally {
    samples: Vec<Sample>,
    failed: u64,
    error: Option<String>,
}

/// The workers are tasks, as callers in a service are. The future that a runtime blocks on costs two more
/// system calls for each time that it is woken.
pub async fn cycles(system: &Arc<System>, order: &Order) -> Result<Cycles> {
    let (concurrency, count): (usize, u64) = (order.number("concurrency")?, order.number("count")?);
    let limit = Duration::try_from_secs_f64(order.number("seconds")?)?;
    // Each worker has so many names, which it uses in turn; none of them is a new one for each cycle.
    let names: Option<u64> =
        order.text("names").is_ok().then(|| order.number("names")).transpose()?;
    let begun = Arc::new(AtomicU64::new(0));
    let (cpu, start) = (cpu::own_seconds(), Instant::now());
    let mut workers = JoinSet::new();
    for index in 0..concurrency {
        let (system, begun) = (Arc::clone(system), Arc::clone(&begun));
        let prefix = format!("{}/{index}", order.text("name")?);
        workers.spawn(async move {
            let mut tally = Tally::default();
            for serial in 0_u64.. {
                if start.elapsed() >= limit || begun.fetch_add(1, Ordering::Relaxed) >= count {
                    break;
                }
                let name = format!("{prefix}/{}", names.map_or(serial, |names| serial % names));
                match cycle(&system, &name).await {
                    Ok(sample) => tally.samples.push(sample),
                    Err(error) => {
                        tally.failed += 1;
                        tally.error.get_or_insert_with(|| error.to_string());
                    }
                }
            }
            tally
        });
    }
    let mut all = Tally::default();
    while let Some(tally) = workers.join_next().await {
        let tally = tally?;
        all.samples.extend(tally.samples);
        all.failed += tally.failed;
        all.error = all.error.or(tally.error);
    }
    let (took, cpu) = (start.elapsed(), cpu::own_seconds() - cpu);
    let part = |of: fn(&Sample) -> Duration| {
        let part = report(all.samples.iter().map(of).collect(), took, cpu);
        Some([part.p50_us, part.p99_us])
    };
    let (lock_us, release_us) = (part(|it| it.lock), part(|it| it.release));
    let both = report(all.samples.iter().map(|it| it.lock + it.release).collect(), took, cpu);
    Ok(Cycles { failed: all.failed, error: all.error, lock_us, release_us, ..both })
}

async fn cycle(system: &System, name: &str) -> Result<Sample, Error> {
    let begun = Instant::now();
    let held = system.try_lock(name).await?;
    let lock = begun.elapsed();
    system.release(held).await?;
    Ok(Sample { lock, release: begun.elapsed() - lock })
}

/// What samples say, if nothing has failed.
pub fn report(mut samples: Vec<Duration>, took: Duration, cpu_seconds: f64) -> Cycles {
    samples.sort_unstable();
    let quantile_us = |quantile| match samples.as_slice() {
        [] => 0.0,
        samples => at(samples, quantile).as_secs_f64() * 1e6,
    };
    Cycles {
        cycles: samples.len() as u64,
        seconds: took.as_secs_f64(),
        cpu_seconds,
        p50_us: quantile_us(0.5),
        p99_us: quantile_us(0.99),
        lock_us: None,
        release_us: None,
        failed: 0,
        error: None,
    }
}
