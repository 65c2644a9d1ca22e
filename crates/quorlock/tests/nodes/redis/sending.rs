//! What many callers, and nodes that do not answer, cost.

use std::time::Duration;

use quorlock::{Guard, Locker};
use quorlock_testkit::{
    DEADLINE, Proxy, RedisServer, eventually_async as eventually, servers, test,
};
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::{DIALECTS, info, patient, trouble};

/// All callers are on one thread, so that what they send gathers before it is written.
#[test]
async fn what_many_callers_send_goes_out_together() {
    let server = RedisServer::start();
    let locker = patient().nodes([server.url()]).connect().await.expect("a locker");
    let counts = || {
        let stat = |line| info(&server, "stats", line, "");
        (stat("total_reads_processed"), stat("total_commands_processed"))
    };
    let before = counts();
    let mut callers = JoinSet::new();
    for index in 0..200 {
        let locker = locker.clone();
        callers.spawn(async move { locker.try_lock(format!("burst/{index}")).await });
    }
    let guards = callers.join_all().await.into_iter().map(|guard| guard.expect("free"));
    let releases: Vec<_> = guards.map(Guard::release).collect();
    for release in releases {
        release.await.expect("released");
    }
    let after = counts();
    let (reads, commands) = (after.0 - before.0, after.1 - before.1);
    assert!(commands >= 400, "{commands}");
    // A server reads 16 KiB at a time, more than half of a burst. Some reads are the test's own.
    assert!(reads <= 40, "{reads} reads for {commands} commands");
}

/// The time limit of a node is longer than the test may take: nobody waits for it to pass.
#[test]
async fn a_node_that_hangs_costs_nothing() {
    let servers = servers(3);
    let proxy = Proxy::in_front_of(servers[2].addr());
    let locker = Locker::builder()
        .redis(quorlock::RedisOptions::default().dialect(quorlock::Dialect::Redlock))
        .nodes([servers[0].url(), servers[1].url(), proxy.url()])
        .max_ttl(DEADLINE * 100)
        .ttl(DEADLINE * 100)
        .node_limit(DEADLINE * 10)
        .connect_limit(DEADLINE)
        .connect()
        .await
        .expect("a locker");
    proxy.hang(true);
    timeout(DEADLINE, async {
        for _ in 0..100 {
            let guard = locker.try_lock("swift").await.expect("two of three");
            guard.extend().await.expect("two of three");
            guard.release().await.expect("two of three");
        }
    })
    .await
    .expect("nobody waits for the third");
    eventually("its requests are still on their way", async || proxy.held() > 0).await;
}

#[test]
async fn nothing_piles_up_for_a_node_that_hangs() {
    let servers = servers(3);
    let proxy = Proxy::in_front_of(servers[2].addr());
    let locker = patient()
        .nodes([servers[0].url(), servers[1].url(), proxy.url()])
        .node_limit(Duration::from_millis(200))
        .connect()
        .await
        .expect("a locker");
    proxy.hang(true);
    drop(locker.lock("first").wait(DEADLINE).await.expect("two of three"));
    eventually("it is known to hang", async || trouble(&locker, 2).await.is_some()).await;
    let (held, connections) = (proxy.held(), proxy.connections());
    for index in 0..5_000 {
        let lock = locker.lock(format!("cycle/{index}")).wait(DEADLINE);
        drop(lock.await.expect("two of three"));
    }
    // What was sent before, some of which may just have arrived, and the greetings of later
    // attempts to connect, with all their scripts. All cycles together would be two megabytes.
    let most = held + 4_096 + (proxy.connections() - connections) * 40 * 1_024;
    assert!(proxy.held() <= most, "{held} bytes became {}", proxy.held());
    assert!(most < 256 * 1_024, "{most}");
    for server in &servers[..2] {
        eventually("released", async || server.kept() == 0).await;
    }
}

/// Not even at the start: what is asked of it waits for a moment, and the others decide. It joins when it comes.
#[test]
async fn a_node_that_hangs_from_the_beginning_costs_nothing() {
    for dialect in DIALECTS {
        let servers = servers(3);
        let proxy = Proxy::in_front_of(servers[2].addr());
        let builder = || {
            Locker::builder()
                .redis(quorlock::RedisOptions::default().dialect(dialect))
                .nodes([servers[0].url(), servers[1].url(), proxy.url()])
                .max_ttl(DEADLINE * 100)
                .ttl(DEADLINE * 100)
                .node_limit(DEADLINE * 10)
                .connect_limit(DEADLINE * 10)
        };
        // So that all of them vote.
        builder().admin().init(true).await.expect("good settings");
        proxy.hang(true);
        let locker = timeout(DEADLINE, async {
            let locker = builder().connect().await.expect("two of three");
            let guard = locker.try_lock("swift").await.expect("two of three");
            guard.extend().await.expect("two of three");
            guard.release().await.expect("two of three");
            locker.shutdown().await;
            builder().connect().await.expect("two of three")
        })
        .await
        .expect("nobody waits for the third");
        assert!(trouble(&locker, 2).await.is_some_and(|why| why.contains("not connected yet")));
        proxy.hang(false);
        eventually("it joins", async || trouble(&locker, 2).await.is_none()).await;
        let guard = locker.try_lock("swift").await.expect("free");
        let noted = format!("{:?}", guard.release().await.expect("released").nodes());
        assert!(!noted.contains("not connected"), "{noted}");
    }
}
