//! What a command gets to end in when its lock is lost.
//!
//! ```text
//!   taken                                                              validity ends
//!     ├──────── TTL/3 ────────┤                                             │
//!     │                    extend ── fails ── again and again ──┤           │
//!     │                       │                               TERM   KILL   │
//!     │                       └─ confirmed: all of this moves on │── TTL/6 ─│ or --end-before
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

/// What is left of the validity when the command is notified, unless `--end-before` says otherwise.
pub(crate) fn lead(ttl: Duration) -> Duration {
    ttl / 6
}

/// What is left of the validity when the command is killed, for the system to carry that out.
pub(crate) fn reserve(ttl: Duration) -> Duration {
    lead(ttl) / 2
}

/// What has to be left of the validity for the process that ends the command if this one stands still. It
/// comes after the SIGKILL of this one, and still in time.
pub(crate) fn for_the_killer(ttl: Duration) -> Duration {
    reserve(ttl) / 2
}

/// How long to wait between SIGTERM and SIGKILL: until the reserve is left, or half of what is left if that is
/// little.
pub(crate) fn grace(guard: &Guard, ttl: Duration) -> Duration {
    let left = guard.grace();
    if left.is_zero() { GRACE_WHEN_LOST.min(reserve(ttl)) } else { within(left, ttl) }
}

fn within(left: Duration, ttl: Duration) -> Duration {
    left - reserve(ttl).min(left / 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_has_all_but_the_reserve() {
        let (ttl, seconds) = (Duration::from_secs(12), Duration::from_secs);
        assert_eq!((lead(ttl), reserve(ttl)), (seconds(2), seconds(1)));
        assert_eq!(within(lead(ttl), ttl), seconds(1), "as it is told by default");
        assert_eq!(within(seconds(5), ttl), seconds(4), "told earlier");
        assert_eq!(within(seconds(1), ttl), Duration::from_millis(500), "told late");
        assert!(for_the_killer(ttl) < reserve(ttl));
    }
}
