//! Quorlock beside its peers and beside the limit, on real servers that this program starts itself.
//!
//! Every figure is a ratio between systems that were measured in turns in the same run: first a few
//! hundred cycles of one, then of the next, and again from the start, so that noise hits all alike.
//! A cycle is lock + release of a free name, each time another one; `waiting` is about one name that
//! many want, `sqlite` about a file instead of servers, and `memory` about many names at once.

mod bare;
mod clock;
mod commands;
mod far;
mod faults;
mod latency;
mod memory;
mod sqlite;
mod stats;
mod systems;
mod throughput;
mod waiting;

use anyhow::{Result, bail};

use crate::waiting::Extent;

#[global_allocator]
static ALLOCATOR: memory::Counting = memory::Counting;

fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let which: Vec<&str> = args.iter().map(String::as_str).collect();
    match which.as_slice() {
        [] | ["all"] => {
            runtime.block_on(latency::compare())?;
            runtime.block_on(throughput::compare())?;
            runtime.block_on(faults::compare())?;
            waiting::compare(Extent::FULL)?;
            runtime.block_on(sqlite::compare())?;
            memory::compare()
        }
        ["latency"] => runtime.block_on(latency::compare()),
        ["throughput"] => runtime.block_on(throughput::compare()),
        ["faults"] => runtime.block_on(faults::compare()),
        ["waiting"] => waiting::compare(Extent::FULL),
        ["waiting", "--quick"] => waiting::compare(Extent::QUICK),
        ["waiting", "--check"] => waiting::check(),
        [waiting::WORKER, work @ ..] => runtime.block_on(waiting::run(waiting::Work::parse(work)?)),
        ["sqlite"] => runtime.block_on(sqlite::compare()),
        [sqlite::MEMBER, part @ ..] => runtime.block_on(sqlite::member(sqlite::Part::parse(part)?)),
        ["memory"] => memory::compare(),
        [memory::PART, part @ ..] => memory::part(part),
        other => bail!(
            "{other:?} is no benchmark: use latency, throughput, faults, waiting, sqlite, memory or \
             all"
        ),
    }
}
