//! What is refused, each with a text that names the value and the remedy, and what is warned of.

use std::time::Duration;

use quorlock::node::FailureKind;
use quorlock::{Builder, Error, Locker};
use quorlock_testkit::{
    DEADLINE, Logs, RedisServer, Reply, eventually_async as eventually, servers, test,
};
use tokio::net::TcpSocket;

const MS: Duration = Duration::from_millis(1);

/// Time limits that no machine is too slow for.
fn patient() -> Builder {
    Locker::builder()
        .redis(quorlock::RedisOptions::default().dialect(quorlock::Dialect::Redlock))
        .ttl(Duration::from_secs(20))
        .node_limit(Duration::from_secs(2))
        .connect_limit(DEADLINE)
}

/// Fails unless it is a misuse whose text has all parts.
fn assert_misuse<T: std::fmt::Debug>(result: Result<T, Error>, says: &[&str]) {
    let error = result.expect_err("a misuse");
    assert!(matches!(error, Error::Misuse { .. }), "{error:?}");
    for part in says {
        assert!(error.to_string().contains(part), "no {part:?} in: {error}");
    }
}

#[test]
async fn a_locker_with_times_that_do_not_fit() {
    let cases: [(Builder, &[&str]); 7] = [
        (patient().ttl(9 * MS), &["a TTL of 9ms", "at least 10ms"]),
        (patient().ttl(31_000 * MS), &["a TTL of 31s", "maximum of 30s", "max_ttl"]),
        (patient().max_ttl(5_000 * MS), &["a TTL of 20s", "maximum of 5s"]),
        (
            patient().node_limit(4_001 * MS),
            &["node time limit of 4.001s", "TTL of 20s", "at most 4s"],
        ),
        (patient().node_limit(Duration::ZERO), &["node time limit is zero", "50 ms"]),
        (patient().connect_limit(Duration::ZERO), &["connect time limit is zero"]),
        (
            // The shortest TTL leaves next to nothing after what clocks may run apart on Redis.
            Locker::builder()
                .redis(quorlock::RedisOptions::default().dialect(quorlock::Dialect::Redlock))
                .ttl(10 * MS)
                .node_limit(2 * MS)
                .drift(drift(7 * MS)),
            &["a TTL of 10ms", "8ms", "leaves 2ms", "longer TTL"],
        ),
    ];
    for (builder, says) in cases {
        // Refused before anything is connected to: nobody has to listen there.
        assert_misuse(builder.nodes(["redis://127.0.0.1:1"]).connect().await, says);
    }
}

fn drift(base: Duration) -> quorlock::Drift {
    quorlock::Drift { base, per_mille: 100 }
}

#[test]
async fn a_lock_with_times_that_do_not_fit() {
    let server = RedisServer::start();
    let locker = patient().nodes([server.url()]).connect().await.expect("a locker");
    let lock = || locker.try_lock("timed");
    assert_misuse(lock().ttl(9 * MS).await, &["a TTL of 9ms", "at least 10ms"]);
    assert_misuse(lock().ttl(30_001 * MS).await, &["30.001s", "maximum of 30s", "max_ttl"]);
    assert_misuse(lock().ttl(9_999 * MS).await, &["limit of 2s", "TTL of 9.999s", "longer TTL"]);
    assert_misuse(lock().at_least(20_000 * MS).await, &["validity of 20s", "TTL of 20s", "less"]);
    assert_eq!(server.kept(), 0);
    lock().ttl(30_000 * MS).await.expect("the longest TTL").release().await.expect("released");
    lock().ttl(10_000 * MS).await.expect("five time limits").release().await.expect("released");
}

#[test]
async fn a_name_that_is_empty_or_too_long() {
    let server = RedisServer::start();
    let locker = patient().nodes([server.url()]).connect().await.expect("a locker");
    let long = "n".repeat(513);
    let empty: &[&str] = &["the name of the lock is empty", "at least one byte"];
    let too_long: &[&str] = &["\"nnnn", "513 bytes", "at most 512"];
    assert_misuse(locker.try_lock("").await, empty);
    assert_misuse(locker.lock("").wait(MS).await, empty);
    assert_misuse(locker.inspect("").await, empty);
    assert_misuse(locker.try_lock(&long).await, too_long);
    assert_misuse(locker.lock(&long).await, too_long);
    assert_misuse(locker.inspect(&long).await, too_long);
    let guard = locker.try_lock(&long[..512]).await.expect("the longest name");
    assert_eq!(server.command(&["EXISTS", &long[..512]]), Reply::Int(1));
    guard.release().await.expect("released");
}

