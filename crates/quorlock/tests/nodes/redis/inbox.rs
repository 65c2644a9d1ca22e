//! Waiting on real servers: who waits is woken by them, whatever happens to its connections.
//!
//! All locks here have a TTL that is longer than any test may take: who gets one has been woken, and
//! has not waited for a record to end.

use std::time::Duration;

use quorlock::{Error, Locker};
use quorlock_testkit::{
    DEADLINE, Proxy, RedisServer, Reply, eventually_async, servers, test, urls,
};
use tokio::task::JoinSet;

const TTL: Duration = Duration::from_secs(600);

async fn locker(urls: impl IntoIterator<Item = String>) -> Locker {
    let builder = Locker::builder()
        .redis(quorlock::RedisOptions::default().dialect(quorlock::Dialect::Redlock))
        .max_ttl(TTL)
        .ttl(TTL)
        .nodes(urls);
    builder.node_limit(Duration::from_secs(2)).connect().await.expect("a locker")
}

fn tickets(server: &RedisServer, name: &str) -> i64 {
    match server.command(&["ZCARD", &format!("{name}:quorlock:queue")]) {
        Reply::Int(count) => count,
        other => panic!("{other:?}"),
    }
}

fn is_held(server: &RedisServer, name: &str) -> bool {
    server.command(&["EXISTS", name]) == Reply::Int(1)
}

fn is_empty(server: &RedisServer) -> bool {
    server.kept() == 0
}

#[test]
async fn a_release_wakes_the_next_one_of_another_process() {
    for count in [1, 3, 5] {
        let servers = servers(count);
        let (holder, other) = (locker(urls(&servers)).await, locker(urls(&servers)).await);
        let guard = holder.lock("woken").await.expect("free");
        for server in &servers {
            // Where the holder comes second, for that it was connected later, the waiter takes no place.
            eventually_async("held", async || is_held(server, "woken")).await;
        }
        let waiter = tokio::spawn(other.lock("woken").into_future());
        for server in &servers {
            eventually_async("queued", async || tickets(server, "woken") == 1).await;
        }
        guard.release().await.expect("released");
        let next = waiter.await.expect("no panic").expect("passed on");
        assert!(next.is_held());
        let error = holder.try_lock("woken").await.expect_err("theirs");
        assert!(matches!(error, Error::Taken { holder: Some(_), .. }), "{error}");
        next.release().await.expect("released");
        for server in &servers {
            eventually_async("nothing is left", async || is_empty(server)).await;
        }
    }
}

#[test]
async fn a_waiter_whose_connections_break_gets_the_lock_all_the_same() {
    let servers = servers(3);
    let proxies: Vec<_> = servers.iter().map(|server| Proxy::in_front_of(server.addr())).collect();
    let holder = locker(urls(&servers)).await;
    let other = locker(proxies.iter().map(Proxy::url)).await;
    let guard = holder.lock("cut off").await.expect("free");
    let waiter = tokio::spawn(other.lock("cut off").into_future());
    for server in &servers {
        eventually_async("queued", async || tickets(server, "cut off") == 1).await;
    }
    // Nobody is there to be told of the release.
    for proxy in &proxies {
        proxy.refuse(true);
        proxy.cut();
    }
    eventually_async("away", async || {
        servers.iter().all(|server| {
            let channels = server.command(&["PUBSUB", "CHANNELS", ":quorlock:inbox:*"]);
            matches!(channels, Reply::Array(channels) if channels.len() == 1)
        })
    })
    .await;
    guard.release().await.expect("released");
    for proxy in &proxies {
        proxy.refuse(false);
    }
    let next = waiter.await.expect("no panic").expect("found out");
    next.release().await.expect("released");
    for server in &servers {
        eventually_async("nothing is left", async || is_empty(server)).await;
    }
}

#[test]
async fn a_grant_message_that_is_lost_on_the_way_is_asked_for_again() {
    let server = RedisServer::start();
    let proxy = Proxy::in_front_of(server.addr());
    let (holder, other) = (locker([server.url()]).await, locker([proxy.url()]).await);
    let guard = holder.lock("lost message").await.expect("free");
    let waiter = tokio::spawn(other.lock("lost message").into_future());
    eventually_async("queued", async || tickets(&server, "lost message") == 1).await;
    proxy.lose_replies(true);
    guard.release().await.expect("passed on");
    eventually_async("lost", async || proxy.lost() > 0).await;
    proxy.cut();
    proxy.lose_replies(false);
    waiter.await.expect("no panic").expect("the record is its own").release().await.expect("ours");
}

