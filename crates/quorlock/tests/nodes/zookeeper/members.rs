//! Members that are stopped, killed, restarted, or not there at all.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use quorlock::{Error, Guard};
use quorlock_testkit::{ZooKeeperEnsemble, eventually_async as eventually, test};

use super::{LONG, beside, first, on, only_lock};

/// A leader that was stopped does not know that there is another. Nothing that it says alone counts.
#[test]
async fn a_leader_that_stands_still_makes_no_second_holder() {
    let ensemble = ZooKeeperEnsemble::start(3);
    let leader = ensemble.leader();
    let ttl = Duration::from_secs(5);
    let holder = on(&first(&ensemble, leader), "").ttl(ttl).connect().await.expect("connected");
    let other = first(&ensemble, (leader + 1) % 3);
    let next = on(&other, "").ttl(ttl).connect().await.expect("connected");
    let guard = holder.lock("x").await.expect("free");
    let fence = guard.fence();
    // What the holder believes.
    let held = Arc::new(Mutex::new(Some(guard)));
    let seen = Arc::clone(&held);
    let waiter = tokio::spawn(async move {
        let got = next.lock("x").wait(LONG).await.expect("its turn");
        let first = seen.lock().expect("no panic");
        let both = got.is_held() && first.as_ref().is_some_and(Guard::is_held);
        (got.fence(), both)
    });
    ensemble.stop(leader);
    // The fault lasts for most of a TTL.
    tokio::time::sleep(ttl * 4 / 5).await;
    ensemble.cont(leader);
    // If it was lost, it goes to the other by itself.
    let guard = held.lock().expect("no panic").take();
    drop(guard);
    let (later, both) = waiter.await.expect("no panic");
    assert!(!both, "two hold it");
    assert!(later > fence);
}

#[test]
async fn a_waiter_gets_its_turn_though_the_leader_was_killed() {
    let ensemble = ZooKeeperEnsemble::start(3);
    let leader = ensemble.leader();
    let endpoints = first(&ensemble, leader);
    // So long that nothing ends meanwhile.
    let holder = on(&endpoints, "").ttl(LONG).max_ttl(LONG).connect().await.expect("connected");
    let next = on(&endpoints, "").ttl(LONG).max_ttl(LONG).connect().await.expect("connected");
    let guard = holder.lock("x").await.expect("free");
    let waiter = tokio::spawn(async move { next.lock("x").wait(LONG).await });
    eventually("it waits", async || {
        let status = holder.inspect("x").await.expect("a majority");
        status.nodes.iter().any(|node| node.waiters == Some(1))
    })
    .await;
    ensemble.kill(leader);
    eventually("the others keep it", async || guard.extend().await.is_ok()).await;
    guard.release().await.expect("released");
    let got = waiter.await.expect("no panic").expect("its turn");
    assert!(got.is_held());
    got.release().await.expect("released");
}

#[test]
async fn a_lock_survives_the_restart_of_all_members() {
    let ensemble = ZooKeeperEnsemble::start(3);
    let endpoints = ensemble.endpoints();
    let locker = on(&endpoints, "").ttl(LONG).max_ttl(LONG).connect().await.expect("connected");
    let token = locker.lock("x").await.expect("free").into_token().expect("it outlives us");
    for member in 0..3 {
        ensemble.kill(member);
    }
    for member in 0..3 {
        ensemble.restart(member);
    }
    let other = on(&endpoints, "").connect().await.expect("connected");
    let error = other.try_lock("x").await.expect_err("it is held");
    assert!(matches!(error, Error::Taken { .. }), "{error}");
    let guard = other.resume("x", token.as_str()).await.expect("it is held with this token");
    guard.release().await.expect("released");
    other.try_lock("x").await.expect("free").release().await.expect("released");
}

#[test]
async fn a_member_that_is_down_does_not_matter() {
    let ensemble = ZooKeeperEnsemble::start(3);
    ensemble.kill(0);
    let locker = on(&ensemble.endpoints(), "").connect().await.expect("connected");
    let guard = locker.lock("x").await.expect("free");
    guard.release().await.expect("released");
}

