//! A server that may have forgotten votes casts none for a while, says for how long, and by a clock that
//! is right.

use std::future::IntoFuture;
use std::sync::Arc;
use std::time::{Duration, Instant};

use quorlock::node::TicketNumber::New;
use quorlock::node::{Answer, FailureKind, Node};
use quorlock::{Dialect, Error, Locker};
use quorlock_testkit::conformance::owner;
use quorlock_testkit::{
    DEADLINE, RedisServer, Reply, eventually_async as eventually, servers, test,
};

use crate::NAME;
use crate::world::{QUARANTINE, TTL, World, marker, scripts_run};

#[test]
async fn on_new_servers_a_caller_that_does_not_wait_is_told_at_once() {
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

    // Nor does anybody wait for what cannot be in time.
    let error = locker.lock(NAME).wait(TTL).await.expect_err("too short");
    let Error::Quarantined { remaining, .. } = &error else { panic!("{error:?}") };
    assert!(*remaining > TTL && *remaining < QUARANTINE, "{remaining:?}");

    let world = World::unused(Dialect::Redlock, |server| server);
    let guard = world.client().await.try_lock(NAME).await.expect("it knows no new servers");
    assert!(guard.is_held());
}

#[test]
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
#[test]
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
#[test]
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

/// The next waiter in the queue would get a vote that may be another's.
#[test]
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
    assert_eq!(client.grant_messages().await, []);
    assert!(waiter.seen().await.is_none(), "it is free");
}

async fn answers_again(node: &Arc<dyn Node>) {
    eventually("the server answers", async || {
        matches!(owner("looked at").inspect(node).answer().await, Answer::Seen(_))
    })
    .await;
}

/// Who stands in line before us in this process has nothing either.
#[test]
async fn who_is_behind_another_that_waits_for_votes_is_told_of_the_nodes() {
    let world = World::unused(Dialect::Strict, |server| server);
    let locker = world.client().await;
    let first = tokio::spawn(locker.lock(NAME).into_future());
    eventually("the first has asked", async || {
        world.servers.iter().all(|server| scripts_run(server) > 2)
    })
    .await;
    let error = locker.try_lock(NAME).await.expect_err("nobody votes");
    assert!(matches!(error, Error::Quarantined { .. }), "{error:?}");
    let waited = locker.lock(NAME).wait(Duration::from_millis(50)).await.expect_err("nobody votes");
    let Error::TimedOut { last, .. } = &waited else { panic!("{waited:?}") };
    assert!(matches!(**last, Error::Quarantined { .. }), "{last:?}");

    world.servers[0].kill();
    world.servers[1].kill();
    world.reached_by(&locker, |reached| reached == [false, false, true]).await;
    let error = locker.try_lock(NAME).await.expect_err("nobody votes");
    assert!(matches!(error, Error::NoQuorum { have: 1, need: 2, .. }), "{error:?}");
    first.abort();
}

/// And who is behind one that holds it is told so, be the nodes there or not.
#[test]
async fn who_is_behind_a_holder_of_this_process_is_told_that_it_is_taken() {
    let world = World::new(Dialect::Strict).await;
    let locker = world.client().await;
    let _guard = locker.try_lock(NAME).await.expect("free");
    for server in &world.servers {
        server.kill();
    }
    world.reached_by(&locker, |reached| reached == [false; 3]).await;
    let error = locker.try_lock(NAME).await.expect_err("it is held");
    assert!(matches!(error, Error::Taken { .. }), "{error:?}");
}

