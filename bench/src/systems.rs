//! The systems under comparison, each with the same two verbs.

use std::time::Duration;

use anyhow::Result;
use quorlock::{Locker, RedisOptions};
use quorlock_testkit::RedisServer;
use rslock::LockManager;

pub const TTL: Duration = Duration::from_secs(10);

/// What rslock waits between two attempts unless it is told otherwise: a random time up to this.
const RSLOCK_RETRY_DELAY: Duration = Duration::from_millis(200);

pub async fn quorlock(servers: &[RedisServer]) -> Result<Locker> {
    quorlock_at(servers.iter().map(RedisServer::url)).await
}

pub async fn quorlock_at(urls: impl IntoIterator<Item = String>) -> Result<Locker> {
    // Longer than the default, so that a machine that stalls for a moment fails no attempt. The
    // peer's own limit is 500 ms as well.
    let builder = Locker::builder().node_limit(Duration::from_millis(500)).ttl(TTL);
    Ok(builder.redis(RedisOptions::default().trust_new_nodes(true)).nodes(urls).connect().await?)
}

/// For single attempts.
pub fn rslock_once(urls: Vec<String>) -> LockManager {
    let mut manager = LockManager::new(urls);
    manager.set_retry(1, Duration::ZERO);
    manager
}

/// With the delay between attempts that it has by default, but as many of them as are wanted.
pub fn rslock_at(urls: Vec<String>, attempts: u32) -> LockManager {
    let mut manager = LockManager::new(urls);
    manager.set_retry(attempts, RSLOCK_RETRY_DELAY);
    manager
}

pub async fn quorlock_cycle(locker: &Locker, name: &str) -> Result<()> {
    locker.try_lock(name).await?.release().await?;
    Ok(())
}
