//! Sessions end early, late, and without a word. They say whether a waiter is there, and nothing else.

use std::time::Duration;

use quorlock_testkit::{
    Proxy, ZooKeeperEnsemble, eventually_async as eventually, fresh_prefix, test,
};

use super::{LONG, beside, on};

/// Waits until so many wait for the lock.
async fn until_they_wait(looker: &quorlock::Locker, waiters: u64) {
    eventually("they wait", async || {
        let status = looker.inspect("x").await.expect("a majority");
        status.nodes.iter().any(|node| node.waiters == Some(waiters))
    })
    .await;
}

/// Its session ends while it stands still, and it is passed over. Then it asks again by itself.
#[test]
async fn a_waiter_that_is_cut_off_is_passed_over_and_comes_back() {
    let ensemble = ZooKeeperEnsemble::shared(3);
    let chroot = fresh_prefix();
    let proxy = Proxy::in_front_of(ensemble.endpoints()[0].parse().expect("an address"));
    let (direct, ttl) = (ensemble.endpoints(), LONG);
    let open = |endpoints: &[String]| on(endpoints, &chroot).ttl(ttl).max_ttl(ttl).connect();
    let holder = open(&direct).await.expect("connected");
    let cut_off = open(&[proxy.addr().to_string()]).await.expect("connected");
    let other = open(&direct).await.expect("connected");
    let guard = holder.lock("x").await.expect("free");
    let mut first = tokio::spawn(async move { cut_off.lock("x").wait(LONG).await });
    until_they_wait(&holder, 1).await;
    let second = tokio::spawn(async move { other.lock("x").wait(LONG).await });
    until_they_wait(&holder, 2).await;

    proxy.hang(true);
    let clients = format!("{chroot}/clients");
    eventually("its session is over", async || {
        let mut client = beside(ensemble, 0);
        client.sync();
        let waiting = client.children(&clients);
        let mut alive = |id: &String| client.exists(&format!("{clients}/{id}/alive"));
        waiting.iter().filter(|id| alive(id)).count() == 1
    })
    .await;
    guard.release().await.expect("released");
    let got = second.await.expect("no panic").expect("it is next");
    proxy.hang(false);
    let early = tokio::time::timeout(Duration::from_millis(50), &mut first).await;
    assert!(early.is_err(), "two hold it");
    got.release().await.expect("released");
    let got = first.await.expect("no panic").expect("it has asked again");
    got.release().await.expect("released");
}

/// Every connection begins a session, and the holder does not notice.
#[test]
async fn a_holder_does_not_notice_the_end_of_its_session() {
    let ensemble = ZooKeeperEnsemble::shared(3);
    let chroot = fresh_prefix();
    let proxy = Proxy::in_front_of(ensemble.endpoints()[0].parse().expect("an address"));
    let here = [proxy.addr().to_string()];
    let holder = on(&here, &chroot).ttl(LONG).max_ttl(LONG).connect().await.expect("connected");
    let guard = holder.lock("x").await.expect("free");
    for _ in 0..3 {
        proxy.cut();
        eventually("it goes on", async || guard.extend().await.is_ok()).await;
        assert!(guard.is_held());
    }
    guard.release().await.expect("released");
}

#[test]
async fn a_client_that_leaves_leaves_nothing_behind() {
    let ensemble = ZooKeeperEnsemble::shared(3);
    let chroot = fresh_prefix();
    let open = || on(&ensemble.endpoints(), &chroot).connect();
    let (holder, next) = (open().await.expect("connected"), open().await.expect("connected"));
    let guard = holder.lock("x").await.expect("free");
    let waiter = tokio::spawn(async move {
        let got = next.lock("x").wait(LONG).await.expect("its turn");
        got.release().await.expect("released");
    });
    until_they_wait(&holder, 1).await;
    guard.release().await.expect("released");
    waiter.await.expect("no panic");
    drop(holder);
    eventually("nothing is left", async || {
        let mut client = beside(ensemble, 0);
        client.sync();
        client.children(&format!("{chroot}/clients")).is_empty()
    })
    .await;
}
