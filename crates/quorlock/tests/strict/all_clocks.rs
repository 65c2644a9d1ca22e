//! The time of day is set everywhere at once: on the clients and on the servers.
//!
//! The time since the start of a machine is not. All clocks stand still but for what is done by hand, so
//! that no machine is too slow for it.

use std::time::Duration;

use quorlock::{Dialect, Error, Locker, Loss, RedisOptions};
use quorlock_testkit::{DEADLINE, eventually_async as eventually, test};
use tokio::time::timeout;

use crate::world::{World, assert_both_hold, waiters};
use crate::{BOTH, NAME};

/// More than a lease lasts.
const STEP_MS: i64 = 11_000;

/// Three servers, and clients with the settings that they have by default.
async fn still_world(dialect: Dialect) -> World {
    let world = World::unused(dialect, |server| server);
    world.stop_clocks();
    world.mark(builder(&world), options(&world)).await;
    // Nobody looks at when the servers were new.
    world.pass(Duration::from_secs(60));
    world
}

fn options(world: &World) -> RedisOptions {
    RedisOptions::default().dialect(world.dialect)
}

fn builder(world: &World) -> quorlock::Builder {
    Locker::builder()
        .redis(options(world))
        .connect_limit(DEADLINE)
        .node_limit(Duration::from_millis(500))
        .runtime(world.time())
}

async fn client(world: &World) -> Locker {
    let locker = builder(world).nodes(world.urls()).connect().await.expect("servers that are up");
    world.all_reached_by(&locker).await;
    locker
}

#[test]
async fn a_step_ahead_ends_the_lease_that_the_servers_end() {
    for dialect in BOTH {
        let world = still_world(dialect).await;
        let (first, second) = (client(&world).await, client(&world).await);
        let guard = first.try_lock(NAME).fixed().await.expect("free");
        second.try_lock(NAME).await.expect_err("it is held");
        world.set_time_of_day(STEP_MS);
        let taken = second.try_lock(NAME).await;
        if dialect == Dialect::Redlock {
            assert_both_hold(&guard, taken);
            continue;
        }
        let next = taken.expect("its record has ended");
        assert!(!guard.is_held(), "two hold it");
        assert_eq!(guard.remaining(), Duration::ZERO);
        let error = guard.extend().await.expect_err("it is lost");
        assert!(matches!(error, Error::Lost { reason: Loss::Expired, .. }), "{error:?}");
        assert!(next.is_held());
        next.extend().await.expect("what was taken after the step lasts as long as ever");
    }
}

/// The holder is told, though no timer is due for long.
#[test]
async fn a_step_ahead_is_told_at_once() {
    let world = still_world(Dialect::Strict).await;
    let first = client(&world).await;
    let guard = first.try_lock(NAME).await.expect("free");
    let work = tokio::spawn(async move { guard.run(std::future::pending::<()>()).await });
    eventually("somebody waits for the loss", async || {
        tokio::task::yield_now().await;
        world.waits_for_a_step()
    })
    .await;
    world.set_time_of_day(STEP_MS);
    let ended = timeout(DEADLINE, work).await.expect("it is told").expect("no panic");
    assert!(matches!(ended, Err(Error::Lost { reason: Loss::Expired, .. })), "{ended:?}");
}

/// What is left of the lease is less by the step, and the lock is kept.
#[test]
async fn a_small_step_ahead_costs_as_much_of_the_lease() {
    let world = still_world(Dialect::Strict).await;
    let (first, second) = (client(&world).await, client(&world).await);
    let guard = first.try_lock(NAME).fixed().await.expect("free");
    let before = guard.remaining();
    for by_ms in [5, 2_000] {
        let left = guard.remaining();
        world.set_time_of_day(by_ms);
        let step = Duration::from_millis(by_ms.unsigned_abs());
        assert_eq!(guard.remaining(), left - step);
        second.try_lock(NAME).await.expect_err("it is held");
    }
    guard.extend().await.expect("it is held");
    assert_eq!(guard.remaining(), before);
}

/// The servers keep the record for longer, and the holder believes in it no longer than before.
#[test]
async fn a_step_back_neither_ends_the_lease_nor_prolongs_it() {
    let world = still_world(Dialect::Strict).await;
    let (first, second) = (client(&world).await, client(&world).await);
    let guard = first.try_lock(NAME).fixed().await.expect("free");
    let left = guard.remaining();
    world.set_time_of_day(-STEP_MS);
    assert_eq!(guard.remaining(), left);
    second.try_lock(NAME).await.expect_err("it is held");
    guard.extend().await.expect("it is held");
    assert_eq!(guard.remaining(), left, "the extension counts from when it was sent");
    world.pass(left);
    assert!(!guard.is_held());
}

/// The next one of the same process gets it from the servers, or not at all.
#[test]
async fn a_lease_that_a_step_has_ended_is_not_passed_on() {
    let world = still_world(Dialect::Strict).await;
    let (first, second) = (client(&world).await, client(&world).await);
    let guard = first.try_lock(NAME).fixed().await.expect("free");
    let waiting = tokio::spawn({
        let lock = first.lock(NAME).fixed();
        async move { lock.await }
    });
    tokio::task::yield_now().await;
    world.set_time_of_day(STEP_MS);
    let next = second.try_lock(NAME).await.expect("its record has ended");
    drop(guard);
    eventually("it asks the servers", async || {
        assert!(!waiting.is_finished(), "it has got what had ended");
        world.servers.iter().all(|server| waiters(server) == 1)
    })
    .await;
    assert!(next.is_held());
    next.release().await.expect("released");
    let waited = timeout(DEADLINE, waiting).await.expect("it is its turn").expect("no panic");
    assert!(waited.is_ok_and(|guard| guard.is_held()));
}

/// A waiter counts what the servers pass on to it from when it asked, by both clocks.
#[test]
async fn a_grant_to_a_request_from_before_the_step_is_not_believed() {
    let world = still_world(Dialect::Strict).await;
    let (first, second) = (client(&world).await, client(&world).await);
    let guard = first.try_lock(NAME).fixed().await.expect("free");
    let mut waiting = std::pin::pin!(second.lock(NAME).fixed().into_future());
    eventually("it waits", async || {
        let polled = timeout(Duration::from_millis(1), &mut waiting).await;
        assert!(polled.is_err(), "it is held");
        world.servers.iter().all(|server| waiters(server) == 1)
    })
    .await;
    guard.release().await.expect("released");
    world.set_time_of_day(STEP_MS);
    // What has come by now was granted before the step, and has ended by it.
    let next = timeout(DEADLINE, waiting).await.expect("it asks again").expect("free");
    let third = client(&world).await;
    third.try_lock(NAME).await.expect_err("a majority has the record of the second one");
    assert!(next.is_held());
}
