//! Locks that are held.

use std::future::Future;
use std::time::Duration;

use anyhow::{Result, anyhow, bail};
use quorlock_testkit::{RedisServer, servers};

use super::{HELD_GOAL_BYTES, LOCKS, Memory, verdict};
use crate::systems::{quorlock, rslock_once};

/// Long enough that none expires before it has been measured.
const TTL: Duration = Duration::from_secs(30);
/// Taken and given back before, so that buffers have their size. Few, so that whatever grows with the
/// number of locks is still small.
const FIRST: usize = 50;

pub fn measure(system: &str, nodes: usize) -> Result<()> {
    let servers = servers(nodes);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let row = match system {
        "quorlock" => runtime.block_on(quorlock_held(&servers)),
        "rslock" => runtime.block_on(rslock_held(&servers)),
        other => bail!("no system {other}"),
    }?;
    println!(
        "{nodes:>5}  {system:<8}  {:>6}  {:>6.0}  {:>8.0}  {:>18.1}  {}",
        row.guard,
        row.held.live,
        row.held.resident,
        row.left.live,
        verdict(system, row.held.live <= HELD_GOAL_BYTES)
    );
    Ok(())
}

struct Row {
    guard: usize,
    held: Memory,
    left: Memory,
}

async fn quorlock_held(servers: &[RedisServer]) -> Result<Row> {
    let locker = quorlock(servers).await?;
    let lock = async |name: String| Ok(locker.try_lock(name).ttl(TTL).await?);
    hold(lock, async |guard: quorlock::Guard| {
        guard.release().await?;
        Ok(())
    })
    .await
}

async fn rslock_held(servers: &[RedisServer]) -> Result<Row> {
    let manager = rslock_once(servers.iter().map(RedisServer::url).collect());
    let lock = async |name: String| {
        manager.lock(name.as_bytes(), TTL).await.map_err(|error| anyhow!("rslock: {error}"))
    };
    hold(lock, async |lock: rslock::Lock| {
        manager.unlock(&lock).await;
        Ok(())
    })
    .await
}

async fn hold<G>(
    lock: impl AsyncFn(String) -> Result<G>,
    release: impl AsyncFn(G) -> Result<()>,
) -> Result<Row> {
    // The room for the guards is the caller's own, and is there before.
    let mut guards = Vec::with_capacity(LOCKS);
    for number in 0..FIRST {
        guards.push(lock(format!("bench/first/{number}")).await?);
    }
    for guard in guards.drain(..) {
        release(guard).await?;
    }
    settle().await;
    let before = Memory::now()?;
    for number in 0..LOCKS {
        guards.push(lock(format!("bench/held/{number}")).await?);
    }
    settle().await;
    let mut held = Memory::now()?.each_since(before);
    // That room becomes resident only when it is written to.
    held.resident -= size_of::<G>() as f64;
    for guard in guards.drain(..) {
        release(guard).await?;
    }
    settle().await;
    let left = Memory::now()?.each_since(before);
    Ok(Row { guard: size_of::<G>(), held, left })
}

/// Lets answers that come late be dealt with.
fn settle() -> impl Future<Output = ()> {
    tokio::time::sleep(Duration::from_millis(200))
}
