//! A server that was away counts again for the holder of the lock, once it votes: each may be away in turn.

use std::future::IntoFuture;
use std::time::Duration;

use quorlock::{Dialect, Error, Guard, Loss};
use quorlock_testkit::{DEADLINE, RedisServer, eventually_async as eventually, test};

use crate::world::{QUARANTINE, World, is_held, marker};
use crate::{BOTH, NAME};

/// Less than a lease lasts, and more than from one extension to the next.
const WHILE: Duration = Duration::from_secs(8);

/// The lock is extended, though perhaps not by the first attempt: a connection may have ended just now.
async fn extended(guard: &Guard) {
    eventually("the lock is extended", async || {
        assert!(guard.is_held(), "it is lost");
        guard.extend().await.is_ok()
    })
    .await;
}

/// Time passes, and the holder extends its lock meanwhile.
async fn pass(world: &World, guard: &Guard, time: Duration) {
    let mut left = time;
    while !left.is_zero() {
        let step = left.min(WHILE);
        world.pass(step);
        extended(guard).await;
        left -= step;
    }
}

#[test]
async fn a_rolling_restart_ends_no_lock_and_lets_nobody_in() {
    for dialect in BOTH {
        let world = World::new(dialect).await;
        let (first, second) = (world.client().await, world.client().await);
        let guard = first.try_lock(NAME).fixed().await.expect("free");
        // A waiter takes what is free, and must not keep it from the holder.
        let waiting = tokio::spawn(second.lock(NAME).into_future());
        for server in &world.servers {
            server.kill();
            pass(&world, &guard, 2 * WHILE).await;
            server.restart();
            world.all_reached_by(&first).await;
            world.all_reached_by(&second).await;
            if dialect == Dialect::Strict {
                assert!(!is_held(server), "it has forgotten everything");
                eventually("it is taken back", async || {
                    marker(server).is_some_and(|marker| marker.starts_with("formed "))
                })
                .await;
                pass(&world, &guard, QUARANTINE).await;
            }
            eventually("it is won back", async || {
                extended(&guard).await;
                holds(&first, server, &guard).await
            })
            .await;
        }
        assert!(!waiting.is_finished(), "two are inside");
        let fence = guard.fence();
        guard.release().await.expect("released");
        let next = tokio::time::timeout(DEADLINE, waiting).await.expect("in time");
        let next = next.expect("no panic").expect("its turn");
        assert!(next.fence() > fence, "{} and {fence}", next.fence());
    }
}

/// Whether a server has the record of this holder.
async fn holds(locker: &quorlock::Locker, server: &RedisServer, guard: &Guard) -> bool {
    let status = locker.inspect(NAME).await.expect("a status");
    assert!(guard.is_held());
    let of = |url: &str| status.nodes.iter().find(|node| node.node == url);
    let there = of(&server.url()).and_then(|node| node.record.as_ref().ok()?.as_ref());
    there.is_some_and(|record| Some(record.holder) == status.holder())
}

/// A lock whose lease stands on all servers.
async fn held_by_all(world: &World, locker: &quorlock::Locker) -> Guard {
    let guard = locker.try_lock(NAME).fixed().await.expect("free");
    extended(&guard).await;
    // Each server answers in order: what it said to the extension has come.
    locker.inspect(NAME).await.expect("all have answered");
    assert!(world.servers.iter().all(is_held));
    guard
}

/// A lease that stood on them is lost, also if they would give it again: another may have had it meanwhile.
#[test]
async fn whatever_a_majority_has_lost_is_not_taken_anew() {
    for dialect in BOTH {
        let world = World::new(dialect).await;
        let locker = world.client().await;
        let guard = held_by_all(&world, &locker).await;
        // Somebody deletes single keys, which no server knows of.
        for server in &world.servers[..2] {
            server.command(&["DEL", NAME]);
        }
        let error = guard.extend().await.expect_err("one of three");
        assert!(matches!(error, Error::Lost { reason: Loss::Gone, .. }), "{error:?}");
        let held: Vec<_> = world.servers.iter().map(is_held).collect();
        assert_eq!(held[..2], [false, false], "{dialect:?}");
    }
}

/// A majority has the lock no longer, as after a release by force that did not reach one server: the next client may
/// have had it, also where it would be won back.
#[test]
async fn a_lock_that_was_taken_away_is_not_kept_by_winning_others_back() {
    for dialect in BOTH {
        let world = World::new(dialect).await;
        let (locker, other) = (world.client().await, world.client().await);
        let guard = held_by_all(&world, &locker).await;
        // From now on the lease stands on the first two.
        world.servers[2].command(&["DEL", NAME]);
        extended(&guard).await;
        locker.inspect(NAME).await.expect("all have answered");
        world.servers[1].command(&["DEL", NAME]);
        let next = other.try_lock(NAME).await.expect("on two of three");
        next.release().await.expect("released");
        let error = guard.extend().await.expect_err("another has had it");
        assert!(matches!(error, Error::Lost { reason: Loss::Gone, .. }), "{dialect:?}: {error:?}");
        assert!(!guard.is_held());
    }
}

/// One that was deleted where the lock stands is not, until the lock stands on others.
#[test]
async fn what_one_server_has_lost_is_won_back_with_the_next_extension_but_one() {
    for dialect in BOTH {
        let world = World::new(dialect).await;
        let locker = world.client().await;
        let guard = held_by_all(&world, &locker).await;
        world.servers[1].command(&["DEL", NAME]);
        extended(&guard).await;
        locker.inspect(NAME).await.expect("all have answered");
        assert!(!is_held(&world.servers[1]));
        extended(&guard).await;
        locker.inspect(NAME).await.expect("all have answered");
        assert!(is_held(&world.servers[1]));
        guard.release().await.expect("released");
        eventually("it is free", async || !world.servers.iter().any(is_held)).await;
    }
}
