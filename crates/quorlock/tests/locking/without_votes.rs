//! What callers learn that were behind another of their process which has no votes, or is gone meanwhile.

use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::sync::{Arc, Mutex, Weak};
use std::task::{Context, Poll, Waker};

use quorlock::node::memory::MemoryNode;
use quorlock::node::{
    Answer, Call, Capabilities, ClientId, Failure, FailureKind, Inbox, Node, Verb,
};
use quorlock::runtime::BoxFuture;
use quorlock::{Error, Locker};

/// A node that has nobody wait in its queue, and whose answers to those who look at it are withheld.
#[derive(Debug)]
struct NoQueue {
    node: Arc<MemoryNode>,
    looks: Mutex<Vec<Call>>,
}

impl NoQueue {
    /// Answers those who have looked at it. Returns how many they are.
    fn answer_looks(&self) -> usize {
        let looks = std::mem::take(&mut *self.looks.lock().expect("no panic"));
        let count = looks.len();
        looks.into_iter().for_each(|call| self.node.submit(call));
        count
    }
}

impl Node for NoQueue {
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
        match call.request().verb {
            Verb::Wait { .. } => {
                call.answer(Answer::Failed(Failure::new(FailureKind::Clock, "is off")));
            }
            Verb::Inspect => self.looks.lock().expect("no panic").push(call),
            _ => self.node.submit(call),
        }
    }

    fn listen(&self, client: ClientId, node: usize, inbox: Weak<dyn Inbox>) {
        self.node.listen(client, node, inbox);
    }
}

fn poll<F: Future + Unpin>(future: &mut F) -> Poll<F::Output> {
    Pin::new(future).poll(&mut Context::from_waker(Waker::noop()))
}

async fn locker(nodes: impl Iterator<Item = Arc<dyn Node>>) -> Locker {
    Locker::builder().with_nodes(nodes).connect().await.expect("connected")
}

/// Three nodes, and what wraps them.
fn three() -> (Vec<Arc<MemoryNode>>, Vec<Arc<NoQueue>>) {
    let memory: Vec<_> = (0..3).map(|_| Arc::new(MemoryNode::new())).collect();
    let no_queue = |node: &Arc<MemoryNode>| {
        Arc::new(NoQueue { node: Arc::clone(node), looks: Mutex::default() })
    };
    let nodes = memory.iter().map(no_queue).collect();
    (memory, nodes)
}

/// The waiter before it is gone when the nodes are looked at, and the lock has been free all the while.
#[tokio::test(start_paused = true)]
async fn who_was_behind_a_waiter_without_votes_is_told_of_the_nodes() {
    let (memory, nodes) = three();
    let other = locker(memory.iter().map(|node| Arc::clone(node) as _)).await;
    let locker = locker(nodes.iter().map(|node| Arc::clone(node) as _)).await;

    let held = other.try_lock("x").await.expect("free");
    let mut waiter = locker.lock("x").into_future();
    assert!(poll(&mut waiter).is_pending());
    held.release().await.expect("released");

    let mut behind = locker.try_lock("x").into_future();
    assert!(poll(&mut behind).is_pending());
    drop(waiter);
    let looks: usize = nodes.iter().map(|node| node.answer_looks()).sum();
    assert_eq!(looks, 3, "it looks who holds the lock");
    let Poll::Ready(answer) = poll(&mut behind) else { panic!("all nodes have answered") };
    let error = answer.expect_err("it was not its turn");
    assert!(matches!(error, Error::Clock { .. }), "{error:?}");
}

/// The holder before it has released the lock when the nodes are looked at: nobody has it, so it is tried again.
#[tokio::test(start_paused = true)]
async fn who_was_behind_a_holder_that_has_gone_gets_the_lock() {
    let (_, nodes) = three();
    let locker = locker(nodes.iter().map(|node| Arc::clone(node) as _)).await;
    let held = locker.try_lock("x").await.expect("free");
    let mut behind = locker.try_lock("x").into_future();
    assert!(poll(&mut behind).is_pending());
    held.release().await.expect("released");

    let looks: usize = nodes.iter().map(|node| node.answer_looks()).sum();
    assert_eq!(looks, 3, "it looks who holds the lock");
    let guard = behind.await.expect("nobody has it");
    assert!(guard.is_held());
}
