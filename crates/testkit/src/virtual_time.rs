//! Time that passes only when everybody waits for it.

use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use quorlock::runtime::{BoxFuture, Moment, Runtime, TokioRuntime};
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::task::yield_now;
use tokio::time::Instant;

/// A [`Runtime`] on tokio's paused clock: when every task waits, the clock goes at once to where the
/// next timer is. An hour passes in an instant, and moments can be compared exactly on a machine of
/// any speed, with as many tasks as there are.
///
/// For tests with `#[tokio::test(start_paused = true)]`, and with nodes that answer from this process:
/// a paused clock does not wait for servers. Timers have a grain of 1 ms, and round up.
///
/// The time of day is its own, and may be set to anything.
#[derive(Debug)]
pub struct VirtualTime {
    start: Instant,
    handle: Handle,
    inner: TokioRuntime,
    apart: Mutex<Apart>,
    /// Notified when the time of day is set.
    set: Arc<Notify>,
}

/// What sets the clocks apart from the timers.
#[derive(Debug)]
struct Apart {
    /// How long the machine was suspended.
    suspended: Duration,
    /// The time of day at the start.
    wall: SystemTime,
}

/// The clock starts a day after its beginning.
const BEGINNING: Moment = Moment::from_nanos(86_400_000_000_000);

/// So many turns are given to tasks that have something to do at the same moment.
const TURNS: usize = 16;

impl VirtualTime {
    /// A clock that starts a day after its beginning, with the given time of day.
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    #[must_use]
    pub fn new(wall: SystemTime) -> Self {
        Self {
            start: Instant::now(),
            handle: Handle::current(),
            inner: TokioRuntime::current(),
            apart: Mutex::new(Apart { suspended: Duration::ZERO, wall }),
            set: Arc::default(),
        }
    }

    /// Lets time pass: whatever is due meanwhile happens in its turn, and what is due at the end
    /// has happened.
    pub async fn pass(&self, duration: Duration) {
        tokio::time::sleep(duration).await;
        for _ in 0..TURNS {
            yield_now().await;
        }
    }

    /// The machine is suspended, or the process stopped: so much later it goes on. The clock has
    /// moved, and no timer has run.
    ///
    /// # Panics
    /// When another thread panicked in here.
    pub fn suspend(&self, duration: Duration) {
        self.apart.lock().expect("no panic in between").suspended += duration;
    }

    /// Sets the time of day.
    ///
    /// # Panics
    /// When another thread panicked in here.
    pub fn set_wall(&self, wall: SystemTime) {
        let elapsed = self.elapsed();
        self.apart.lock().expect("no panic in between").wall = wall - elapsed;
        self.set.notify_waiters();
    }

    fn elapsed(&self) -> Duration {
        // Inside of the runtime, so that a caller outside of it does not see the real time.
        let _context = self.handle.enter();
        let suspended = self.apart.lock().expect("no panic in between").suspended;
        self.start.elapsed() + suspended
    }
}

impl Runtime for VirtualTime {
    fn now(&self) -> Moment {
        BEGINNING.after(self.elapsed())
    }

    fn wall(&self) -> SystemTime {
        let elapsed = self.elapsed();
        self.apart.lock().expect("no panic in between").wall + elapsed
    }

    fn wall_set(&self) -> BoxFuture<'static, ()> {
        Box::pin(Arc::clone(&self.set).notified_owned())
    }

    fn sleep(&self, duration: Duration) -> BoxFuture<'static, ()> {
        self.inner.sleep(duration)
    }

    fn spawn(&self, future: BoxFuture<'static, ()>) {
        self.inner.spawn(future);
    }

    fn random(&self, bytes: &mut [u8]) {
        self.inner.random(bytes);
    }
}
