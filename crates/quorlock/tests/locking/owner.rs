//! Taking a lock again while holding it.

use std::future::{Future, IntoFuture};
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Waker};
use std::time::Duration;

use quorlock::{Error, Owner};
use quorlock_testkit::{Asked, Reply, StillWorld, redlock_locker, servers, test, urls};

const TTL: Duration = StillWorld::TTL;

#[test(start_paused = true)]
async fn an_owner_gets_what_it_holds_at_once_and_the_last_guard_releases() {
    let world = StillWorld::new();
    let locker = world.locker().await;
    let me = locker.new_owner();
    let mut guards = vec![locker.lock("x").owner(&me).await.expect("free")];
    for _ in 0..9 {
        guards.push(locker.try_lock("x").owner(&me).await.expect("mine"));
    }
    assert_eq!(world.nodes[0].asked(), [Asked::Acquire], "nobody was asked again");
    let last = guards.pop().expect("one of ten");
    for guard in guards {
        let released = guard.release().await.expect("one less");
        assert!(released.is_still_held());
    }
    assert_eq!(world.count(Asked::Release), 0);
    world.time.pass(TTL).await;
    assert!(last.is_held(), "it is renewed for the last one");
    assert!(last.release().await.expect("released").is_freed());
    let extensions = world.count(Asked::Extend);
    world.time.pass(10 * TTL).await;
    assert_eq!(world.count(Asked::Extend), extensions, "the renewal ends with the last one");
    assert_eq!(world.count(Asked::Release), 1);
    drop(locker.try_lock("x").await.expect("free"));
}

#[test(start_paused = true)]
async fn without_a_common_owner_everybody_is_another() {
    let world = StillWorld::new();
    let locker = world.locker().await;
    let (me, you) = (locker.new_owner(), locker.new_owner());
    let mine = locker.lock("x").owner(&me).await.expect("free");
    for lock in [locker.try_lock("x"), locker.try_lock("x").owner(&you)] {
        let error = lock.await.expect_err("mine");
        assert!(matches!(error, Error::Taken { .. }), "{error}");
    }
    drop(mine);
    let nobody = locker.try_lock("x").await.expect("free");
    let error = locker.try_lock("x").owner(&me).await.expect_err("taken by nobody in particular");
    assert!(matches!(error, Error::Taken { .. }), "{error}");
    drop(nobody);
}

#[test(start_paused = true)]
async fn tasks_with_one_owner_share_a_lock_that_they_ask_for_at_once() {
    let world = StillWorld::new();
    let (locker, other) = (world.locker().await, world.locker().await);
    let guard = other.lock("x").await.expect("free");
    let me = locker.new_owner();
    let together = Arc::new(tokio::sync::Barrier::new(3));
    let tasks: Vec<_> = (0..3)
        .map(|_| {
            let (lock, together) = (locker.lock("x").owner(&me.clone()), Arc::clone(&together));
            tokio::spawn(async move {
                let guard = lock.await.expect("shared");
                // All three hold it here, or none would go on.
                together.wait().await;
                guard.release().await.expect("released");
            })
        })
        .collect();
    world.time.pass(Duration::from_secs(1)).await;
    guard.release().await.expect("released");
    for task in tasks {
        task.await.expect("no panic");
    }
    drop(other.try_lock("x").await.expect("free again"));
}

/// Another owner that waits gets a record of its own: the nodes know for whom each was taken.
#[test(start_paused = true)]
async fn a_lock_is_not_passed_from_one_owner_to_another_behind_the_backs_of_the_nodes() {
    let world = StillWorld::new();
    let locker = world.locker().await;
    let (me, you) = (locker.new_owner(), locker.new_owner());
    let mine = locker.lock("x").owner(&me).await.expect("free");
    let yours = tokio::spawn(locker.lock("x").owner(&you).into_future());
    world.time.pass(Duration::from_secs(1)).await;
    assert!(mine.release().await.expect("released").is_freed());
    let yours = yours.await.expect("no panic").expect("free");
    let elsewhere = world.locker().await;
    let me = Owner::from_id(&me.id()).expect("an id");
    let error = elsewhere.try_lock("x").owner(&me).await.expect_err("not mine any more");
    assert!(matches!(error, Error::Taken { .. }), "{error}");
    drop(yours);
}

