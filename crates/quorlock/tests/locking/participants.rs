//! A lock that several processes share: it ends with the last of them.
//!
//! Each locker stands for a process. The owner's id goes from one to the other, as `quorlock run` passes
//! it on in the environment.

use std::future::IntoFuture;
use std::mem::forget;
use std::sync::Arc;
use std::time::Duration;

use quorlock::node::Node;
use quorlock::node::memory::MemoryNode;
use quorlock::{Builder, Dialect, Error, Guard, Locker, Loss, Owner};
use quorlock_testkit::{RedisServer, eventually_async as eventually, servers, test};

/// Longer than any test takes.
const TTL: Duration = Duration::from_secs(25);
/// Over before long, and long enough for a lease to stand on it.
const SHORT: Duration = Duration::from_secs(6);

/// What keeps the locks.
enum Place {
    Servers(Dialect, Vec<RedisServer>),
    File(tempfile::TempDir),
    Memory(Arc<MemoryNode>),
}

impl Place {
    fn all() -> [Self; 4] {
        [
            Self::Servers(Dialect::Strict, servers(3)),
            Self::Servers(Dialect::Redlock, servers(3)),
            Self::File(tempfile::tempdir().expect("a directory")),
            Self::Memory(Arc::new(MemoryNode::new())),
        ]
    }

    fn name(&self) -> &'static str {
        match self {
            Self::Servers(Dialect::Strict, _) => "strict",
            Self::Servers(..) => "redlock",
            Self::File(_) => "sqlite",
            Self::Memory(_) => "memory",
        }
    }

    fn builder(&self) -> Builder {
        // However slow the machine is.
        let patient = Locker::builder().ttl(TTL).node_limit(Duration::from_millis(1_200));
        match self {
            Self::Servers(dialect, servers) => patient
                .redis(
                    quorlock::RedisOptions::default()
                        .dialect(*dialect)
                        .trust_new_nodes(true)
                        .clock_window(Duration::from_secs(1), Duration::from_secs(3)),
                )
                .nodes(servers.iter().map(RedisServer::url)),
            Self::File(directory) => {
                patient.nodes([format!("sqlite:{}", directory.path().join("locks.db").display())])
            }
            Self::Memory(node) => patient.with_nodes([Arc::clone(node) as Arc<dyn Node>]),
        }
    }

    async fn process(&self) -> Locker {
        let locker = self.builder().connect().await.expect("a locker");
        if let Self::Servers(_, servers) = self {
            eventually("all nodes are reached", async || {
                let status = locker.inspect("any").await.expect("a look");
                status.nodes.iter().filter(|node| node.record.is_ok()).count() == servers.len()
            })
            .await;
        }
        locker
    }
}

/// Takes part in what the owner holds.
async fn takes_part(locker: &Locker, owner: &Owner) -> Guard {
    let owner = Owner::from_id(&owner.id()).expect("an id");
    locker.try_lock("x").owner(&owner).await.expect("it is held for the owner")
}

async fn is_taken(locker: &Locker) -> bool {
    match locker.try_lock("x").await {
        Ok(guard) => {
            guard.release().await.expect("released");
            false
        }
        Err(Error::Taken { .. }) => true,
        Err(other) => panic!("neither free nor taken: {other}"),
    }
}

#[test]
async fn the_last_process_releases_whichever_it_is() {
    for place in Place::all() {
        let (maker, other, stranger) =
            (place.process().await, place.process().await, place.process().await);
        for maker_first in [true, false] {
            let owner = maker.new_owner();
            let outer = maker.lock("x").owner(&owner).await.expect("free");
            let inner = takes_part(&other, &owner).await;
            assert_eq!(inner.fence(), outer.fence(), "{}: one lock, one fence", place.name());
            let (first, last) = if maker_first { (outer, inner) } else { (inner, outer) };
            let fence = last.fence();
            let released = first.release().await.expect("released");
            assert!(released.is_still_held() && !released.is_freed(), "{}", place.name());
            assert!(is_taken(&stranger).await, "{}: two holders", place.name());
            last.extend().await.expect("it is held");
            assert!(last.is_held(), "{}", place.name());
            let released = last.release().await.expect("released");
            assert!(released.is_freed() && !released.is_still_held(), "{}", place.name());
            let next = stranger.try_lock("x").await.expect("free");
            assert!(next.fence() > fence, "{}", place.name());
            next.release().await.expect("released");
        }
    }
}

