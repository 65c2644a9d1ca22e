//! `quorlock simulate`, as it is written.

use std::path::PathBuf;

use clap::{Parser, ValueEnum};

const SIMULATE_EXAMPLES: &str = "\
Runs the lock itself, as it is in this program, against simulated nodes, networks, clocks and \
processes. Each seed is half a minute in which everything goes wrong that the dialect allows, then a \
calm in which everybody must get the lock. The same seed gives the same run, every time.

Faults, for --faults: pause, preempt, suspend, kill, wall-jump, cut, lost-reply, split, break, delay, \
slow-node, stop-node, crash, forge, poison; those that the redlock dialect does not promise to bear: \
restart-empty, lose-last-second, flush, stale-replica, clock-jump, clock-excursion, all-clocks; and those that hit all \
nodes, or keep all of them busy, which are left out unless they are named: stop-all, rolling-restart, burst, mass-renewal. \
Also none.

Scenarios, for --scenario: long-pause, restarts-empty, clock-jumps, lost-reply, three-way-split, \
partition, slow-minority, suspended-laptop. Each is played in both dialects.

With --resume the seeds may take days: what was reached is saved every few seconds, and the same command \
goes on from there however it was ended. A file of other settings, or of a program whose seeds give other \
runs, is refused. Seeds that break a promise are noted, and the rest is run all the same.

Exit codes:
    0  every promise was kept
    1  one was not: the seed, what led to it and the command that replays it are
       printed
   78  arguments that cannot work
  125  quorlock itself failed

Examples:
  quorlock simulate                            # 2000 seeds
  quorlock simulate --minutes 10               # as many as there is time for
  quorlock simulate --seeds 1000000 --resume seeds.json
  quorlock simulate --dialect redlock --faults crash,restart-empty,pause
  quorlock simulate --by-fault --seeds 200     # each fault, both dialects
  quorlock simulate --seed 62 --html run.html  # one seed, as a picture
  quorlock simulate --scenario long-pause --html pause.html";

/// Run the lock under simulated faults, and draw what happened.
#[derive(Parser)]
#[command(after_help = SIMULATE_EXAMPLES)]
pub(crate) struct SimulateArgs {
    /// How many seeds to run
    #[arg(long, value_name = "N", default_value_t = 2_000, value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) seeds: u64,

    /// Run this seed alone
    #[arg(long, value_name = "SEED", conflicts_with_all = ["seeds", "minutes", "scenario"])]
    pub(crate) seed: Option<u64>,

    /// Run seeds for so long instead of a certain number
    #[arg(long, value_name = "MINUTES", conflicts_with = "seeds", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) minutes: Option<u64>,

    /// Keep what was reached in this file, and go on from there if it is there already
    #[arg(long, value_name = "FILE", conflicts_with_all = ["seed", "minutes", "scenario", "by_fault"])]
    pub(crate) resume: Option<PathBuf>,

    /// How many nodes [default: 3 or 5, by the seed]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..=7))]
    pub(crate) nodes: Option<u8>,

    /// How many client processes [default: 2 to 4, by the seed]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..=6))]
    pub(crate) clients: Option<u8>,

    /// How locks lie on the nodes
    #[arg(long, value_enum, default_value_t = DialectArg::Strict)]
    pub(crate) dialect: DialectArg,

    /// What may go wrong, with commas between [default: all that the dialect allows]
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub(crate) faults: Option<Vec<String>>,

    /// Play a story instead of seeds
    #[arg(long, value_name = "NAME", conflicts_with_all = ["seeds", "minutes", "nodes", "clients", "dialect", "faults"])]
    pub(crate) scenario: Option<String>,

    /// Run the seeds with each fault alone, in both dialects, and print a table
    #[arg(long, conflicts_with_all = ["seed", "minutes", "scenario", "dialect", "faults", "html", "svg"])]
    pub(crate) by_fault: bool,

    /// Draw it into this file: the scenario, the one seed, or the first that breaks a promise
    #[arg(long, value_name = "FILE")]
    pub(crate) html: Option<PathBuf>,

    /// The same as one SVG file, without the words
    #[arg(long, value_name = "FILE")]
    pub(crate) svg: Option<PathBuf>,
}

/// The dialects, as they are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum DialectArg {
    Strict,
    Redlock,
}
