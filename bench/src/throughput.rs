//! Many locks at once: cycles a second, and what each costs the client's processor.

use std::future::Future;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use quorlock_testkit::servers;

use crate::stats::median;
use crate::systems::{quorlock, quorlock_cycle, rslock, rslock_cycle};

const ROUNDS: usize = 7;
const BURST: Duration = Duration::from_millis(700);

pub async fn compare() -> Result<()> {
    println!("\nlock + release, many at a time (median of {ROUNDS} rounds in turns)");
    println!("nodes  tasks  system     cycles/s   /rslock   client CPU µs/cycle   /rslock");
    for nodes in [1, 5] {
        for tasks in [64, 1_024] {
            measure(nodes, tasks).await?;
        }
    }
    Ok(())
}

async fn measure(nodes: usize, tasks: usize) -> Result<()> {
    let servers = servers(nodes);
    let locker = quorlock(&servers).await?;
    let manager = rslock(&servers);
    let mut rates: [Vec<f64>; 2] = Default::default();
    let mut costs: [Vec<f64>; 2] = Default::default();
    // The first round warms up and is not counted.
    for round in 0..=ROUNDS {
        let shared = manager.clone();
        let peer = burst(tasks, move |name| {
            let manager = shared.clone();
            async move { rslock_cycle(&manager, &name).await }
        })
        .await?;
        let shared = locker.clone();
        let ours = burst(tasks, move |name| {
            let locker = shared.clone();
            async move { quorlock_cycle(&locker, &name).await }
        })
        .await?;
        if round > 0 {
            for (index, (rate, cost)) in [peer, ours].into_iter().enumerate() {
                rates[index].push(rate);
                costs[index].push(cost);
            }
        }
    }
    let [peer_rate, our_rate] = rates.map(median);
    let [peer_cost, our_cost] = costs.map(median);
    for (system, rate, cost) in [("rslock", peer_rate, peer_cost), ("quorlock", our_rate, our_cost)]
    {
        println!(
            "{nodes:>5}  {tasks:>5}  {system:<8}  {rate:>9.0}  {:>8.2}  {cost:>20.2}  {:>8.2}",
            rate / peer_rate,
            cost / peer_cost
        );
    }
    Ok(())
}

/// Cycles a second, and µs of this process' processor time for each.
async fn burst<C, F>(tasks: usize, cycle: C) -> Result<(f64, f64)>
where
    C: Fn(String) -> F + Clone + Send + 'static,
    F: Future<Output = Result<()>> + Send,
{
    let (start, cpu) = (Instant::now(), processor_time()?);
    let mut workers = tokio::task::JoinSet::new();
    for task in 0..tasks {
        let cycle = cycle.clone();
        workers.spawn(async move {
            let mut cycles = 0u32;
            while start.elapsed() < BURST {
                cycle(format!("bench/{task}/{cycles}")).await?;
                cycles += 1;
            }
            anyhow::Ok(cycles)
        });
    }
    let mut cycles = 0;
    while let Some(done) = workers.join_next().await {
        cycles += done??;
    }
    let cpu = processor_time()? - cpu;
    let cycles = f64::from(cycles);
    Ok((cycles / start.elapsed().as_secs_f64(), cpu.as_secs_f64() * 1e6 / cycles))
}

/// The processor time of this thread, which runs all of the client.
fn processor_time() -> Result<Duration> {
    let stat = std::fs::read_to_string("/proc/self/schedstat")?;
    let nanos = stat.split_whitespace().next().context("schedstat")?.parse()?;
    Ok(Duration::from_nanos(nanos))
}
