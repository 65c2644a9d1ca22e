//! The systems under comparison, each with the same two verbs.

use std::time::Duration;

use anyhow::{Result, anyhow};
use quorlock::Locker;
use quorlock_testkit::RedisServer;
use rslock::LockManager;

pub const TTL: Duration = Duration::from_secs(10);

pub async fn quorlock(servers: &[RedisServer]) -> Result<Locker> {
    // Longer than the default, so that a machine that stalls for a moment fails no attempt. The
    // peer's own limit is 500 ms as well.
    let builder = Locker::builder().node_limit(Duration::from_millis(500)).ttl(TTL);
    Ok(builder.nodes(servers.iter().map(RedisServer::url)).connect().await?)
}

pub fn rslock(servers: &[RedisServer]) -> LockManager {
    let mut manager = LockManager::new(servers.iter().map(RedisServer::url).collect());
    manager.set_retry(1, Duration::ZERO);
    manager
}

pub async fn quorlock_cycle(locker: &Locker, name: &str) -> Result<()> {
    locker.try_lock(name).await?.release().await?;
    Ok(())
}

pub async fn rslock_cycle(manager: &LockManager, name: &str) -> Result<()> {
    let lock = manager.lock(name, TTL).await.map_err(|e| anyhow!("rslock: {e}"))?;
    manager.unlock(&lock).await;
    Ok(())
}
