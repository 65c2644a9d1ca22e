//! Many locks at once: what each costs the processors, and how many there are in a second.

use std::time::Duration;

use anyhow::Result;
use quorlock_testkit::{RedisServer, servers_of};

use crate::Run;
use crate::contest::{Contest, Sample};
use crate::order::Order;
use crate::peers::systems;
use crate::report::{Cell, Column, Group, Report, Row};
use crate::valkey;

const TASKS: [usize; 3] = [64, 256, 1_024];
const QUICK_TASKS: [usize; 2] = [64, 1_024];
const VALKEY_TASKS: [usize; 1] = [1_024];
const LIMIT: Duration = Duration::from_secs(30);
const EVER: u64 = u64::MAX >> 2;

pub fn compare(run: &Run) -> Result<Report> {
    let rounds = run.scaled(5, 1);
    let burst = if run.quick { 0.3 } else { 0.5 };
    let tasks: &[usize] = if run.quick { &QUICK_TASKS } else { &TASKS };
    let mut groups = Vec::new();
    let redis = (RedisServer::builder(), tasks);
    let valkey =
        valkey::program().map(|it| (RedisServer::builder().program(it), &VALKEY_TASKS[..]));
    let settings = [redis].into_iter().chain(valkey);
    for ((server, tasks), nodes) in settings.flat_map(|one| [(one.clone(), 1), (one, 5)]) {
        let servers = servers_of(&server, nodes);
        let on = valkey::version(&servers[0])?;
        let mut contest = Contest::start(&run.tools, &servers, systems())?;
        for index in 0..contest.entrants.len() {
            let system = contest.entrants[index].system;
            run.progress(&format!("throughput, {nodes} × {on}, {} warms up", system.name));
            let seconds = system.warm_up_seconds(run.quick);
            contest.cycles(index, &Order::cycles("bench/warm", TASKS[0], EVER, seconds), LIMIT);
        }
        for &tasks in tasks {
            let setting = setting(nodes, &on, tasks);
            let samples = bursts(run, &mut contest, (&setting, tasks), rounds, burst);
            groups.push(group(&contest, &samples, setting));
        }
    }
    let column = |name, charted| Column { name, charted };
    Ok(Report {
        name: "throughput",
        title: "Lock + release of free names, many at a time",
        notes: vec![
            format!("median of {rounds} rounds in turns (min..max), of {burst} s each, not pinned"),
            "bare: all commands of a round in one write per node; tcp: the same bytes there and back"
                .into(),
            "redis-benchmark: the same commands as bare, apart, 64 in one write".into(),
            "the commands: SET NX PX, and the script that compares and deletes, or DELIFEQ on Valkey"
                .into(),
        ],
        columns: vec![
            column("client CPU µs/cycle", true),
            column("server CPU µs/cycle", true),
            column("cycles/s", true),
            column("p99 ms", false),
            column("failed", false),
        ],
        groups,
    })
}

/// The rounds of all systems in turns, after one that does not count.
fn bursts(
    run: &Run,
    contest: &mut Contest,
    (setting, tasks): (&str, usize),
    rounds: usize,
    seconds: f64,
) -> Vec<Vec<Sample>> {
    let mut samples = vec![Vec::new(); contest.entrants.len()];
    for round in 0..=rounds {
        run.progress(&format!("throughput, {setting}, round {round}"));
        for index in contest.turns(round) {
            let name = format!("bench/{tasks}/{index}/{round}");
            let seconds = if round == 0 { seconds / 2.0 } else { seconds };
            let sample = contest.cycles(index, &Order::cycles(&name, tasks, EVER, seconds), LIMIT);
            samples[index].extend(sample.filter(|_| round > 0));
        }
    }
    samples
}

fn setting(nodes: usize, on: &str, tasks: usize) -> String {
    let plural = if nodes == 1 { "" } else { "s" };
    format!("{nodes} node{plural} of {on}, {tasks} at a time")
}

fn group(contest: &Contest, samples: &[Vec<Sample>], setting: String) -> Group {
    let rows = contest.entrants.iter().zip(samples).map(|(entrant, samples)| {
        if let Err(reason) = &entrant.state {
            return Row::without(entrant.system.name, reason, 5);
        }
        let cell = |of: &dyn Fn(&Sample, f64) -> f64| {
            Cell::Figures(samples.iter().map(|s| of(s, s.client.cycles as f64)).collect())
        };
        Row {
            system: entrant.system.name.to_owned(),
            cells: vec![
                cell(&|s, cycles| s.client.cpu_seconds * 1e6 / cycles),
                cell(&|s, cycles| s.server_cpu_seconds * 1e6 / cycles),
                cell(&|s, cycles| cycles / s.client.seconds),
                cell(&|s, _| s.client.p99_us / 1e3),
                Cell::one(samples.iter().map(|s| s.client.failed as f64).sum()),
            ],
        }
    });
    Group { setting, rows: rows.collect() }
}
