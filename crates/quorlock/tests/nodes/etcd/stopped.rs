//! Clients that are stopped for longer than anything of theirs lasts.

use std::io::{BufRead as _, BufReader, Lines};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use quorlock_testkit::{EtcdCluster, eventually_async as eventually, test};
use rustix::process::{Pid, Signal, kill_process};

use super::{LONG, etcdctl, on};

const TTL: Duration = Duration::from_secs(2);
/// By this much a record outlasts its TTL at the most: three seconds, and some for a machine that is busy.
const LATER: Duration = Duration::from_secs(5);
/// Where the process that is stopped finds the cluster.
const ENDPOINT: &str = "QUORLOCK_TEST_ENDPOINT";

/// A process that locks, and is not left behind if the test fails.
struct Running(Child, Lines<BufReader<ChildStdout>>);

impl Running {
    /// One that wants the lock `x` as soon as it is there.
    fn start(cluster: &EtcdCluster) -> Self {
        let mut child = Command::new(std::env::current_exe().expect("this program"))
            .args(["--ignored", "--exact", "etcd::stopped::holds_and_says_so", "--nocapture"])
            .env(ENDPOINT, cluster.endpoints().remove(0))
            .stdout(Stdio::piped())
            .spawn()
            .expect("a process");
        let lines = BufReader::new(child.stdout.take().expect("piped")).lines();
        Self(child, lines)
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.0), signal).expect("it is there");
    }

    /// Waits until it says that, whatever else it says.
    fn says(&mut self, what: &str) {
        let said = self.1.by_ref().map_while(Result::ok).any(|line| line == what);
        assert!(said, "the process ended without {what:?}");
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The process that is stopped.
#[tokio::test]
#[ignore = "run by the others here"]
async fn holds_and_says_so() {
    let Ok(endpoint) = std::env::var(ENDPOINT) else { return };
    let locker = on(&[endpoint]).ttl(TTL).connect().await.expect("connected");
    println!("waits");
    let guard = locker.lock("x").wait(LONG).await.expect("its turn");
    println!("holds");
    guard.lost().await;
    assert!(!guard.is_held() || guard.remaining() < TTL / 4);
    println!("lost");
}

#[test]
async fn a_holder_that_is_stopped_loses_it_and_learns_that_at_once() {
    let cluster = EtcdCluster::start(3);
    let mut stopped = Running::start(&cluster);
    stopped.says("holds");
    let next = on(&cluster.endpoints()).ttl(TTL).connect().await.expect("connected");
    let before = next.lock("before").await.expect("free").fence();
    let waiter = tokio::spawn(async move { next.lock("x").wait(LONG).await });
    let began = Instant::now();
    stopped.signal(Signal::STOP);
    let got = waiter.await.expect("no panic").expect("its turn");
    let took = began.elapsed();
    assert!(took < TTL + LATER, "{took:?}");
    assert!(got.is_held() && got.fence() > before);
    stopped.signal(Signal::CONT);
    let began = Instant::now();
    stopped.says("lost");
    assert!(began.elapsed() < TTL, "it believed in it for {:?}", began.elapsed());
    got.release().await.expect("released");
}

#[test]
async fn a_waiter_that_is_stopped_is_passed_over() {
    let cluster = EtcdCluster::start(3);
    // So long that no record ends meanwhile: it is the waiter who is not there.
    let [holder, next] = [(); 2].map(|()| on(&cluster.endpoints()).ttl(LONG).max_ttl(LONG));
    let holder = holder.connect().await.expect("connected");
    let next = next.connect().await.expect("connected");
    let guard = holder.lock("x").await.expect("free");
    let mut stopped = Running::start(&cluster);
    stopped.says("waits");
    let waits = async |count| {
        eventually("they wait", async || {
            let status = holder.inspect("x").await.expect("a majority");
            status.nodes.iter().any(|node| node.waiters == Some(count))
        })
        .await;
    };
    waits(1).await;
    stopped.signal(Signal::STOP);
    let waiter = tokio::spawn(async move { next.lock("x").wait(LONG).await });
    waits(2).await;
    let clients = || etcdctl(&cluster, &["get", "--prefix", "--keys-only", "quorlock/client/"]);
    eventually("its sign of life has ended", async || {
        clients().lines().filter(|line| !line.is_empty()).count() == 1
    })
    .await;
    let began = Instant::now();
    guard.release().await.expect("released");
    let got = waiter.await.expect("no panic").expect("its turn");
    assert!(began.elapsed() < TTL, "somebody was in between: {:?}", began.elapsed());
    // It comes back to its place at the end of the queue.
    stopped.signal(Signal::CONT);
    waits(1).await;
    got.release().await.expect("released");
    stopped.says("holds");
}
