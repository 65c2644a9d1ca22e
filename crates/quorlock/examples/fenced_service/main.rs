//! A service that refuses late writes, and a client of it that is paused while it holds the lock.
//!
//! ```text
//! cargo run -p quorlock --example fenced_service
//! ```

mod client;
mod service;

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use quorlock::blocking::Locker;
use quorlock::node::Node;
use quorlock::node::memory::MemoryNode;
use tokio::net::TcpListener;

fn main() -> Result<(), Box<dyn Error>> {
    let runtime = tokio::runtime::Runtime::new()?;
    let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0"))?;
    let url = format!("http://{}/value", listener.local_addr()?);
    runtime.spawn(async { axum::serve(listener, service::routes()).await });

    // They stand for two processes. In earnest: .nodes(["redis://a", "redis://b", "redis://c"])
    let node: Arc<dyn Node> = Arc::new(MemoryNode::new());
    let connect = || Locker::builder().with_nodes([Arc::clone(&node)]).connect();
    let (first, second) = (connect()?, connect()?);

    // Not extended, as if its process stood still from here on.
    let early = first.lock("document").ttl(Duration::from_secs(1)).fixed().acquire()?;
    println!("the first holds the lock, fence {}", early.fence());
    println!("  it writes: {}", client::put(&url, early.fence(), "by the first")?);

    println!("  it is paused, and the second waits …");
    let late = second.lock("document").acquire()?;
    println!("the second holds the lock, fence {}", late.fence());
    println!("  it writes: {}", client::put(&url, late.fence(), "by the second")?);

    println!("the first goes on, and has not looked at its guard");
    println!("  it writes: {}", client::put(&url, early.fence(), "too late, by the first")?);
    println!("the service has: {}", client::get(&url)?);
    late.release()?;
    Ok(())
}
