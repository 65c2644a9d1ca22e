//! The tables, and what the figures are meant to be.

use std::time::Duration;

use super::turns::Figures;
use super::{RoundTrips, Setting};
use crate::stats::at;

/// What Quorlock is held to.
mod goals {
    /// Waiters in several processes: a node has to tell them, which takes a round trip.
    pub const GAP_P50_ROUND_TRIPS: f64 = 1.25;
    pub const GAP_P99_ROUND_TRIPS: f64 = 2.0;
    /// Waiters in one process need no node.
    pub const GAP_P50_WITHIN_US: f64 = 10.0;
    pub const COMMANDS: f64 = 2.1;
    pub const MOST_TO_FEWEST: f64 = 1.05;
    pub const WAIT_P99_TO_RSLOCK: f64 = 1.0 / 8.0;
}

pub fn head(rounds: usize, window: Duration, hold: Duration) {
    println!(
        "\nmany waiters for one name, held for {hold:?} ({rounds} × {window:?} each, in turns; \
         rslock with its default retry delay of up to 200 ms)"
    );
    println!(
        "gap:      from just before a release to the next holder having the lock; with several \
         processes, only from one process to another"
    );
    println!(
        "rt:       the gap in round trips, of a PING to one node: the shortest of the three medians"
    );
    println!("commands: from clients, per node and acquisition; not those that scripts call");
    println!("handed:   share of the acquisitions with a gap: by another one who was waiting");
    println!(
        "goals:    gap ≤ {} rt p50 and ≤ {} rt p99 across processes, ≤ {} µs p50 within one; \
         commands ≤ {}; most/fewest ≤ {}; wait p99 ≤ {} of rslock's",
        goals::GAP_P50_ROUND_TRIPS,
        goals::GAP_P99_ROUND_TRIPS,
        goals::GAP_P50_WITHIN_US,
        goals::COMMANDS,
        goals::MOST_TO_FEWEST,
        goals::WAIT_P99_TO_RSLOCK,
    );
}

/// One table: for each number of waiters the figures of rslock and of Quorlock.
pub fn table(
    setting: Setting,
    trips: &RoundTrips,
    rows: &[(u32, [Figures; 2])],
    systems: [&str; 2],
) {
    let Setting { nodes, processes, far } = setting;
    let [idle, beside_rslock, beside_quorlock] = trips.medians();
    // A busy machine answers later, or sooner as its cores are awake. The unit is the strictest.
    let round_trip_us = idle.min(beside_rslock).min(beside_quorlock);
    println!(
        "\n{nodes} {}, waiters in {processes} {}, {}: round trip {idle:.0} µs idle, \
         {beside_rslock:.0} beside rslock, {beside_quorlock:.0} beside quorlock",
        if nodes == 1 { "node" } else { "nodes" },
        if processes == 1 { "process" } else { "processes" },
        if far { "1 ms away" } else { "on loopback" },
    );
    println!(
        "waiters  system            gap µs p50       p99   rt p50     p99  commands  most/fewest  ratio  \
         wait ms p50     p99  turns/s  handed  overlaps  goals missed"
    );
    for (waiters, figures) in rows {
        for (system, own) in systems.iter().zip(figures) {
            let row = Row::new(own, round_trip_us);
            let missed = match *system {
                super::QUORLOCK => row.missed(processes, &Row::new(&figures[0], round_trip_us)),
                _ => String::new(),
            };
            println!(
                "{waiters:>7}  {system:<16}  {:>10.1}  {:>8.1}  {:>7.2} {:>7.2}  {:>8.2}  {:>11}  \
                 {:>5.2}  {:>11.1} {:>7.1}  {:>7.0}  {:>5.0}%  {:>8}  {missed}",
                row.gap_us[0],
                row.gap_us[1],
                row.gap_rt[0],
                row.gap_rt[1],
                row.commands,
                format!("{}/{}", own.most(), own.fewest()),
                row.most_to_fewest,
                row.wait_ms[0],
                row.wait_ms[1],
                own.acquisitions() / own.seconds,
                100.0 * own.gaps.len() as f64 / own.acquisitions(),
                own.overlaps,
            );
        }
    }
}

/// Figures as they are printed; pairs are p50 and p99.
struct Row {
    gap_us: [f64; 2],
    gap_rt: [f64; 2],
    commands: f64,
    most_to_fewest: f64,
    wait_ms: [f64; 2],
}

impl Row {
    fn new(figures: &Figures, round_trip_us: f64) -> Self {
        let gap_us = quantiles(&figures.gaps).map(|ns| ns / 1e3);
        Self {
            gap_us,
            gap_rt: gap_us.map(|us| us / round_trip_us),
            commands: figures.commands / figures.acquisitions(),
            most_to_fewest: f64::from(figures.most()) / f64::from(figures.fewest()),
            wait_ms: quantiles(&figures.waits).map(|ns| ns / 1e6),
        }
    }

    fn missed(&self, processes: u32, rslock: &Self) -> String {
        let gaps = if processes == 1 {
            vec![("gap p50", self.gap_us[0], goals::GAP_P50_WITHIN_US)]
        } else {
            vec![
                ("gap p50", self.gap_rt[0], goals::GAP_P50_ROUND_TRIPS),
                ("gap p99", self.gap_rt[1], goals::GAP_P99_ROUND_TRIPS),
            ]
        };
        let others = [
            ("commands", self.commands, goals::COMMANDS),
            ("most/fewest", self.most_to_fewest, goals::MOST_TO_FEWEST),
            ("wait p99", self.wait_ms[1], rslock.wait_ms[1] * goals::WAIT_P99_TO_RSLOCK),
        ];
        // What could not be measured is not a number, and that is no success.
        let missed =
            gaps.into_iter().chain(others).filter(|(_, is, most)| is.is_nan() || is > most);
        let missed: Vec<_> = missed.map(|(name, ..)| name).collect();
        if missed.is_empty() { "none".into() } else { missed.join(", ") }
    }
}

/// The p50 and the p99 of sorted figures.
fn quantiles(sorted: &[u64]) -> [f64; 2] {
    [0.5, 0.99]
        .map(|quantile| if sorted.is_empty() { f64::NAN } else { at(sorted, quantile) as f64 })
}
