//! Three nodes in virtual time.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use quorlock::node::Node;
use quorlock::runtime::Runtime;
use quorlock::{Builder, Locker};

use crate::{Asked, VirtualTime, Witness};

/// Three nodes that answer at once and remember what they were asked, and a clock that only waiting
/// moves. For tests with `#[tokio::test(start_paused = true)]`.
#[derive(Debug)]
pub struct StillWorld {
    /// The time of everybody in it.
    pub time: Arc<VirtualTime>,
    /// The nodes.
    pub nodes: Vec<Arc<Witness>>,
}

impl StillWorld {
    /// The TTL of all locks, unless they ask for another.
    pub const TTL: Duration = Duration::from_secs(30);
    /// How long a node may take to answer.
    pub const LIMIT: Duration = Duration::from_millis(50);

    /// A world in which nothing is held.
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    #[must_use]
    #[expect(clippy::new_without_default, reason = "it panics outside of a runtime")]
    pub fn new() -> Self {
        let time = Arc::new(VirtualTime::new(SystemTime::now()));
        let runtime = Arc::clone(&time) as Arc<dyn Runtime>;
        let nodes = (0..3).map(|_| Witness::new(Arc::clone(&runtime), Self::LIMIT)).collect();
        Self { time, nodes }
    }

    /// A locker to be set up further.
    pub fn builder(&self) -> Builder {
        Locker::builder()
            .with_nodes(self.nodes.iter().map(|node| Arc::clone(node) as Arc<dyn Node>))
            .ttl(Self::TTL)
            .node_limit(Self::LIMIT)
            .runtime(Arc::clone(&self.time) as Arc<dyn Runtime>)
    }

    /// A locker, which stands for a process of its own.
    ///
    /// # Panics
    /// Never: the nodes are there.
    pub async fn locker(&self) -> Locker {
        self.builder().connect().await.expect("a locker")
    }

    /// How often the first node was asked for something.
    #[must_use]
    pub fn count(&self, what: Asked) -> usize {
        self.nodes[0].asked().into_iter().filter(|asked| *asked == what).count()
    }
}