#[test]
async fn no_nodes_or_too_many() {
    assert_misuse(patient().connect().await, &["no nodes", "redis://localhost"]);
    // Bound and not listening: nobody else can get the port in the meantime.
    let socket = TcpSocket::new_v4().expect("a socket");
    socket.bind(([127, 0, 0, 1], 0).into()).expect("a free port");
    let url = format!("redis://{}", socket.local_addr().expect("an address"));
    let urls = |count| std::iter::repeat_n(url.clone(), count);
    assert_misuse(patient().nodes(urls(64)).connect().await, &["64 nodes", "at most 63"]);
    // 63 are not too many, though nobody is there.
    let error = patient().nodes(urls(63)).connect().await.expect_err("nobody is there");
    assert!(matches!(error, Error::NoQuorum { have: 0, need: 32, nodes: 63, .. }), "{error}");
}

#[test]
async fn a_url_that_names_no_node_we_know() {
    for (url, says) in [
        ("http://:hunter2@host", "\"http\""),
        ("localhost:6379", "it has no scheme"),
        ("hunter2@localhost:6379", "it has no scheme"),
        ("", "it has no scheme"),
        ("redis://:hunter2@", "cannot be read"),
        ("redis://:hunter2@host/hunter", "\"hunter\""),
    ] {
        let result = patient().nodes(["redis://127.0.0.1:1", url]).connect().await;
        let text = result.as_ref().expect_err("no node").to_string();
        assert!(!text.contains("hunter2"), "{text}");
        assert_misuse(result, &["node 2", says, "redis://"]);
    }
}

#[test]
async fn one_server_behind_two_urls() {
    let servers = servers(2);
    let port = servers[0].port();
    for (one, two) in [
        (format!("redis://127.0.0.1:{port}"), format!("redis://localhost:{port}")),
        (servers[0].url(), servers[0].url()),
        (format!("redis://127.0.0.1:{port}/0"), format!("redis://127.0.0.1:{port}/1")),
    ] {
        let says = &["is the same server as", &port.to_string(), "name every server once"];
        assert_misuse(patient().nodes([&one, &two]).connect().await, says);
        let three = [&one, &servers[1].url(), &two];
        assert_misuse(patient().nodes(three).connect().await, says);
    }
}

#[test]
async fn a_replica() {
    let primary = RedisServer::start();
    let replica = RedisServer::builder().replica_of(primary.port()).start();
    let error = patient().nodes([replica.url()]).connect().await.expect_err("a replica");
    assert!(matches!(error, Error::NoQuorum { have: 0, .. }), "{error}");
    let text = error.to_string();
    assert!(text.contains("is a replica") && text.contains("name its primary"), "{text}");

    let other = RedisServer::start();
    let urls = [primary.url(), other.url(), replica.url()];
    let locker = patient().nodes(urls).connect().await.expect("two of three");
    let guard = locker.try_lock("replicated").await.expect("two of three");
    let status = locker.inspect("replicated").await.expect("a status");
    let failure = status.nodes[2].record.as_ref().expect_err("no vote of a replica");
    assert_eq!(failure.kind(), FailureKind::Unfit);
    guard.release().await.expect("two of three");
}

/// A primary that becomes a replica while it is connected to.
#[test]
async fn a_node_that_turns_into_a_replica() {
    let servers = servers(2);
    let locker = patient().nodes([servers[1].url()]).connect().await.expect("a locker");
    let follow = ["REPLICAOF", "127.0.0.1", &servers[0].port().to_string()];
    assert_eq!(servers[1].command(&follow), Reply::Simple("OK".into()));
    let text = locker.try_lock("demoted").await.expect_err("read only").to_string();
    assert!(text.contains("replica") && text.contains("name its primary"), "{text}");
    servers[1].command(&["REPLICAOF", "NO", "ONE"]);
    eventually("a primary again", async || locker.try_lock("promoted").await.is_ok()).await;
}

#[test]
async fn a_name_that_is_in_use_for_something_else() {
    let servers = servers(3);
    let urls = servers.iter().map(RedisServer::url);
    let locker = patient().nodes(urls).connect().await.expect("a locker");
    for server in &servers {
        assert_eq!(server.command(&["LPUSH", "queue", "job"]), Reply::Int(1));
    }
    for lock in
        [locker.try_lock("queue"), locker.lock("queue").wait(DEADLINE), locker.lock("queue")]
    {
        let error = lock.await.expect_err("a list");
        let Error::Node { node, failure } = &error else { panic!("{error:?}") };
        assert!(servers.iter().any(|server| server.url() == *node), "{node}");
        assert_eq!(failure.kind(), FailureKind::WrongType);
        let text = error.to_string();
        assert!(text.contains("a list") && text.contains("another name or a prefix"), "{text}");
    }
    for server in &servers {
        assert_eq!(server.command(&["LLEN", "queue"]), Reply::Int(1), "it is left alone");
    }
}

