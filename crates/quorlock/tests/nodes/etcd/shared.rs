//! Locks that are shared with services which use etcd's own Go library.

use std::process::{Child, Command, Stdio};
use std::time::Duration;

use quorlock::{Builder, Error, Locker, Owner};
use quorlock_testkit::{EtcdCluster, eventually_async as eventually, fresh_prefix, test};

use super::go_peer;
use super::{LONG, etcdctl, first};

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
    let (mut peer, name) = (go_peer::start(cluster()), fresh_name());
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
    let (mut peer, name) = (go_peer::start(cluster()), fresh_name());
    let locker = connect().await;
    let theirs = peer.try_lock(&name).expect("free");
    let error = locker.try_lock(&name).await.expect_err("taken");
    let Error::Taken { holder, remaining: Some(remaining), .. } = &error else {
        panic!("{error:?}");
    };
    assert!(holder.is_some(), "{error}");
    assert!(*remaining <= go_peer::session(), "{error}");
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
    let (mut first, mut third) = (go_peer::start(cluster()), go_peer::start(cluster()));
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
    let (mut peer, mut waiter) = (go_peer::start(cluster()), go_peer::start(cluster()));
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
    let (mut peer, name) = (go_peer::start(cluster()), fresh_name());
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
    let (mut peer, name) = (go_peer::start(cluster()), fresh_name());
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
    let (mut peer, name) = (go_peer::start(cluster()), fresh_name());
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
    let (mut peer, name) = (go_peer::start(cluster()), fresh_name());
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
    let (mut peer, name) = (go_peer::start(cluster()), fresh_name());
    assert!(peer.try_lock(&name).is_some());
    let locker = connect().await;
    let seen = locker.inspect(&name).await.expect("a majority");
    locker.force_release(&seen).await.expect("taken away");
    locker.try_lock(&name).await.expect("free").release().await.expect("released");
}

/// A leader that was stopped does not know that there is another. What it says of leases counts for nothing.
#[test]
async fn a_leader_that_stands_still_lets_no_go_service_in_beside_us() {
    let cluster = EtcdCluster::start(3);
    let leader = cluster.leader();
    let mut peer = go_peer::start_on(&cluster.endpoints()[(leader + 1) % 3..][..1]);
    let ttl = Duration::from_secs(5);
    let url = format!("etcd+mutex://{}", first(&cluster, leader).join(","));
    let holder = Locker::builder().nodes([url]).ttl(ttl).connect_limit(LONG);
    let guard = holder.connect().await.expect("connected").lock("x").await.expect("free");
    peer.begin_to_lock("x");
    // The fault lasts for most of a TTL, and is over for more than another. Nothing that is seen meanwhile may be a
    // second holder.
    let look_until = async |time: Duration| {
        let end = tokio::time::Instant::now() + time;
        while tokio::time::Instant::now() < end {
            let is_theirs = !peer.is_silent();
            assert!(!(is_theirs && guard.is_held()), "two hold it");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    cluster.stop(leader);
    look_until(ttl * 4 / 5).await;
    cluster.cont(leader);
    look_until(ttl * 6 / 5).await;
    // If it was lost, it goes to the other by itself.
    drop(guard);
    assert!(peer.locked("x").is_some());
}

/// There is one revision for each key.
#[test]
async fn each_holder_of_a_process_has_a_fence_of_its_own() {
    let (name, locker) = (fresh_name(), connect().await);
    let first = locker.lock(&name).await.expect("free");
    let lock = locker.lock(&name).wait(LONG);
    let second = tokio::spawn(async move { lock.await.expect("its turn") });
    let before = first.fence();
    let released = first.release().await.expect("released");
    assert!(!released.is_passed_on());
    assert!(second.await.expect("no panic").fence() > before);
}

#[test]
async fn a_process_that_would_take_part_is_refused_and_told_what_to_do() {
    let (name, locker) = (fresh_name(), connect().await);
    let me = locker.new_owner();
    let guard = locker.lock(&name).owner(&me).await.expect("free");
    let again = locker.lock(&name).owner(&me).await.expect("in this process it has it");
    let elsewhere = Owner::from_id(&me.id()).expect("an id");
    let error =
        connect().await.try_lock(&name).owner(&elsewhere).await.expect_err("another process");
    let text = error.to_string();
    assert!(text.contains("held by one process at a time"), "{text}");
    assert!(text.contains("QUORLOCK_TOKEN"), "{text}");
    again.release().await.expect("released");
    guard.release().await.expect("released");
}

#[test]
async fn a_key_that_never_ends_is_named() {
    let (name, locker) = (fresh_name(), connect().await);
    let key = format!("{name}/config");
    etcdctl(cluster(), &["put", &key, "mine"]);
    let error = locker.try_lock(&name).await.expect_err("it never ends").to_string();
    assert!(error.contains(&key) && error.contains("has no lease"), "{error}");
}

#[test]
async fn nobody_else_reads_a_token_out_of_a_key() {
    let (name, locker) = (fresh_name(), connect().await);
    let guard = locker.lock(&name).note("who holds it").await.expect("free");
    let keys = etcdctl(cluster(), &["get", "--prefix", "--keys-only", &format!("{name}/")]);
    eventually("the note is there", async || {
        let status = locker.inspect(&name).await.expect("a majority");
        assert_eq!(status.fence(), Some(guard.fence()));
        status.note().is_some_and(|note| note.text == "who holds it")
    })
    .await;
    let token = guard.into_token().expect("it outlives us");
    let random = &token.as_str()["ql:".len()..];
    assert!(!keys.contains(random), "{keys}");
    locker.resume(&name, token.as_str()).await.expect("held").release().await.expect("released");
}

#[test]
async fn the_doctor_says_what_sharing_means() {
    let admin = on().admin();
    let checkup = admin.examine(format!("{}/doctor", fresh_prefix())).await.expect("it looks");
    let [node] = checkup.nodes.as_slice() else { panic!("{checkup:?}") };
    assert!(node.usable, "{node:?}");
    let shared =
        node.findings.iter().find(|finding| finding.check == "shared").expect("it says so");
    assert!(shared.text.contains("let the resource check fences"), "{}", shared.text);
    let told = node.findings.iter().find(|finding| finding.check == "wake-up").expect("it says so");
    assert!(told.text.contains("told of their turn ("), "{}", told.text);
}