#[test]
async fn a_process_that_is_gone_is_passed_over() {
    let servers = servers(3);
    let holder = locker(urls(&servers)).await;
    let guard = holder.lock("gone").await.expect("free");
    // A process of its own, as far as the servers can tell: its connections end with its runtime,
    // and nothing is released.
    let (end, ended) = tokio::sync::oneshot::channel::<()>();
    let urls_of_dead = urls(&servers);
    let dead = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.expect("a runtime").block_on(async {
            let waiter = Box::pin(locker(urls_of_dead).await.lock("gone").into_future());
            let mut waiter = std::mem::ManuallyDrop::new(waiter);
            tokio::select! {
                _ = &mut *waiter => panic!("it is held"),
                end = ended => end.expect("told to end"),
            }
        });
    });
    eventually_async("queued", async || servers.iter().all(|s| tickets(s, "gone") == 1)).await;
    end.send(()).expect("it waits");
    dead.join().expect("no panic");
    let other = locker(urls(&servers)).await;
    let waiter = tokio::spawn(other.lock("gone").into_future());
    for server in &servers {
        eventually_async("queued", async || tickets(server, "gone") == 2).await;
    }
    guard.release().await.expect("released");
    drop(waiter.await.expect("no panic").expect("the one before it is gone"));
}

#[test]
async fn the_release_of_another_library_is_found_out() {
    let servers = servers(3);
    for server in &servers {
        let set = ["SET", "foreign", "a token of theirs", "NX", "PX", "600000"];
        assert_eq!(server.command(&set), Reply::Simple("OK".into()));
    }
    let locker = locker(urls(&servers)).await;
    let waiter = tokio::spawn(locker.lock("foreign").into_future());
    for server in &servers {
        eventually_async("queued", async || tickets(server, "foreign") == 1).await;
    }
    for server in &servers {
        // As their unlock script does: no message to anybody.
        assert_eq!(server.command(&["DEL", "foreign"]), Reply::Int(1));
    }
    waiter.await.expect("no panic").expect("found out").release().await.expect("released");
}

/// Contenders that start at once split the votes of the nodes again and again.
#[test(flavor = "multi_thread", worker_threads = 4)]
async fn votes_that_are_split_are_sorted_out() {
    let servers = servers(5);
    let mut lockers = Vec::new();
    for _ in 0..6 {
        lockers.push(locker(urls(&servers)).await);
    }
    for round in 0..50 {
        let name = format!("split/{round}");
        let together = std::sync::Arc::new(tokio::sync::Barrier::new(lockers.len()));
        let mut tasks = JoinSet::new();
        for locker in &lockers {
            let (lock, together) = (locker.lock(&name), together.clone());
            tasks.spawn(async move {
                together.wait().await;
                lock.await.expect("in the end").release().await.expect("nobody else's");
            });
        }
        let all =
            async { while tasks.join_next().await.transpose().expect("no panic").is_some() {} };
        tokio::time::timeout(DEADLINE, all).await.expect("nobody waits for a record to end");
    }
    for server in &servers {
        eventually_async("nothing is left", async || is_empty(server)).await;
    }
}

#[test]
async fn ten_thousand_waits_leave_nothing_behind() {
    const NAMES: usize = 10_000;
    let server = RedisServer::start();
    let (holder, other) = (locker([server.url()]).await, locker([server.url()]).await);
    let name = |index: usize| format!("crowd/{index}");
    let mut guards = Vec::new();
    for index in 0..NAMES {
        guards.push(holder.lock(name(index)).await.expect("free"));
    }
    let waiters: Vec<_> =
        (0..NAMES).map(|index| tokio::spawn(other.lock(name(index)).into_future())).collect();
    // The record, the fence, the queue and the waiters of each.
    let all = Reply::Int(i64::try_from(4 * NAMES).expect("small"));
    eventually_async("all queue", async || server.command(&["DBSIZE"]) == all).await;
    // One half goes away, the other half gets what it wants.
    for waiter in waiters.iter().skip(NAMES / 2) {
        waiter.abort();
    }
    drop(guards);
    for (index, waiter) in waiters.into_iter().enumerate() {
        match waiter.await {
            Ok(guard) => drop(guard.expect("passed on")),
            Err(aborted) => assert!(aborted.is_cancelled() && index >= NAMES / 2),
        }
    }
    eventually_async("nothing is left", async || is_empty(&server)).await;
    // A subscription for each connection, whatever was waited for.
    let channels = server.command(&["PUBSUB", "CHANNELS"]);
    assert!(matches!(&channels, Reply::Array(channels) if channels.len() == 2), "{channels:?}");
    assert!(format!("{other:?}").contains("lines: 0, waiters: 0, alarms: 0"), "{other:?}");
    drop((holder, other));
    eventually_async("no connection is left", async || {
        server.command(&["PUBSUB", "CHANNELS"]) == Reply::Array(Vec::new())
    })
    .await;
}
