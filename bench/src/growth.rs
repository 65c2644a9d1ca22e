//! Whether a lock costs more when many are held, or when many names were used before.
//!
//! A second process, with a server of its own, holds one lock all the time and has used few names. Both are
//! measured in turns, and what counts is how they compare: an hour of a busy machine is not like the next.

use std::time::Duration;

use anyhow::{Context, Result};
use quorlock_testkit::{RedisServer, Reply, servers};

use crate::Run;
use crate::contest::{Contest, Entrant, Sample};
use crate::order::Order;
use crate::peers::{Cycles, Holding, Kind, systems};
use crate::report::{Cell, Column, Group, Report, Row};

const CYCLES: u64 = 1_000;
/// Also while a hundred thousand locks are taken one after the other.
const LIMIT: Duration = Duration::from_secs(120);
/// While nothing is asked of it, to see what holding costs: each is extended once in a third of the
/// TTL of 10 s.
const REST_SECONDS: f64 = 3.5;
/// Of fewer than these it cannot be told what each needs in memory.
const COUNTABLE: u64 = 1_000;
const COLUMNS: [(&str, bool); 11] = [
    ("p50 against 1 held", true),
    ("CPU against 1 held", true),
    ("client CPU µs/cycle", false),
    ("server CPU µs/cycle", false),
    ("p50 µs", false),
    ("p99 µs", false),
    ("taken: CPU µs/lock", false),
    ("kept: CPU µs/s per lock", false),
    ("client bytes/lock", false),
    ("server bytes/lock", false),
    ("server keys", false),
];

pub fn compare(run: &Run) -> Result<Report> {
    let rounds = run.scaled(11, 2);
    let held: &[u64] = if run.quick { &[1, 1_000, 10_000] } else { &[1, 1_000, 100_000] };
    let names = if run.quick { 100_000 } else { 1_000_000 };
    let servers = servers(2);
    let variants =
        || systems().into_iter().filter(|system| matches!(system.kind, Kind::Quorlock(_)));
    let mut contests = Contests {
        grown: Contest::start(&run.tools, &servers[..1], variants())?,
        fresh: Contest::start(&run.tools, &servers[1..], variants())?,
    };
    let mut groups: Vec<Group> = held
        .iter()
        .map(|count| format!("{count} held"))
        .chain([format!("after {names} names")])
        .map(|setting| Group { setting, rows: Vec::new() })
        .collect();
    for index in 0..contests.grown.entrants.len() {
        let system = contests.grown.entrants[index].system;
        // If it fails, its cycles do as well, and there is nothing to compare with.
        contests.fresh.entrants[index].run::<Holding>(&hold(1, 0.0), LIMIT);
        for (number, count) in held.iter().enumerate() {
            run.progress(&format!("growth, {}, {count} held", system.name));
            let row = held_row(&mut contests, index, *count, rounds, &servers[0], run.quick);
            groups[number].rows.push(row?.unwrap_or_else(|| out(&contests.grown.entrants[index])));
        }
        run.progress(&format!("growth, {}, {names} names", system.name));
        let row = names_row(&mut contests, index, names, rounds, &servers[0]);
        let last = groups.last_mut().context("there is one")?;
        last.rows.push(row?.unwrap_or_else(|| out(&contests.grown.entrants[index])));
        // The next one wants the same name.
        contests.fresh.entrants[index].run::<Holding>(&hold(0, 0.0), LIMIT);
    }
    let columns = COLUMNS.map(|(name, charted)| Column { name, charted }).into();
    Ok(Report {
        name: "growth",
        title: "Quorlock with many locks held, and after many names",
        notes: vec![
            format!("median of {rounds} rounds (min..max) of {CYCLES} cycles, one node, one core, TTL 10 s"),
            "against 1 held: in turns with a process and a server of their own that stay as they are"
                .into(),
            "while locks are held they are extended, and what that costs is in the cycles beside it"
                .into(),
            "bytes: beyond what was there with nothing held; after the names, in all, with nothing \
             held"
                .into(),
        ],
        columns,
        groups,
    })
}

/// Each system twice.
struct Contests<'a> {
    grown: Contest<'a>,
    /// These hold one lock each.
    fresh: Contest<'a>,
}

fn hold(count: u64, seconds: f64) -> Order {
    Order::new("hold", "bench/held").with("count", count).with("seconds", seconds)
}

