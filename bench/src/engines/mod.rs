//! Quorlock on an etcd cluster and on a ZooKeeper ensemble, beside the locks that come with these, and beside Quorlock
//! on Redis nodes.

mod handover;
mod servers;
pub mod stopped_leader;

use std::time::Duration;

use anyhow::Result;

use self::servers::Servers;
use crate::Run;
use crate::contest::{Entrant, Sample};
use crate::order::Order;
use crate::peers::{Cycles, Engine, Made, Process, System, Tools, on_engines};
use crate::report::{Cell, Column, Group, Report, Row};
use crate::stats::median;

/// A round of one at a time ends with the first of both.
const CYCLES: u64 = 300;
const SECONDS: f64 = 1.2;
/// So many names are used again and again, as by jobs that run every minute.
const NAMES: u64 = 20;
const AT_A_TIME: [usize; 2] = [64, 256];
const EVER: u64 = u64::MAX >> 2;
const LIMIT: Duration = Duration::from_secs(60);
const COLUMNS: [(&str, bool); 8] = [
    ("lock p50 µs", true),
    ("lock p99 µs", false),
    ("release p50 µs", true),
    ("release p99 µs", false),
    ("client CPU µs/cycle", true),
    ("server CPU µs/cycle", false),
    ("cycles/s", true),
    ("failed", false),
];
/// Whose rounds are divided by whose.
const PAIRS: [(&str, &str); 2] =
    [("quorlock-etcd", "etcd-mutex"), ("quorlock-zookeeper", "curator")];

/// Who takes part, and on what.
struct Contestant {
    entrant: Entrant,
    engine: Engine,
}

/// One way to use locks.
struct Setting {
    title: String,
    at_a_time: usize,
    /// For each worker; none is a new one each time.
    names: Option<u64>,
    count: u64,
    seconds: f64,
}

/// One round of one contestant; `None` if it had dropped out.
type Round = Option<Sample>;

pub fn compare(run: &Run) -> Result<()> {
    let servers = Servers::start();
    let mut contestants = start(run, &servers);
    let report = cycles(run, &servers, &mut contestants)?;
    drop(contestants);
    run.finish(&report)?;
    run.finish(&handover::compare(run, &servers)?)
}

fn start(run: &Run, servers: &Servers) -> Vec<Contestant> {
    let all = on_engines().into_iter().map(|(system, engine)| {
        run.progress(&format!("engines, {} starts", system.name));
        let state = process(&run.tools, &system, &servers.nodes(engine));
        Contestant { entrant: Entrant { system, state }, engine }
    });
    all.collect()
}

/// A process of a system that is ready, or why there is none.
fn process(tools: &Tools, system: &System, nodes: &[String]) -> Result<Process, String> {
    let ready = || {
        let mut process = Process::start(tools, system, nodes)?;
        process.ready()?;
        anyhow::Ok(process)
    };
    ready().map_err(|error| error.to_string())
}

fn settings(run: &Run) -> Vec<Setting> {
    let seconds = if run.quick { 0.4 } else { SECONDS };
    let one = |title: &str, names| Setting {
        title: title.to_owned(),
        at_a_time: 1,
        names,
        count: CYCLES,
        seconds,
    };
    let ones = [
        one("1 at a time, 20 names in turns", Some(NAMES)),
        one("1 at a time, a new name each", None),
    ];
    let many = AT_A_TIME.map(|at_a_time| Setting {
        title: format!("{at_a_time} at a time"),
        at_a_time,
        names: Some(1),
        count: EVER,
        seconds,
    });
    ones.into_iter().chain(many).collect()
}

fn cycles(run: &Run, servers: &Servers, contestants: &mut [Contestant]) -> Result<Report> {
    let rounds = run.scaled(9, 1);
    let mut notes = vec![
        format!(
            "median of {rounds} rounds in turns (min..max), of up to {SECONDS} s each, on any core"
        ),
        "many at a time: each has a name of its own".into(),
    ];
    notes.extend(Servers::durability());
    let mut groups = Vec::new();
    for setting in settings(run) {
        warm_up(run, contestants, &setting);
        let samples = take_turns(run, servers, contestants, &setting, rounds);
        notes
            .extend(PAIRS.iter().filter_map(|pair| ratios(&setting, contestants, &samples, *pair)));
        groups.push(group(contestants, &samples, setting));
    }
    Ok(Report {
        name: "engines",
        title: "Lock + release of a free name, on clusters that agree by themselves",
        notes,
        columns: COLUMNS.map(|(name, charted)| Column { name, charted }).into(),
        groups,
    })
}

