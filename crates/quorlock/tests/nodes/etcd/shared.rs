//! Locks that are shared with services which use etcd's own Go library.

use std::process::{Child, Command, Stdio};
use std::time::Duration;

use quorlock::{Builder, Error, Locker};
use quorlock_testkit::{EtcdCluster, eventually_async as eventually, fresh_prefix, test};

use super::go_peer::GoPeer;
use super::{LONG, etcdctl};

/// Both speak of the same cluster.
fn cluster() -> &'static EtcdCluster {
    EtcdCluster::shared(3)
}

/// A name that no other test has. It begins with a slash, as keys in etcd often do.
fn fresh_name() -> String {
    format!("{}/nightly", fresh_prefix())
}

fn on() -> Builder {
    Locker::builder().nodes([cluster().mutex_url()]).connect_limit(LONG)
}

async fn connect() -> Locker {
    on().ttl(LONG).max_ttl(LONG).connect().await.expect("connected")
}

/// Waits until so many stand behind the holder.
async fn waiters(locker: &Locker, name: &str, count: u64) {
    eventually("they wait", async || {
        let status = locker.inspect(name).await.expect("a majority");
        status.nodes.iter().any(|node| node.waiters == Some(count))
    })
    .await;
}

#[test]
async fn what_quorlock_holds_the_go_service_waits_for() {
    let (mut peer, name) = (GoPeer::start(cluster()), fresh_name());
    let locker = connect().await;
    let guard = locker.lock(&name).await.expect("free");
    assert_eq!(peer.try_lock(&name), None);
    peer.begin_to_lock(&name);
    waiters(&locker, &name, 1).await;
    guard.extend().await.expect("held");
    assert!(peer.is_silent(), "two hold it");
    let fence = guard.fence();
    guard.release().await.expect("released");
    assert!(peer.locked(&name).expect("its turn") > fence, "fences are of one kind");
}

#[test]
async fn what_the_go_service_holds_quorlock_waits_for() {
    let (mut peer, name) = (GoPeer::start(cluster()), fresh_name());
    let locker = connect().await;
    let theirs = peer.try_lock(&name).expect("free");
    let error = locker.try_lock(&name).await.expect_err("taken");
    let Error::Taken { holder, remaining: Some(remaining), .. } = &error else {
        panic!("{error:?}");
    };
    assert!(holder.is_some(), "{error}");
    assert!(*remaining <= GoPeer::session(), "{error}");
    let waiting = tokio::spawn({
        let (locker, name) = (locker.clone(), name.clone());
        async move { locker.lock(name).wait(LONG).await }
    });
    waiters(&locker, &name, 1).await;
    assert!(!waiting.is_finished(), "two hold it");
    peer.unlock(&name);
    let guard = waiting.await.expect("no panic").expect("its turn");
    assert!(guard.fence() > theirs, "{:?} after {theirs}", guard.fence());
    assert_eq!(peer.try_lock(&name), None);
    guard.release().await.expect("released");
    assert!(peer.try_lock(&name).is_some());
}

/// Whatever library they use.
#[test]
async fn those_who_wait_have_their_turns_in_the_order_of_their_coming() {
    let name = fresh_name();
    let (mut first, mut third) = (GoPeer::start(cluster()), GoPeer::start(cluster()));
    let (holder, second, fourth) = (connect().await, connect().await, connect().await);
    let guard = holder.lock(&name).await.expect("free");
    let wait = |locker: &Locker| {
        let lock = locker.lock(&name).wait(LONG);
        tokio::spawn(async move { lock.await.expect("its turn") })
    };
    first.begin_to_lock(&name);
    waiters(&holder, &name, 1).await;
    let second = wait(&second);
    waiters(&holder, &name, 2).await;
    third.begin_to_lock(&name);
    waiters(&holder, &name, 3).await;
    let fourth = wait(&fourth);
    waiters(&holder, &name, 4).await;

    let mut fences = vec![guard.fence()];
    guard.release().await.expect("released");
    fences.push(first.locked(&name).expect("its turn"));
    assert!(!second.is_finished() && third.is_silent() && !fourth.is_finished());
    first.unlock(&name);
    let guard = second.await.expect("no panic");
    assert!(third.is_silent() && !fourth.is_finished());
    fences.push(guard.fence());
    guard.release().await.expect("released");
    fences.push(third.locked(&name).expect("its turn"));
    assert!(!fourth.is_finished());
    third.unlock(&name);
    let guard = fourth.await.expect("no panic");
    fences.push(guard.fence());
    assert!(fences.is_sorted_by(|a, b| a < b), "{fences:?}");
    guard.release().await.expect("released");
}

