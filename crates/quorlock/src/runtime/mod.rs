//! The seam for time, tasks and randomness.
//!
//! Everything in this crate that depends on when something happens asks a [`Runtime`]. The one on
//! tokio is used unless the builder is given another, such as a simulator that pauses a client,
//! moves its clock or replays its random numbers.

mod burst;
mod tokio;
#[cfg(all(
    target_os = "linux",
    any(feature = "mysql", feature = "postgres", feature = "redis", feature = "zookeeper")
))]
mod wall_set;

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::time::{Duration, SystemTime};

pub use self::tokio::{TokioRuntime, boot_time};
#[cfg(all(
    target_os = "linux",
    any(feature = "mysql", feature = "postgres", feature = "redis", feature = "zookeeper")
))]
pub use self::wall_set::wall_set_timer;
pub use quorlock_protocol::Moment;

/// A boxed future, as it crosses a seam.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// What the lock needs from the world besides its nodes.
pub trait Runtime: Send + Sync + fmt::Debug {
    /// The time since the machine started, suspended time included. It never goes back.
    fn now(&self) -> Moment;

    /// The time of day, which may jump.
    fn wall(&self) -> SystemTime;

    /// Ends when the time of day may have been set since this was called, or the machine was suspended.
    ///
    /// Leases that also count by the time of day are looked at then. Without it, as by default, they are
    /// looked at once a second.
    fn wall_set(&self) -> BoxFuture<'static, ()> {
        Box::pin(std::future::pending())
    }

    /// Ends when `duration` has passed, or a little later.
    fn sleep(&self, duration: Duration) -> BoxFuture<'static, ()>;

    /// Runs a future to its end in the background.
    fn spawn(&self, future: BoxFuture<'static, ()>);

    /// Fills `bytes` with random bits that nobody can guess.
    fn random(&self, bytes: &mut [u8]);
}

/// The time of day in microseconds since 1970, within what a script on a server can count exactly.
pub(crate) fn wall_us(runtime: &dyn Runtime) -> u64 {
    micros(runtime.wall())
}

/// The same of a time of day that was read before.
pub(crate) fn micros(wall: SystemTime) -> u64 {
    let wall = wall.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(wall.as_micros()).unwrap_or(u64::MAX).min(1 << 52)
}

/// 64 random bits.
pub(crate) fn random_u64(runtime: &dyn Runtime) -> u64 {
    let mut bytes = [0; 8];
    runtime.random(&mut bytes);
    u64::from_ne_bytes(bytes)
}
