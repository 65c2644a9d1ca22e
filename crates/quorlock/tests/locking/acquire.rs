//! Taking a lock when things go wrong on the way.

use std::future::{Future, IntoFuture};
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Waker};
use std::time::{Duration, SystemTime};

use quorlock::runtime::{BoxFuture, Moment, Runtime, TokioRuntime};
use quorlock::{Error, Locker};
use quorlock_testkit::{
    Proxy, RedisServer, Reply, eventually_async as eventually, redlock_locker as locker, servers,
    test, urls,
};

const TTL: Duration = Duration::from_secs(30);
/// So long that no test ends by it, unless it waits for silence.
const PATIENT: Duration = Duration::from_secs(5);

async fn patient_locker(urls: impl IntoIterator<Item = String>) -> Locker {
    let builder = Locker::builder()
        .redis(quorlock::RedisOptions::default().dialect(quorlock::Dialect::Redlock))
        .nodes(urls)
        .ttl(TTL)
        .node_limit(PATIENT);
    builder.connect().await.expect("a locker")
}

/// How often a server has run a command.
fn calls(server: &RedisServer, command: &str) -> u64 {
    let Reply::Bulk(Some(stats)) = server.command(&["INFO", "commandstats"]) else {
        panic!("no commandstats");
    };
    let stats = String::from_utf8(stats).expect("text");
    let line = stats.lines().find_map(|line| {
        line.strip_prefix(&format!("cmdstat_{command}:calls="))?.split(',').next()
    });
    line.map_or(0, |calls| calls.parse().expect("a number"))
}

/// How often a server has granted a lock. Each time it stores the record, and its fence beside it.
fn grants(server: &RedisServer) -> u64 {
    let sets = calls(server, "set");
    assert_eq!(sets % 2, 0, "a record without a fence");
    sets / 2
}

#[test]
async fn a_free_lock_is_stored_as_every_redlock_library_expects() {
    let server = RedisServer::start();
    let locker = locker([server.url()]).await;
    let guard = locker.lock("orders/42").await.expect("a free lock");
    assert!(guard.is_held());
    let Reply::Bulk(Some(token)) = server.command(&["GET", "orders/42"]) else {
        panic!("no plain string");
    };
    assert_eq!(token.len(), 43);
    let Reply::Int(left) = server.command(&["PTTL", "orders/42"]) else { panic!("no end") };
    assert!(left > 0 && left <= 30_000, "{left}");
    // 10 % and 2 ms are not believed.
    assert!(guard.remaining() <= Duration::from_millis(26_998));
    guard.release().await.expect("released");
    assert_eq!(server.kept(), 0);
}

/// The process was stopped between the sending and the answers.
#[test]
async fn a_majority_that_answers_too_late_wins_nothing_and_is_cleaned() {
    let servers = servers(3);
    let locker = patient_locker(urls(&servers)).await;
    // Of 26.998 s, 26.9 s have to be left when the answers are in.
    let lock = locker.try_lock("late").at_least(Duration::from_millis(26_900));
    let mut locking = pin!(lock.into_future());
    let mut asleep = Context::from_waker(Waker::noop());
    assert!(locking.as_mut().poll(&mut asleep).is_pending());
    std::thread::sleep(Duration::from_millis(150));
    let error = locking.await.expect_err("too late");
    let Error::NoQuorum { ref verb, .. } = error else { panic!("{error}") };
    assert!(verb.contains("too late"), "{error}");
    for server in &servers {
        eventually("the record is cleaned", async || server.kept() == 0).await;
        assert_eq!(grants(server), 1);
    }
}

/// Each contender gets one vote. Their records last for 30 s, so that somebody can win within the
/// waiting time only because each gives its minority back.
#[test]
async fn contenders_that_split_the_votes_do_not_wait_for_a_ttl() {
    let servers = servers(3);
    let mut contenders = Vec::new();
    for favourite in 0..3 {
        let proxies: Vec<_> = servers.iter().map(|s| Proxy::in_front_of(s.addr())).collect();
        let locker = patient_locker(proxies.iter().map(Proxy::url)).await;
        for (index, proxy) in proxies.iter().enumerate() {
            proxy.hang(index != favourite);
        }
        let contender = tokio::spawn(async move {
            let guard = locker.lock("split").wait(Duration::from_secs(20)).await;
            guard.expect("won within the waiting time").release().await.expect("released");
        });
        contenders.push((proxies, contender));
    }
    for server in &servers {
        eventually("one vote each", async || server.kept() == 1).await;
    }
    for (proxies, _) in &contenders {
        proxies.iter().for_each(|proxy| proxy.hang(false));
    }
    for (_, contender) in contenders {
        contender.await.expect("everybody wins in the end");
    }
}

#[test]
async fn a_grant_whose_answer_was_lost_is_cleaned() {
    let server = RedisServer::start();
    let proxy = Proxy::in_front_of(server.addr());
    let locker = locker([proxy.url()]).await;
    proxy.lose_replies(true);
    let error = locker.try_lock("lost reply").await.expect_err("no answer came");
    assert!(matches!(error, Error::NoQuorum { .. }), "{error}");
    eventually("it was granted", async || grants(&server) == 1).await;
    eventually("and cleaned", async || server.kept() == 0).await;
}

