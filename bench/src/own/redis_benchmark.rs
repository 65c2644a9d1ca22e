//! The tool that comes with the server, with the commands of a lock: what the server can do if its
//! client does nothing but send.
//!
//! It takes one command at a time and random names: first the one that locks, then the one that
//! releases, with as many names as there are commands. So some names come twice, and about a third
//! of the commands find nothing to do, which makes it a little cheaper than the real thing.

use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use quorlock_testkit::Client;

use super::cycle::report;
use super::release::{Release, TOKEN};
use crate::order::Order;
use crate::peers::Cycles;

/// Commands in one write, if as many are wanted at once.
const PIPELINE: u64 = 64;
/// Of the first round, which tells how many the next ones need to fill their time.
const FIRST: u64 = 2_000;

pub struct RedisBenchmark {
    addr: String,
    release: Release,
    /// Cycles a second, by how many are wanted at once.
    rates: std::collections::BTreeMap<u64, f64>,
}

impl RedisBenchmark {
    pub fn of(url: &str) -> Result<Self> {
        let addr = url.strip_prefix("redis://").context("a URL of another kind")?.to_owned();
        let release = Release::on(&mut Client::over(std::net::TcpStream::connect(&addr)?))?;
        Ok(Self { addr, release, rates: Default::default() })
    }

    pub fn cycles(&mut self, order: &Order) -> Result<Cycles> {
        let (at_once, count): (u64, u64) = (order.number("concurrency")?, order.number("count")?);
        let seconds: f64 = order.number("seconds")?;
        let rate = self.rates.get(&at_once).copied();
        let fitting = rate.map_or(FIRST, |rate| (rate * seconds) as u64);
        let count = fitting.min(count).max(at_once);
        let name = "bench:__rand_int__";
        let cpu = children_cpu_seconds()?;
        let (lock, lock_p50, lock_p99) =
            self.run(count, at_once, &["SET", name, TOKEN, "NX", "PX", "10000"])?;
        let (release, release_p50, release_p99) =
            self.run(count, at_once, &self.release.command(name))?;
        let seconds = count as f64 / lock + count as f64 / release;
        if count >= FIRST {
            self.rates.insert(at_once, count as f64 / seconds);
        }
        let cpu = children_cpu_seconds()? - cpu;
        let empty = report(Vec::new(), std::time::Duration::from_secs_f64(seconds), cpu);
        Ok(Cycles {
            cycles: count,
            p50_us: (lock_p50 + release_p50) * 1e3,
            p99_us: (lock_p99 + release_p99) * 1e3,
            ..empty
        })
    }

    /// Commands a second, and their p50 and p99 in ms.
    fn run(&self, count: u64, at_once: u64, command: &[&str]) -> Result<(f64, f64, f64)> {
        let (host, port) = self.addr.rsplit_once(':').context("no port")?;
        let output = Command::new("redis-benchmark")
            .args(["-h", host, "-p", port, "--csv", "-n", &count.to_string()])
            .args(["-c", &at_once.div_ceil(PIPELINE).to_string()])
            .args(["-P", &at_once.min(PIPELINE).to_string(), "-r", &count.to_string()])
            .args(command)
            .stdin(Stdio::null())
            .output()
            .context("redis-benchmark does not start")?;
        ensure!(output.status.success(), "redis-benchmark failed");
        // "test","rps","avg_latency_ms","min_latency_ms","p50_latency_ms","p95_…","p99_…","max_…"
        let text = String::from_utf8(output.stdout)?;
        let line = text.lines().last().context("redis-benchmark said nothing")?;
        let cells: Vec<_> = line.rsplit("\",\"").map(|cell| cell.trim_matches('"')).collect();
        ensure!(cells.len() >= 8, "redis-benchmark said {line}");
        Ok((cells[6].parse()?, cells[3].parse()?, cells[1].parse()?))
    }
}

/// Of the children that have ended, in hundredths of a second as the kernel counts them there.
fn children_cpu_seconds() -> Result<f64> {
    let stat = std::fs::read_to_string("/proc/self/stat")?;
    let fields = stat.rsplit_once(") ").context("stat")?.1;
    let ticks = fields.split(' ').skip(13).take(2).map(str::parse::<u64>);
    Ok(ticks.sum::<Result<u64, _>>()? as f64 / 100.0)
}