#[test]
async fn votes_are_waited_for_without_waiting_for_a_holder() {
    let world = World::with(Dialect::Strict, |server| server.appendonly(true)).await;
    for server in &world.servers {
        server.restart();
    }
    let (locker, other) = (world.client().await, world.client().await);
    let short = locker.try_lock(NAME).votes_within(TTL).await.expect_err("not in time");
    assert!(matches!(short, Error::Quarantined { .. }), "at once: {short:?}");
    let waiting = locker.try_lock(NAME).votes_within(10 * QUARANTINE).into_future();
    let waiting = tokio::spawn(waiting);
    eventually("it has asked", async || world.servers.iter().all(|server| scripts_run(server) > 4))
        .await;
    assert!(!waiting.is_finished());
    world.pass(QUARANTINE);
    let guard = tokio::time::timeout(DEADLINE, waiting).await.expect("in time").expect("no panic");
    let guard = guard.expect("the lock");
    world.all_reached_by(&other).await;
    let taken = other.try_lock(NAME).votes_within(10 * QUARANTINE).await.expect_err("held");
    assert!(matches!(taken, Error::Taken { holder: Some(_), .. }), "{taken:?}");
    guard.release().await.expect("released");

    // Nodes that are away for a moment are votes that are missing.
    world.servers[0].kill();
    world.servers[1].kill();
    world.reached_by(&locker, |reached| reached == [false, false, true]).await;
    let away =
        locker.try_lock(NAME).votes_within(Duration::from_millis(1)).await.expect_err("away");
    let Error::TimedOut { last, .. } = &away else { panic!("{away:?}") };
    assert!(matches!(**last, Error::NoQuorum { .. }), "{last:?}");
}

/// It is not known that the time is not enough while a node that votes is away for a moment.
#[test]
async fn votes_that_may_come_back_at_any_moment_are_waited_for() {
    let world = World::new(Dialect::Strict).await;
    let locker = world.client().await;
    world.servers[1].restart();
    world.all_reached_by(&locker).await;
    world.servers[2].pause();
    world.reached_by(&locker, |reached| reached == [true, true, false]).await;
    let waiting = tokio::spawn(locker.try_lock(NAME).votes_within(TTL).into_future());
    // A waiter has asked the first one.
    eventually("it has asked", async || is_known(&world.servers[0])).await;
    world.servers[2].resume();
    let guard = tokio::time::timeout(DEADLINE, waiting).await.expect("in time").expect("no panic");
    guard.expect("two of three vote").release().await.expect("released");
}

/// Whether a server knows of the lock, held or not.
fn is_known(server: &RedisServer) -> bool {
    server.command(&["EXISTS", NAME]) == Reply::Int(1)
}

/// They have said how long it takes.
#[test]
async fn nodes_that_cast_no_vote_are_not_asked_again_and_again() {
    let servers = servers(3);
    let urls: Vec<_> = servers.iter().map(RedisServer::url).collect();
    let builder = Locker::builder().nodes(urls).ttl(Duration::from_secs(3));
    let locker = builder.max_ttl(Duration::from_secs(3)).connect().await.expect("a locker");
    let began = Instant::now();
    let _guard = locker.lock(NAME).await.expect("waited out");
    assert!(began.elapsed() > Duration::from_secs(3), "{:?}", began.elapsed());
    for server in &servers {
        // A look and two marks, once each by connecting and in the background; an attempt, two tickets when the
        // time begins and when it is over, and one for each second of a machine that is slow.
        let asked = scripts_run(server);
        let most = 12 + began.elapsed().as_secs();
        assert!(asked <= most, "{asked} scripts in {:?}", began.elapsed());
    }
}

/// It cannot be told from one whose keys were removed; but it is not said that the servers were emptied.
#[test]
async fn a_prefix_that_is_new_is_called_that() {
    let world = World::new(Dialect::Strict).await;
    let builder = world.builder().redis(world.options().prefix("app:")).nodes(world.urls());
    let locker = builder.connect().await.expect("servers that are up");
    let error = locker.try_lock(NAME).await.expect_err("no mark").to_string();
    assert!(error.contains("the prefix app: is new on these nodes"), "{error}");
    assert!(error.contains("run quorlock init --prefix app: if nobody has used it"), "{error}");
    assert!(!error.contains("started"), "{error}");
}
