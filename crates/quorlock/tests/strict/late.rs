//! A request that arrives late is not looked at: the client that sent it may have stopped counting on it.

use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};

use quorlock::node::TicketNumber::New;
use quorlock::node::{Answer, FailureKind};
use quorlock::runtime::{Runtime, TokioRuntime};
use quorlock::{Dialect, Error, Loss};
use quorlock_testkit::conformance::owner;
use quorlock_testkit::{Proxy, RedisServer, eventually_async as eventually, test};

use crate::world::{AHEAD, TTL, World, is_held, marker, scripts_run};
use crate::{BOTH, NAME};

/// How late a request may be in the test of the network.
const SHORT: Duration = Duration::from_millis(20);

#[test]
async fn one_that_the_network_has_delayed_leaves_nothing_behind() {
    for dialect in BOTH {
        let world = World::new(dialect).await;
        let way = Proxy::in_front_of(world.servers[0].addr());
        let node = world.node_with(&way.url(), |options| options.clock_ahead = SHORT).await;
        way.hang(true);
        let (sent, asked) = (Instant::now(), owner(NAME).acquire(&node, TTL));
        eventually("it is on its way", async || way.held() > 0 && sent.elapsed() > 2 * SHORT).await;
        way.hang(false);
        match (dialect, asked.answer().await) {
            (Dialect::Strict, Answer::Failed(why)) => {
                assert_eq!(why.kind(), FailureKind::Late, "{why}");
                assert!(why.to_string().contains("under way for"), "{why}");
                assert!(!is_held(&world.servers[0]));
            }
            (Dialect::Redlock, Answer::Granted { .. }) => assert!(is_held(&world.servers[0])),
            (_, other) => panic!("{dialect:?}: {other:?}"),
        }
    }
}

/// The holder's process ended meanwhile, so that nobody takes it back.
#[test]
async fn one_that_waited_for_a_server_that_stood_still_leaves_nothing_behind() {
    for dialect in BOTH {
        let world = World::new(dialect).await;
        let (first, second) = (world.client().await, world.client().await);
        let before = scripts_run(&world.servers[1]);
        world.servers[1].pause();
        let guard = first.try_lock(NAME).fixed().await.expect("two of three");
        guard.into_token().expect("held");
        world.pass(2 * TTL);
        world.servers[1].resume();
        eventually("it was looked at", async || scripts_run(&world.servers[1]) > before).await;

        assert_eq!(is_held(&world.servers[1]), dialect == Dialect::Redlock);
        world.all_reached_by(&second).await;
        let guard = second.try_lock(NAME).await.expect("the first one's time is over");
        let status = second.inspect(NAME).await.expect("a status");
        let records = status.nodes.iter().filter_map(|node| node.record.as_ref().ok()?.as_ref());
        let own = records.filter(|record| Some(record.holder) == status.holder()).count();
        assert_eq!(own, if dialect == Dialect::Strict { 3 } else { 2 }, "{status:?}");
        guard.release().await.expect("released");
    }
}

/// A server that stands still for longer than a lease forgets nothing by it.
#[test]
async fn a_server_that_stood_still_has_kept_its_vote() {
    for dialect in BOTH {
        let world = World::new(dialect).await;
        let (first, second) = (world.holder_of_two().await, world.client().await);
        world.servers[1].pause();
        // By its own clock the lease is over when it goes on. By all others' it has just begun.
        let long = i64::try_from(2 * TTL.as_millis()).expect("a short time");
        world.servers[1].clock().jump_ms(long);
        world.servers[1].resume();
        let taken = second.try_lock(NAME).await;
        if dialect == Dialect::Redlock {
            crate::world::assert_both_hold(&first.guard, taken);
        } else {
            taken.expect_err("no majority");
            assert!(first.guard.is_held() && is_held(&world.servers[1]));
        }
    }
}

/// Between the look at the clock and the sending a thread may stand still, while others connect again.
#[test]
async fn one_from_before_a_restart_does_not_begin_the_time_without_votes() {
    let world = World::with(Dialect::Strict, |server| server.appendonly(true)).await;
    let server = &world.servers[0];
    let client = world.waiting_client(&server.url(), |_| {}).await;
    let node = Arc::clone(client.node());
    let before = (TokioRuntime::current().now(), marker(server));
    server.restart();
    eventually("the server answers", async || {
        matches!(owner("looked at").inspect(&node).answer().await, Answer::Seen(_))
    })
    .await;
    let waiter = client.waiter(NAME, 1);
    let late = waiter.owner().wait_sent_at(before.0, &node, TTL, waiter.ticket(New(1)));
    match late.answer().await {
        Answer::Failed(why) => assert_eq!(why.kind(), FailureKind::Unreachable, "{why}"),
        other => panic!("{other:?}"),
    }
    assert_eq!(marker(server), before.1);
    let asked = waiter.wait(New(1), TTL).answer().await;
    match asked {
        Answer::Failed(why) => assert!(matches!(why.kind(), FailureKind::Quarantined(_)), "{why}"),
        other => panic!("that one was sent in time: {other:?}"),
    }
}

/// Servers whose clocks are a little ahead stand still for longer than a request may be late. That is no
/// fault of the clocks: the extension is tried again, and the lock is kept.
#[test]
async fn a_late_extension_is_tried_again() {
    let world = World::new(Dialect::Strict).await;
    for server in &world.servers {
        server.clock().jump_ms(500);
    }
    let locker = world.client().await;
    let guard = locker.try_lock(NAME).fixed().await.expect("free");
    let ran: Vec<_> = world.servers.iter().map(scripts_run).collect();
    world.servers.iter().for_each(RedisServer::pause);
    let mut late = std::pin::pin!(guard.extend());
    assert!(poll_once(late.as_mut()).await.is_none(), "nobody answers");
    world.pass(AHEAD + Duration::from_secs(1));
    world.servers.iter().for_each(RedisServer::resume);
    let error = late.await.expect_err("too late to be looked at");
    assert!(matches!(error, Error::NoQuorum { .. }), "{error:?}");
    eventually("all have refused it", async || {
        world.servers.iter().zip(&ran).all(|(server, before)| scripts_run(server) > *before)
    })
    .await;
    guard.extend().await.expect("in time");
    assert!(guard.is_held());
    guard.release().await.expect("released");
}

/// Beyond what the trip explains, it is the clock.
#[test]
async fn a_late_extension_on_servers_with_wrong_clocks_is_the_end() {
    let world = World::new(Dialect::Strict).await;
    let locker = world.client().await;
    let guard = locker.try_lock(NAME).fixed().await.expect("free");
    world.servers.iter().for_each(RedisServer::pause);
    let mut late = std::pin::pin!(guard.extend());
    assert!(poll_once(late.as_mut()).await.is_none(), "nobody answers");
    world.pass(AHEAD + Duration::from_secs(1));
    let too_far = i64::try_from(2 * AHEAD.as_millis()).expect("a short time");
    world.servers.iter().for_each(|server| server.clock().jump_ms(too_far));
    world.servers.iter().for_each(RedisServer::resume);
    eventually("its loss is known", async || !guard.is_held()).await;
    assert_eq!(guard.lost().await, Loss::Clock);
}

/// What a future is ready with at once.
async fn poll_once<F: Future>(mut future: std::pin::Pin<&mut F>) -> Option<F::Output> {
    std::future::poll_fn(|cx| match future.as_mut().poll(cx) {
        Poll::Ready(output) => Poll::Ready(Some(output)),
        Poll::Pending => Poll::Ready(None),
    })
    .await
}
