//! Lock + release of a free name, one at a time.

use std::thread;
use std::time::Duration;

use anyhow::Result;
use quorlock_testkit::{RedisServer, servers};

use crate::Run;
use crate::commands::{Shares, count_from_now};
use crate::contest::{Contest, Sample};
use crate::far::Far;
use crate::order::Order;
use crate::peers::{on_servers, systems};
use crate::report::{Cell, Column, Group, Report, Row};

/// A round ends with the first of both.
const CYCLES: u64 = 300;
const SECONDS: f64 = 0.5;
const LIMIT: Duration = Duration::from_secs(20);

/// A thousandth of a second there and back, and five more.
const NEAR_ONE_WAY: Duration = Duration::from_micros(500);
const SLOW_ONE_WAY: Duration = Duration::from_micros(3_000);

/// With client and servers on one core.
pub fn compare(run: &Run) -> Result<Report> {
    let title = "Lock + release of a free name, one at a time";
    here(run, "latency", title, "client and servers pinned to one core")
}

/// Each where the operating system puts it.
pub fn unpinned(run: &Run) -> Result<Report> {
    let title = "Lock + release of a free name, one at a time, on all cores";
    here(run, "unpinned", title, "client and servers on any core")
}

/// On five nodes at a distance, all alike and one of them slow.
pub fn distant(run: &Run) -> Result<Report> {
    let rounds = run.scaled(7, 3);
    let servers = servers(5);
    let addrs: Vec<_> = servers.iter().map(RedisServer::addr).collect();
    let mut groups = Vec::new();
    for (setting, last) in [
        ("five nodes, 1 ms there and back", NEAR_ONE_WAY),
        ("one of them 5 ms further", SLOW_ONE_WAY),
    ] {
        let near = Far::in_front_of(addrs[..4].iter().copied(), NEAR_ONE_WAY)?;
        let last = Far::in_front_of([addrs[4]], last)?;
        let urls = near.addrs().iter().chain(last.addrs()).map(|addr| format!("redis://{addr}"));
        let contest = Contest::start_at(&run.tools, &servers, urls.collect(), on_servers())?;
        groups.push(measure(run, setting, contest, &servers, rounds)?);
    }
    report(
        "distant",
        "Lock + release of a free name, one at a time, on five nodes at a distance",
        rounds,
        "by way of a proxy that lets every byte arrive later",
        groups,
    )
}

fn report(
    name: &'static str,
    title: &'static str,
    rounds: usize,
    place: &str,
    groups: Vec<Group>,
) -> Result<Report> {
    let column = |name, charted| Column { name, charted };
    Ok(Report {
        name,
        title,
        notes: vec![
            format!("median of {rounds} rounds in turns (min..max), of up to {CYCLES} cycles each"),
            format!("{place}; CPU of all threads, user and system"),
            "tcp: two messages there and back on bare sockets; bare: the two commands on them"
                .into(),
        ],
        columns: vec![
            column("client CPU µs/cycle", true),
            column("server CPU µs/cycle", true),
            column("p50 µs", true),
            column("p99 µs", false),
            column("commands/cycle per node", false),
            column("failed", false),
        ],
        groups,
    })
}

/// On one node and on five, without a way between.
fn here(run: &Run, name: &'static str, title: &'static str, place: &str) -> Result<Report> {
    let rounds = run.scaled(11, 3);
    let mut groups = Vec::new();
    for (setting, nodes) in [("1 node", 1), ("5 nodes", 5)] {
        let servers = servers(nodes);
        let contest = Contest::start(&run.tools, &servers, systems())?;
        groups.push(measure(run, setting, contest, &servers, rounds)?);
    }
    report(name, title, rounds, place, groups)
}

fn measure(
    run: &Run,
    setting: &str,
    mut contest: Contest,
    servers: &[RedisServer],
    rounds: usize,
) -> Result<Group> {
    let count = contest.entrants.len();
    let mut shares: Vec<Shares> = Vec::new();
    for index in 0..count {
        shares.push(warm_up(run, &mut contest, index, servers)?);
    }
    let mut samples: Vec<Vec<(Sample, f64)>> = vec![Vec::new(); count];
    for round in 0..rounds {
        run.progress(&format!("latency, {setting}, round {} of {rounds}", round + 1));
        for index in contest.turns(round) {
            let commands = count_from_now(servers)?;
            let name = format!("bench/{index}/{round}");
            let order = Order::cycles(&name, 1, CYCLES, SECONDS);
            if let Some(sample) = contest.cycles(index, &order, LIMIT) {
                samples[index].push((sample, commands(&shares[index])?));
            }
        }
    }
    let rows = contest.entrants.iter().zip(&samples).map(|(entrant, samples)| {
        if let Err(reason) = &entrant.state {
            return Row::without(entrant.system.name, reason, 6);
        }
        let cell =
            |of: &dyn Fn(&(Sample, f64)) -> f64| Cell::Figures(samples.iter().map(of).collect());
        let cycles = |sample: &Sample| sample.client.cycles as f64;
        Row {
            system: entrant.system.name.to_owned(),
            cells: vec![
                cell(&|(s, _)| s.client.cpu_seconds * 1e6 / cycles(s)),
                cell(&|(s, _)| s.server_cpu_seconds * 1e6 / cycles(s)),
                cell(&|(s, _)| s.client.p50_us),
                cell(&|(s, _)| s.client.p99_us),
                cell(&|(s, commands)| commands / cycles(s)),
                Cell::one(samples.iter().map(|(s, _)| s.client.failed as f64).sum()),
            ],
        }
    });
    Ok(Group { setting: setting.to_owned(), rows: rows.collect() })
}

/// A round that does not count, in which the commands are looked at closely.
fn warm_up(
    run: &Run,
    contest: &mut Contest,
    index: usize,
    servers: &[RedisServer],
) -> Result<Shares> {
    let system = contest.entrants[index].system;
    run.progress(&format!("latency, {} nodes, {} warms up", servers.len(), system.name));
    let seconds = system.warm_up_seconds(run.quick);
    let order = Order::cycles(&format!("bench/{index}/warm"), 1, u64::MAX >> 2, seconds);
    // All of it: one that does one thing after the other has to be seen doing both.
    let watched = Duration::from_secs_f64(seconds);
    thread::scope(|scope| {
        let watching = scope.spawn(|| Shares::watch(&servers[0], watched));
        contest.cycles(index, &order, LIMIT);
        watching.join().expect("no panic")
    })
}