/// It is said at once, and whoever waits gets it when the members are there again.
#[test]
async fn without_a_majority_there_is_no_lock_until_it_is_back() {
    let ensemble = ZooKeeperEnsemble::start(3);
    let locker = on(&ensemble.endpoints(), "").connect().await.expect("connected");
    locker.lock("x").await.expect("free").release().await.expect("released");
    ensemble.kill(0);
    ensemble.kill(1);
    let error = locker.try_lock("x").await.expect_err("one of three is no majority");
    assert!(matches!(error, Error::NoQuorum { .. }), "{error}");
    let waiter = tokio::spawn(async move { locker.lock("x").wait(LONG).await });
    ensemble.restart(0);
    waiter.await.expect("no panic").expect("there is one").release().await.expect("released");
}

/// Their votes would be for other locks.
#[test]
async fn members_of_two_ensembles_are_not_mixed() {
    let (one, two) = (ZooKeeperEnsemble::start(1), ZooKeeperEnsemble::start(1));
    let endpoints = [one.endpoints(), two.endpoints()].concat();
    let locker = on(&endpoints, "").connect().await.expect("the first is there");
    locker.lock("x").await.expect("free").release().await.expect("released");
    one.kill(0);
    let error = locker.try_lock("x").await.expect_err("the other is another ensemble");
    let text = error.to_string();
    assert!(text.contains("name members of one ensemble"), "{text}");
}

/// It knows of the lock, and not of its release. Who asks it has it ask the others first.
#[test]
async fn a_member_that_lags_behind_refuses_nobody_for_it() {
    let ensemble = ZooKeeperEnsemble::start(3);
    let follower = (ensemble.leader() + 1) % 3;
    let (here, there) = (first(&ensemble, follower), first(&ensemble, ensemble.leader()));
    let late = on(&here, "").connect().await.expect("connected");
    let holder = on(&there, "").ttl(LONG).max_ttl(LONG).connect().await.expect("connected");
    for _ in 0..5 {
        let guard = holder.lock("x").await.expect("free");
        let error = late.try_lock("x").await.expect_err("it is held");
        assert!(matches!(error, Error::Taken { .. }), "{error}");
        ensemble.stop(follower);
        guard.release().await.expect("the others are enough");
        ensemble.cont(follower);
        eventually("it is free", async || match late.try_lock("x").await {
            Ok(guard) => {
                guard.release().await.expect("released");
                true
            }
            Err(Error::NoQuorum { .. }) => false,
            Err(error) => panic!("it is free: {error}"),
        })
        .await;
    }
}

/// What is deleted begins anew, and so do its versions. A client that knows an old one is not misled.
#[test]
async fn a_lock_that_was_forgotten_meanwhile_is_created_again() {
    let ensemble = ZooKeeperEnsemble::shared(3);
    let chroot = quorlock_testkit::fresh_prefix();
    let builder = || on(&ensemble.endpoints(), &chroot);
    let (one, two) = (builder().connect().await, builder().connect().await);
    let (one, two) = (one.expect("connected"), two.expect("connected"));
    one.lock("x").await.expect("free").release().await.expect("released");
    let kept = builder().admin().forget(["x"]).await.expect("it is free");
    assert!(kept.0.is_empty(), "{kept:?}");
    // As many versions as there were.
    two.lock("x").await.expect("free").release().await.expect("released");
    let guard = two.lock("x").await.expect("free");
    let error = one.try_lock("x").await.expect_err("it is held");
    assert!(matches!(error, Error::Taken { .. }), "{error}");
    let kept = builder().admin().forget(["x"]).await.expect("it is asked");
    assert!(kept.to_string().contains("left alone"), "{kept}");
    guard.release().await.expect("released");
    let mut client = beside(ensemble, 0);
    client.sync();
    let path = only_lock(&mut client, &chroot);
    let data = String::from_utf8(client.data(&path).expect("it is there")).expect("text");
    assert!(data.starts_with("quorlock 1\nfence "), "{data}");
}
