//! Many waiters for one name: how long the lock lies idle between two holders, what waiting costs
//! the nodes, and who waits how long.

mod report;
mod turns;

use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};
use quorlock_testkit::{Client, RedisServer, Reply, servers};

pub use self::turns::{Figures, Turn};
use crate::Run;
use crate::clock::{now_ns, sleep_until_ns};
use crate::commands::{Calls, Shares};
use crate::far::Far;
use crate::order::Order;
use crate::peers::{Contention, Process, System, Tools};
use crate::stats::median;

const HOLD: Duration = Duration::from_millis(1);
const ONE_WAY: Duration = Duration::from_micros(500);
const WARM_UP: Duration = Duration::from_millis(500);
/// Within the warm-up, so that looking closely at a server disturbs nothing that is measured.
const WATCH: Duration = Duration::from_millis(250);
/// Before the start, so that it reaches all workers in time.
const LEAD: Duration = Duration::from_millis(30);
/// After the measured time, so that what waiters send when they give up does not count.
const TAIL: Duration = Duration::from_millis(100);
const PINGS: usize = 100;
const PING_EVERY: Duration = Duration::from_millis(20);
/// How long a worker may take to answer after its time is up.
const LIMIT: Duration = Duration::from_secs(20);
const SYSTEMS: [&str; 2] = ["rslock", QUORLOCK];
const QUORLOCK: &str = "quorlock-redlock";

/// How much is measured.
#[derive(Debug, Clone, Copy)]
struct Extent {
    rounds: usize,
    window: Duration,
    nodes: &'static [usize],
    waiters: &'static [u32],
}

impl Extent {
    const FULL: Self =
        Self { rounds: 2, window: Duration::from_secs(2), nodes: &[1, 5], waiters: &[16, 64] };
    /// To try something out: too short for the rare and the slow.
    const QUICK: Self =
        Self { rounds: 1, window: Duration::from_secs(1), nodes: &[5], waiters: &[16] };
}

/// Where the waiters are, and how far from the nodes.
#[derive(Debug, Clone, Copy)]
pub struct Setting {
    pub nodes: usize,
    pub processes: u32,
    pub far: bool,
}

pub fn compare(run: &Run) -> Result<()> {
    let extent = if run.quick { Extent::QUICK } else { Extent::FULL };
    let Extent { rounds, window, .. } = extent;
    report::head(rounds, window, HOLD);
    let mut overlaps = 0;
    for &nodes in extent.nodes {
        let servers = servers(nodes);
        for (processes, far) in [(1, false), (1, true), (4, false), (4, true)] {
            let setting = Setting { nodes, processes, far };
            overlaps += measure(&run.tools, &servers, setting, extent)?;
        }
    }
    ensure!(overlaps == 0, "two waiters had the lock at once, {overlaps} times");
    Ok(())
}

/// Shows that the figures can be trusted: waiters without any lock do not go unnoticed, and the time
/// that a lock is held is no part of the gaps. (Who polls looks less often while it is held for long.)
pub fn check(run: &Run) -> Result<()> {
    let tools = &run.tools;
    let mut place = Place { tools, servers: &servers(1), far: None, processes: 4, hold: HOLD };
    let window = Duration::from_secs(1);
    let (unlocked, _) = round(&place, "nothing", "bench/nothing", 16, window)?;
    println!("without a lock: {} overlaps in {} turns", unlocked.overlaps, unlocked.acquisitions());
    ensure!(unlocked.overlaps > 0, "waiters without a lock were not found to overlap");
    for hold in [HOLD, HOLD * 20] {
        place.hold = hold;
        let (held, _) = round(&place, QUORLOCK, "bench/slow", 16, window * 4)?;
        let (turns, gap_ns) = (held.acquisitions() / held.seconds, held.gaps[held.gaps.len() / 2]);
        println!(
            "held for {hold:?}: {turns:.0} turns/s, gap p50 {} µs, {} overlaps",
            gap_ns / 1_000,
            held.overlaps
        );
        ensure!(gap_ns < nanos(hold), "the gaps are as long as the holds");
        ensure!(turns * hold.as_secs_f64() <= 1.0, "more turns than there is time for");
        ensure!(held.overlaps == 0, "two waiters had the lock at once");
    }
    Ok(())
}

/// Prints a table, and tells how often two had the lock at once.
fn measure(
    tools: &Tools,
    servers: &[RedisServer],
    setting: Setting,
    extent: Extent,
) -> Result<usize> {
    let Setting { nodes, processes, far } = setting;
    let addrs = servers.iter().map(RedisServer::addr);
    let proxy = far.then(|| Far::in_front_of(addrs, ONE_WAY)).transpose()?;
    let place = Place { tools, servers, far: proxy, processes, hold: HOLD };
    let mut trips = RoundTrips::default();
    let mut rows = Vec::new();
    for &waiters in extent.waiters {
        let mut figures: [Figures; 2] = Default::default();
        for number in 0..extent.rounds {
            // First the one, then the other goes first.
            for index in [number % 2, (number + 1) % 2] {
                trips.idle.extend(Pings::to(&place.addrs())?.many(PINGS)?);
                let system = SYSTEMS[index];
                // A name of its own, so that nothing is left of the round before.
                let name = format!("bench/{nodes}/{processes}/{far}/{waiters}/{number}/{system}");
                let (round, pings) = round(&place, system, &name, waiters, extent.window)?;
                figures[index].add(round);
                trips.beside[index].extend(pings);
            }
        }
        rows.push((waiters, figures));
    }
    report::table(setting, &trips, &rows, SYSTEMS);
    Ok(rows.iter().flat_map(|(_, figures)| figures).map(|figures| figures.overlaps).sum())
}

