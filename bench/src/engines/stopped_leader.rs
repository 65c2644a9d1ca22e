//! What holders believe while the leader of an etcd cluster stands still for a while: a leader that has been stopped
//! answers for leases that its successor has ended.

use std::time::Duration;

use anyhow::{Result, ensure};
use quorlock_testkit::EtcdCluster;

use crate::Run;
use crate::clock::now_ns;
use crate::order::Order;
use crate::peers::{Belief, Engine, Process, System, on_engines};
use crate::report::{Cell, Column, Group, Report, Row};

const TTL: Duration = Duration::from_secs(5);
/// The leader stands still for so long.
const STOPPED: Duration = Duration::from_secs(4);
/// For the locks to be taken, and for a waiter to stand behind each.
const SETTLES: Duration = Duration::from_millis(1_500);
/// So many moments of a third of a TTL, at one of which the leader is stopped.
const PHASES: usize = 10;
/// After this, who was told of no loss has kept its lock.
const WATCHED: Duration = Duration::from_secs(10);
/// Between what the first does and what the next does.
const MARGIN: Duration = Duration::from_millis(500);
const COLUMNS: [(&str, bool); 5] = [
    ("runs", false),
    ("two at once", true),
    ("for at most s", false),
    ("kept by the first", false),
    ("next holder after s", false),
];

/// What one run of one system came to.
#[derive(Debug, Clone, Copy)]
struct Outcome {
    first: Belief,
    next: Belief,
    stopped_ns: u64,
}

impl Outcome {
    fn next_had_it(&self) -> bool {
        self.next.acquired_ns > 0
    }

    /// For how long two believed to hold it.
    fn both_seconds(&self) -> f64 {
        match self.next_had_it() {
            true => seconds(self.first.until_ns.saturating_sub(self.next.acquired_ns)),
            false => 0.0,
        }
    }
}

pub fn compare(run: &Run) -> Result<Report> {
    let runs = run.scaled(30, 2);
    let systems: Vec<_> =
        on_engines().into_iter().filter(|(_, engine)| *engine == Engine::Etcd).collect();
    let mut outcomes: Vec<Vec<Outcome>> = vec![Vec::new(); systems.len()];
    let mut errors: Vec<Option<String>> = vec![None; systems.len()];
    for number in 0..runs {
        run.progress(&format!("stopped leader, run {} of {runs}", number + 1));
        let cluster = EtcdCluster::start(3);
        let leader = cluster.leader();
        // All of them at once: what happens to the leader happens to all.
        let pairs: Vec<_> =
            systems.iter().map(|(system, _)| Pair::start(run, system, &cluster, leader)).collect();
        // Not always at the same moment between two extensions.
        let settles = SETTLES + TTL * (number % PHASES) as u32 / (3 * PHASES as u32);
        let to_ns = now_ns() + nanos(settles + WATCHED);
        let pairs: Vec<_> =
            pairs.into_iter().map(|pair| pair.and_then(|pair| pair.go(to_ns))).collect();
        std::thread::sleep(settles);
        let stopped_ns = now_ns();
        cluster.stop(leader);
        std::thread::sleep(STOPPED);
        cluster.cont(leader);
        for (index, pair) in pairs.into_iter().enumerate() {
            match pair.and_then(|pair| pair.reports(stopped_ns)) {
                Ok(outcome) => outcomes[index].push(outcome),
                Err(error) => errors[index] = Some(error.to_string()),
            }
        }
    }
    let rows =
        systems.iter().zip(outcomes.iter().zip(&errors)).map(|((system, _), said)| match said {
            (_, Some(error)) => Row::without(system.name, error, COLUMNS.len()),
            (outcomes, None) => row(system, outcomes),
        });
    Ok(Report {
        name: "stopped-leader",
        title: "An etcd leader that stands still for 4 s, with locks of 5 s",
        notes: vec![
            "a holder whose member is the leader, and a waiter at another member; the same cluster for both systems".into(),
            "two at once: the waiter had the lock before the holder was told of its loss".into(),
        ],
        columns: COLUMNS.map(|(name, charted)| Column { name, charted }).into(),
        groups: vec![Group { setting: format!("{runs} runs"), rows: rows.collect() }],
    })
}

fn row(system: &System, outcomes: &[Outcome]) -> Row {
    let both: Vec<_> =
        outcomes.iter().map(Outcome::both_seconds).filter(|both| *both > 0.0).collect();
    let count = |count: usize| Cell::one(count as f64);
    let passed = outcomes.iter().filter(|it| it.next_had_it());
    let after = passed.map(|it| seconds(it.next.acquired_ns.saturating_sub(it.stopped_ns)));
    Row {
        system: system.name.to_owned(),
        cells: vec![
            count(outcomes.len()),
            count(both.len()),
            Cell::one(both.iter().copied().fold(0.0, f64::max)),
            count(outcomes.iter().filter(|it| !it.next_had_it()).count()),
            Cell::Figures(after.collect()),
        ],
    }
}

/// A holder and who wants the same lock.
struct Pair {
    first: Process,
    next: Process,
}

impl Pair {
    fn start(run: &Run, system: &System, cluster: &EtcdCluster, leader: usize) -> Result<Self> {
        let endpoints = cluster.endpoints();
        let ttl = [("ttl_ms", TTL.as_millis().to_string())];
        let start = |member: usize| {
            let node = format!("etcd://{}", endpoints[member % endpoints.len()]);
            let mut process = Process::start_with(&run.tools, system, &[node], &ttl)?;
            process.ready()?;
            anyhow::Ok(process)
        };
        Ok(Self { first: start(leader)?, next: start(leader + 1)? })
    }

    /// Both want the lock, the first a little earlier.
    fn go(mut self, to_ns: u64) -> Result<Self> {
        let order = Order::new("believe", "bench/stopped").with("to_ns", to_ns);
        self.first.go(&order.clone().with("hold", 1))?;
        std::thread::sleep(Duration::from_millis(300));
        // It gives up before the first lets go of it.
        self.next.go(&order.with("to_ns", to_ns - nanos(MARGIN)).with("hold", 0))?;
        Ok(self)
    }

    fn reports(mut self, stopped_ns: u64) -> Result<Outcome> {
        let limit = WATCHED + Duration::from_secs(30);
        let (first, next): (Belief, Belief) = (self.first.report(limit)?, self.next.report(limit)?);
        ensure!(
            first.acquired_ns > 0
                && (next.acquired_ns == 0 || next.acquired_ns > first.acquired_ns),
            "the holder had no lock, or not first"
        );
        Ok(Outcome { first, next, stopped_ns })
    }
}

fn seconds(nanos: u64) -> f64 {
    nanos as f64 / 1e9
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
