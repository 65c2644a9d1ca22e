//! A caller that asks for a lock and then never looks whether it has got it does not hold it for ever.

use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::sync::{Arc, Mutex, Weak};
use std::task::{Context, Waker};
use std::time::{Duration, SystemTime};

use quorlock::node::memory::MemoryNode;
use quorlock::node::{Call, Capabilities, ClientId, Failure, Inbox, Node};
use quorlock::runtime::{BoxFuture, Runtime};
use quorlock::{Dialect, Guard, Locker, Locking};
use quorlock_testkit::{VirtualTime, eventually_async as eventually};
use tokio::time::timeout;

const TTL: Duration = Duration::from_secs(10);

/// Two lockers of the same node.
async fn lockers() -> [Locker; 2] {
    let runtime = Arc::new(VirtualTime::new(SystemTime::now()));
    let node = Arc::new(MemoryNode::new());
    [locker(&node, &runtime).await, locker(&node, &runtime).await]
}

async fn locker<N: Node + 'static>(node: &Arc<N>, runtime: &Arc<VirtualTime>) -> Locker {
    let (node, runtime) = (Arc::clone(node) as Arc<dyn Node>, Arc::clone(runtime));
    let builder = Locker::builder()
        .redis(quorlock::RedisOptions::default().dialect(Dialect::Redlock))
        .with_nodes([node])
        .ttl(TTL);
    builder.runtime(runtime as Arc<dyn Runtime>).connect().await.expect("a locker")
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
    stands_behind(kept, next.expect("its turn")).await;
}

/// A caller that comes late stands behind the one that got it instead.
async fn stands_behind(mut kept: Locking, next: Guard) {
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

/// A node whose answers wait until they are let out.
#[derive(Debug)]
struct Withheld {
    node: MemoryNode,
    calls: Mutex<Option<Vec<Call>>>,
}

impl Withheld {
    fn new() -> Arc<Self> {
        Arc::new(Self { node: MemoryNode::new(), calls: Mutex::new(Some(Vec::new())) })
    }

    /// Answers what was asked so far. Returns how much that was.
    fn answer(&self) -> usize {
        let calls = self.calls.lock().expect("no panic").replace(Vec::new()).unwrap_or_default();
        let count = calls.len();
        calls.into_iter().for_each(|call| self.node.submit(call));
        count
    }

    /// Answers at once from now on.
    fn answer_all(&self) {
        let calls = self.calls.lock().expect("no panic").take().unwrap_or_default();
        calls.into_iter().for_each(|call| self.node.submit(call));
    }
}

impl Node for Withheld {
    fn label(&self) -> &str {
        self.node.label()
    }

    fn capabilities(&self) -> Capabilities {
        self.node.capabilities()
    }

    fn ready(&self) -> BoxFuture<'_, Result<(), Failure>> {
        self.node.ready()
    }

    fn submit(&self, call: Call) {
        let mut calls = self.calls.lock().expect("no panic");
        match &mut *calls {
            Some(calls) => calls.push(call),
            None => {
                drop(calls);
                self.node.submit(call);
            }
        }
    }

    fn listen(&self, client: ClientId, node: usize, inbox: Weak<dyn Inbox>) {
        self.node.listen(client, node, inbox);
    }
}

/// Many locks are wanted at once, and the caller that wants them looks at none of them for a while.
#[tokio::test(start_paused = true)]
async fn those_who_do_not_look_keep_nobody_from_other_locks() {
    let node = Withheld::new();
    let locker = locker(&node, &Arc::new(VirtualTime::new(SystemTime::now()))).await;
    let mut kept: Vec<_> =
        (0..1_200).map(|index| locker.lock(format!("kept {index}")).into_future()).collect();
    kept.iter_mut().for_each(look);
    let at_once = node.answer();
    assert!(at_once < 600, "{at_once} are asked for at once");
    let next = tokio::spawn(locker.lock("another").into_future());
    tokio::task::yield_now().await;
    node.answer_all();
    let next = timeout(TTL, next).await.expect("in time").expect("no panic");
    next.expect("nobody else wants it").release().await.expect("released");
    // Those who left before their turn are passed over, and what the others got is given back.
    drop(kept);
    eventually("nothing is left", async || node.node.is_empty()).await;
}

/// The same where a waiter for the very same lock sits behind.
#[tokio::test(start_paused = true)]
async fn what_was_free_goes_to_the_next_who_comes_for_it() {
    let node = Withheld::new();
    let locker = locker(&node, &Arc::new(VirtualTime::new(SystemTime::now()))).await;
    let mut kept = locker.lock("x").into_future();
    look(&mut kept);
    node.answer_all();
    let next = tokio::spawn(locker.lock("x").into_future());
    let next = timeout(3 * TTL, next).await.expect("in time").expect("no panic");
    stands_behind(kept, next.expect("its turn")).await;
}
