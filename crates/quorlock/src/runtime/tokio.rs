//! Time, tasks and randomness of a real process.

use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use ::tokio::runtime::Handle;
use rustix::time::{ClockId, clock_gettime};

use super::burst::Burst;
use super::{BoxFuture, Moment, Runtime};
use crate::locked::locked;

/// The [`Runtime`] on tokio and the operating system's clocks.
#[derive(Debug, Clone)]
pub struct TokioRuntime {
    handle: Handle,
    burst: Arc<Mutex<Burst>>,
}

impl TokioRuntime {
    /// The runtime that runs the caller.
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    #[must_use]
    pub fn current() -> Self {
        Self { handle: Handle::current(), burst: Arc::default() }
    }
}

/// `CLOCK_BOOTTIME` counts while the machine is suspended. `CLOCK_MONOTONIC`, on which
/// `std::time::Instant` stands, does not: a lease would seem to live on in a closed laptop.
#[cfg(target_os = "linux")]
const CLOCK: ClockId = ClockId::Boottime;
#[cfg(not(target_os = "linux"))]
const CLOCK: ClockId = ClockId::Monotonic;

/// The time since the machine started, suspended time included where the system counts it.
#[must_use]
pub fn boot_time() -> Moment {
    let time = clock_gettime(CLOCK);
    let secs = u64::try_from(time.tv_sec).unwrap_or(0);
    let nanos = u64::try_from(time.tv_nsec).unwrap_or(0);
    Moment::from_nanos(secs.saturating_mul(1_000_000_000).saturating_add(nanos))
}

impl Runtime for TokioRuntime {
    fn now(&self) -> Moment {
        boot_time()
    }

    fn wall(&self) -> SystemTime {
        SystemTime::now()
    }

    #[cfg(all(
        target_os = "linux",
        any(feature = "mysql", feature = "postgres", feature = "redis", feature = "zookeeper")
    ))]
    fn wall_set(&self) -> BoxFuture<'static, ()> {
        super::wall_set::wall_set(&self.handle)
    }

    fn sleep(&self, duration: Duration) -> BoxFuture<'static, ()> {
        // Made inside of the runtime, so that a caller outside of it can sleep as well.
        let _context = self.handle.enter();
        Box::pin(::tokio::time::sleep(duration))
    }

    fn spawn(&self, future: BoxFuture<'static, ()>) {
        self.handle.spawn(future);
    }

    #[expect(
        clippy::expect_used,
        reason = "without random bits no token is safe: there is no going on"
    )]
    fn random(&self, bytes: &mut [u8]) {
        let make = |bytes: &mut [u8]| {
            getrandom::fill(bytes).expect("the operating system gives random bytes");
        };
        let now = self.now();
        locked(&self.burst).draw(bytes, now, make);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[::tokio::test]
    async fn the_clock_goes_forward_and_sleeps_are_not_short() {
        let runtime = TokioRuntime::current();
        let before = runtime.now();
        runtime.sleep(Duration::from_millis(5)).await;
        assert!(runtime.now().since(before) >= Duration::from_millis(5));
        assert!(runtime.wall() > SystemTime::UNIX_EPOCH);
    }
}
