//! Learning of a loss in time.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::sync::futures::OwnedNotified;

use crate::drive::Claim;
use crate::error::Loss;
use crate::guard::Guard;
use crate::name::Name;

/// Ends when a lock is lost or about to be, and says why. From [`Guard::lost`](crate::Guard::lost).
#[must_use = "a future tells nothing unless it is awaited"]
pub struct Lost {
    claim: Arc<Claim>,
    /// The turn of the guard that it belongs to. The next one is somebody else's.
    turn: u16,
    /// By the watchdog when the time has come, by an extension that finds it gone, by a release.
    signal: Pin<Box<OwnedNotified>>,
}

impl Lost {
    pub(crate) fn of(claim: &Arc<Claim>) -> Self {
        let signal = Box::pin(claim.loss_signal().notified_owned());
        Self { claim: Arc::clone(claim), turn: claim.turn(), signal }
    }
}

impl Future for Lost {
    type Output = Loss;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Loss> {
        // Before the look, so that nothing can slip in between. What it says does not count: the
        // lease does, and the clock. A process that was stopped learns of it here, whichever of its
        // timers has run.
        let _ = self.signal.as_mut().poll(cx);
        if self.claim.turn() != self.turn {
            return Poll::Ready(Loss::Released);
        }
        match self.claim.notice() {
            Ok(_) => Poll::Pending,
            Err(reason) => Poll::Ready(reason),
        }
    }
}

impl fmt::Debug for Lost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lost").field("name", &self.claim.name).finish_non_exhaustive()
    }
}

/// Ends when the first of several locks is lost or about to be, and says which one and why. From
/// [`Guards::lost`](crate::Guards::lost).
#[derive(Debug)]
#[must_use = "a future tells nothing unless it is awaited"]
pub struct FirstLost(Vec<Lost>);

impl FirstLost {
    pub(crate) fn of<'a>(guards: impl Iterator<Item = &'a Guard>) -> Self {
        Self(guards.map(Guard::lost).collect())
    }
}

impl Future for FirstLost {
    type Output = (Name, Loss);

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        for lost in &mut self.0 {
            if let Poll::Ready(reason) = Pin::new(&mut *lost).poll(cx) {
                return Poll::Ready((lost.claim.name.clone(), reason));
            }
        }
        Poll::Pending
    }
}