#[test]
async fn a_go_service_that_was_killed_frees_its_lock_with_its_session() {
    let (mut peer, mut waiter) = (GoPeer::start(cluster()), GoPeer::start(cluster()));
    let (name, locker) = (fresh_name(), connect().await);
    assert!(peer.try_lock(&name).is_some());
    // It is passed over, once its session is over too.
    waiter.begin_to_lock(&name);
    waiters(&locker, &name, 1).await;
    waiter.kill();
    peer.kill();
    let guard = locker.lock(&name).wait(LONG).await.expect("its turn");
    guard.release().await.expect("released");
}

/// A process that holds a lock and never ends by itself.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Set for the process that is killed.
const VICTIM: &str = "QUORLOCK_TEST_VICTIM";

#[test]
async fn a_quorlock_that_was_killed_frees_its_lock_after_its_ttl() {
    const TTL: Duration = Duration::from_secs(2);
    if let Some(name) = std::env::var_os(VICTIM) {
        let url = std::env::var("QUORLOCK_TEST_URL").expect("the cluster");
        let locker = Locker::builder().nodes([url]).ttl(TTL).connect_limit(LONG);
        let locker = locker.connect().await.expect("connected");
        let guard = locker.lock(name.as_encoded_bytes()).await.expect("free");
        guard.lost().await;
        return;
    }
    let (mut peer, name) = (GoPeer::start(cluster()), fresh_name());
    let this = std::env::current_exe().expect("this program");
    let victim = Command::new(this)
        .args(["--exact", "etcd::shared::a_quorlock_that_was_killed_frees_its_lock_after_its_ttl"])
        .env(VICTIM, &name)
        .env("QUORLOCK_TEST_URL", cluster().mutex_url())
        .stdout(Stdio::null())
        .spawn()
        .expect("it starts");
    let mut victim = Killed(victim);
    let locker = connect().await;
    eventually("it holds the lock", async || {
        locker.inspect(&name).await.expect("a majority").holder().is_some()
    })
    .await;
    peer.begin_to_lock(&name);
    waiters(&locker, &name, 1).await;
    assert!(peer.is_silent(), "two hold it");
    victim.0.kill().expect("it can be killed");
    victim.0.wait().expect("it is gone");
    assert!(peer.locked(&name).is_some());
}

/// The token is all that another process needs.
#[test]
async fn a_lock_goes_to_another_process_with_its_token() {
    let (mut peer, name) = (GoPeer::start(cluster()), fresh_name());
    let guard = connect().await.lock(&name).await.expect("free");
    let fence = guard.fence();
    let token = guard.into_token().expect("it outlives us");
    assert_eq!(peer.try_lock(&name), None);
    let guard = connect().await.resume(&name, token.as_str()).await.expect("held");
    assert_eq!(guard.fence(), fence);
    guard.release().await.expect("released");
    assert!(peer.try_lock(&name).is_some());
}

/// The layout is that of `etcdctl lock` too, which shows where the keys lie.
#[test]
async fn a_prefix_is_put_before_the_names() {
    let (mut peer, name) = (GoPeer::start(cluster()), fresh_name());
    let (prefix, rest) = name.rsplit_once('/').expect("a slash");
    let url = format!("{}/{prefix}", cluster().mutex_url());
    let locker = Locker::builder().nodes([url]).connect_limit(LONG);
    let locker = locker.connect().await.expect("connected");
    let guard = locker.lock(rest).await.expect("free");
    let keys = etcdctl(cluster(), &["get", "--prefix", "--keys-only", &format!("{name}/")]);
    let holder = locker.inspect(rest).await.expect("a majority").holder().expect("held");
    let digits = holder.to_string();
    assert!(keys.starts_with(&format!("{name}/{}", &digits[1..])), "{keys}: {digits}");
    assert_eq!(peer.try_lock(&name), None);
    guard.release().await.expect("released");
    assert!(peer.try_lock(&name).is_some());
}

/// Go counts them among those who want the lock.
#[test]
async fn a_lock_whose_name_begins_with_another_is_another() {
    let (mut peer, name) = (GoPeer::start(cluster()), fresh_name());
    let locker = connect().await;
    let inner = locker.lock(format!("{name}/inner")).await.expect("free");
    let outer = locker.try_lock(&name).await.expect("free");
    assert_eq!(peer.try_lock(&name), None);
    let error = connect().await.try_lock(&name).await.expect_err("held");
    assert!(matches!(error, Error::Taken { .. }), "{error}");
    outer.release().await.expect("released");
    inner.release().await.expect("released");
    let theirs = peer.try_lock(&name);
    assert!(theirs.is_some());
    assert!(connect().await.try_lock(&name).await.is_err());
}

#[test]
async fn a_lock_is_taken_away_from_a_go_service_by_force() {
    let (mut peer, name) = (GoPeer::start(cluster()), fresh_name());
    assert!(peer.try_lock(&name).is_some());
    let locker = connect().await;
    let seen = locker.inspect(&name).await.expect("a majority");
    locker.force_release(&seen).await.expect("taken away");
    locker.try_lock(&name).await.expect("free").release().await.expect("released");
}