fn warm_up(run: &Run, contestants: &mut [Contestant], setting: &Setting) {
    for (index, Contestant { entrant, engine }) in contestants.iter_mut().enumerate() {
        run.progress(&format!("engines, {}, {} warms up", setting.title, entrant.system.name));
        // The servers of this one compile as they go, too.
        let seconds = match engine {
            Engine::ZooKeeper => Made::Java.warm_up_seconds(run.quick),
            Engine::Etcd | Engine::Redis => entrant.system.warm_up_seconds(run.quick),
        };
        let seconds = seconds / 2.0;
        let _: Option<Cycles> = entrant.run(&order(setting, index, EVER, seconds), LIMIT);
    }
}

fn order(setting: &Setting, index: usize, count: u64, seconds: f64) -> Order {
    let order = Order::cycles(&format!("bench/{index}"), setting.at_a_time, count, seconds);
    match setting.names {
        Some(names) => order.with("names", names),
        None => order,
    }
}

fn take_turns(
    run: &Run,
    servers: &Servers,
    contestants: &mut [Contestant],
    setting: &Setting,
    rounds: usize,
) -> Vec<Vec<Round>> {
    let mut samples = vec![Vec::new(); contestants.len()];
    for round in 0..rounds {
        run.progress(&format!("engines, {}, round {} of {rounds}", setting.title, round + 1));
        for turn in 0..contestants.len() {
            let index = (turn + round) % contestants.len();
            let Contestant { entrant, engine } = &mut contestants[index];
            let mut order = order(setting, index, setting.count, setting.seconds);
            if setting.names.is_none() {
                order = order.with("name", format!("bench/new/{index}/{round}"));
            }
            let before = servers.cpu_seconds(*engine);
            let client = entrant.run(&order, LIMIT);
            let server_cpu_seconds = servers.cpu_seconds(*engine) - before;
            samples[index].push(client.map(|client| Sample { client, server_cpu_seconds }));
        }
    }
    samples
}

fn group(contestants: &[Contestant], samples: &[Vec<Round>], setting: Setting) -> Group {
    let rows = contestants.iter().zip(samples).map(|(Contestant { entrant, .. }, samples)| {
        if let Err(reason) = &entrant.state {
            return Row::without(entrant.system.name, reason, COLUMNS.len());
        }
        let cell =
            |of: &dyn Fn(&Sample) -> f64| Cell::Figures(samples.iter().flatten().map(of).collect());
        let cycles = |s: &Sample| s.client.cycles as f64;
        let lock = |s: &Sample| s.client.lock_us.unwrap_or([f64::NAN; 2]);
        let release = |s: &Sample| s.client.release_us.unwrap_or([f64::NAN; 2]);
        Row {
            system: entrant.system.name.to_owned(),
            cells: vec![
                cell(&|s| lock(s)[0]),
                cell(&|s| lock(s)[1]),
                cell(&|s| release(s)[0]),
                cell(&|s| release(s)[1]),
                cell(&|s| s.client.cpu_seconds * 1e6 / cycles(s)),
                cell(&|s| s.server_cpu_seconds * 1e6 / cycles(s)),
                cell(&|s| cycles(s) / s.client.seconds),
                Cell::one(samples.iter().flatten().map(|s| s.client.failed as f64).sum()),
            ],
        }
    });
    let rows = rows.collect();
    Group { setting: setting.title, rows }
}

/// What one contestant has of another, round by round: noise hits both alike.
fn ratios(
    setting: &Setting,
    contestants: &[Contestant],
    samples: &[Vec<Round>],
    (ours, theirs): (&str, &str),
) -> Option<String> {
    let of = |name| contestants.iter().position(|it| it.entrant.system.name == name);
    let rounds = samples[of(ours)?].iter().zip(&samples[of(theirs)?]);
    let rounds: Vec<_> =
        rounds.filter_map(|(ours, theirs)| ours.as_ref().zip(theirs.as_ref())).collect();
    let ratio = |figure: &dyn Fn(&Sample) -> f64| {
        let each: Vec<_> =
            rounds.iter().map(|(ours, theirs)| figure(ours) / figure(theirs)).collect();
        let each: Vec<_> = each.into_iter().filter(|ratio| ratio.is_finite()).collect();
        (!each.is_empty()).then(|| median(each))
    };
    let lock = ratio(&|s| s.client.lock_us.map_or(f64::NAN, |us| us[0]))?;
    let release = ratio(&|s| s.client.release_us.map_or(f64::NAN, |us| us[0]))?;
    let rate = ratio(&|s| s.client.cycles as f64 / s.client.seconds)?;
    Some(format!(
        "{}: {ours} has {lock:.2} of {theirs}'s lock p50, {release:.2} of its release p50, {rate:.2} of its \
         cycles/s (medians of the ratios of each round)",
        setting.title
    ))
}
