//! What becomes of locks when a member is killed, or a session ends.

use quorlock::Loss;
use quorlock_testkit::{ZooKeeperEnsemble, test};

use super::{LONG, TTL, on, waiters};

/// Another connection goes on with the session.
#[test]
async fn a_lock_and_a_place_survive_the_member_that_was_asked() {
    let ensemble = ZooKeeperEnsemble::start(3);
    let holder = on(&ensemble).ttl(TTL).connect().await.expect("connected");
    let next = on(&ensemble).ttl(TTL).connect().await.expect("connected");
    let guard = holder.lock("x").await.expect("free");
    let (lock, fence) = (next.lock("x").wait(LONG), guard.fence());
    let waiter = tokio::spawn(async move { lock.await.expect("its turn") });
    waiters(&holder, "x", 1).await;
    // Both ask the first that is named, as long as it is there.
    ensemble.kill(0);
    guard.extend().await.expect("the others know the session");
    guard.release().await.expect("released");
    assert!(waiter.await.expect("no panic").fence() > fence);
}

/// By an operator, or because this process stood still for too long.
#[test]
async fn a_holder_learns_at_once_that_its_session_has_ended() {
    let ensemble = ZooKeeperEnsemble::start(1);
    let locker = on(&ensemble).ttl(TTL).connect().await.expect("connected");
    // It is not extended: nobody finds out by asking.
    let guard = locker.lock("x").fixed().await.expect("free");
    // What the ensemble kept of sessions is gone with its data.
    ensemble.restart_empty(0);
    assert_eq!(guard.lost().await, Loss::Gone);
    assert!(!guard.is_held());
    locker.lock("x").wait(LONG).await.expect("free").release().await.expect("released");
}
