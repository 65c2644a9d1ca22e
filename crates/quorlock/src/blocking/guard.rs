//! What a holder has in its hands.

use std::time::Duration;

use super::block_on::block_on;
use super::lost::{self, Presence};
use crate::{Error, GuardState, Loss, Name, Released, TokenText};

/// A lock that is held, as [`crate::Guard`] is one: its bad news holds here too.
///
/// It is extended on the thread `quorlock` while this guard lives, whatever the holder's thread does.
/// That also means that a holder which hangs keeps its lock: [`Lock::max_hold`](super::Lock::max_hold)
/// is against that.
///
/// Dropping it releases the lock in the background, in async code too: it does not block or panic.
#[derive(Debug)]
#[must_use = "a guard that is dropped releases its lock at once"]
pub struct Guard {
    /// Dropped before the lock is released, which is no loss.
    presence: Presence,
    guard: crate::Guard,
}

impl Guard {
    pub(super) fn new(guard: crate::Guard) -> Self {
        Self { presence: Presence::default(), guard }
    }

    /// The name of the lock.
    #[must_use]
    pub fn name(&self) -> &Name {
        self.guard.name()
    }

    /// The fence of this holder, for the check at what the lock protects. See
    /// [`crate::Guard::fence`].
    ///
    /// # Panics
    /// If the locker was built [without fences](crate::Builder::fences).
    #[must_use]
    pub fn fence(&self) -> u64 {
        self.guard.fence()
    }

    /// Whether the lock is held at this moment. Once it is `false` it stays so.
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.guard.is_held()
    }

    /// What is left of the validity; zero once the lock is lost. See [`crate::Guard::remaining`].
    #[must_use]
    pub fn remaining(&self) -> Duration {
        self.guard.remaining()
    }

    /// What is left to stop the work in once the loss was notified. See [`crate::Guard::grace`].
    #[must_use]
    pub fn grace(&self) -> Duration {
        self.guard.grace()
    }

    /// What is known of the lock.
    #[must_use]
    pub fn state(&self) -> GuardState {
        self.guard.state()
    }

    /// Makes the lock last for another TTL from now. See [`crate::Guard::extend`].
    ///
    /// # Errors
    /// Those of [`crate::Guard::extend`], and [`Error::Misuse`] in async code. Nothing is extended
    /// then.
    pub fn extend(&self) -> Result<(), Error> {
        block_on("Guard::extend", async { self.guard.extend().await })?
    }

    /// Blocks until the lock is lost, or is about to be, and says why; `None` if it is not after
    /// `at_most`. When that is reported, and what it costs, stands at [`crate::Guard::lost`].
    ///
    /// # Errors
    /// [`Error::Misuse`] in async code.
    pub fn wait_lost(&self, at_most: Duration) -> Result<Option<Loss>, Error> {
        lost::wait("Guard::wait_lost", self.guard.runtime(), self.guard.lost(), at_most)
    }

    /// Calls `tell` when the lock is lost, or is about to be, as [`crate::Guard::lost`] tells; not
    /// when this guard is released or dropped before that.
    ///
    /// It is called on the thread that keeps all locks of this locker: set a flag, send a message,
    /// end a process, but do not wait there. What blocks in this module refuses to.
    pub fn on_lost(&self, tell: impl FnOnce(Loss) + Send + 'static) {
        self.presence.tell(self.guard.runtime(), self.guard.lost(), tell);
    }

    /// What proves to the nodes that the lock is held. A secret. See [`crate::Guard::token`].
    #[must_use]
    pub fn token(&self) -> TokenText {
        self.guard.token()
    }

    /// Stops extending the lock without giving it back. See [`crate::Guard::into_token`].
    ///
    /// # Errors
    /// Those of [`crate::Guard::into_token`].
    pub fn into_token(self) -> Result<TokenText, Error> {
        let Self { presence, guard } = self;
        drop(presence);
        guard.into_token()
    }

    /// Gives the lock back on all nodes, and blocks until a majority has let go.
    ///
    /// # Errors
    /// Those of [`crate::Guard::release`], and [`Error::Misuse`] in async code. It is released all
    /// the same.
    pub fn release(self) -> Result<Released, Error> {
        let Self { presence, guard } = self;
        drop(presence);
        block_on("Guard::release", guard.release())?
    }
}
