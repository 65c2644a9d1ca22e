//! What a command gets to end in when its lock is lost.
//!
//! ```text
//!   taken                                                              validity ends
//!     ├──────── TTL/3 ────────┤                                             │
//!     │                    extend ── fails ── again and again ──┤           │
//!     │                       │                               TERM   KILL   │
//!     │                       └─ confirmed: all of this moves on │── TTL/6 ─│
//! ```
//!
//! The library extends the lock, and tells by the lead that it could not. If this process stands still
//! meanwhile, another one sends the SIGKILL (`group_killer`), in the middle of what is left after the one
//! in the picture.

use std::time::Duration;

use quorlock::Guard;

/// What a command gets between SIGTERM and SIGKILL when the lock is lost already: somebody else may
/// hold it, but a program that cleans up in an instant does less harm than one that cannot.
const GRACE_WHEN_LOST: Duration = Duration::from_millis(100);

/// What has to be left of the validity to end the command within it.
pub(crate) fn lead(ttl: Duration) -> Duration {
    ttl / 6
}

/// What has to be left of the validity for the process that ends the command if this one stands still. It
/// comes after the SIGKILL of this one, and still in time.
pub(crate) fn for_the_killer(ttl: Duration) -> Duration {
    lead(ttl) / 4
}

/// How long to wait between SIGTERM and SIGKILL: half of what is left. The other half is for the
/// system, to carry the SIGKILL out.
pub(crate) fn grace(guard: &Guard, ttl: Duration) -> Duration {
    let left = guard.grace();
    if left.is_zero() { GRACE_WHEN_LOST.min(lead(ttl) / 2) } else { left / 2 }
}
