//! Learning of a loss without async.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::task::Poll;
use std::time::Duration;

use tokio::sync::watch;

use super::block_on::block_on;
use crate::Error;
use crate::runtime::Runtime;

/// Blocks until the loss, or until the time is up.
pub(super) fn wait<L: Future + Unpin>(
    what: &str,
    runtime: &dyn Runtime,
    mut lost: L,
    at_most: Duration,
) -> Result<Option<L::Output>, Error> {
    let mut end = runtime.sleep(at_most);
    let either = poll_fn(|cx| match Pin::new(&mut lost).poll(cx) {
        Poll::Ready(loss) => Poll::Ready(Some(loss)),
        Poll::Pending => end.as_mut().poll(cx).map(|()| None),
    });
    block_on(what, either)
}

/// Whether a guard is still there: those who wait for its loss are notified when it goes.
#[derive(Debug, Default)]
pub(super) struct Presence(watch::Sender<()>);

impl Presence {
    /// Calls `tell` when the lock is lost while its guard is there.
    pub(super) fn tell<L>(
        &self,
        runtime: &dyn Runtime,
        mut lost: L,
        tell: impl FnOnce(L::Output) + Send + 'static,
    ) where
        L: Future + Unpin + Send + 'static,
        L::Output: Send,
    {
        let mut presence = self.0.subscribe();
        runtime.spawn(Box::pin(async move {
            let loss = {
                let mut gone = pin!(presence.changed());
                // Whether the guard is gone decides: its release is a loss of its own kind, and what
                // becomes of the lock in other hands is none of its business. It goes before it
                // lets the lock go, so that a look after that one cannot miss it.
                poll_fn(|cx| {
                    let loss = Pin::new(&mut lost).poll(cx);
                    match gone.as_mut().poll(cx) {
                        Poll::Ready(_) => Poll::Ready(None),
                        Poll::Pending => loss.map(Some),
                    }
                })
                .await
            };
            if let Some(loss) = loss {
                tell(loss);
            }
        }));
    }
}
