//! Waiting for a future on a thread that runs nothing else.

use std::future::Future;
use std::pin::pin;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

use super::may_block;
use crate::Error;
use crate::locked::locked;

/// Runs a future to its end on this thread. What it waits for happens on others.
///
/// `what` is the method that was called, for the error if this thread must not be blocked.
pub(super) fn block_on<F: Future>(what: &str, future: F) -> Result<F::Output, Error> {
    may_block(what)?;
    let mut future = pin!(future);
    let signal = Arc::new(Signal::default());
    let waker = Waker::from(Arc::clone(&signal));
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return Ok(output);
        }
        signal.wait();
    }
}

/// Not the parking of [`std::thread`]: what is polled may use that, and take the wake-up with it.
#[derive(Default)]
struct Signal {
    woken: Mutex<bool>,
    changed: Condvar,
}

impl Signal {
    fn wait(&self) {
        let asleep = |woken: &mut bool| !std::mem::take(woken);
        drop(
            self.changed
                .wait_while(locked(&self.woken), asleep)
                .unwrap_or_else(PoisonError::into_inner),
        );
    }
}

impl Wake for Signal {
    fn wake(self: Arc<Self>) {
        *locked(&self.woken) = true;
        self.changed.notify_one();
    }
}
