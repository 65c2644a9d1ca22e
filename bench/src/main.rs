//! Quorlock beside its peers and beside the limit, on real servers that this program starts itself.
//!
//! Every system is a process that speaks a small language with this one (`peers/README.md`), this
//! program itself among them (`own`). They are measured in turns: first a moment of one, then of the
//! next, and again from the start, so that noise hits all alike. A cycle is lock + release of a free
//! name, each time another one.

mod burst;
mod clock;
mod commands;
mod contended;
mod contest;
mod cpu;
mod engines;
mod far;
mod faults;
mod growth;
mod latency;
mod memory;
mod order;
mod own;
mod peers;
mod release;
mod report;
mod rounds;
mod sqlite;
mod stats;
mod systems;
mod throughput;
mod valkey;
mod waiting;

use std::io::{IsTerminal, Write, stderr};
use std::path::PathBuf;

use anyhow::{Context, Result, bail};

use crate::peers::Tools;
use crate::report::{Machine, Report};

#[global_allocator]
static ALLOCATOR: memory::Counting = memory::Counting;

/// What was asked for.
pub struct Run {
    /// Whether only to try it out.
    pub quick: bool,
    pub tools: Tools,
    machine: Machine,
    save: Option<PathBuf>,
}

impl Run {
    /// So many, or so many if it is only tried out.
    pub fn scaled(&self, full: usize, quick: usize) -> usize {
        if self.quick { quick } else { full }
    }

    /// Shows what goes on, if somebody looks.
    pub fn progress(&self, what: &str) {
        if stderr().is_terminal() {
            // It is only a comfort.
            let _ = write!(stderr(), "\r\x1b[K{what}");
        }
    }

    fn finish(&self, report: &Report) -> Result<()> {
        self.progress("");
        report.print();
        self.save.as_ref().map_or(Ok(()), |folder| report.save(folder, &self.machine))
    }
}

fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    match words.as_slice() {
        [own::PEER, words @ ..] => {
            if let Err(error) = runtime.block_on(own::serve(words)) {
                // Its last line is the reason that a table shows.
                eprintln!("{error:#}");
                std::process::exit(1);
            }
            return Ok(());
        }
        [own::ECHO, count] => return own::echo(count),
        [sqlite::MEMBER, part @ ..] => {
            return runtime.block_on(sqlite::member(sqlite::Part::parse(part)?));
        }
        [memory::PART, part @ ..] => return memory::part(part),
        _ => {}
    }
    let mut quick = false;
    let mut save = None;
    let mut target = None;
    let mut which = None;
    let mut rest = words.into_iter();
    while let Some(word) = rest.next() {
        match word {
            "--quick" => quick = true,
            "--save" => save = Some(rest.next().context("--save needs a folder")?.into()),
            "--target" => target = Some(rest.next().context("--target needs a folder")?.into()),
            name if which.is_none() => which = Some(name),
            other => bail!("{other:?} is too much"),
        }
    }
    let target: PathBuf = target.context("--target FOLDER is needed: where the peers are put")?;
    let run = |tools| Run { quick, tools, machine: Machine::this(), save: save.clone() };
    let report = |run: Run, compare: fn(&Run) -> Result<Report>| run.finish(&compare(&run)?);
    let beside_peers = |compare| report(run(Tools::all(&target)?), compare);
    let alone = || anyhow::Ok(run(Tools::own(&target)?));
    match which {
        Some("latency") => beside_peers(latency::compare),
        Some("unpinned") => beside_peers(latency::unpinned),
        Some("distant") => beside_peers(latency::distant),
        Some("throughput") => beside_peers(throughput::compare),
        Some("burst") => report(alone()?, burst::compare),
        Some("contended") => beside_peers(contended::compare),
        Some("faults") => beside_peers(faults::compare),
        Some("engines") => engines::compare(&run(Tools::all(&target)?)),
        Some("stopped-leader") => beside_peers(engines::stopped_leader::compare),
        Some("growth") => report(alone()?, growth::compare),
        Some("release") => report(alone()?, release::compare),
        Some("rounds") => report(alone()?, rounds::compare),
        Some("waiting") => waiting::compare(&alone()?),
        Some("waiting-check") => waiting::check(&alone()?),
        Some("sqlite") => runtime.block_on(sqlite::compare()),
        Some("memory") => memory::compare(),
        other => bail!("{other:?} is no benchmark: see `cargo xtask --help`"),
    }
}
