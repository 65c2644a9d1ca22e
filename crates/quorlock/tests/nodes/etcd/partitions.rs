//! A leader that is cut off from the other members, in a network of the test's own.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use quorlock::{Error, Guard};
use quorlock_testkit::{EtcdCluster, eventually_async as eventually, test};

use super::{LONG, etcdctl_at, first, on};

const TTL: Duration = Duration::from_secs(5);

/// Whether clients reach the leader still, or nobody does: the end is the same.
#[test]
async fn a_leader_that_is_cut_off_makes_no_second_holder() {
    for clients_too in [false, true] {
        let cluster = EtcdCluster::start_in_network(3);
        let leader = cluster.leader();
        let alone = [cluster.endpoints().remove(leader)];
        let holder = on(&alone).ttl(TTL).connect().await.expect("connected");
        let all = on(&first(&cluster, leader)).ttl(TTL).connect().await.expect("connected");
        let kept = all.lock("kept").await.expect("free");
        let guard = holder.lock("x").await.expect("free");
        let fence = guard.fence();
        // What the holder believes.
        let held = Arc::new(Mutex::new(Some(guard)));
        let (seen, next) = (Arc::clone(&held), all.clone());
        // It asks again and again, so that a record that ends too early is found.
        let asks = tokio::spawn(async move {
            let got = loop {
                match next.try_lock("x").await {
                    Ok(got) => break got,
                    Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
                }
            };
            let before = seen.lock().expect("no panic");
            let both = got.is_held() && before.as_ref().is_some_and(Guard::is_held);
            (got.fence(), both)
        });

        cluster.cut_off(leader, clients_too);
        let error = holder.try_lock("y").await.expect_err("its member knows no majority");
        assert!(matches!(error, Error::NoQuorum { .. }), "{error}");
        assert!(error.to_string().contains(&alone[0]), "{error}");
        let (later, both) = asks.await.expect("no panic");
        assert!(!both, "two hold it");
        assert!(later > fence);
        let lost = held.lock().expect("no panic").take();
        assert!(lost.is_some_and(|guard| !guard.is_held()));
        assert!(kept.is_held(), "a client that knows the others has not noticed much");
        all.lock("y").await.expect("free").release().await.expect("the others go on");

        cluster.reconnect(leader);
        eventually("it goes on where it was", async || match holder.try_lock("y").await {
            Ok(guard) => guard.release().await.is_ok(),
            Err(_) => false,
        })
        .await;
        kept.release().await.expect("released");
    }
}

/// It loses its place, not the wish.
#[test]
async fn a_waiter_whose_member_is_cut_off_is_passed_over() {
    let cluster = EtcdCluster::start_in_network(3);
    let leader = cluster.leader();
    let alone = [cluster.endpoints().remove(leader)];
    let cut_off = on(&alone).ttl(TTL).connect().await.expect("connected");
    let next = on(&first(&cluster, leader)).ttl(TTL).connect().await.expect("connected");
    let holder = on(&first(&cluster, leader)).ttl(TTL).connect().await.expect("connected");
    let guard = holder.lock("x").await.expect("free");
    let waits = async |count| {
        eventually("they wait", async || {
            let status = holder.inspect("x").await.expect("a majority");
            status.nodes.iter().any(|node| node.waiters == Some(count))
        })
        .await;
    };
    let cut_off = tokio::spawn(async move { cut_off.lock("x").wait(LONG).await });
    waits(1).await;
    let next = tokio::spawn(async move { next.lock("x").wait(LONG).await });
    waits(2).await;

    cluster.cut_off(leader, true);
    let others = (leader + 1) % 3;
    let prefix = ["get", "--prefix", "--keys-only", "quorlock/client/"];
    eventually("its sign of life has ended", async || {
        etcdctl_at(&cluster, others, &prefix).lines().filter(|line| !line.is_empty()).count() == 1
    })
    .await;
    let began = Instant::now();
    guard.release().await.expect("the others go on");
    let got = next.await.expect("no panic").expect("its turn");
    assert!(began.elapsed() < TTL, "somebody was in between: {:?}", began.elapsed());
    assert!(!cut_off.is_finished(), "it has the lock, or has given up");
    cluster.reconnect(leader);
    got.release().await.expect("released");
    let last = cut_off.await.expect("no panic").expect("its turn after all");
    assert!(last.is_held());
    last.release().await.expect("released");
}
