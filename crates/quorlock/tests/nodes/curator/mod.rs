//! Locks that are shared with services which use Curator.

mod session;

use std::process::{Child, Command, Stdio};
use std::time::Duration;

use quorlock::{Builder, Error, Locker, Owner};
use quorlock_testkit::skipping::lacks;
use quorlock_testkit::{ZooKeeperEnsemble, eventually_async as eventually, fresh_prefix, test};

use crate::peer::Peer;

/// Longer than any test takes.
const LONG: Duration = Duration::from_secs(60);
/// So long that nobody who waits asks again before a test fails.
const TTL: Duration = Duration::from_secs(30);
/// The session of a Java service outlives it by so much.
const SESSION: Duration = Duration::from_secs(4);

fn ensemble() -> &'static ZooKeeperEnsemble {
    ZooKeeperEnsemble::shared(3)
}

/// Starts a Java service. Without the program, the test is skipped.
fn start() -> Peer {
    let classes = std::env::var_os("QUORLOCK_TEST_CURATOR").unwrap_or_else(|| {
        let text =
            "QUORLOCK_TEST_CURATOR names no program that locks with Curator: `cargo xtask test` builds one";
        lacks("curator", text)
    });
    let session = SESSION.as_millis().to_string();
    let mut java = Command::new("java");
    java.args(["-Xshare:auto", "-XX:TieredStopAtLevel=1", "-Xmx64m", "-cp"]);
    Peer::start(java.arg(classes).args([
        "CuratorPeer",
        &ensemble().endpoints().join(","),
        &session,
    ]))
}

/// A path that no other test has.
fn fresh_name() -> String {
    format!("{}/nightly", fresh_prefix())
}

/// However slow the machine is, nothing fails for want of time alone.
fn on(ensemble: &ZooKeeperEnsemble) -> Builder {
    Locker::builder().nodes([ensemble.curator_url()]).connect_limit(LONG)
}

async fn connect() -> Locker {
    on(ensemble()).ttl(TTL).connect().await.expect("connected")
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
async fn what_quorlock_holds_the_java_service_waits_for() {
    let (mut peer, name) = (start(), fresh_name());
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
async fn what_the_java_service_holds_quorlock_waits_for() {
    let (mut peer, name) = (start(), fresh_name());
    let locker = connect().await;
    let theirs = peer.try_lock(&name).expect("free");
    let error = locker.try_lock(&name).await.expect_err("taken");
    let Error::Taken { holder, .. } = &error else { panic!("{error:?}") };
    assert!(holder.is_some(), "{error}");
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
    let (mut first, mut third) = (start(), start());
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
async fn a_java_service_that_was_killed_frees_its_lock_with_its_session() {
    let (mut peer, mut waiter) = (start(), start());
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
async fn a_quorlock_that_was_killed_frees_its_lock_with_its_session() {
    if let Some(name) = std::env::var_os(VICTIM) {
        let url = std::env::var("QUORLOCK_TEST_URL").expect("the ensemble");
        let locker = Locker::builder().nodes([url]).ttl(SESSION / 2).connect_limit(LONG);
        let locker = locker.connect().await.expect("connected");
        let guard = locker.lock(name.as_encoded_bytes()).await.expect("free");
        guard.lost().await;
        return;
    }
    let (mut peer, name) = (start(), fresh_name());
    let this = std::env::current_exe().expect("this program");
    let victim = Command::new(this)
        .args(["--exact", "curator::a_quorlock_that_was_killed_frees_its_lock_with_its_session"])
        .env(VICTIM, &name)
        .env("QUORLOCK_TEST_URL", ensemble().curator_url())
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

#[test]
async fn a_chroot_is_put_before_the_names() {
    let (mut peer, name) = (start(), fresh_name());
    let (chroot, rest) = name.rsplit_once('/').expect("a slash");
    let url = format!("{}{chroot}", ensemble().curator_url());
    let locker = Locker::builder().nodes([url]).connect_limit(LONG);
    let locker = locker.connect().await.expect("connected");
    let guard = locker.lock(rest).await.expect("free");
    assert_eq!(peer.try_lock(&name), None);
    guard.release().await.expect("released");
    assert!(peer.try_lock(&name).is_some());
}

#[test]
async fn a_lock_whose_name_begins_with_another_is_another() {
    let (mut peer, name) = (start(), fresh_name());
    let locker = connect().await;
    let inner = locker.lock(format!("{name}/inner")).await.expect("free");
    let outer = locker.try_lock(&name).await.expect("free");
    assert_eq!(peer.try_lock(&name), None);
    outer.release().await.expect("released");
    assert!(peer.try_lock(&name).is_some());
    assert!(connect().await.try_lock(&name).await.is_err());
    inner.release().await.expect("released");
}

#[test]
async fn a_lock_is_taken_away_from_a_java_service_by_force() {
    let (mut peer, name) = (start(), fresh_name());
    assert!(peer.try_lock(&name).is_some());
    let locker = connect().await;
    let seen = locker.inspect(&name).await.expect("a majority");
    locker.force_release(&seen).await.expect("taken away");
    locker.try_lock(&name).await.expect("free").release().await.expect("released");
}

#[test]
async fn what_outlives_a_session_is_refused_and_told_what_to_do() {
    let (name, locker) = (fresh_name(), connect().await);
    let me = locker.new_owner();
    let guard = locker.lock(&name).owner(&me).await.expect("free");
    let elsewhere = Owner::from_id(&me.id()).expect("an id");
    let lock = connect().await.try_lock(&name).owner(&elsewhere);
    let text = lock.await.expect_err("another process").to_string();
    assert!(text.contains("end with the session") && text.contains("quorlock run"), "{text}");
    let text = guard.into_token().expect_err("it ends with us").to_string();
    assert!(text.contains("end with the session"), "{text}");
}

#[test]
async fn a_ttl_above_half_of_the_longest_session_is_refused() {
    let builder = on(ensemble()).ttl(LONG).max_ttl(LONG);
    let text = builder.connect().await.expect_err("too long").to_string();
    assert!(text.contains("a TTL of 60s") && text.contains("to 30s"), "{text}");
}

#[test]
async fn the_doctor_says_what_sharing_means() {
    let admin = on(ensemble()).admin();
    let checkup = admin.examine(format!("{}/doctor", fresh_prefix())).await.expect("it looks");
    let [node] = checkup.nodes.as_slice() else { panic!("{checkup:?}") };
    assert!(node.usable, "{node:?}");
    let shared =
        node.findings.iter().find(|finding| finding.check == "shared").expect("it says so");
    assert!(shared.text.contains("let the resource check fences"), "{}", shared.text);
    let told = node.findings.iter().find(|finding| finding.check == "wake-up").expect("it says so");
    assert!(told.text.contains("told of their turn ("), "{}", told.text);
}
