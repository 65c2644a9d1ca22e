//! Lockers as most tests with real servers need them.

use std::time::Duration;

use quorlock::{Builder, Dialect, Locker, RedisOptions};

use crate::{DEADLINE, RedisServer};

/// Returns where clients find these servers.
pub fn urls<'a>(servers: impl IntoIterator<Item = &'a RedisServer>) -> Vec<String> {
    servers.into_iter().map(RedisServer::url).collect()
}

/// Returns a builder with time limits that no machine is too slow for.
pub fn patient() -> Builder {
    Locker::builder()
        .ttl(Duration::from_secs(20))
        .node_limit(Duration::from_secs(2))
        .connect_limit(DEADLINE)
        .redis(patient_options())
}

/// Returns options with a clock window that no machine is too slow for.
#[must_use]
pub fn patient_options() -> RedisOptions {
    RedisOptions::default().clock_window(Duration::from_millis(100), Duration::from_secs(5))
}

/// Connects a locker in the `redlock` dialect, which stands for a process of its own. Its locks have a TTL of 30 s,
/// longer than any test takes; its time limits are the default ones.
///
/// # Panics
///
/// If fewer nodes can be reached than are needed.
pub async fn redlock_locker(urls: impl IntoIterator<Item = String>) -> Locker {
    let options = RedisOptions::default().dialect(Dialect::Redlock);
    let builder = Locker::builder().redis(options).nodes(urls);
    builder.ttl(Duration::from_secs(30)).connect().await.expect("a locker")
}