/// What is stored there may be of any size, and is not fetched to find out who holds the lock.
#[test]
async fn a_name_under_which_a_long_text_is_stored() {
    let server = RedisServer::start();
    let locker = patient().nodes([server.url()]).connect().await.expect("a locker");
    let guard = locker.try_lock("beside it").await.expect("free");
    server.command(&["SET", "text", &"x".repeat(100_000)]);
    let error = locker.try_lock("text").await.expect_err("a text");
    assert!(matches!(error, Error::Node { .. }), "{error:?}");
    assert!(error.to_string().contains("a string of 100000 bytes, not a lock"), "{error}");
    guard.extend().await.expect("the connection is as good as before");
    guard.release().await.expect("released");
}

/// A minority of such nodes cannot keep the lock from anybody for ever.
#[test]
async fn a_name_that_one_node_of_three_uses_for_something_else_is_no_reason_to_give_up() {
    let servers = servers(3);
    let urls = servers.iter().map(RedisServer::url);
    let locker = patient().nodes(urls).connect().await.expect("a locker");
    servers[0].command(&["LPUSH", "mixed", "job"]);
    let guard = locker.try_lock("mixed").await.expect("two of three");
    let error = locker.try_lock("mixed").await.expect_err("taken");
    assert!(matches!(error, Error::Taken { holder: Some(_), .. }), "{error:?}");
    guard.release().await.expect("two of three");
    assert_eq!(servers[0].command(&["LLEN", "mixed"]), Reply::Int(1), "it is left alone");
}

#[test]
async fn a_locker_that_was_shut_down() {
    let server = RedisServer::start();
    let locker = patient().nodes([server.url()]).connect().await.expect("a locker");
    let (other, held) = (locker.clone(), locker.try_lock("held").await.expect("free"));
    let prepared = locker.lock("late");
    locker.shutdown().await;
    let says = &["the lock late", "after the shutdown", "connect a new Locker"];
    assert_misuse(prepared.await, says);
    assert_misuse(locker.lock("late").await, says);
    assert_misuse(other.try_lock("late").await, says);
    held.extend().await.expect("what is held stays valid");
    held.release().await.expect("and can be released");
}

#[test]
async fn an_even_number_of_nodes_works_and_is_warned_of() {
    let servers = servers(4);
    let urls = |count| servers[..count].iter().map(RedisServer::url);
    for (count, says) in
        [(2, "2 nodes survive the loss of 0"), (4, "4 nodes survive the loss of 1")]
    {
        let logs = Logs::new();
        let locker = patient().nodes(urls(count)).connect().await.expect("a locker");
        assert!(logs.warns_of(says) && logs.warns_of("odd number"), "{:?}", logs.lines());
        let guard = locker.try_lock("even").await.expect("free");
        guard.release().await.expect("released");
        eventually("released", async || servers.iter().all(|server| server.kept() == 0)).await;
    }
    for count in [1, 3] {
        let logs = Logs::new();
        patient().nodes(urls(count)).connect().await.expect("a locker");
        assert_eq!(logs.lines(), [""; 0]);
    }
}

#[test]
async fn a_server_that_may_throw_locks_away_is_warned_of() {
    let evicting = RedisServer::builder()
        .arg("--maxmemory", "100mb")
        .arg("--maxmemory-policy", "allkeys-lru")
        .start();
    let logs = Logs::new();
    patient().nodes([evicting.url()]).connect().await.expect("a locker");
    assert!(logs.warns_of("allkeys-lru"), "{:?}", logs.lines());
    assert!(logs.warns_of("set noeviction") && logs.warns_of(&evicting.url()));
    drop(logs);

    let safe = RedisServer::builder().arg("--maxmemory", "100mb").start();
    let boundless = RedisServer::builder().arg("--maxmemory-policy", "allkeys-lru").start();
    let logs = Logs::new();
    for server in [&safe, &boundless] {
        patient().nodes([server.url()]).connect().await.expect("a locker");
    }
    assert_eq!(logs.lines(), [""; 0]);
}
