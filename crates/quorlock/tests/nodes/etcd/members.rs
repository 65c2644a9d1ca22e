//! Members that are stopped, killed, restarted, or not there at all.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use quorlock::{Error, Guard};
use quorlock_testkit::{EtcdCluster, eventually_async as eventually, test};

use super::{LONG, first, on};

/// A leader that was stopped does not know that there is another. What it says of leases counts for nothing.
#[test]
async fn a_leader_that_stands_still_makes_no_second_holder() {
    let cluster = EtcdCluster::start(3);
    let leader = cluster.leader();
    let ttl = Duration::from_secs(5);
    let holder = on(&first(&cluster, leader)).ttl(ttl).connect().await.expect("connected");
    let next = on(&first(&cluster, (leader + 1) % 3)).ttl(ttl).connect().await.expect("connected");
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
    cluster.stop(leader);
    // The fault lasts for most of a TTL.
    tokio::time::sleep(ttl * 4 / 5).await;
    cluster.cont(leader);
    // If it was lost, it goes to the other by itself.
    let guard = held.lock().expect("no panic").take();
    drop(guard);
    let (later, both) = waiter.await.expect("no panic");
    assert!(!both, "two hold it");
    assert!(later > fence);
}

#[test]
async fn a_waiter_gets_its_turn_though_the_leader_was_killed() {
    let cluster = EtcdCluster::start(3);
    let leader = cluster.leader();
    let endpoints = first(&cluster, leader);
    // So long that nothing ends meanwhile.
    let holder = on(&endpoints).ttl(LONG).max_ttl(LONG).connect().await.expect("connected");
    let next = on(&endpoints).ttl(LONG).max_ttl(LONG).connect().await.expect("connected");
    let guard = holder.lock("x").await.expect("free");
    let waiter = tokio::spawn(async move { next.lock("x").wait(LONG).await });
    eventually("it waits", async || {
        let status = holder.inspect("x").await.expect("a majority");
        status.nodes.iter().any(|node| node.waiters == Some(1))
    })
    .await;
    cluster.kill(leader);
    guard.extend().await.expect("the others keep it");
    guard.release().await.expect("released");
    let got = waiter.await.expect("no panic").expect("its turn");
    assert!(got.is_held());
    got.release().await.expect("released");
}

#[test]
async fn a_lock_survives_the_restart_of_all_members() {
    let cluster = EtcdCluster::start(3);
    let locker =
        on(&cluster.endpoints()).ttl(LONG).max_ttl(LONG).connect().await.expect("connected");
    let token = locker.lock("x").await.expect("free").into_token().expect("it outlives us");
    for member in 0..3 {
        cluster.kill(member);
    }
    for member in 0..3 {
        cluster.restart(member);
    }
    let other = on(&cluster.endpoints()).connect().await.expect("connected");
    let error = other.try_lock("x").await.expect_err("it is held");
    assert!(matches!(error, Error::Taken { .. }), "{error}");
    let guard = other.resume("x", token.as_str()).await.expect("it is held with this token");
    guard.release().await.expect("released");
    other.try_lock("x").await.expect("free").release().await.expect("released");
}

#[test]
async fn a_member_that_is_down_does_not_matter() {
    let cluster = EtcdCluster::start(3);
    cluster.kill(0);
    let locker = on(&cluster.endpoints()).connect().await.expect("connected");
    let guard = locker.lock("x").await.expect("free");
    guard.release().await.expect("released");
}

/// Their votes would be for other locks.
#[test]
async fn members_of_two_clusters_are_not_mixed() {
    let (one, two) = (EtcdCluster::start(1), EtcdCluster::start(1));
    let endpoints = [one.endpoints(), two.endpoints()].concat();
    let locker = on(&endpoints).connect().await.expect("the first is there");
    locker.lock("x").await.expect("free").release().await.expect("released");
    one.kill(0);
    let error = locker.try_lock("x").await.expect_err("the other is another cluster");
    let text = error.to_string();
    assert!(text.contains("name members of one cluster"), "{text}");
}
