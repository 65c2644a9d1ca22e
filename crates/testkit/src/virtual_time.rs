//! Time that passes only when somebody sleeps.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use quorlock::runtime::{BoxFuture, Moment, Runtime, TokioRuntime};

/// A [`Runtime`] for a test with a single task: each sleep is over at once and moves the clock by
/// its length, so that waiting times can be compared exactly, on a machine of any speed.
///
/// The time of day is its own, and may be set to anything.
#[derive(Debug)]
pub struct VirtualTime {
    now_ns: AtomicU64,
    wall: SystemTime,
    inner: TokioRuntime,
}

impl VirtualTime {
    /// A clock that starts a day after its beginning, with the given time of day.
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    #[must_use]
    pub fn new(wall: SystemTime) -> Self {
        let now_ns = AtomicU64::new(86_400_000_000_000);
        Self { now_ns, wall, inner: TokioRuntime::current() }
    }

    /// Lets time pass.
    pub fn pass(&self, duration: Duration) {
        let nanos = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        self.now_ns.fetch_add(nanos, Ordering::SeqCst);
    }
}

impl Runtime for VirtualTime {
    fn now(&self) -> Moment {
        Moment::from_nanos(self.now_ns.load(Ordering::SeqCst))
    }

    fn wall(&self) -> SystemTime {
        self.wall
    }

    fn sleep(&self, duration: Duration) -> BoxFuture<'static, ()> {
        self.pass(duration);
        Box::pin(std::future::ready(()))
    }

    fn spawn(&self, future: BoxFuture<'static, ()>) {
        self.inner.spawn(future);
    }

    fn random(&self, bytes: &mut [u8]) {
        self.inner.random(bytes);
    }
}
