//! One name that many want: what a turn costs, how long the lock lies idle between two holders, and
//! how evenly they get it.

use std::time::Duration;

use anyhow::Result;
use quorlock_testkit::{RedisServer, servers};

use crate::Run;
use crate::clock::{now_ns, sleep_until_ns};
use crate::commands::{Shares, count_from_now};
use crate::contest::Contest;
use crate::cpu;
use crate::order::Order;
use crate::own::Home;
use crate::peers::{Contention, Cycles, Kind, Process, System, systems};
use crate::report::{Cell, Column, Group, Report, Row};
use crate::stats::at;
use crate::waiting::{Figures, Turn};

const HOLD_US: u64 = 1_000;
/// Before the start, so that it reaches all processes in time.
const LEAD: Duration = Duration::from_millis(30);
/// Before what counts, for the queue to form and for the commands to be looked at closely.
const RUN_IN: Duration = Duration::from_millis(400);
const WATCH: Duration = Duration::from_millis(150);
/// After what counts, so that giving up at the end does not.
const TAIL: Duration = Duration::from_millis(50);
const LIMIT: Duration = Duration::from_secs(20);
const COLUMNS: [(&str, bool); 10] = [
    ("client CPU µs/turn", true),
    ("server CPU µs/turn", true),
    ("gap p50 µs", true),
    ("gap p99 µs", false),
    ("wait p99 ms", true),
    ("turns/s", false),
    ("commands/turn per node", false),
    ("most turns", false),
    ("fewest", false),
    ("overlaps", false),
];

/// A system and its processes.
struct Crew {
    system: System,
    state: Result<Vec<Process>, String>,
}

/// One round of one system.
struct Sample {
    figures: Figures,
    client_cpu_seconds: f64,
    server_cpu_seconds: f64,
    /// All turns of the round, also those outside of what counts.
    turns: f64,
}

pub fn compare(run: &Run) -> Result<Report> {
    let rounds = run.scaled(2, 1);
    let window = if run.quick { Duration::from_millis(700) } else { Duration::from_millis(1_200) };
    let settings: &[(u32, &[u32])] =
        if run.quick { &[(4, &[16])] } else { &[(1, &[16, 64]), (4, &[16, 64])] };
    let mut groups = Vec::new();
    for nodes in [1, 5] {
        let servers = servers(nodes);
        let contest = Contest::start(&run.tools, &servers, [])?;
        for &(processes, waiters) in settings {
            let mut crews = crews(run, &contest, nodes, processes);
            for &waiters in waiters {
                let samples =
                    take_turns(run, &servers, &mut crews, (waiters, processes), rounds, window)?;
                groups.push(group(&crews, &samples, nodes, processes, waiters));
            }
        }
    }
    let columns = COLUMNS.map(|(name, charted)| Column { name, charted }).into();
    Ok(Report {
        name: "contended",
        title: "One name that many want",
        notes: vec![
            format!(
                "median of {rounds} rounds in turns (min..max), of {window:?} each, not pinned; held \
                 for 1 ms, asked for again after 2.5 to 7.5 ms"
            ),
            "gap: from a release to the next holder, who was waiting; with several processes, of \
             another one"
                .into(),
            "overlaps: how often two had the lock at once".into(),
        ],
        columns,
        groups,
    })
}

/// Starts and warms up the processes of all systems that can wait.
fn crews(run: &Run, contest: &Contest, nodes: usize, processes: u32) -> Vec<Crew> {
    let waiting = systems().into_iter().filter(|system| system.kind != Kind::Limit);
    let crews = waiting.map(|system| {
        run.progress(&format!("contended, {nodes} nodes, {} starts", system.name));
        let state = match system.refuses(nodes) {
            Some(reason) => Err(reason.to_owned()),
            None if system.kind == Kind::Quorlock(Home::Memory) && processes > 1 => {
                Err("one process only".to_owned())
            }
            None => crew(run, contest, &system, processes).map_err(|error| error.to_string()),
        };
        Crew { system, state }
    });
    crews.collect()
}

fn crew(run: &Run, contest: &Contest, system: &System, count: u32) -> Result<Vec<Process>> {
    let nodes = contest.nodes_of(system);
    let start = |_| Process::start(&run.tools, system, &nodes);
    let mut crew = (0..count).map(start).collect::<Result<Vec<_>>>()?;
    crew.iter_mut().try_for_each(Process::ready)?;
    // All of them at once: half of the time is enough.
    let seconds = system.warm_up_seconds(run.quick) / 2.0;
    for (index, process) in crew.iter_mut().enumerate() {
        let name = format!("bench/warm/{index}");
        process.go(&Order::cycles(&name, 4, u64::MAX >> 2, seconds))?;
    }
    crew.iter_mut().try_for_each(|process| process.report::<Cycles>(LIMIT).map(drop))?;
    Ok(crew)
}

