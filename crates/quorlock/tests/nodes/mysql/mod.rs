//! Locks in MySQL and MariaDB databases: what they keep when a server forgets, who is refused, and who waits for what. The
//! servers are of MariaDB.

mod examine;
mod forgetting;
mod refusals;
mod rights;
mod tls;
mod waiting;

use std::time::Duration;

use quorlock::{Builder, Locker, MysqlOptions};
use quorlock_testkit::{DEADLINE, MariaDbServer, eventually_async as eventually};

/// The lock that everybody wants.
const NAME: &str = "job";
/// Longer than any test takes, but for those that wait for its end.
const TTL: Duration = Duration::from_secs(60);

/// So wide that no machine is too slow for it.
fn options() -> MysqlOptions {
    MysqlOptions::default().clock_window(Duration::from_secs(1), Duration::from_secs(4))
}

/// For a locker on these databases, with time limits that no machine is too slow for.
fn on<U: AsRef<str>>(urls: impl IntoIterator<Item = U>) -> Builder {
    let urls: Vec<String> = urls.into_iter().map(|url| url.as_ref().to_owned()).collect();
    Locker::builder()
        .nodes(urls)
        .mysql(options())
        .ttl(TTL)
        .max_ttl(TTL)
        .node_limit(Duration::from_secs(4))
        .connect_limit(DEADLINE)
}

/// Sets databases up, and marks them as new.
async fn init<U: AsRef<str>>(urls: impl IntoIterator<Item = U>) {
    let nodes = on(urls).admin().init(false).await.expect("databases that are up");
    for node in nodes {
        assert!(matches!(node.state, quorlock::admin::InitState::Marked), "{node:?}");
    }
}

/// A server whose database is set up.
async fn server() -> MariaDbServer {
    let server = MariaDbServer::start();
    init([server.url()]).await;
    server
}

/// A client of one server.
async fn client(server: &MariaDbServer) -> Locker {
    on([server.url()]).connect().await.expect("a server that is up")
}

/// Waits until a client has found all servers again.
async fn reached_by(locker: &Locker) {
    eventually("the servers answer", async || {
        let status = locker.inspect("looked at").await.expect("a status");
        status.nodes.iter().all(|node| node.record.is_ok())
    })
    .await;
}