/// What a command to one node and its reply take, in µs.
#[derive(Debug, Default)]
pub struct RoundTrips {
    /// While nothing else happens.
    idle: Vec<f64>,
    /// While the waiters of each system take turns.
    beside: [Vec<f64>; 2],
}

impl RoundTrips {
    /// The medians: idle, and beside each system.
    pub fn medians(&self) -> [f64; 3] {
        let [one, other] = &self.beside;
        [&self.idle, one, other].map(|trips| median(trips.clone()))
    }
}

/// The nodes, the way to them, and the waiters.
struct Place<'a> {
    tools: &'a Tools,
    servers: &'a [RedisServer],
    far: Option<Far>,
    processes: u32,
    hold: Duration,
}

impl Place<'_> {
    fn addrs(&self) -> Vec<SocketAddr> {
        let near = || self.servers.iter().map(RedisServer::addr).collect();
        self.far.as_ref().map_or_else(near, |far| far.addrs().to_vec())
    }

    fn calls(&self) -> Result<Vec<Calls>> {
        self.servers.iter().map(Calls::of).collect()
    }
}

/// Single commands to one node after the other.
struct Pings {
    clients: Vec<Client<TcpStream>>,
    sent: usize,
}

impl Pings {
    fn to(addrs: &[SocketAddr]) -> Result<Self> {
        let mut clients = Vec::new();
        for addr in addrs {
            let stream = TcpStream::connect(addr)?;
            stream.set_nodelay(true)?;
            clients.push(Client::over(stream));
        }
        Ok(Self { clients, sent: 0 })
    }

    /// One of them, in µs.
    fn one(&mut self) -> Result<f64> {
        let index = self.sent % self.clients.len();
        self.sent += 1;
        let start = Instant::now();
        let reply = self.clients[index].command(&["PING"])?;
        let took_us = start.elapsed().as_secs_f64() * 1e6;
        ensure!(reply == Reply::Simple("PONG".into()), "PING: {reply:?}");
        Ok(took_us)
    }

    fn many(&mut self, count: usize) -> Result<Vec<f64>> {
        (0..count).map(|_| self.one()).collect()
    }
}

/// Lets one system's waiters take turns for a while. Gives the round trips of that time as well.
fn round(
    place: &Place,
    system: &'static str,
    name: &str,
    waiters: u32,
    window: Duration,
) -> Result<(Figures, Vec<f64>)> {
    let mut workers = start_workers(place, system)?;
    let start = now_ns() + nanos(LEAD);
    let window = start + nanos(WARM_UP)..start + nanos(WARM_UP) + nanos(window);
    let each = waiters / place.processes;
    for (worker, first) in workers.iter_mut().zip((0..).step_by(each as usize)) {
        let order = Order::new("contend", name).with("first", first).with("waiters", each);
        let order = order.with("hold_us", place.hold.as_micros());
        worker.go(&order.with("from_ns", start).with("to_ns", window.end + nanos(TAIL)))?;
    }
    let mut pings = Pings::to(&place.addrs())?;
    sleep_until_ns(window.start - nanos(WATCH));
    let shares = Shares::watch(&place.servers[0], WATCH / 2)?;
    sleep_until_ns(window.start);
    let before = place.calls()?;
    let mut trips = Vec::new();
    while now_ns() + nanos(PING_EVERY) < window.end {
        trips.push(pings.one()?);
        sleep_until_ns(now_ns() + nanos(PING_EVERY));
    }
    sleep_until_ns(window.end);
    let after = place.calls()?;
    let calls = after.iter().zip(&before).map(|(after, before)| after.since(before, &shares));
    let commands = (calls.sum::<f64>() - pings.sent as f64) / place.servers.len() as f64;
    let mut turns = Vec::new();
    for mut worker in workers {
        let report: Contention = worker.report(LIMIT)?;
        if let Some(error) = report.error {
            bail!("a worker failed: {error}");
        }
        turns.extend(report.turns.into_iter().map(Turn::from));
    }
    Ok((Figures::of(&turns, (waiters, place.processes), &window, commands), trips))
}

/// The processes for the waiters, when all are connected.
fn start_workers(place: &Place, system: &'static str) -> Result<Vec<Process>> {
    let urls: Vec<_> = place.addrs().iter().map(|addr| format!("redis://{addr}")).collect();
    let start = |_| Process::start(place.tools, &System::own(system), &urls);
    let mut workers = (0..place.processes).map(start).collect::<Result<Vec<_>>>()?;
    workers.iter_mut().try_for_each(Process::ready)?;
    Ok(workers)
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
