//! How often one round trip is enough: the nodes agree on the holder's fence at once, and none of them has
//! to be asked to confirm it.

mod log;
mod scripts;

use std::time::Duration;

use anyhow::{Result, ensure};
use quorlock_testkit::{RedisServer, servers};

use self::log::{Log, Seen};
use self::scripts::{Scripts, Verb};
use crate::Run;
use crate::clock::now_ns;
use crate::order::Order;
use crate::peers::{Contention, Cycles, Process, System};
use crate::report::{Cell, Column, Group, Report, Row};

const NODES: usize = 5;
/// Those with a fence for each holder, the default first.
const SYSTEMS: [&str; 2] = ["quorlock-strict", "quorlock-fenced"];
/// Of those who want one name, one waiter in each: a few, of which one often asks while the lock is being
/// released, and so many that there is always a queue.
const PROCESSES: [usize; 2] = [3, 16];
const MOST: usize = PROCESSES[1];
const HOLD_US: u64 = 1_000;
/// Before the start, so that it reaches all processes in time.
const LEAD: Duration = Duration::from_millis(100);
const LIMIT: Duration = Duration::from_secs(60);
/// What every name starts with.
const NAMES: &str = "bench/rounds/";

const VERBS: [(Verb, &str); 5] = [
    (Verb::Acquire, "acquire"),
    (Verb::Wait, "wait"),
    (Verb::Extend, "extend"),
    (Verb::Confirm, "confirm"),
    (Verb::Release, "release"),
];

/// What one round of one system came to.
struct Sample {
    acquisitions: f64,
    seen: Seen,
}

impl Sample {
    fn in_one_percent(&self) -> f64 {
        100.0 * (1.0 - self.seen.confirmed() as f64 / self.acquisitions)
    }
}

/// The rounds of each system.
type Samples = [Vec<Sample>; 2];

/// The processes of one system.
struct Crew {
    system: &'static str,
    scripts: Scripts,
    members: Vec<Process>,
}

pub fn compare(run: &Run) -> Result<Report> {
    let rounds = run.scaled(5, 1);
    let cycles = run.scaled(4_000, 1_000) as u64;
    let time = if run.quick { Duration::from_secs(1) } else { Duration::from_secs(3) };
    let servers = servers(NODES);
    let log = Log::of(&servers)?;
    let mut crews = Vec::new();
    for system in SYSTEMS {
        run.progress(&format!("rounds, {system} starts"));
        crews.push(crew(run, &servers, system)?);
    }
    let mut free = Samples::default();
    let mut wanted: [Samples; 2] = Default::default();
    for round in 0..rounds {
        for turn in 0..SYSTEMS.len() {
            let index = (turn + round) % SYSTEMS.len();
            run.progress(&format!("rounds, {}, round {round}", crews[index].system));
            let name = format!("{NAMES}{index}/{round}");
            free[index].push(one_after_the_other(&log, &mut crews[index], &name, cycles)?);
            for (processes, wanted) in PROCESSES.into_iter().zip(&mut wanted) {
                let sample = all_at_once(&log, &mut crews[index], &name, (processes, time))?;
                wanted[index].push(sample);
            }
        }
    }
    let mut columns = vec![
        Column { name: "in one round trip %", charted: true },
        Column { name: "acquisitions", charted: false },
        Column { name: "confirmed", charted: false },
    ];
    columns.extend(VERBS.map(|(_, name)| Column { name, charted: false }));
    let mut groups = vec![group(format!("{NODES} nodes, free"), &free)];
    groups.extend(PROCESSES.iter().zip(&wanted).map(|(processes, samples)| {
        group(format!("{NODES} nodes, wanted by {processes} processes"), samples)
    }));
    Ok(Report {
        name: "rounds",
        title: "Acquisitions whose number the nodes agree on at once",
        notes: vec![
            format!(
                "median of {rounds} rounds in turns (min..max); goals: 99 % free, 95 % wanted by {MOST}"
            ),
            "confirmed: acquisitions that needed another round trip for their number".into(),
            "acquire to release: commands that a node saw for each acquisition".into(),
        ],
        columns,
        groups,
    })
}

fn crew(run: &Run, servers: &[RedisServer], system: &'static str) -> Result<Crew> {
    let urls: Vec<_> = servers.iter().map(RedisServer::url).collect();
    let start = || Process::start(&run.tools, &System::own(system), &urls);
    let mut members = Vec::new();
    let scripts = Scripts::watch(&servers[0], || {
        let mut first = start()?;
        first.ready()?;
        members.push(first);
        Ok(())
    })?;
    for _ in 1..MOST {
        members.push(start()?);
    }
    members.iter_mut().skip(1).try_for_each(Process::ready)?;
    Ok(Crew { system, scripts, members })
}

/// Two processes take and release the same names, first one all of them, then the other.
fn one_after_the_other(log: &Log, crew: &mut Crew, name: &str, count: u64) -> Result<Sample> {
    log.clear()?;
    let mut acquisitions = 0;
    for process in &mut crew.members[..2] {
        process.go(&Order::cycles(&format!("{name}/free"), 1, count, LIMIT.as_secs_f64()))?;
        let done: Cycles = process.report(LIMIT * 2)?;
        ensure!(done.failed == 0, "{}: {}", crew.system, done.error.unwrap_or_default());
        acquisitions += done.cycles;
    }
    Ok(Sample { acquisitions: acquisitions as f64, seen: log.seen(&crew.scripts, NAMES)? })
}

/// Some processes want one name for so long.
fn all_at_once(
    log: &Log,
    crew: &mut Crew,
    name: &str,
    (processes, time): (usize, Duration),
) -> Result<Sample> {
    log.clear()?;
    let start = now_ns() + u64::try_from(LEAD.as_nanos())?;
    let end = start + u64::try_from(time.as_nanos())?;
    let members = &mut crew.members[..processes];
    for (index, process) in members.iter_mut().enumerate() {
        let order = Order::new("contend", &format!("{name}/{processes}")).with("first", index);
        let order = order.with("waiters", 1).with("hold_us", HOLD_US);
        process.go(&order.with("from_ns", start).with("to_ns", end))?;
    }
    let mut acquisitions = 0;
    for process in members {
        let report: Contention = process.report(LIMIT)?;
        ensure!(report.error.is_none(), "{}: {:?}", crew.system, report.error);
        acquisitions += report.turns.iter().filter(|[.., acquired, _]| *acquired > 0).count();
    }
    Ok(Sample { acquisitions: acquisitions as f64, seen: log.seen(&crew.scripts, NAMES)? })
}

fn group(setting: String, samples: &Samples) -> Group {
    let rows = SYSTEMS.iter().zip(samples).map(|(system, samples)| {
        let cell = |of: &dyn Fn(&Sample) -> f64| Cell::Figures(samples.iter().map(of).collect());
        let sum = |of: &dyn Fn(&Sample) -> f64| Cell::one(samples.iter().map(of).sum());
        let mut cells = vec![
            cell(&Sample::in_one_percent),
            sum(&|s| s.acquisitions),
            sum(&|s| s.seen.confirmed() as f64),
        ];
        cells.extend(VERBS.map(|(verb, _)| {
            cell(&|s| s.seen.commands(verb) as f64 / NODES as f64 / s.acquisitions)
        }));
        Row { system: (*system).to_owned(), cells }
    });
    Group { setting, rows: rows.collect() }
}
