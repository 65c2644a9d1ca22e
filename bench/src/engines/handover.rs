//! From a release to the next holder, between two processes that take turns.

use std::time::Duration;

use anyhow::{Result, bail};

use super::servers::Servers;
use super::{LIMIT, PAIRS};
use crate::Run;
use crate::clock::now_ns;
use crate::order::Order;
use crate::peers::{Contention, Cycles, Engine, Process, System, on_engines};
use crate::report::{Cell, Column, Group, Report, Row};
use crate::stats::{at, median};
use crate::waiting::{Figures, Turn};

const PROCESSES: u32 = 2;
/// How long the lock is held: long enough for the other to ask for it, and so long that it has waited for a while.
const HELD: [Duration; 2] = [Duration::from_millis(15), Duration::from_millis(200)];
/// Before the start, so that it reaches both in time.
const LEAD: Duration = Duration::from_millis(50);
/// For the first of them to ask.
const RUN_IN: Duration = Duration::from_millis(100);
/// After what counts, so that giving up at the end does not.
const TAIL: Duration = Duration::from_millis(300);
const COLUMNS: [(&str, bool); 5] = [
    ("hand-over p50 µs", true),
    ("hand-over p99 µs", false),
    ("mean µs", true),
    ("handed over", false),
    ("overlaps", false),
];

/// A system and its processes.
struct Crew {
    system: System,
    state: Result<Vec<Process>, String>,
}

pub fn compare(run: &Run, servers: &Servers) -> Result<Report> {
    let rounds = run.scaled(7, 1);
    let mut crews: Vec<_> = on_engines()
        .into_iter()
        .map(|(system, engine)| {
            run.progress(&format!("handed over, {} starts", system.name));
            let state = crew(run, servers, &system, engine).map_err(|error| error.to_string());
            Crew { system, state }
        })
        .collect();
    let mut notes = vec![
        format!(
            "median of {rounds} rounds in turns (min..max); two processes, one of which always waits; it asks again 2.5 \
             to 7.5 ms after its release"
        ),
        "a waiter of etcd-mutex begins a watch on what has already happened, which the cluster looks at every 100 ms \
         only: held for long, its watch has caught up before the release"
            .into(),
        "overlaps: how often two had the lock at once".into(),
    ];
    let mut groups = Vec::new();
    for held in HELD {
        let title = format!("held for {held:?}");
        let window = Duration::from_secs_f64(if run.quick { 0.6 } else { 2.0 });
        let mut samples: Vec<Vec<Option<Figures>>> = crews.iter().map(|_| Vec::new()).collect();
        for round in 0..rounds {
            for turn in 0..crews.len() {
                let index = (turn + round) % crews.len();
                let crew = &mut crews[index];
                run.progress(&format!(
                    "handed over, {title}, {}, round {}",
                    crew.system.name,
                    round + 1
                ));
                // A name of its own, so that nothing is left of the round before.
                let name = format!("bench/handed/{}/{index}/{round}", held.as_millis());
                let sample = match &mut crew.state {
                    Ok(members) => match one_round(members, &name, held, window) {
                        Ok(figures) => Some(figures),
                        Err(error) => {
                            crew.state = Err(error.to_string());
                            None
                        }
                    },
                    Err(_) => None,
                };
                samples[index].push(sample);
            }
        }
        notes.extend(PAIRS.iter().filter_map(|pair| ratio(&title, &crews, &samples, *pair)));
        groups.push(group(&crews, &samples, title));
    }
    Ok(Report {
        name: "engines-handover",
        title: "From a release to the next holder, on clusters that agree by themselves",
        notes,
        columns: COLUMNS.map(|(name, charted)| Column { name, charted }).into(),
        groups,
    })
}