fn take_turns(
    run: &Run,
    servers: &[RedisServer],
    crews: &mut [Crew],
    (waiters, processes): (u32, u32),
    rounds: usize,
    window: Duration,
) -> Result<Vec<Vec<Sample>>> {
    let mut samples: Vec<Vec<Sample>> = crews.iter().map(|_| Vec::new()).collect();
    for round in 0..rounds {
        for turn in 0..crews.len() {
            let index = (turn + round) % crews.len();
            let crew = &mut crews[index];
            let name = crew.system.name;
            run.progress(&format!("contended, {waiters} waiters in {processes}, {name}"));
            let Ok(members) = &mut crew.state else { continue };
            // A name of its own, so that nothing is left of the round before.
            let order =
                Order::new("contend", &format!("bench/{waiters}/{processes}/{index}/{round}"));
            match one_round(servers, members, &order, waiters, window) {
                Ok(sample) => samples[index].push(sample),
                Err(error) => crew.state = Err(error.to_string()),
            }
        }
    }
    Ok(samples)
}

fn one_round(
    servers: &[RedisServer],
    crew: &mut [Process],
    order: &Order,
    waiters: u32,
    window: Duration,
) -> Result<Sample> {
    let processes = u32::try_from(crew.len())?;
    let each = waiters / processes;
    let start = now_ns() + nanos(LEAD);
    let window = start + nanos(RUN_IN)..start + nanos(RUN_IN) + nanos(window);
    for (process, first) in crew.iter_mut().zip((0..).step_by(each as usize)) {
        let order = order.clone().with("first", first).with("waiters", each);
        let order = order.with("hold_us", HOLD_US).with("from_ns", start);
        process.go(&order.with("to_ns", window.end + nanos(TAIL)))?;
    }
    sleep_until_ns(window.start - nanos(WATCH) * 3 / 2);
    let shares = Shares::watch(&servers[0], WATCH)?;
    sleep_until_ns(window.start);
    let (commands, cpu) = (count_from_now(servers)?, server_cpu_seconds(servers)?);
    sleep_until_ns(window.end);
    let (commands, server_cpu_seconds) = (commands(&shares)?, server_cpu_seconds(servers)? - cpu);
    let (mut turns, mut client_cpu_seconds, mut failed) = (Vec::new(), 0.0, None);
    for process in crew {
        let report: Contention = process.report(LIMIT)?;
        turns.extend(report.turns.into_iter().map(Turn::from));
        client_cpu_seconds += report.cpu_seconds;
        failed = failed.or(report.error);
    }
    if let Some(error) = failed {
        anyhow::bail!("failed: {error}");
    }
    Ok(Sample {
        turns: turns.iter().filter(|turn| turn.held.is_some()).count() as f64,
        figures: Figures::of(&turns, (waiters, processes), &window, commands),
        client_cpu_seconds,
        server_cpu_seconds,
    })
}

fn group(
    crews: &[Crew],
    samples: &[Vec<Sample>],
    nodes: usize,
    processes: u32,
    waiters: u32,
) -> Group {
    let rows = crews.iter().zip(samples).map(|(crew, samples)| {
        if let Err(reason) = &crew.state {
            return Row::without(crew.system.name, reason, COLUMNS.len());
        }
        let cell = |of: &dyn Fn(&Sample) -> f64| Cell::Figures(samples.iter().map(of).collect());
        let quantile = |sorted: &[u64], quantile| match sorted {
            [] => f64::NAN,
            sorted => at(sorted, quantile) as f64,
        };
        let turns = |s: &Sample| s.figures.acquisitions();
        Row {
            system: crew.system.name.to_owned(),
            cells: vec![
                cell(&|s| s.client_cpu_seconds * 1e6 / s.turns),
                cell(&|s| s.server_cpu_seconds * 1e6 / turns(s)),
                cell(&|s| quantile(&s.figures.gaps, 0.5) / 1e3),
                cell(&|s| quantile(&s.figures.gaps, 0.99) / 1e3),
                cell(&|s| quantile(&s.figures.waits, 0.99) / 1e6),
                cell(&|s| turns(s) / s.figures.seconds),
                cell(&|s| s.figures.commands / turns(s)),
                cell(&|s| f64::from(s.figures.most())),
                cell(&|s| f64::from(s.figures.fewest())),
                Cell::one(samples.iter().map(|s| s.figures.overlaps as f64).sum()),
            ],
        }
    });
    let many =
        |count, one: &str, more: &str| format!("{count} {}", if count == 1 { one } else { more });
    let nodes = many(u32::try_from(nodes).unwrap_or(0), "node", "nodes");
    let processes = many(processes, "process", "processes");
    Group { setting: format!("{nodes}, {waiters} waiters in {processes}"), rows: rows.collect() }
}

fn server_cpu_seconds(servers: &[RedisServer]) -> Result<f64> {
    servers.iter().map(|server| cpu::seconds_of(server.pid())).sum()
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
