//! For whom locks are taken.

use crate::Error;
use crate::locker::Locker;
use crate::token::OwnerId;

/// One who may take the same lock again while holding it.
///
/// Without an owner every [`lock`](Locker::lock) stands for itself: two tasks exclude each other, and
/// so do two calls of one task. With an owner, a lock that is held for it is given to it again at
/// once, without asking the nodes; the lock is released with the last guard. The owner is a value,
/// not a thread: clone it into the tasks that are to share its locks, and into no others.
///
/// ```
/// # use std::sync::Arc;
/// # use quorlock::{Locker, node::{Node, memory::MemoryNode}};
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), quorlock::Error> {
/// # let node = Arc::new(MemoryNode::new()) as Arc<dyn Node>;
/// # let locker = Locker::builder().with_nodes([node]).connect().await?;
/// let me = locker.new_owner();
/// let outer = locker.lock("orders/42").owner(&me).await?;
/// let inner = locker.lock("orders/42").owner(&me).await?; // at once
/// outer.release().await?;
/// assert!(inner.is_held());
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct Owner {
    pub(crate) id: OwnerId,
    /// Whether the nodes have to be asked what is held for it.
    pub(crate) from_elsewhere: bool,
}

impl Owner {
    /// The owner with this [`id`](Self::id), made in another process or by another [`Locker`].
    ///
    /// Whether a lock is held for it is asked of the nodes. If it is, this process takes part in it: the
    /// nodes count the processes that hold it, each until its own time is over, and the last one that
    /// releases it frees it, whether it is the maker or not. A process that dies keeps it for no longer
    /// than its own TTL.
    ///
    /// # Errors
    /// [`Error::Misuse`] for a text that is no id.
    pub fn from_id(id: &str) -> Result<Self, Error> {
        match OwnerId::parse(id.trim()) {
            Some(id) => Ok(Self { id, from_elsewhere: true }),
            // Not shown: it may be most of a secret.
            None => Err(Error::misuse(
                format!("an owner id of {} characters cannot be read", id.trim().chars().count()),
                "pass it on as it was given (QUORLOCK_OWNER), 24 hexadecimal digits",
            )),
        }
    }

    /// What makes another process the same owner. A secret: anyone who has it, and can reach the
    /// nodes, gets in where this owner is.
    #[must_use]
    pub fn id(&self) -> String {
        self.id.text()
    }
}

impl Locker {
    /// A new owner, for whom nothing is held yet.
    #[must_use]
    pub fn new_owner(&self) -> Owner {
        Owner { id: OwnerId::random(&*self.core().runtime), from_elsewhere: false }
    }
}
