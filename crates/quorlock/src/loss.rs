//! Learning of a loss in time.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::sync::futures::OwnedNotified;

use crate::drive::Claim;
use crate::error::Loss;
use crate::runtime::BoxFuture;

/// The longest sleep. Timers stand still while the machine is suspended, and the validity does not:
/// this soon after it wakes up is looked what is left.
const LONGEST_SLEEP: Duration = Duration::from_secs(1);

/// Ends when a lock is lost or about to be, and says why. From [`Guard::lost`](crate::Guard::lost).
#[must_use = "a future tells nothing unless it is awaited"]
pub struct Lost {
    claim: Arc<Claim>,
    /// A loss before its time, as when a majority says that it has no record.
    early: Pin<Box<OwnedNotified>>,
    timer: Option<BoxFuture<'static, ()>>,
}

impl Lost {
    pub(crate) fn of(claim: &Arc<Claim>) -> Self {
        let early = Box::pin(claim.early_loss().notified_owned());
        Self { claim: Arc::clone(claim), early, timer: None }
    }
}

impl Future for Lost {
    type Output = Loss;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Loss> {
        let this = &mut *self;
        // Once it was told, the lease says so: what it says is looked at below in any case.
        let _ = this.early.as_mut().poll(cx);
        loop {
            let left = match this.claim.notice() {
                Ok(left) => left.min(LONGEST_SLEEP),
                Err(reason) => return Poll::Ready(reason),
            };
            let runtime = &this.claim.core.runtime;
            let timer = this.timer.get_or_insert_with(|| runtime.sleep(left));
            if timer.as_mut().poll(cx).is_pending() {
                return Poll::Pending;
            }
            this.timer = None;
        }
    }
}

impl fmt::Debug for Lost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lost").field("name", &self.claim.name).finish_non_exhaustive()
    }
}
