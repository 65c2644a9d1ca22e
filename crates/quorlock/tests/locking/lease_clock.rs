//! The time of day is set while a lock is held that counts by it: its holder is told of the end in time.

use std::sync::{Arc, Weak};
use std::time::{Duration, SystemTime};

use quorlock::node::memory::MemoryNode;
use quorlock::node::{Call, Capabilities, ClientId, Failure, Inbox, Node};
use quorlock::runtime::{BoxFuture, Runtime};
use quorlock::{Dialect, Locker, Loss};
use quorlock_testkit::VirtualTime;

const MS: Duration = Duration::from_millis(1);
const LEAD: Duration = Duration::from_secs(1);

/// A node that compares the times of day of its clients.
#[derive(Debug, Default)]
struct ByWallClock(MemoryNode);

impl Node for ByWallClock {
    fn label(&self) -> &str {
        self.0.label()
    }

    fn capabilities(&self) -> Capabilities {
        let mut capabilities = self.0.capabilities();
        capabilities.by_wall_clock = true;
        capabilities
    }

    fn ready(&self) -> BoxFuture<'_, Result<(), Failure>> {
        self.0.ready()
    }

    fn submit(&self, call: Call) {
        self.0.submit(call);
    }

    fn listen(&self, client: ClientId, node: usize, inbox: Weak<dyn Inbox>) {
        self.0.listen(client, node, inbox);
    }
}

/// Set ahead by less than what is left: the end comes earlier by that, though nothing is due at that moment.
#[tokio::test(start_paused = true)]
async fn what_ends_earlier_is_told_earlier() {
    let time = Arc::new(VirtualTime::new(SystemTime::now()));
    let node = Arc::new(ByWallClock::default()) as Arc<dyn Node>;
    let builder = Locker::builder()
        .redis(quorlock::RedisOptions::default().dialect(Dialect::Redlock))
        .with_nodes([node])
        .loss_lead(LEAD);
    let runtime = Arc::clone(&time) as Arc<dyn Runtime>;
    let locker = builder.runtime(runtime).connect().await.expect("a locker");
    let guard = locker.lock("x").fixed().await.expect("free");
    // Nobody looks at it before it is told.
    let lost = tokio::spawn(guard.lost());
    time.pass(guard.remaining() - LEAD - 800 * MS).await;
    time.set_wall(time.wall() + 500 * MS);
    time.pass(250 * MS).await;
    assert!(!lost.is_finished(), "50 ms too early");
    time.pass(100 * MS).await;
    assert!(lost.is_finished(), "300 ms after it was set, and not 800");
    assert_eq!(lost.await.expect("no panic"), Loss::Expired);
}
