//! Where locks come from.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::builder::Builder;
use crate::core::Core;
use crate::lock::Lock;

/// Takes locks on a set of nodes.
///
/// # Which kind should you use?
///
/// - *One process*: not this. A mutex of your runtime is a thousand times faster.
/// - *Efficiency*: the work should be done once rather than twice, and a rare double is
///   tolerable. One node is enough; three or five survive failures.
/// - *Correctness*: a double corrupts something. Three or five independent nodes in the `strict` dialect, which is
///   the default, clients whose clocks are kept by NTP, and a resource that refuses late writes by itself. In the
///   `redlock` dialect the nodes have to write every change to disk before they answer, besides.
///
/// # Nodes
///
/// N independent servers vote, and a majority decides: three nodes survive the loss of one, five
/// that of two. They must not be replicas of each other. All are asked at once, and the outcome is
/// known when the fastest majority has answered: a slow or dead node costs nothing.
///
/// A clone shares the connections. When the last clone and the last guard are gone the connections
/// are closed; [`shutdown`](Self::shutdown) waits for releases that are still under way.
#[derive(Debug, Clone)]
pub struct Locker {
    core: Arc<Core>,
}

impl Locker {
    /// Sets up a locker.
    pub fn builder() -> Builder {
        Builder::default()
    }

    pub(crate) fn new(core: Arc<Core>) -> Self {
        Self { core }
    }

    pub(crate) fn core(&self) -> &Arc<Core> {
        &self.core
    }

    /// Takes a lock, waiting for it without end unless [`Lock::wait`] sets one.
    ///
    /// The name is any string or bytes. See [`Locking`](crate::Locking) for the errors and for what
    /// dropping the future does.
    pub fn lock(&self, name: impl AsRef<[u8]>) -> Lock {
        Lock::new(&self.core, self.core.settings.name(name))
    }

    /// Takes a lock if it is free: one attempt, no waiting.
    pub fn try_lock(&self, name: impl AsRef<[u8]>) -> Lock {
        self.lock(name).wait(Duration::ZERO)
    }

    /// How long a lock with the TTL of this locker can be relied upon, if its nodes answer at once: the
    /// TTL less what these nodes take off it for clocks that differ.
    #[must_use]
    pub fn validity(&self) -> Duration {
        self.core.terms(self.core.settings.ttl).validity()
    }

    /// Refuses new locks, and waits until every release and every note that is under way was answered
    /// by every node, or has passed its time limit.
    ///
    /// Guards that are still held stay valid, and can be released afterwards.
    ///
    /// # Cancel safety
    /// Dropping it stops the waiting; new locks are refused all the same.
    pub async fn shutdown(&self) {
        self.core.closed.store(true, Ordering::Release);
        self.core.releases.drained().await;
    }
}
