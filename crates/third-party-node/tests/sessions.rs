//! What a locker makes of an engine whose records cannot outlive their client.

use std::sync::Arc;
use std::time::Duration;

use quorlock::node::Node;
use quorlock::node::memory::MemoryNode;
use quorlock::{Error, Locker, Loss, Owner};
use third_party_node::{Registry, RegistryNode};

async fn locker(node: &Arc<RegistryNode>) -> Locker {
    let node = Arc::clone(node) as Arc<dyn Node>;
    Locker::builder().with_nodes([node]).connect().await.expect("a locker")
}

fn misuse(error: &Error) -> String {
    assert!(matches!(error, Error::Misuse { .. }), "{error:?}");
    error.to_string()
}

#[tokio::test]
async fn locks_exclude_each_other_and_have_growing_fences() {
    let registry = Registry::new();
    let (here, there) = (registry.connect(), registry.connect());
    let (here, there) = (locker(&here).await, locker(&there).await);
    let first = here.lock("job").await.expect("a free lock");
    assert!(matches!(there.try_lock("job").await, Err(Error::Taken { .. })));
    let before = first.fence();
    first.release().await.expect("a release");
    let second = there.lock("job").wait(Duration::from_secs(30)).await.expect("a free lock");
    assert!(second.fence() > before);
}

/// It does not believe on until its lease ends.
#[tokio::test]
async fn a_holder_is_told_at_once_when_its_session_ends() {
    let registry = Registry::new();
    let (node, other) = (registry.connect(), registry.connect());
    let (mine, theirs) = (locker(&node).await, locker(&other).await);
    let guard = mine.lock("job").ttl(Duration::from_secs(30)).await.expect("a free lock");
    node.expire();
    assert_eq!(guard.lost().await, Loss::Gone);
    assert!(!guard.is_held());
    let next = theirs.try_lock("job").await.expect("the record is gone");
    assert!(next.is_held());
    // What is taken in the next session is not touched by the end of the one before.
    let again = mine.lock("another job").await.expect("a free lock");
    assert!(again.extend().await.is_ok() && again.is_held());
}

#[tokio::test]
async fn a_lock_cannot_be_handed_to_another_process() {
    let registry = Registry::new();
    let node = registry.connect();
    let locker = locker(&node).await;
    let guard = locker.lock("job").await.expect("a free lock");
    let kept = misuse(&guard.into_token().expect_err("it would end with this process"));
    assert!(kept.contains("job") && kept.contains("quorlock run"), "{kept}");
    let token = "0".repeat(40);
    misuse(&locker.resume("job", &token).await.expect_err("nothing can be handed over"));
    let owner = Owner::from_id(&locker.new_owner().id()).expect("an id");
    let shared = locker.lock("shared").owner(&owner).await;
    misuse(&shared.expect_err("another process cannot take part"));
}

#[tokio::test]
async fn an_engine_that_stands_alone_is_not_one_of_many() {
    let registry = Registry::new();
    let node = registry.connect() as Arc<dyn Node>;
    let memory = Arc::new(MemoryNode::new()) as Arc<dyn Node>;
    let both = Locker::builder().with_nodes([node, memory]).connect().await;
    let text = misuse(&both.expect_err("it is a cluster by itself"));
    assert!(text.contains("registry") && text.contains("one of 2 nodes"), "{text}");
}
