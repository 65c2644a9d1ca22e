//! Several workers, one job: the worker that gets the lock does it, the others find it done.
//!
//! ```text
//! cargo run -p quorlock --example once                       three nodes in memory
//! cargo run -p quorlock --example once redis://localhost     or real ones
//! ```

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use quorlock::node::Node;
use quorlock::node::memory::MemoryNode;
use quorlock::{Error, Locker};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Error> {
    let urls: Vec<String> = std::env::args().skip(1).collect();
    let builder = Locker::builder().ttl(Duration::from_secs(5));
    let builder = if urls.is_empty() {
        builder.with_nodes((0..3).map(|_| Arc::new(MemoryNode::new()) as Arc<dyn Node>))
    } else {
        builder.nodes(urls)
    };
    let locker = builder.connect().await?;
    let done = Arc::new(AtomicUsize::new(0));

    let mut workers = tokio::task::JoinSet::new();
    for worker in 1..=4 {
        let (locker, done) = (locker.clone(), Arc::clone(&done));
        workers.spawn(async move {
            let guard = locker.lock("example/once").wait(Duration::from_secs(10)).await?;
            if done.load(Ordering::SeqCst) > 0 {
                println!("worker {worker}: done already");
            } else if guard.is_held() {
                done.fetch_add(1, Ordering::SeqCst);
                println!("worker {worker}: did it, with {:.1?} to spare", guard.remaining());
            }
            guard.release().await
        });
    }
    while let Some(ended) = workers.join_next().await {
        ended.expect("no worker panics")?;
    }
    locker.shutdown().await;
    assert_eq!(done.load(Ordering::SeqCst), 1);
    Ok(())
}