/// The maker has died, or one who took part: it keeps the lock for its own time and no longer.
#[test]
async fn a_participant_that_dies_keeps_it_for_its_own_ttl_at_the_most() {
    for place in Place::all() {
        let (maker, other, stranger) =
            (place.process().await, place.process().await, place.process().await);
        for maker_dies in [true, false] {
            let owner = maker.new_owner();
            let ttl = |dies| if dies { SHORT } else { TTL };
            let outer = maker.lock("x").owner(&owner).ttl(ttl(maker_dies)).fixed().await;
            let elsewhere = Owner::from_id(&owner.id()).expect("an id");
            let inner = other.lock("x").owner(&elsewhere).ttl(ttl(!maker_dies)).fixed().await;
            let (outer, inner) = (outer.expect("free"), inner.expect("held for the owner"));
            let (dead, living) = if maker_dies { (outer, inner) } else { (inner, outer) };
            forget(dead);
            assert!(living.release().await.expect("released").is_still_held(), "{}", place.name());
            let left = stranger.inspect("x").await.expect("a look").remaining().expect("an end");
            // Servers round to milliseconds.
            let most = SHORT + Duration::from_millis(2);
            assert!(left <= most, "{}: {left:?} left", place.name());
            let next = stranger.lock("x").wait(TTL).await.expect("it ends by itself");
            assert!(next.release().await.expect("released").is_freed(), "{}", place.name());
        }
    }
}

/// Somebody of another process waits for it, and somebody of the maker's own, who must not be handed it
/// either.
#[test]
async fn a_waiter_gets_it_from_the_last() {
    for place in Place::all() {
        let (maker, other, stranger) =
            (place.process().await, place.process().await, place.process().await);
        for waits in [&stranger, &maker] {
            let owner = maker.new_owner();
            let outer = maker.lock("x").owner(&owner).await.expect("free");
            let inner = takes_part(&other, &owner).await;
            let next = tokio::spawn(waits.lock("x").into_future());
            let look = async || stranger.inspect("x").await.expect("a look");
            let holder = look().await.holder().expect("a holder");
            let queued = async || look().await.waiters() == Some(1);
            if std::ptr::eq(waits, &raw const stranger) {
                eventually("it stands in the queue", queued).await;
            }
            outer.release().await.expect("released");
            eventually("it stands in the queue", queued).await;
            assert_eq!(look().await.holder(), Some(holder), "{}: two holders", place.name());
            assert!(!next.is_finished() && inner.is_held(), "{}", place.name());
            assert!(inner.release().await.expect("released").is_freed(), "{}", place.name());
            let next = next.await.expect("no panic").expect("it is free");
            next.release().await.expect("released");
        }
    }
}

#[test]
async fn force_takes_it_from_all_of_them() {
    for place in Place::all() {
        let (maker, other, stranger) =
            (place.process().await, place.process().await, place.process().await);
        let owner = maker.new_owner();
        let outer = maker.lock("x").owner(&owner).await.expect("free");
        let inner = takes_part(&other, &owner).await;
        let seen = stranger.inspect("x").await.expect("a look");
        stranger.force_release(&seen).await.expect("broken");
        let next = stranger.try_lock("x").await.expect("free");
        let error = inner.extend().await.expect_err("taken away");
        assert!(matches!(error, Error::Lost { reason: Loss::Gone, .. }), "{error}");
        let error = inner.release().await.expect_err("taken away");
        assert!(matches!(error, Error::Lost { .. }), "{error}");
        outer.release().await.expect_err("taken away");
        next.extend().await.expect("nobody else has touched it");
        assert!(next.release().await.expect("released").is_freed(), "{}", place.name());
    }
}

/// A client that has the token is the holder: it counts as one with the maker. Who takes part is counted besides.
#[test]
async fn a_lock_that_was_handed_over_is_still_shared() {
    for place in Place::all() {
        let (maker, other, third, stranger) = (
            place.process().await,
            place.process().await,
            place.process().await,
            place.process().await,
        );
        let owner = maker.new_owner();
        let outer = maker.lock("x").owner(&owner).await.expect("free");
        let inner = takes_part(&other, &owner).await;
        let resumed = third.resume("x", outer.into_token().expect("a token")).await.expect("held");
        assert!(resumed.release().await.expect("released").is_still_held(), "{}", place.name());
        assert!(is_taken(&stranger).await, "{}: two holders", place.name());
        assert!(inner.release().await.expect("released").is_freed(), "{}", place.name());
        assert!(!is_taken(&stranger).await, "{}", place.name());
    }
}
