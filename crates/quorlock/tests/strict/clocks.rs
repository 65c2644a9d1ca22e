//! Servers' clocks that jump and run away: a server that is not sure of the time casts no vote.

use std::time::Duration;

use quorlock::node::FailureKind;
use quorlock::{Dialect, Error, Loss};
use quorlock_testkit::{RedisServer, eventually_async as eventually, test};

use crate::world::{TTL, World, assert_both_hold, is_held, server_us};
use crate::{BOTH, NAME};

/// Far beyond the window, in either direction.
const HOUR_MS: i64 = 3_600_000;

/// The first client holds two servers, one of which has its clock moved.
async fn one_of_two_is_moved(shift: impl Fn(&RedisServer), ahead: bool, says: &str) {
    for dialect in BOTH {
        let world = World::new(dialect).await;
        let (first, second) = (world.holder_of_two().await, world.client().await);
        shift(&world.servers[1]);
        let taken = second.try_lock(NAME).await;
        if dialect == Dialect::Redlock {
            if ahead {
                assert_both_hold(&first.guard, taken);
            }
            continue;
        }
        taken.expect_err("no majority");
        assert!(first.guard.is_held() && is_held(&world.servers[1]));

        let error = first.guard.extend().await.expect_err("one of three");
        let Error::NoQuorum { answers, .. } = &error else { panic!("{error:?}") };
        let of = |node: &str| answers.0.iter().find(|answer| answer.node == node).cloned();
        let answer = of(&world.servers[1].url()).expect("the node by its name");
        let failure = answer.failure.expect("a reason");
        assert_eq!(failure.kind(), FailureKind::Clock, "{failure}");
        assert!(failure.to_string().contains(says), "{failure}");
        assert!(first.guard.is_held(), "what it has it keeps until its end");
    }
}

#[test]
async fn a_clock_that_jumps_ahead() {
    let jump = |server: &RedisServer| server.clock().jump_ms(HOUR_MS);
    one_of_two_is_moved(jump, true, "s ahead of this machine's").await;
}

#[test]
async fn a_clock_that_jumps_back() {
    let jump = |server: &RedisServer| server.clock().jump_ms(-HOUR_MS);
    one_of_two_is_moved(jump, false, "its clock is 3600.0s behind this machine's").await;
}

#[test]
async fn a_clock_that_runs_away() {
    let run = |server: &RedisServer| {
        server.clock().rate(1000.0);
        let start = server_us(server);
        quorlock_testkit::eventually("longer than a lease", || {
            server_us(server) > start + 2 * u64::try_from(TTL.as_micros()).expect("short")
        });
    };
    one_of_two_is_moved(run, true, "s ahead of this machine's").await;
}

/// With a majority of the clocks it is known that something is wrong, and what.
#[test]
async fn the_clocks_of_a_majority() {
    for by_ms in [HOUR_MS, -HOUR_MS] {
        let world = World::new(Dialect::Strict).await;
        let (first, second) = (world.client().await, world.client().await);
        let guard = first.try_lock(NAME).fixed().await.expect("free");
        for server in &world.servers[..2] {
            server.clock().jump_ms(by_ms);
        }
        let error = second.try_lock("another").await.expect_err("clocks that differ");
        let Error::Clock { answers, .. } = &error else { panic!("{error:?}") };
        let mut names: Vec<_> = answers.0.iter().map(|answer| answer.node.clone()).collect();
        names.sort();
        let mut moved = world.urls()[..2].to_vec();
        moved.sort();
        assert_eq!(names, moved, "{error}");
        second.try_lock(NAME).await.expect_err("clocks that differ");
        let error = guard.extend().await.expect_err("clocks that differ");
        assert!(matches!(error, Error::Lost { reason: Loss::Clock, .. }), "{error:?}");
        assert!(!guard.is_held());
    }
}

/// All clocks are behind by almost as much as they may be when the first client comes, and ahead by
/// almost as much when the second one does; or get there by running fast. Of the lease so much less is
/// left, and no more.
async fn the_window_is_used_up(shift: impl Fn(&RedisServer)) {
    for dialect in BOTH {
        let world = World::new(dialect).await;
        let builder = || world.builder().ttl(Duration::from_secs(8)).node_limit(LIMIT);
        let first = builder().nodes(world.urls()).connect().await.expect("servers that are up");
        let second = builder().nodes(world.urls()).connect().await.expect("servers that are up");
        for server in &world.servers {
            server.clock().jump_ms(-1_800);
        }
        // Until they vote, by clocks that were set back.
        world.pass(Duration::from_secs(2));
        let guard = first.try_lock(NAME).fixed().await.expect("free");
        for server in &world.servers {
            shift(server);
        }
        let mut taken = None;
        eventually("its record ends", async || {
            taken = second.try_lock(NAME).await.ok();
            taken.is_some()
        })
        .await;
        // Not asked before: it may have ended in between.
        assert_eq!(guard.is_held(), dialect == Dialect::Redlock);
    }
}

/// Some nodes may not answer in time on a slow machine: it is asked again then.
const LIMIT: Duration = Duration::from_millis(500);

#[test]
async fn clocks_that_jump_within_the_window() {
    the_window_is_used_up(|server| server.clock().jump_ms(1_800 + 3_600)).await;
}

#[test]
async fn clocks_that_run_fast_within_the_window() {
    the_window_is_used_up(|server| server.clock().rate(2.5)).await;
}
