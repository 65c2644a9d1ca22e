//! Clients that speak different dialects do not take each other's locks for their own, and say so.

use std::future::IntoFuture;
use std::time::Duration;

use quorlock::node::FailureKind;
use quorlock::{Dialect, Error, Locker};
use quorlock_testkit::{DEADLINE, test};

use crate::world::{World, text};
use crate::{BOTH, NAME};

/// Fails at once, however long it would wait.
async fn is_refused(locker: &Locker, dialect: &str) {
    for lock in [locker.try_lock(NAME), locker.lock(NAME), locker.lock(NAME).wait(DEADLINE)] {
        let taken = tokio::time::timeout(DEADLINE, lock.into_future());
        let error = taken.await.expect("at once").expect_err("a lock of another dialect");
        let Error::Node { failure, .. } = &error else { panic!("{error:?}") };
        assert_eq!(failure.kind(), FailureKind::WrongType);
        let text = error.to_string();
        assert!(text.contains(&format!("a lock of the {dialect} dialect")), "{text}");
        assert!(text.contains("use one dialect"), "{text}");
    }
}

#[test]
async fn a_lock_of_the_other_dialect_is_a_clear_error_both_ways() {
    let mut world = World::new(Dialect::Strict).await;
    for (dialect, name) in BOTH.into_iter().zip(["strict", "redlock"]) {
        let [strict, redlock] = BOTH;
        world.dialect = dialect;
        let holder = world.client().await;
        world.dialect = if dialect == strict { redlock } else { strict };
        let other = world.client().await;

        let guard = holder.try_lock(NAME).await.expect("free");
        let kept = world.servers.iter().map(|server| text(server, NAME)).collect::<Vec<_>>();
        is_refused(&other, name).await;
        let now = world.servers.iter().map(|server| text(server, NAME)).collect::<Vec<_>>();
        assert_eq!(now, kept, "it is left alone");
        guard.release().await.expect("released");
        if dialect == strict {
            // Its fence is still there, and is no lock of another library either.
            is_refused(&other, name).await;
            let without = other_without_fences(&world).await;
            is_refused(&without, name).await;
            for server in &world.servers {
                server.command(&["DEL", NAME]);
            }
        }
    }
}

/// Takes locks by a plain `SET`.
async fn other_without_fences(world: &World) -> Locker {
    let options = world.options().dialect(Dialect::Redlock);
    let builder = world.builder().redis(options).fences(false).nodes(world.urls());
    builder.longest_retry_delay(Duration::from_millis(1)).connect().await.expect("up")
}
