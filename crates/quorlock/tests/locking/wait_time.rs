//! How long a lock is waited for: exactly as long as the caller said.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use quorlock::node::Node;
use quorlock::node::memory::MemoryNode;
use quorlock::{Error, Locker};
use quorlock_testkit::{StillWorld, VirtualTime, test};

const TTL: Duration = Duration::from_secs(10);

/// The grain of timers: what is slept is never shorter, and longer by this at the most.
const GRAIN: Duration = Duration::from_millis(1);

/// Three nodes that answer at once, and a clock that only waiting moves.
async fn still_world() -> (Locker, Arc<VirtualTime>) {
    let time = Arc::new(VirtualTime::new(SystemTime::now()));
    let nodes = (0..3).map(|_| Arc::new(MemoryNode::new()) as Arc<dyn Node>);
    let builder = Locker::builder()
        .redis(quorlock::RedisOptions::default().dialect(quorlock::Dialect::Redlock))
        .with_nodes(nodes)
        .ttl(TTL)
        .runtime(time.clone());
    (builder.connect().await.expect("a locker"), time)
}

#[test(start_paused = true)]
async fn no_waiting_is_one_attempt() {
    let (locker, _) = still_world().await;
    let guard = locker.lock("taken").await.expect("free");
    for lock in [locker.try_lock("taken"), locker.lock("taken").wait(Duration::ZERO)] {
        match lock.await {
            Err(Error::Taken { remaining, holder, .. }) => {
                assert_eq!(remaining, Some(TTL));
                assert!(holder.is_some());
            }
            other => panic!("{other:?}"),
        }
    }
    guard.release().await.expect("released");
}

/// Nodes that answer at once decide the attempt while the last of them has not even been asked: a
/// clean-up at that moment would overtake the request that it has to clean.
#[test]
async fn an_attempt_that_is_lost_before_all_were_asked_is_cleaned_after_they_were() {
    let nodes: Vec<_> = (0..3).map(|_| Arc::new(MemoryNode::new()) as Arc<dyn Node>).collect();
    let locker = async |nodes: &[Arc<dyn Node>]| {
        Locker::builder()
            .redis(quorlock::RedisOptions::default().dialect(quorlock::Dialect::Redlock))
            .with_nodes(nodes.to_vec())
            .connect()
            .await
            .expect("a locker")
    };
    let guard = locker(&nodes[..2]).await.lock("early").await.expect("free");
    let error = locker(&nodes).await.try_lock("early").await.expect_err("two of three are taken");
    assert!(matches!(error, Error::Taken { .. }), "{error}");
    let last = locker(&nodes[2..]).await.inspect("early").await.expect("a status");
    assert!(matches!(last.nodes[0].record, Ok(None)), "{last:?}");
    drop(guard);
}

/// A waiter asks nothing of the nodes: when it gives up, what they have said may not hold any more.
#[test(start_paused = true)]
async fn nodes_that_went_silent_are_not_taken_for_a_lock_that_is_taken() {
    let world = StillWorld::new();
    let (holder, other) = (world.locker().await, world.locker().await);
    let guard = holder.lock("x").await.expect("free");
    let wait = Duration::from_secs(2);
    for silent in [1, 2] {
        let waiting = tokio::spawn(other.lock("x").wait(wait).into_future());
        world.time.pass(wait / 2).await;
        world.nodes[..silent].iter().for_each(|node| node.hang(true));
        let error = waiting.await.expect("no panic").expect_err("it is held");
        let Error::TimedOut { last, .. } = &error else { panic!("{error}") };
        match &**last {
            Error::Taken { holder: Some(_), .. } => assert_eq!(silent, 1, "{error}"),
            Error::NoQuorum { have: 1, need: 2, nodes: 3, answers, .. } => {
                assert_eq!((silent, answers.0.len()), (2, 2), "{error}");
            }
            _ => panic!("{error}"),
        }
        world.nodes.iter().for_each(|node| node.hang(false));
    }
    drop(guard);
}

#[test(start_paused = true)]
async fn the_waiting_time_is_never_overrun() {
    let (locker, _) = still_world().await;
    let guard = locker.lock("taken").await.expect("free");
    for wait in [Duration::from_nanos(1), Duration::from_millis(3), Duration::from_secs(2)] {
        match locker.lock("taken").wait(wait).await {
            Err(Error::TimedOut { waited, last, .. }) => {
                assert!(waited >= wait && waited < wait + GRAIN, "{waited:?}, not {wait:?}");
                assert!(matches!(*last, Error::Taken { .. }), "{last}");
            }
            other => panic!("{other:?}"),
        }
    }
    assert!(guard.is_held());
}

#[test(start_paused = true)]
async fn waiting_longer_than_the_ttl_outlives_a_dead_holder() {
    let (locker, time) = still_world().await;
    std::mem::forget(locker.lock("dead").fixed().await.expect("free"));
    let before = quorlock::runtime::Runtime::now(&*time);
    let guard = locker.lock("dead").fixed().wait(2 * TTL).await.expect("free after the TTL");
    let waited = quorlock::runtime::Runtime::now(&*time).since(before);
    assert!(waited >= TTL, "{waited:?}");
    assert!(
        waited <= TTL + Duration::from_millis(200) + GRAIN,
        "{waited:?}: longer than a retry delay"
    );
    std::mem::forget(guard);
    drop(locker.lock("dead").await.expect("waiting without end"));
}

#[test(start_paused = true)]
async fn a_paused_holder_knows_that_its_time_is_over_before_another_gets_in() {
    let (locker, time) = still_world().await;
    let guard = locker.lock("paused").await.expect("free");
    time.suspend(TTL);
    assert!(!guard.is_held());
    let other = locker.try_lock("paused").await.expect("free after the TTL");
    assert!(other.is_held());
    assert!(matches!(guard.release().await, Err(Error::Lost { .. })));
    assert!(other.is_held());
    other.release().await.expect("the late release took nothing away");
}

#[test]
async fn a_wait_that_finds_no_nodes_says_what_each_of_them_said() {
    let server = quorlock_testkit::RedisServer::start();
    let locker = Locker::builder()
        .redis(quorlock::RedisOptions::default().dialect(quorlock::Dialect::Redlock))
        .nodes([server.url()])
        .connect()
        .await
        .expect("a locker");
    server.kill();
    let error = locker.lock("x").wait(Duration::from_millis(30)).await.expect_err("it is dead");
    let Error::TimedOut { ref last, .. } = error else { panic!("{error}") };
    assert!(matches!(**last, Error::NoQuorum { have: 0, need: 1, .. }), "{last}");
    assert!(error.to_string().contains(&server.url()), "{error}");
}
