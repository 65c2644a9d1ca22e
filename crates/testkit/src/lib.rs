//! What the tests of Quorlock stand on: real servers, a proxy that breaks the network on demand,
//! and the [`mod@conformance`] suite for nodes.
//!
//! A [`RedisServer`] is a child process with its own directory and port. It can be paused, killed
//! and restarted, and it never outlives the test. A [`Proxy`] in front of it delays, loses, holds
//! or cuts what passes.
//!
//! A server can forget: all with [`restart_empty`](RedisServer::restart_empty) or `FLUSHALL`, the
//! last of it with [`crash_losing_since`](RedisServer::crash_losing_since), what it has no room for
//! with [`maxmemory`](RedisServerBuilder::maxmemory). Its [`run_id`](RedisServer::run_id) tells one
//! start from another. With [`own_clock`](RedisServerBuilder::own_clock) it has a [`ServerClock`]
//! that jumps, runs fast or slow, or stands still, while all others keep the true time.
//!
//! A [`HostileServer`] is no Redis at all: it says whatever a test wants.
//!
//! A [`PostgresServer`] or a [`MariaDbServer`] is a database for locks, and for tests of what locks protect.
//!
//! An [`EtcdCluster`] or a [`ZooKeeperEnsemble`] has one member or several, which can be stopped,
//! killed and restarted, and tells which of them leads. Members of etcd can be
//! [cut off](EtcdCluster::cut_off) in a network of their own. Tests that do no harm to it can share one,
//! each with its [`fresh_prefix`].
//!
//! A test that starts a server is made with [`macro@test`], which skips it on a machine without the program and
//! says so: see [`skipping`].
//!
//! Everything here blocks and works from sync and async tests alike. A call that fails panics:
//! a test has nothing better to do with the error.
//!
//! ```no_run
//! use quorlock_testkit::{Proxy, RedisServer, Reply};
//!
//! let server = RedisServer::start();
//! let proxy = Proxy::in_front_of(server.addr());
//! proxy.lose_replies(true);
//! // A client at `proxy.url()` now writes to the server, but hears nothing from it.
//! assert_eq!(server.command(&["EXISTS", "lock"]), Reply::Int(0));
//! ```

mod builder;
mod clock;
pub mod conformance;
mod connection;
mod ensemble;
mod etcd;
mod forgetting;
mod hostile;
mod lockers;
mod logs;
mod mariadb;
mod network;
mod postgres;
mod proxy;
mod resp;
mod server;
pub mod skipping;
mod spawner;
mod still_world;
mod tls;
mod virtual_time;
mod witness;
mod zookeeper;
mod zookeeper_client;

use std::thread;
use std::time::{Duration, Instant};

pub use builder::{AppendFsync, RedisServerBuilder};
pub use clock::ServerClock;
pub use ensemble::fresh_prefix;
pub use etcd::{EtcdCluster, EtcdTls};
pub use forgetting::AofMark;
pub use hostile::{Conversation, HostileServer};
pub use lockers::{patient, patient_options, redlock_locker, urls};
pub use logs::Logs;
pub use mariadb::MariaDbServer;
pub use postgres::PostgresServer;
pub use proxy::Proxy;
pub use quorlock_test_attribute::test;
pub use resp::{Client, Reply};
pub use server::RedisServer;
pub use still_world::StillWorld;
pub use virtual_time::VirtualTime;
pub use witness::{Asked, Witness};
pub use zookeeper::ZooKeeperEnsemble;
pub use zookeeper_client::ZooKeeperClient;

/// How long anything may take before it counts as failed.
///
/// It is long because it only ever runs out when something is broken.
pub const DEADLINE: Duration = Duration::from_secs(10);

const POLL_EVERY: Duration = Duration::from_millis(2);

/// Starts `count` servers at once.
///
/// # Panics
///
/// When one of them does not come up.
#[must_use]
pub fn servers(count: usize) -> Vec<RedisServer> {
    servers_of(&RedisServer::builder(), count)
}

/// Starts `count` independent servers that are set up alike.
///
/// # Panics
///
/// When one of them does not come up.
#[must_use]
pub fn servers_of(builder: &RedisServerBuilder, count: usize) -> Vec<RedisServer> {
    let servers: Vec<_> = (0..count).map(|_| builder.clone().launch()).collect();
    for server in &servers {
        server.wait_until_ready();
    }
    servers
}

/// Waits until `condition` holds, and panics with `what` when it does not within [`DEADLINE`].
///
/// # Panics
///
/// When the deadline passes.
pub async fn eventually_async(what: &str, mut condition: impl AsyncFnMut() -> bool) {
    let deadline = Instant::now() + DEADLINE;
    while !condition().await {
        assert!(Instant::now() < deadline, "not within {DEADLINE:?}: {what}");
        tokio::time::sleep(POLL_EVERY).await;
    }
}

/// Blocks until `condition` holds, and panics with `what` when it does not within [`DEADLINE`].
///
/// # Panics
///
/// When the deadline passes.
pub fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + DEADLINE;
    while !condition() {
        assert!(Instant::now() < deadline, "not within {DEADLINE:?}: {what}");
        thread::sleep(POLL_EVERY);
    }
}
