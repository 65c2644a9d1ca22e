//! A point on a clock that only goes forward.

use core::time::Duration;

/// A point in time on the client's own clock, counted from the start of the machine.
///
/// It is not an [`Instant`](https://doc.rust-lang.org/std/time/struct.Instant.html), because that
/// one stands still on Linux while the machine is suspended, and a lease does not.
/// Arithmetic saturates: a lease that would end before the clock began ends at its beginning.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Moment(u64);

impl Moment {
    /// The end of time.
    pub const MAX: Self = Self(u64::MAX);

    /// The moment `nanos` nanoseconds after the clock's beginning.
    #[must_use]
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// Nanoseconds since the clock's beginning.
    #[must_use]
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// This moment moved into the future.
    #[must_use]
    pub fn after(self, by: Duration) -> Self {
        Self(self.0.saturating_add(saturating_nanos(by)))
    }

    /// This moment moved into the past.
    #[must_use]
    pub fn before(self, by: Duration) -> Self {
        Self(self.0.saturating_sub(saturating_nanos(by)))
    }

    /// How long ago `earlier` was; zero if it was not earlier.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

fn saturating_nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arithmetic_saturates_at_both_ends() {
        let early = Moment::from_nanos(5);
        assert_eq!(early.before(Duration::from_secs(1)), Moment::default());
        assert_eq!(early.after(Duration::MAX), Moment::from_nanos(u64::MAX));
        assert_eq!(early.since(Moment::from_nanos(9)), Duration::ZERO);
        assert_eq!(Moment::from_nanos(9).since(early), Duration::from_nanos(4));
    }
}
