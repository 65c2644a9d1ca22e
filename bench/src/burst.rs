//! Many names at once, with the settings that everybody has who changes none.

use std::time::Duration;

use anyhow::Result;
use quorlock_testkit::servers;

use crate::Run;
use crate::contest::Contest;
use crate::order::Order;
use crate::own::DEFAULTS;
use crate::peers::{Burst, System};
use crate::report::{Cell, Column, Group, Report, Row};

const NODES: usize = 3;
const LIMIT: Duration = Duration::from_secs(60);

/// Who the others are compared with comes first.
const SYSTEMS: [&str; 3] = ["rslock", "quorlock-redlock@defaults", "quorlock-strict@defaults"];

const COLUMNS: [(&str, bool); 6] = [
    ("lock s", true),
    ("release s", false),
    ("both, of rslock", true),
    ("client CPU µs/name", false),
    ("not held", false),
    ("not released", false),
];

pub fn compare(run: &Run) -> Result<Report> {
    let (rounds, count) = (run.scaled(7, 1), run.scaled(10_000, 2_000));
    let servers = servers(NODES);
    let mut groups = Vec::new();
    for hung in [false, true] {
        if hung {
            servers[NODES - 1].pause();
        }
        let mut contest = Contest::start(&run.tools, &servers, SYSTEMS.map(System::own))?;
        let mut samples: Vec<Vec<Option<Burst>>> = vec![Vec::new(); SYSTEMS.len()];
        // The first one warms up.
        for round in 0..=rounds {
            run.progress(&format!("burst, round {round} of {rounds}"));
            for index in contest.turns(round) {
                let order = Order::new("burst", &format!("bench/{hung}/{index}/{round}"));
                let order = order.with("count", count);
                let burst = contest.entrants[index].run(&order, LIMIT);
                if round > 0 {
                    samples[index].push(burst);
                }
            }
        }
        let state = if hung { "one of them hung" } else { "all up" };
        groups.push(group(&contest, &samples, format!("{NODES} nodes, {state}"), count));
        if hung {
            servers[NODES - 1].resume();
        }
    }
    Ok(Report {
        name: "burst",
        title: "Many names at once: lock all, then release all",
        notes: vec![
            format!(
                "median of {rounds} rounds in turns (min..max), of {count} names each, not pinned"
            ),
            "one attempt for each name; Quorlock with its defaults; not held, not released: in all rounds"
                .into(),
            "hung: stopped with SIGSTOP before the systems start".into(),
        ],
        columns: COLUMNS.map(|(name, charted)| Column { name, charted }).into(),
        groups,
    })
}

fn group(
    contest: &Contest,
    samples: &[Vec<Option<Burst>>],
    setting: String,
    count: usize,
) -> Group {
    let rows = contest.entrants.iter().zip(samples).map(|(entrant, own)| {
        let name = entrant.system.name.trim_end_matches(DEFAULTS);
        if let Err(reason) = &entrant.state {
            return Row::without(name, reason, COLUMNS.len());
        }
        let cell =
            |of: &dyn Fn(&Burst) -> f64| Cell::Figures(own.iter().flatten().map(of).collect());
        let against = own
            .iter()
            .zip(&samples[0])
            .filter_map(|(own, first)| Some(own.as_ref()?.seconds() / first.as_ref()?.seconds()));
        let all = |of: &dyn Fn(&Burst) -> u64| {
            Cell::one(own.iter().flatten().map(of).sum::<u64>() as f64)
        };
        Row {
            system: name.to_owned(),
            cells: vec![
                cell(&|burst| burst.lock_seconds),
                cell(&|burst| burst.release_seconds),
                Cell::Figures(against.collect()),
                cell(&|burst| burst.cpu_seconds * 1e6 / count as f64),
                all(&|burst| burst.not_held),
                all(&|burst| burst.not_released),
            ],
        }
    });
    Group { setting, rows: rows.collect() }
}
