//! The time by which all leases of a locker are counted.
//!
//! Some nodes compare the clients' times of day, and end a lease by them. All of those may be set together, and
//! then a lease that counts on the time since the machine started alone would outlive its records. There it
//! ends when either has advanced by its validity.

use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use crate::core::Stamp;
use crate::locked::locked;
use crate::runtime::{BoxFuture, Runtime, micros};
use quorlock_protocol::{self as protocol, Moment};

/// How often both clocks are read before a reading counts that took longer than it should.
const READINGS: usize = 8;

/// The clock of a locker's leases.
pub(crate) struct LeaseClock {
    runtime: Arc<dyn Runtime>,
    /// `None` if the time of day does not matter.
    both: Option<Mutex<protocol::LeaseClock>>,
}

impl LeaseClock {
    /// A clock that runs with the boot time, and with the time of day as well if `by_wall_clock` says so.
    pub(crate) fn new(runtime: &Arc<dyn Runtime>, by_wall_clock: bool) -> Self {
        let runtime = Arc::clone(runtime);
        let both = by_wall_clock.then(|| {
            let (boot, wall) = read(&*runtime);
            Mutex::new(protocol::LeaseClock::new(boot, nanos(wall)))
        });
        Self { runtime, both }
    }

    /// The time.
    pub(crate) fn now(&self) -> Moment {
        match &self.both {
            Some(both) => self.read_both(both).2,
            None => self.runtime.now(),
        }
    }

    /// The time for a round that a lease counts from, whose first byte is about to leave: what is sent
    /// to the nodes, and what the lease counts from.
    pub(crate) fn stamp(&self) -> (Stamp, Moment) {
        let (sent, wall, now) = match &self.both {
            Some(both) => self.read_both(both),
            None => {
                let (boot, wall) = read(&*self.runtime);
                (boot, wall, boot)
            }
        };
        (Stamp { sent, wall_us: micros(wall) }, now)
    }

    /// What is left until a moment of this clock comes, if nothing is set, on the clocks that it counts by.
    pub(crate) fn deadline(&self, left: impl FnOnce(Moment) -> Duration) -> Deadline {
        let Some(both) = &self.both else {
            let boot = self.runtime.now();
            return Deadline { boot: boot.after(left(boot)), wall: None };
        };
        let (boot, wall, now) = self.read_both(both);
        let left = left(now);
        Deadline { boot: boot.after(left), wall: wall.checked_add(left) }
    }

    /// Ends when leases may have ended all at once.
    pub(crate) fn set(&self) -> BoxFuture<'static, ()> {
        match self.both {
            Some(_) => self.runtime.wall_set(),
            None => Box::pin(std::future::pending()),
        }
    }

    pub(crate) fn sleep(&self, duration: Duration) -> BoxFuture<'static, ()> {
        self.runtime.sleep(duration)
    }

    fn read_both(&self, both: &Mutex<protocol::LeaseClock>) -> (Moment, SystemTime, Moment) {
        let (boot, wall) = read(&*self.runtime);
        let mut both = locked(both);
        if let Some(now) = both.at(boot, nanos(wall)) {
            return (boot, wall, now);
        }
        let (boot, wall) = self.read_at_once();
        (boot, wall, both.step(boot, nanos(wall)))
    }

    /// Both clocks with nothing in between, as far as that can be had.
    fn read_at_once(&self) -> (Moment, SystemTime) {
        let mut reading = read(&*self.runtime);
        for _ in 1..READINGS {
            if self.runtime.now().since(reading.0) <= protocol::LeaseClock::GRAIN {
                break;
            }
            reading = read(&*self.runtime);
        }
        reading
    }
}

/// Both clocks, in this order: nodes count a lease by the second, and must not begin before its holder does.
fn read(runtime: &dyn Runtime) -> (Moment, SystemTime) {
    let boot = runtime.now();
    (boot, runtime.wall())
}

fn nanos(wall: SystemTime) -> u64 {
    let wall = wall.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(wall.as_nanos()).unwrap_or(u64::MAX)
}

impl fmt::Debug for LeaseClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LeaseClock").field("both", &self.both.is_some()).finish_non_exhaustive()
    }
}

/// When a lock ends unless it is extended, for another process of this machine that has to know. From
/// [`Guard::deadline`](crate::Guard::deadline).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Deadline {
    /// By the time since the start of the machine, which [`boot_time`](crate::runtime::boot_time) tells.
    pub boot: Moment,
    /// By the time of day, if the nodes count by that as well. The lock ends with whichever comes first.
    pub wall: Option<SystemTime>,
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    /// Clocks that are set by hand. Each reading takes as long as the next of these.
    #[derive(Debug)]
    struct Clocks {
        boot: Mutex<Duration>,
        set: Mutex<Duration>,
        delays_us: Mutex<Vec<u64>>,
    }

    impl Clocks {
        fn pass(&self) -> Duration {
            let delay = Duration::from_micros(locked(&self.delays_us).pop().unwrap_or_default());
            let mut boot = locked(&self.boot);
            let before = *boot;
            *boot += delay;
            before
        }
    }

    impl Runtime for Clocks {
        fn now(&self) -> Moment {
            Moment::default().after(self.pass())
        }

        fn wall(&self) -> SystemTime {
            SystemTime::UNIX_EPOCH + Duration::from_secs(1 << 30) + self.pass() + *locked(&self.set)
        }

        fn sleep(&self, _: Duration) -> BoxFuture<'static, ()> {
            Box::pin(std::future::pending())
        }

        fn spawn(&self, _: BoxFuture<'static, ()>) {}

        fn random(&self, _: &mut [u8]) {}
    }

    fn clocks() -> Arc<Clocks> {
        let boot = Mutex::new(Duration::from_secs(100));
        Arc::new(Clocks { boot, set: Mutex::default(), delays_us: Mutex::default() })
    }

    #[test]
    fn a_step_ahead_counts_where_the_time_of_day_does() {
        for (by_wall_clock, gained) in [(true, 11), (false, 0)] {
            let clocks = clocks();
            let runtime = Arc::clone(&clocks) as Arc<dyn Runtime>;
            let clock = LeaseClock::new(&runtime, by_wall_clock);
            let (before, boot) = (clock.now(), runtime.now());
            *locked(&clocks.set) += Duration::from_secs(11);
            assert_eq!(clock.now().since(before), Duration::from_secs(gained));
            let (stamp, now) = clock.stamp();
            assert_eq!((stamp.sent, now), (boot, clock.now()), "nodes are told the boot time");
            let deadline = clock.deadline(|now| Moment::from_nanos(120_000_000_000).since(now));
            assert_eq!(deadline.boot, boot.after(Duration::from_secs(20 - gained)));
            assert_eq!(deadline.wall.is_some(), by_wall_clock);
        }
    }

    /// Who is held up between the two clocks does not take that for a step.
    #[test]
    fn a_reader_that_is_interrupted_gains_nothing() {
        let clocks = clocks();
        let runtime = Arc::clone(&clocks) as Arc<dyn Runtime>;
        let clock = LeaseClock::new(&runtime, true);
        // From the end: the first reading takes a second, and the second one as well.
        *locked(&clocks.delays_us) = vec![0, 0, 0, 1_000_000, 0, 1_000_000];
        let now = clock.now();
        assert_eq!(now, Moment::default().after(Duration::from_secs(102)));
        assert_eq!(clock.now(), runtime.now());
    }
}
