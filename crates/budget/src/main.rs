//! Lock + release, so many times, on nodes in memory. `tests/costs.rs` runs it under valgrind.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use quorlock::node::Node;
use quorlock::node::memory::MemoryNode;
use quorlock::{Error, Locker};
use tokio::runtime::Builder;

/// So long that nothing is extended meanwhile, however slow the machine is.
const TTL: Duration = Duration::from_secs(24 * 60 * 60);

/// Used again and again: a node remembers the last fence of each.
const NAMES: u64 = 500;

fn main() -> ExitCode {
    let numbers: Option<Vec<u64>> = std::env::args().skip(1).map(|arg| arg.parse().ok()).collect();
    let Some([nodes, held, cycles]) = numbers.as_deref() else {
        eprintln!("usage: quorlock-budget NODES HELD CYCLES");
        return ExitCode::from(2);
    };
    let Ok(runtime) = Builder::new_current_thread().enable_time().build() else {
        eprintln!("the runtime does not start");
        return ExitCode::FAILURE;
    };
    match runtime.block_on(run(*nodes, *held, *cycles)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

async fn run(nodes: u64, held: u64, cycles: u64) -> Result<(), Error> {
    let nodes = (0..nodes).map(|_| Arc::new(MemoryNode::new()) as Arc<dyn Node>);
    let locker = Locker::builder().with_nodes(nodes).max_ttl(TTL).ttl(TTL).connect().await?;
    let mut guards = Vec::new();
    for serial in 0..held {
        guards.push(locker.try_lock(format!("held/{serial}")).await?);
    }
    let names: Vec<_> = (0..NAMES).map(|serial| format!("orders/{serial:06}")).collect();
    for name in names.iter().cycle().take(usize::try_from(cycles).unwrap_or(usize::MAX)) {
        locker.try_lock(name).await?.release().await?;
    }
    Ok(())
}
