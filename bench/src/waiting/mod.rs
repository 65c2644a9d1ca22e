//! Many waiters for one name: how long the lock lies idle between two holders, what waiting costs
//! the nodes, and who waits how long.

mod report;
mod turns;
mod worker;

use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use quorlock_testkit::{Client, RedisServer, Reply, servers};

use self::turns::Figures;
use self::worker::Worker;
pub use self::worker::{WORKER, Work, run};
use crate::clock::{now_ns, sleep_until_ns};
use crate::commands::{Calls, Shares};
use crate::far::Far;
use crate::stats::median;

const HOLD: Duration = Duration::from_millis(1);
const ONE_WAY: Duration = Duration::from_micros(500);
const WARM_UP: Duration = Duration::from_millis(500);
/// Within the warm-up, so that looking closely at a server disturbs nothing that is measured.
const WATCH: Duration = Duration::from_millis(250);
/// Before the start, so that it reaches all workers in time.
const LEAD: Duration = Duration::from_millis(30);
const PINGS: usize = 100;
const SYSTEMS: [&str; 2] = ["rslock", "quorlock"];

/// How much is measured.
#[derive(Debug, Clone, Copy)]
pub struct Extent {
    rounds: usize,
    window: Duration,
    nodes: &'static [usize],
    waiters: &'static [u32],
}

impl Extent {
    pub const FULL: Self = Self {
        rounds: 2,
        window: Duration::from_millis(3_500),
        nodes: &[1, 5],
        waiters: &[16, 64],
    };
    /// To try something out: too short for the rare and the slow.
    pub const QUICK: Self =
        Self { rounds: 1, window: Duration::from_secs(1), nodes: &[5], waiters: &[16] };
}

/// Where the waiters are, and how far from the nodes.
#[derive(Debug, Clone, Copy)]
pub struct Setting {
    pub nodes: usize,
    pub processes: u32,
    pub far: bool,
}

pub fn compare(extent: Extent) -> Result<()> {
    let Extent { rounds, window, .. } = extent;
    report::head(rounds, window, HOLD);
    let mut overlaps = 0;
    for &nodes in extent.nodes {
        let servers = servers(nodes);
        for (processes, far) in [(1, false), (1, true), (4, false), (4, true)] {
            overlaps += measure(&servers, Setting { nodes, processes, far }, extent)?;
        }
    }
    ensure!(overlaps == 0, "two waiters had the lock at once, {overlaps} times");
    Ok(())
}

/// Lets waiters do without any lock, which must not go unnoticed.
pub fn check() -> Result<()> {
    let place = Place { servers: &servers(1), far: None, processes: 4 };
    let mut figures = Figures::default();
    round(&place, "nothing", "bench/nothing", 16, Duration::from_secs(1), &mut figures)?;
    println!("without a lock: {} overlaps in {} turns", figures.overlaps, figures.acquisitions());
    ensure!(figures.overlaps > 0, "waiters without a lock were not found to overlap");
    Ok(())
}

/// Prints a table, and tells how often two had the lock at once.
fn measure(servers: &[RedisServer], setting: Setting, extent: Extent) -> Result<usize> {
    let addrs = servers.iter().map(RedisServer::addr);
    let far = setting.far.then(|| Far::in_front_of(addrs, ONE_WAY)).transpose()?;
    let place = Place { servers, far, processes: setting.processes };
    let mut round_trips = Vec::new();
    let mut rows = Vec::new();
    for &waiters in extent.waiters {
        let mut figures: [Figures; 2] = Default::default();
        for number in 0..extent.rounds {
            for (system, figures) in SYSTEMS.iter().zip(&mut figures) {
                round_trips.extend(place.round_trips()?);
                // A name of its own, so that nothing is left of the round before.
                let name = format!("bench/{setting:?}/{waiters}/{number}/{system}");
                round(&place, system, &name, waiters, extent.window, figures)?;
            }
        }
        rows.push((waiters, figures));
    }
    report::table(setting, median(round_trips), &rows, SYSTEMS);
    Ok(rows.iter().flat_map(|(_, figures)| figures).map(|figures| figures.overlaps).sum())
}

/// The nodes, and the way to them.
struct Place<'a> {
    servers: &'a [RedisServer],
    far: Option<Far>,
    processes: u32,
}

impl Place<'_> {
    fn addrs(&self) -> Vec<SocketAddr> {
        let near = || self.servers.iter().map(RedisServer::addr).collect();
        self.far.as_ref().map_or_else(near, |far| far.addrs().to_vec())
    }

    /// Of single commands to single nodes while nothing else happens, in µs.
    fn round_trips(&self) -> Result<Vec<f64>> {
        let mut clients = Vec::new();
        for addr in self.addrs() {
            let stream = TcpStream::connect(addr)?;
            stream.set_nodelay(true)?;
            clients.push(Client::over(stream));
        }
        let mut each = Vec::new();
        for ping in 0..PINGS {
            let index = ping % clients.len();
            let start = Instant::now();
            let reply = clients[index].command(&["PING"])?;
            each.push(start.elapsed().as_secs_f64() * 1e6);
            ensure!(reply == Reply::Simple("PONG".into()), "PING: {reply:?}");
        }
        Ok(each)
    }

    fn calls(&self) -> Result<Vec<Calls>> {
        self.servers.iter().map(Calls::of).collect()
    }
}

/// Lets one system's waiters take turns for a while.
fn round(
    place: &Place,
    system: &str,
    name: &str,
    waiters: u32,
    window: Duration,
    figures: &mut Figures,
) -> Result<()> {
    let urls: Vec<_> = place.addrs().iter().map(|addr| format!("redis://{addr}")).collect();
    let each = waiters / place.processes;
    let mut workers = Vec::new();
    for process in 0..place.processes {
        workers.push(Worker::start(&Work {
            system: system.to_owned(),
            name: name.replace(' ', ""),
            first: process * each,
            waiters: each,
            hold: HOLD,
            urls: urls.clone(),
        })?);
    }
    for worker in &mut workers {
        worker.ready()?;
    }
    let start = now_ns() + nanos(LEAD);
    let window = start + nanos(WARM_UP)..start + nanos(WARM_UP) + nanos(window);
    for worker in &mut workers {
        worker.go(start, window.end)?;
    }
    sleep_until_ns(window.start - nanos(WATCH));
    let shares = Shares::watch(&place.servers[0], WATCH / 2)?;
    sleep_until_ns(window.start);
    let before = place.calls()?;
    sleep_until_ns(window.end);
    let after = place.calls()?;
    let calls = after.iter().zip(&before).map(|(after, before)| after.since(before, &shares));
    let commands = calls.sum::<f64>() / place.servers.len() as f64;
    let mut turns = Vec::new();
    for worker in workers {
        turns.extend(worker.turns()?);
    }
    figures.add(&turns, &window, commands);
    Ok(())
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
