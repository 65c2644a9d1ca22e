//! How many new locks are asked for at once.
//!
//! Whoever wants one of ten thousand names at the same moment waits here, and not in the lines of the nodes: a round
//! is stamped when it begins, and what it wins counts from then. Extensions and releases do not pass here, so that
//! locks which are held come before those that are wanted.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::sync::{AcquireError, OwnedSemaphorePermit, Semaphore, SemaphorePermit};

use crate::runtime::BoxFuture;

/// So many rounds are undecided at the most. Each is one call to each node: what keeps a node busy, and what it
/// answers within a fraction of the clock window.
const ROUNDS: usize = 512;

/// Lets in so many at once, and the others in the order of their coming.
pub(crate) struct Gate(Arc<Semaphore>);

impl Default for Gate {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(ROUNDS)))
    }
}

impl Gate {
    /// Whether there is room at once, and nobody waits for it. Whoever gets in has to [`leave`](Self::leave).
    pub(crate) fn enter(&self) -> bool {
        self.0.try_acquire().map(SemaphorePermit::forget).is_ok()
    }

    /// Waits for room.
    pub(crate) fn wait(&self) -> Waiting {
        Waiting(Box::pin(Arc::clone(&self.0).acquire_owned()))
    }

    /// Makes room for the next one.
    pub(crate) fn leave(&self) {
        self.0.add_permits(1);
    }
}

/// A place before the gate. Dropped, it is left.
pub(crate) struct Waiting(BoxFuture<'static, Result<OwnedSemaphorePermit, AcquireError>>);

impl Waiting {
    /// Ready once it got in, and has to leave again. Not to be asked after that.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        // Nobody closes the gate.
        Pin::new(&mut self.0).poll(cx).map(|permit| permit.map_or((), OwnedSemaphorePermit::forget))
    }
}

impl fmt::Debug for Gate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gate").field("room", &self.0.available_permits()).finish_non_exhaustive()
    }
}
