//! The same locks for programs without async.
//!
//! ```text
//!   your thread                            the thread "quorlock"
//!   lock.acquire() ── asks ──────────────▶ talks to the nodes
//!      sleeps      ◀── wakes ─────────────
//!   works                                  extends the lock, watches the clock
//!   guard.release()
//! ```
//!
//! Everything here is a thin cover over the type of the same name in the crate's root, whose
//! documentation holds: what a [`Guard`](crate::Guard) promises, what can go wrong on the way to it,
//! what dropping it does. Where the async type is awaited, these have a method that blocks:
//! [`Lock::acquire`].
//!
//! A [`Locker`] brings one thread of its own, named `quorlock`, on which held locks are extended while
//! your threads work. It ends by itself when the last `Locker` and the last guard are gone, and what
//! they left to be released was answered or has passed its time limit.
//!
//! # Not in async code
//!
//! A method that blocks would stop all tasks of the thread that it is called on. Where a tokio runtime
//! is entered, each of them gives [`Error::Misuse`] instead, and does nothing. That includes the threads
//! of `tokio::task::spawn_blocking`, which tokio does not tell apart: use [`crate::Locker`] there, or a
//! thread of your own. Methods that do not block work everywhere, and so does dropping.
//!
//! # Example
//!
//! ```
//! # use std::sync::Arc;
//! # use std::time::Duration;
//! # use quorlock::node::{Node, memory::MemoryNode};
//! use quorlock::blocking::Locker;
//!
//! # fn main() -> Result<(), quorlock::Error> {
//! # let nodes = || (0..3).map(|_| Arc::new(MemoryNode::new()) as Arc<dyn Node>);
//! let locker = Locker::builder()
//! # ; let urls = |b: quorlock::blocking::Builder| b.with_nodes(nodes()); let locker = urls(locker)
//!     // .nodes(["redis://a", "redis://b", "redis://c"])
//!     .ttl(Duration::from_secs(10))
//!     .connect()?;
//!
//! let guard = locker.lock("orders/42").wait(Duration::from_secs(5)).acquire()?;
//! guard.on_lost(|why| eprintln!("stop: {why}"));
//! assert!(guard.is_held());   // ask again before anything that cannot be undone
//! guard.release()?;
//! # Ok(())
//! # }
//! ```

mod block_on;
mod guard;
mod guards;
mod lock;
mod locker;
mod lost;
mod thread;

pub use guard::Guard;
pub use guards::Guards;
pub use lock::{Lock, LockMany};
pub use locker::{Builder, Locker};

use crate::Error;

/// Methods that set something, each by the name and with the meaning that it has on the async type.
macro_rules! same_as {
    ($async:literal: $($name:ident($($arg:ident: $type:ty),*))*) => {$(
        #[doc = concat!(
            "As [`", $async, "::", stringify!($name), "`](crate::", $async, "::", stringify!($name), ")."
        )]
        pub fn $name(self, $($arg: $type),*) -> Self {
            Self(self.0.$name($($arg),*))
        }
    )*};
}
use same_as;

/// Refuses to block where that would stop tasks.
fn may_block(what: &str) -> Result<(), Error> {
    match tokio::runtime::Handle::try_current() {
        Err(_) => Ok(()),
        Ok(_) => Err(Error::misuse(
            format!(
                "blocking::{what} was called inside of a tokio runtime, whose tasks it would stop"
            ),
            "use quorlock::Locker there, or a thread of its own (std::thread::spawn)",
        )),
    }
}
