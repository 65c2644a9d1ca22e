//! A clock that all processes of the machine share, and a timer of finer grain than the runtime's.

use std::io::ErrorKind;
use std::os::fd::OwnedFd;
use std::thread;
use std::time::Duration;

use anyhow::Result;
use rustix::time::{
    ClockId, Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, clock_gettime,
    timerfd_create, timerfd_settime,
};
use tokio::net::unix::pipe::Receiver;

/// Nanoseconds of `CLOCK_MONOTONIC`: two processes that look at once see the same figure.
pub fn now_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    u64::try_from(now.tv_sec).unwrap_or(0) * 1_000_000_000 + u64::try_from(now.tv_nsec).unwrap_or(0)
}

/// Blocks until `moment_ns` on the shared clock.
pub fn sleep_until_ns(moment_ns: u64) {
    thread::sleep(Duration::from_nanos(moment_ns.saturating_sub(now_ns())));
}

/// Sleeps for µs where the runtime's own timer sleeps for whole milliseconds, and one more.
///
/// To the runtime the timer is a pipe: something to read from when it rings.
pub struct Alarm {
    timer: OwnedFd,
    rings: Receiver,
}

impl Alarm {
    pub fn new() -> Result<Self> {
        let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
        let timer = timerfd_create(TimerfdClockId::Monotonic, flags)?;
        let rings = Receiver::from_owned_fd_unchecked(timer.try_clone()?)?;
        Ok(Self { timer, rings })
    }

    pub async fn sleep(&self, duration: Duration) -> Result<()> {
        // A timer that is set to zero never rings.
        let value = timespec(duration.max(Duration::from_nanos(1)));
        let once = Itimerspec { it_interval: timespec(Duration::ZERO), it_value: value };
        timerfd_settime(&self.timer, TimerfdTimerFlags::empty(), &once)?;
        loop {
            self.rings.readable().await?;
            match self.rings.try_read(&mut [0; 8]) {
                Ok(_) => return Ok(()),
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}

/// For calls that take what is left of a time.
pub fn timespec(duration: Duration) -> Timespec {
    Timespec {
        tv_sec: i64::try_from(duration.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: duration.subsec_nanos().into(),
    }
}