fn crew(run: &Run, servers: &Servers, system: &System, engine: Engine) -> Result<Vec<Process>> {
    let nodes = servers.nodes(engine);
    let start = |_| Process::start(&run.tools, system, &nodes);
    let mut crew = (0..PROCESSES).map(start).collect::<Result<Vec<_>>>()?;
    crew.iter_mut().try_for_each(Process::ready)?;
    let seconds = system.warm_up_seconds(run.quick) / 2.0;
    for (index, process) in crew.iter_mut().enumerate() {
        process.go(&Order::cycles(&format!("bench/warm/{index}"), 4, u64::MAX >> 2, seconds))?;
    }
    crew.iter_mut().try_for_each(|process| process.report::<Cycles>(LIMIT).map(drop))?;
    Ok(crew)
}

fn one_round(
    crew: &mut [Process],
    name: &str,
    held: Duration,
    window: Duration,
) -> Result<Figures> {
    let start = now_ns() + nanos(LEAD);
    let counted = start + nanos(RUN_IN)..start + nanos(RUN_IN) + nanos(window);
    for (process, first) in crew.iter_mut().zip(0..) {
        let order = Order::new("contend", name).with("first", first).with("waiters", 1);
        let order = order.with("hold_us", held.as_micros()).with("from_ns", start);
        process.go(&order.with("to_ns", counted.end + nanos(TAIL)))?;
    }
    let mut turns = Vec::new();
    for process in crew {
        let report: Contention = process.report(LIMIT)?;
        if let Some(error) = report.error {
            bail!("failed: {error}");
        }
        turns.extend(report.turns.into_iter().map(Turn::from));
    }
    Ok(Figures::of(&turns, (PROCESSES, PROCESSES), &counted, 0.0))
}

fn quantile_us(figures: &Figures, quantile: f64) -> f64 {
    match &*figures.gaps {
        [] => f64::NAN,
        gaps => at(gaps, quantile) as f64 / 1e3,
    }
}

fn mean_us(figures: &Figures) -> f64 {
    figures.gaps.iter().sum::<u64>() as f64 / figures.gaps.len() as f64 / 1e3
}

fn group(crews: &[Crew], samples: &[Vec<Option<Figures>>], setting: String) -> Group {
    let rows = crews.iter().zip(samples).map(|(crew, samples)| {
        if let Err(reason) = &crew.state {
            return Row::without(crew.system.name, reason, COLUMNS.len());
        }
        let cell = |of: &dyn Fn(&Figures) -> f64| {
            Cell::Figures(samples.iter().flatten().map(of).collect())
        };
        let sum = |of: &dyn Fn(&Figures) -> usize| {
            Cell::one(samples.iter().flatten().map(of).sum::<usize>() as f64)
        };
        Row {
            system: crew.system.name.to_owned(),
            cells: vec![
                cell(&|s| quantile_us(s, 0.5)),
                cell(&|s| quantile_us(s, 0.99)),
                cell(&mean_us),
                sum(&|s| s.gaps.len()),
                sum(&|s| s.overlaps),
            ],
        }
    });
    Group { setting, rows: rows.collect() }
}

fn ratio(
    title: &str,
    crews: &[Crew],
    samples: &[Vec<Option<Figures>>],
    (ours, theirs): (&str, &str),
) -> Option<String> {
    let of = |name| crews.iter().position(|crew| crew.system.name == name);
    let rounds = samples[of(ours)?].iter().zip(&samples[of(theirs)?]);
    let rounds: Vec<_> =
        rounds.filter_map(|(ours, theirs)| ours.as_ref().zip(theirs.as_ref())).collect();
    let ratio = |figure: &dyn Fn(&Figures) -> f64| {
        let each = rounds.iter().map(|(ours, theirs)| figure(ours) / figure(theirs));
        let each: Vec<_> = each.filter(|ratio| ratio.is_finite()).collect();
        (!each.is_empty()).then(|| median(each))
    };
    let (p50, mean) = (ratio(&|s| quantile_us(s, 0.5))?, ratio(&mean_us)?);
    Some(format!(
        "{title}: {ours} has {p50:.2} of {theirs}'s p50, {mean:.2} of its mean (medians of the ratios of each round)"
    ))
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
