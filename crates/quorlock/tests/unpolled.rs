//! Whoever asks for a lock and then never looks whether he has got it does not hold it for ever.

use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Waker};
use std::time::{Duration, SystemTime};

use quorlock::node::Node;
use quorlock::node::memory::MemoryNode;
use quorlock::runtime::Runtime;
use quorlock::{Dialect, Locker, Locking};
use quorlock_testkit::VirtualTime;
use tokio::time::timeout;

const TTL: Duration = Duration::from_secs(10);

/// Two lockers of the same node.
async fn lockers() -> [Locker; 2] {
    let runtime = Arc::new(VirtualTime::new(SystemTime::now())) as Arc<dyn Runtime>;
    let node = Arc::new(MemoryNode::new()) as Arc<dyn Node>;
    let locker = async || {
        let builder = Locker::builder().dialect(Dialect::Redlock).with_nodes([Arc::clone(&node)]);
        builder.ttl(TTL).runtime(Arc::clone(&runtime)).connect().await.expect("a locker")
    };
    [locker().await, locker().await]
}

/// Looks once, and never again.
fn look<F: Future + Unpin>(future: &mut F) {
    let mut cx = Context::from_waker(Waker::noop());
    assert!(Pin::new(future).poll(&mut cx).is_pending(), "another has it");
}

#[tokio::test(start_paused = true)]
async fn what_is_passed_on_in_a_process_goes_to_the_next_who_comes_for_it() {
    let [locker, _] = lockers().await;
    let guard = locker.lock("x").await.expect("free");
    let mut kept = locker.lock("x").into_future();
    look(&mut kept);
    let next = tokio::spawn(locker.lock("x").into_future());
    tokio::task::yield_now().await;
    drop(guard);
    let next = timeout(2 * TTL, next).await.expect("in time").expect("no panic");
    let next = next.expect("its turn");
    // Whoever comes late stands behind.
    look(&mut kept);
    let fence = next.fence();
    next.release().await.expect("released");
    let late = timeout(TTL, &mut kept).await.expect("in time").expect("its turn");
    assert!(late.fence() > fence);
}

/// One that has asked, was refused, and stands in the queue of the node.
async fn queued(locker: &Locker) -> Locking {
    let mut kept = locker.lock("x").into_future();
    for _ in 0..3 {
        look(&mut kept);
        tokio::task::yield_now().await;
    }
    kept
}

#[tokio::test(start_paused = true)]
async fn what_a_node_has_granted_goes_to_the_next_who_comes_for_it() {
    let [other, locker] = lockers().await;
    let guard = other.lock("x").await.expect("free");
    let mut kept = queued(&locker).await;
    let next = tokio::spawn(locker.lock("x").into_future());
    tokio::task::yield_now().await;
    guard.release().await.expect("released");
    let next = timeout(3 * TTL, next).await.expect("in time").expect("no panic");
    let next = next.expect("its turn");
    look(&mut kept);
    next.release().await.expect("released");
    timeout(TTL, &mut kept).await.expect("in time").expect("its turn").release().await.expect("ok");
}

/// Dropped after its place went to another, it takes nobody else's.
#[tokio::test(start_paused = true)]
async fn one_that_was_passed_over_may_be_dropped() {
    let [other, locker] = lockers().await;
    let guard = other.lock("x").await.expect("free");
    let kept = queued(&locker).await;
    let next = tokio::spawn(locker.lock("x").into_future());
    let last = tokio::spawn(locker.lock("x").into_future());
    tokio::task::yield_now().await;
    guard.release().await.expect("released");
    let next = timeout(3 * TTL, next).await.expect("in time").expect("no panic");
    let next = next.expect("its turn");
    drop(kept);
    tokio::task::yield_now().await;
    assert!(!last.is_finished(), "two are inside");
    next.release().await.expect("released");
    let last = timeout(TTL, last).await.expect("in time").expect("no panic");
    last.expect("its turn").release().await.expect("released");
}
