//! A server that may have forgotten votes casts none for a while, says for how long, and by a clock that
//! is right.

use std::future::IntoFuture;
use std::sync::Arc;
use std::time::Duration;

use quorlock::node::TicketNumber::New;
use quorlock::node::{Answer, FailureKind, Node};
use quorlock::{Dialect, Error};
use quorlock_testkit::conformance::owner;
use quorlock_testkit::{DEADLINE, eventually_async as eventually};

use crate::NAME;
use crate::world::{QUARANTINE, TTL, World, marker, scripts_run};

#[tokio::test]
async fn on_new_servers_it_is_told_at_once_to_whoever_does_not_wait() {
    let world = World::unused(Dialect::Strict, |server| server);
    let locker = world.client().await;
    let error = locker.try_lock(NAME).await.expect_err("new servers");
    let Error::Quarantined { remaining, answers, .. } = &error else { panic!("{error:?}") };
    assert!(*remaining > TTL && *remaining < QUARANTINE, "{remaining:?}");
    for answer in &answers.0 {
        let failure = answer.failure.as_ref().expect("a reason");
        assert!(matches!(failure.kind(), FailureKind::Quarantined(_)), "{failure:?}");
        assert!(world.urls().contains(&answer.node), "{}", answer.node);
    }
    assert!(error.to_string().contains("quorlock init"), "{error}");
    eventually("nothing was stored but the marks", async || {
        world.servers.iter().all(|server| marker(server).is_some())
    })
    .await;
    assert!(world.servers.iter().all(|server| crate::world::text(server, NAME).is_none()));

    let error = locker.lock(NAME).wait(Duration::from_millis(50)).await.expect_err("too short");
    let Error::TimedOut { last, .. } = &error else { panic!("{error:?}") };
    assert!(matches!(**last, Error::Quarantined { .. }), "{last:?}");

    let world = World::unused(Dialect::Redlock, |server| server);
    let guard = world.client().await.try_lock(NAME).await.expect("it knows no new servers");
    assert!(guard.is_held());
}

#[tokio::test]
async fn on_new_servers_it_is_waited_out() {
    let world = World::unused(Dialect::Strict, |server| server);
    let locker = world.client().await;
    let waiting = tokio::spawn(locker.lock(NAME).wait(10 * QUARANTINE).into_future());
    eventually("all have begun", async || {
        world.servers.iter().all(|server| marker(server).is_some() && scripts_run(server) > 2)
    })
    .await;
    assert!(!waiting.is_finished());
    world.pass(QUARANTINE);
    let guard = tokio::time::timeout(DEADLINE, waiting).await.expect("in time").expect("no panic");
    assert!(guard.expect("the lock").is_held());
}

/// A release has no vote to cast, and may come late. It must not set an end to the time without votes by a
/// clock that nobody has compared.
#[tokio::test]
async fn a_release_does_not_begin_it_while_the_clock_is_wrong() {
    let world = World::with(Dialect::Strict, |server| server.appendonly(true)).await;
    let server = &world.servers[0];
    let client = world.waiting_client(&server.url(), |_| {}).await;
    let node = Arc::clone(client.node());
    let (holder, first, second) = (owner("other"), owner(NAME), owner(NAME));
    assert!(holder.acquire(&node, TTL).is_done().await);
    client.waiter("other", 1).wait(New(1), TTL).queued().await;

    let mark = server.aof_mark();
    assert!(first.acquire(&node, TTL).is_done().await);
    server.clock().jump_ms(-3_600_000);
    server.crash_losing_since(mark);
    answers_again(&node).await;
    assert!(holder.release(&node).is_done().await, "it is known by what was not lost");
    server.clock().true_time();

    match second.acquire(&node, TTL).answer().await {
        Answer::Failed(why) => assert!(matches!(why.kind(), FailureKind::Quarantined(_)), "{why}"),
        other => panic!("the vote for the first was forgotten: {other:?}"),
    }
}

/// One that is sent again after a reconnection may be older than the server's start, and seem to be in time
/// by a clock that is as far behind.
#[tokio::test]
async fn a_release_does_not_begin_it_by_a_right_clock_either() {
    let world = World::with(Dialect::Strict, |server| server.appendonly(true)).await;
    let server = &world.servers[0];
    let client = world.waiting_client(&server.url(), |_| {}).await;
    let node = Arc::clone(client.node());
    let (holder, waiter) = (owner(NAME), client.waiter(NAME, 1));
    assert!(holder.acquire(&node, TTL).is_done().await);
    waiter.wait(New(1), TTL).queued().await;
    let before = marker(server).expect("it has been in use");
    server.restart();
    answers_again(&node).await;
    assert!(holder.release(&node).is_done().await);
    assert_eq!(marker(server), Some(before), "of the start before");
    assert!(waiter.seen().await.is_none(), "it is free, and was passed on to nobody");
    let asked = waiter.wait(New(1), TTL).answer().await;
    assert!(matches!(asked, Answer::Failed(_)), "{asked:?}");
}

/// Whoever is next in the queue would get a vote that may be another's.
#[tokio::test]
async fn a_release_passes_nothing_on_while_the_clock_is_wrong() {
    let world = World::with(Dialect::Strict, |server| server.appendonly(true)).await;
    let server = &world.servers[0];
    let client = world.waiting_client(&server.url(), |_| {}).await;
    let node = Arc::clone(client.node());
    let (holder, waiter) = (owner(NAME), client.waiter(NAME, 1));
    assert!(holder.acquire(&node, TTL).is_done().await);
    waiter.wait(New(1), TTL).queued().await;
    server.restart();
    answers_again(&node).await;
    let refused = owner("other").acquire(&node, TTL).answer().await;
    assert!(matches!(refused, Answer::Failed(_)), "it has just begun: {refused:?}");

    // By this clock it is over, and the queue is still there.
    server.clock().jump_ms(40_000);
    assert!(holder.release(&node).is_done().await);
    server.clock().true_time();
    assert_eq!(client.words().await, []);
    assert!(waiter.seen().await.is_none(), "it is free");
}

async fn answers_again(node: &Arc<dyn Node>) {
    eventually("the server answers", async || {
        matches!(owner("looked at").inspect(node).answer().await, Answer::Seen(_))
    })
    .await;
}
