//! Lock + release of a free name, one at a time.

use std::time::Instant;

use anyhow::Result;
use quorlock_testkit::servers;

use crate::bare::Bare;
use crate::stats::Timings;
use crate::systems::{quorlock, quorlock_cycle, rslock, rslock_cycle};

const ROUNDS: usize = 25;
const CYCLES: usize = 400;

pub async fn compare() -> Result<()> {
    println!("lock + release, one at a time, µs (median of {ROUNDS} rounds of {CYCLES})");
    println!("nodes  system      p50      p99   p50/bare  p50/rslock");
    for nodes in [1, 5] {
        measure(nodes).await?;
    }
    Ok(())
}

async fn measure(nodes: usize) -> Result<()> {
    let servers = servers(nodes);
    let mut bare = Bare::connect(&servers)?;
    let locker = quorlock(&servers).await?;
    let manager = rslock(&servers);
    let mut timings: [Timings; 3] = Default::default();
    let mut serial = 0;
    // The first round warms up and is not counted.
    for round in 0..=ROUNDS {
        let mut samples: [Vec<_>; 3] = Default::default();
        for _ in 0..CYCLES {
            serial += 1;
            let name = format!("bench/{serial}");
            let start = Instant::now();
            bare.cycle(&name)?;
            samples[0].push(start.elapsed());
        }
        for _ in 0..CYCLES {
            serial += 1;
            let name = format!("bench/{serial}");
            let start = Instant::now();
            rslock_cycle(&manager, &name).await?;
            samples[1].push(start.elapsed());
        }
        for _ in 0..CYCLES {
            serial += 1;
            let name = format!("bench/{serial}");
            let start = Instant::now();
            quorlock_cycle(&locker, &name).await?;
            samples[2].push(start.elapsed());
        }
        if round > 0 {
            for (timings, samples) in timings.iter_mut().zip(samples) {
                timings.add(samples);
            }
        }
    }
    let [bare, rslock, _] = timings.each_ref().map(|timings| timings.quantile_us(0.5));
    for (system, timings) in ["bare", "rslock", "quorlock"].iter().zip(&timings) {
        let (p50, p99) = (timings.quantile_us(0.5), timings.quantile_us(0.99));
        println!(
            "{nodes:>5}  {system:<8}  {p50:>7.1}  {p99:>7.1}  {:>9.2}  {:>10.2}",
            p50 / bare,
            p50 / rslock
        );
    }
    Ok(())
}