/// Neither from an owner to nobody in particular, nor the other way round.
#[test(start_paused = true)]
async fn a_lock_is_not_passed_on_unless_its_token_names_the_right_owner() {
    let world = StillWorld::new();
    let locker = world.locker().await;
    let me = locker.new_owner();
    for (first, second) in [
        (locker.lock("x").owner(&me), locker.lock("x")),
        (locker.lock("x"), locker.lock("x").owner(&me)),
    ] {
        let first = first.await.expect("free");
        let second = tokio::spawn(second.into_future());
        world.time.pass(Duration::from_secs(1)).await;
        assert!(first.release().await.expect("released").is_freed());
        drop(second.await.expect("no panic").expect("free"));
    }
}

#[test]
async fn an_owner_is_known_to_other_processes_by_its_id() {
    let servers = servers(3);
    let (parent, child) =
        (redlock_locker(urls(&servers)).await, redlock_locker(urls(&servers)).await);
    let me = parent.new_owner();
    let outer = parent.lock("x").owner(&me).await.expect("free");
    let me_again = Owner::from_id(&me.id()).expect("an id");
    let inner = child.try_lock("x").owner(&me_again).await.expect("held for me");
    assert!(inner.is_held() && !inner.remaining().is_zero());
    // And once more in the same process, at once.
    let innermost = child.try_lock("x").owner(&me_again).await.expect("held for me");
    assert!(innermost.release().await.expect("one less").is_still_held());
    assert!(inner.release().await.expect("left to its maker").is_still_held());
    for server in &servers {
        assert_eq!(server.command(&["EXISTS", "x"]), Reply::Int(1), "the maker holds it");
    }
    assert!(outer.is_held());
    let inner = child.lock("x").owner(&me_again).await.expect("held for me");
    assert!(outer.release().await.expect("released").is_still_held(), "by the child");
    inner.extend().await.expect("the child is left");
    assert!(inner.release().await.expect("released").is_freed());
    // Nothing is held for it now: as any other it takes the lock, and releases it.
    let own = child.try_lock("x").owner(&me_again).await.expect("free");
    assert!(own.release().await.expect("released").is_freed());
}

/// What another process holds is extended here only for a guard: one that was given up on must not
/// keep it when its maker is gone.
#[test(start_paused = true)]
async fn what_was_not_borrowed_in_the_end_is_not_kept() {
    for dropped in [true, false] {
        let world = StillWorld::new();
        let (parent, child) = (world.locker().await, world.locker().await);
        let me = parent.new_owner();
        std::mem::forget(parent.lock("x").owner(&me).fixed().await.expect("free"));
        let me_again = Owner::from_id(&me.id()).expect("an id");
        // Two of three hang when the owner has been recognized.
        let hanging: Vec<_> = world.nodes[..2].iter().map(Arc::clone).collect();
        world.nodes[2].at_next(Asked::Inspect, move || {
            hanging.iter().for_each(|node| node.hang(true));
        });
        let mut locking = pin!(child.try_lock("x").owner(&me_again).into_future());
        let mut asleep = Context::from_waker(Waker::noop());
        assert!(locking.as_mut().poll(&mut asleep).is_pending());
        assert_eq!(world.count(Asked::Extend), 1, "it was not recognized");
        if dropped {
            locking.set(child.try_lock("y").into_future());
        } else {
            locking.await.expect_err("it cannot be known");
        }
        world.nodes.iter().for_each(|node| node.hang(false));
        world.time.pass(2 * TTL).await;
        drop(parent.try_lock("x").await.expect("nobody keeps it"));
    }
}

#[test]
fn an_id_that_cannot_be_read_is_refused_and_not_shown() {
    let error = Owner::from_id("0123456789abcdef").expect_err("too short").to_string();
    assert!(error.contains("16 characters") && error.contains("24 hexadecimal"), "{error}");
    assert!(!error.contains("0123456789abcdef"), "{error}");
}