/// The row with so many held, or `None` if the system dropped out.
fn held_row(
    contests: &mut Contests<'_>,
    index: usize,
    count: u64,
    rounds: usize,
    server: &RedisServer,
    quick: bool,
) -> Result<Option<Row>> {
    let rest_seconds = if quick { 0.0 } else { REST_SECONDS };
    let grown = &mut contests.grown.entrants[index];
    let Some(empty) = grown.run::<Holding>(&hold(0, 0.0), LIMIT) else {
        return Ok(None);
    };
    let server_before = used_memory(server)?;
    let Some(full) = grown.run::<Holding>(&hold(count, rest_seconds), LIMIT) else {
        return Ok(None);
    };
    let server_after = used_memory(server)?;
    let keys = keys(server)?;
    let samples = cycles(contests, index, count, rounds);
    if contests.grown.entrants[index].run::<Holding>(&hold(0, 0.0), LIMIT).is_none() {
        return Ok(None);
    }
    let each = |figure: f64| Cell::one(figure / count as f64);
    let bytes = |figure: f64| match count {
        COUNTABLE.. => each(figure),
        _ => Cell::Words("-".into()),
    };
    let mut row = row(contests.grown.entrants[index].system.name, &samples);
    row.cells.extend([
        each(full.cpu_seconds * 1e6),
        each(full.rest_cpu_seconds * 1e6 / rest_seconds),
        bytes(full.heap_bytes - empty.heap_bytes),
        bytes(server_after - server_before),
        Cell::one(keys),
    ]);
    Ok(Some(row))
}

/// The row after so many names, each locked and released once.
fn names_row(
    contests: &mut Contests<'_>,
    index: usize,
    names: u64,
    rounds: usize,
    server: &RedisServer,
) -> Result<Option<Row>> {
    let grown = &mut contests.grown.entrants[index];
    let Some(before) = grown.run::<Holding>(&hold(0, 0.0), LIMIT) else {
        return Ok(None);
    };
    let server_before = used_memory(server)?;
    let order = Order::cycles("bench/names", 256, names, 100.0);
    let Some(all) = grown.run::<Cycles>(&order, LIMIT) else {
        return Ok(None);
    };
    let samples = cycles(contests, index, names, rounds);
    let grown = &mut contests.grown.entrants[index];
    let Some(after) = grown.run::<Holding>(&hold(0, 0.0), LIMIT) else {
        return Ok(None);
    };
    let mut row = row(grown.system.name, &samples);
    row.cells.extend([
        Cell::one(all.cpu_seconds * 1e6 / all.cycles as f64),
        Cell::Words("-".into()),
        Cell::one(after.heap_bytes - before.heap_bytes),
        Cell::one(used_memory(server)? - server_before),
        Cell::one(keys(server)?),
    ]);
    Ok(Some(row))
}

/// In turns, the grown one first.
fn cycles(
    contests: &mut Contests<'_>,
    index: usize,
    number: u64,
    rounds: usize,
) -> Vec<(Sample, Sample)> {
    let rounds = (0..=rounds).map(|round| {
        let order = Order::cycles(&format!("bench/{number}/{round}"), 1, CYCLES, 2.0);
        let grown = contests.grown.cycles(index, &order, LIMIT)?;
        Some((grown, contests.fresh.cycles(index, &order, LIMIT)?))
    });
    // The first one warms up.
    rounds.skip(1).flatten().collect()
}

/// The part of a row that is about cycles.
fn row(system: &str, samples: &[(Sample, Sample)]) -> Row {
    let cell = |of: &dyn Fn(&Sample) -> f64| {
        Cell::Figures(samples.iter().map(|(grown, _)| of(grown)).collect())
    };
    let against = |of: &dyn Fn(&Sample) -> f64| {
        Cell::Figures(samples.iter().map(|(grown, fresh)| of(grown) / of(fresh)).collect())
    };
    let cells = vec![
        against(&|s| s.client.p50_us),
        against(&|s| (s.client.cpu_seconds + s.server_cpu_seconds) / s.client.cycles as f64),
        cell(&|s| s.client.cpu_seconds * 1e6 / s.client.cycles as f64),
        cell(&|s| s.server_cpu_seconds * 1e6 / s.client.cycles as f64),
        cell(&|s| s.client.p50_us),
        cell(&|s| s.client.p99_us),
    ];
    Row { system: system.to_owned(), cells }
}

fn out(entrant: &Entrant) -> Row {
    let reason = entrant.state.as_ref().err().map_or("dropped out", String::as_str);
    Row::without(entrant.system.name, reason, COLUMNS.len())
}

fn used_memory(server: &RedisServer) -> Result<f64> {
    let Reply::Bulk(Some(text)) = server.command(&["INFO", "memory"]) else {
        anyhow::bail!("no INFO");
    };
    let text = String::from_utf8(text)?;
    let used = text.lines().find_map(|line| line.strip_prefix("used_memory:"));
    Ok(used.context("no used_memory")?.trim().parse()?)
}

fn keys(server: &RedisServer) -> Result<f64> {
    let Reply::Int(keys) = server.command(&["DBSIZE"]) else { anyhow::bail!("no DBSIZE") };
    Ok(keys as f64)
}
