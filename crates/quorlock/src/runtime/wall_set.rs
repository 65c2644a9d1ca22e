//! Being notified when the time of day is set.

use std::io;
use std::os::fd::OwnedFd;

use ::tokio::io::Interest;
use ::tokio::io::unix::AsyncFd;
use ::tokio::runtime::Handle;
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};

use super::BoxFuture;

/// Later than anybody lives to see.
const NEVER: Timespec = Timespec { tv_sec: 1 << 40, tv_nsec: 0 };
const ONCE: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };

/// A timer of the system that becomes readable when the time of day is set, and when the machine wakes up.
/// Reading it fails then, and makes it ready for the next time.
///
/// # Errors
/// What the system says: it may have no such timers, or no more of them.
pub fn wall_set_timer() -> io::Result<OwnedFd> {
    let timer =
        timerfd_create(TimerfdClockId::Realtime, TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC)?;
    let flags = TimerfdTimerFlags::ABSTIME | TimerfdTimerFlags::CANCEL_ON_SET;
    timerfd_settime(&timer, flags, &Itimerspec { it_interval: ONCE, it_value: NEVER })?;
    Ok(timer)
}

/// Ends when the time of day was set, or the machine was suspended.
#[expect(
    deprecated,
    reason = "what is unsound with other types is sound with a descriptor that is owned, and what is to be used \
              instead is no safe function"
)]
pub(super) fn wall_set(handle: &Handle) -> BoxFuture<'static, ()> {
    let timer = {
        let _context = handle.enter();
        wall_set_timer().and_then(|timer| AsyncFd::with_interest(timer, Interest::READABLE))
    };
    Box::pin(async move {
        match timer {
            Ok(timer) if timer.readable().await.is_ok() => {}
            // The caller looks at the clocks now and then.
            Ok(_) | Err(_) => std::future::pending().await,
        }
    })
}