#[test]
async fn a_clean_up_never_overtakes_the_request_it_cleans() {
    let server = RedisServer::start();
    let proxy = Proxy::in_front_of(server.addr());
    let locker = locker([proxy.url()]).await;
    for round in 1..=10 {
        proxy.hang(true);
        let error = locker.try_lock("in flight").await.expect_err("nothing passes");
        assert!(matches!(error, Error::NoQuorum { .. }), "{error}");
        proxy.hang(false);
        eventually("the late request ran", async || grants(&server) == round).await;
        eventually("nothing is left of it", async || server.kept() == 0).await;
        // The answers that were owed have come: the node votes again.
        eventually("it votes again", async || {
            locker.inspect("x").await.expect("a status").nodes[0].record.is_ok()
        })
        .await;
    }
}

#[test]
async fn a_request_does_not_wait_for_the_answer_to_the_one_before() {
    let server = RedisServer::start();
    let proxy = Proxy::in_front_of(server.addr());
    // The time limit, at which the connection is looked after in any case, is far away.
    let ttl = Duration::from_secs(150);
    let builder = Locker::builder()
        .redis(quorlock::RedisOptions::default().dialect(quorlock::Dialect::Redlock))
        .nodes([proxy.url()])
        .max_ttl(ttl)
        .ttl(ttl)
        .node_limit(ttl / 5);
    let locker = builder.connect().await.expect("a locker");
    proxy.hang(true);
    let mut held = 0;
    let mut waiting = Vec::new();
    for index in 0..3 {
        waiting.push(tokio::spawn(locker.lock(format!("in a row/{index}")).into_future()));
        eventually("it was sent", async || proxy.held() > held).await;
        held = proxy.held();
    }
    proxy.hang(false);
    for locking in waiting {
        drop(locking.await.expect("no panic").expect("free"));
    }
}

#[test]
async fn a_caller_that_goes_away_leaves_nothing_behind() {
    let servers = servers(3);
    let locker = locker(urls(&servers)).await;
    let mut asleep = Context::from_waker(Waker::noop());
    for index in 0..200 {
        // In the middle of taking it: sent, or sent and granted, or not even begun.
        let mut locking = pin!(locker.lock(format!("dropped/{index}")).into_future());
        if index % 3 > 0 {
            assert!(locking.as_mut().poll(&mut asleep).is_pending());
        }
        if index % 3 > 1 {
            tokio::task::yield_now().await;
        }
    }
    for index in 0..50 {
        let guard = locker.lock(format!("released/{index}")).await.expect("free");
        if index % 2 == 0 {
            drop(guard.release());
        } else {
            drop(guard);
        }
    }
    locker.shutdown().await;
    for server in &servers {
        assert_eq!(server.kept(), 0, "after the shutdown nothing is under way any more");
        assert!(grants(server) > 50);
    }
}

#[test]
async fn a_guard_may_be_dropped_outside_of_the_runtime() {
    let server = RedisServer::start();
    let locker = locker([server.url()]).await;
    let guard = locker.lock("elsewhere").await.expect("free");
    std::thread::spawn(move || drop(guard)).join().expect("no panic");
    eventually("released", async || server.kept() == 0).await;
}

/// The world as it is, but for the time of day.
#[derive(Debug)]
struct WrongTimeOfDay(TokioRuntime, SystemTime);

impl Runtime for WrongTimeOfDay {
    fn now(&self) -> Moment {
        self.0.now()
    }

    fn wall(&self) -> SystemTime {
        self.1
    }

    fn sleep(&self, duration: Duration) -> BoxFuture<'static, ()> {
        self.0.sleep(duration)
    }

    fn spawn(&self, future: BoxFuture<'static, ()>) {
        self.0.spawn(future);
    }

    fn random(&self, bytes: &mut [u8]) {
        self.0.random(bytes);
    }
}

#[test]
async fn a_wall_clock_that_is_wrong_changes_nothing() {
    let ten_minutes = Duration::from_secs(600);
    for wall in [SystemTime::now() + ten_minutes, SystemTime::now() - ten_minutes] {
        let server = RedisServer::start();
        let right = locker([server.url()]).await;
        let runtime = Arc::new(WrongTimeOfDay(TokioRuntime::current(), wall));
        let builder = Locker::builder()
            .redis(quorlock::RedisOptions::default().dialect(quorlock::Dialect::Redlock))
            .nodes([server.url()])
            .ttl(TTL)
            .runtime(runtime);
        let wrong = builder.connect().await.expect("a locker");
        let guard = wrong.try_lock("skewed").await.expect("free");
        assert!(guard.is_held() && guard.remaining() <= Duration::from_millis(26_998));
        let Reply::Int(left) = server.command(&["PTTL", "skewed"]) else { panic!("no end") };
        assert!(left > 0 && left <= 30_000, "{left}");
        assert!(matches!(right.try_lock("skewed").await, Err(Error::Taken { .. })));
        guard.extend().await.expect("extended");
        guard.release().await.expect("released");
        right.try_lock("skewed").await.expect("free again").release().await.expect("released");
    }
}

#[test]
async fn a_minority_of_dead_nodes_does_not_matter_and_a_majority_is_told() {
    let servers = servers(5);
    let locker = locker(urls(&servers)).await;
    servers[0].kill();
    servers[3].kill();
    let guard = locker.lock("two dead").await.expect("three are enough");
    guard.release().await.expect("released by three");
    servers[1].kill();
    let error = locker.try_lock("three dead").await.expect_err("two are not enough");
    let Error::NoQuorum { have, need, nodes, ref answers, .. } = error else { panic!("{error}") };
    assert_eq!((need, nodes), (3, 5));
    assert!(have <= 2);
    for dead in [0, 1, 3] {
        let said = answers.0.iter().any(|answer| answer.node == servers[dead].url());
        assert!(said, "{} is missing in: {error}", servers[dead].url());
    }
    for alive in [2, 4] {
        eventually("cleaned", async || servers[alive].kept() == 0).await;
    }
}
