//! Five nodes with one of them hung, or two of them dead, beside all five up.

use std::time::{Duration, Instant};

use anyhow::Result;
use quorlock::Locker;
use quorlock_testkit::{RedisServer, servers};

use crate::stats::{Timings, median};
use crate::systems::{quorlock, quorlock_cycle, rslock, rslock_cycle};

const ROUNDS: usize = 11;
const CYCLES: usize = 300;
const TASKS: usize = 64;
const BURST: Duration = Duration::from_millis(400);

pub async fn compare() -> Result<()> {
    println!("\nfive nodes under faults (median of {ROUNDS} rounds, healthy and faulty in turns)");
    let servers = servers(5);
    let locker = quorlock(&servers).await?;
    let mut healthy = Figures::default();
    let mut hung = Figures::default();
    let mut dead = Figures::default();
    let memory_before = resident_kib();
    for _ in 0..ROUNDS {
        healthy.measure(&locker).await?;
        servers[4].pause();
        hung.measure(&locker).await?;
        servers[4].resume();
        healthy.measure(&locker).await?;
        servers[3].kill();
        servers[4].kill();
        dead.measure(&locker).await?;
        servers[3].restart();
        servers[4].restart();
        all_up(&locker).await?;
    }
    println!("nodes           acquire p50 µs   /healthy   {TASKS} tasks, cycles/s   /healthy");
    for (what, figures) in [("all up", &healthy), ("one hung", &hung), ("two dead", &dead)] {
        let (p50, rate) = (figures.acquire.quantile_us(0.5), median(figures.rates.clone()));
        println!(
            "{what:<14}  {p50:>14.1}  {:>9.2}  {rate:>19.0}  {:>9.2}",
            p50 / healthy.acquire.quantile_us(0.5),
            rate / median(healthy.rates.clone())
        );
    }
    println!("resident memory: {memory_before} KiB before, {} KiB after", resident_kib());
    rslock_beside(&servers).await
}

#[derive(Default)]
struct Figures {
    acquire: Timings,
    rates: Vec<f64>,
}

impl Figures {
    async fn measure(&mut self, locker: &Locker) -> Result<()> {
        let mut samples = Vec::new();
        for serial in 0..CYCLES {
            let start = Instant::now();
            let guard = locker.try_lock(format!("bench/fault/{serial}")).await?;
            samples.push(start.elapsed());
            guard.release().await?;
        }
        self.acquire.add(samples);
        self.rates.push(rate(locker).await?);
        Ok(())
    }
}

async fn rate(locker: &Locker) -> Result<f64> {
    let start = Instant::now();
    let mut tasks = tokio::task::JoinSet::new();
    for task in 0..TASKS {
        let locker = locker.clone();
        tasks.spawn(async move {
            let mut cycles = 0u32;
            while start.elapsed() < BURST {
                quorlock_cycle(&locker, &format!("bench/task/{task}/{cycles}")).await?;
                cycles += 1;
            }
            anyhow::Ok(cycles)
        });
    }
    let mut cycles = 0;
    while let Some(done) = tasks.join_next().await {
        cycles += done??;
    }
    Ok(f64::from(cycles) / start.elapsed().as_secs_f64())
}

/// Waits until all nodes vote again.
async fn all_up(locker: &Locker) -> Result<()> {
    loop {
        let status = locker.inspect("bench/fault/up").await?;
        if status.nodes.iter().all(|node| node.record.is_ok()) {
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

async fn rslock_beside(servers: &[RedisServer]) -> Result<()> {
    let manager = rslock(servers);
    let mut p50 = Vec::new();
    for hung in [false, true] {
        if hung {
            servers[4].pause();
        }
        let mut samples = Vec::new();
        for serial in 0..if hung { 5 } else { CYCLES } {
            let start = Instant::now();
            rslock_cycle(&manager, &format!("bench/peer/{serial}")).await?;
            samples.push(start.elapsed());
        }
        let mut timings = Timings::default();
        timings.add(samples);
        p50.push(timings.quantile_us(0.5));
    }
    servers[4].resume();
    println!("rslock, lock + release: {:.0} µs all up, {:.0} µs one hung", p50[0], p50[1]);
    Ok(())
}

fn resident_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.and_then(|line| line.trim().trim_end_matches(" kB").parse().ok()).unwrap_or(0)
}
