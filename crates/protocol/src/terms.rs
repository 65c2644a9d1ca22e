//! How long a lease may be believed.

use core::time::Duration;

use crate::Moment;

/// How far apart two clocks may run during one lease: a fixed part and a share of the lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Drift {
    /// The fixed part, for the grain of the clocks.
    pub base: Duration,
    /// The share of the TTL, in thousandths.
    pub per_mille: u32,
}

impl Drift {
    /// The allowance for a lease of `ttl`.
    #[must_use]
    pub fn of(self, ttl: Duration) -> Duration {
        // In two pieces, since every lock is counted by this: 128 bits cost several times as much.
        let ttl_ns = u64::try_from(ttl.as_nanos()).unwrap_or(u64::MAX);
        let per_mille = u64::from(self.per_mille);
        let share_ns = (ttl_ns / 1_000).saturating_mul(per_mille);
        let share_ns = share_ns.saturating_add(ttl_ns % 1_000 * per_mille / 1_000);
        self.base.saturating_add(Duration::from_nanos(share_ns))
    }
}

/// What a lease is taken for: how long the nodes keep it, and how much of that is not believed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Terms {
    /// How long a node keeps the record unless it is extended.
    pub ttl: Duration,
    /// The allowance for clocks that run at different rates.
    pub drift: Drift,
    /// What else the dialect of the nodes takes off the end.
    pub margin: Duration,
}

impl Terms {
    /// When a lease ends for its holder: `sent + ttl − drift − margin`, and never before `sent`.
    ///
    /// `sent` was read before the first byte left. Counting from a reply instead would believe in
    /// the lease for as long as that reply was under way after the node had let go of it.
    #[must_use]
    pub fn valid_until(&self, sent: Moment) -> Moment {
        sent.after(self.validity())
    }

    /// `ttl − drift − margin`: the most that can be left at the start.
    #[must_use]
    pub fn validity(&self) -> Duration {
        self.ttl.saturating_sub(self.drift.of(self.ttl)).saturating_sub(self.margin)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DRIFT: Drift = Drift { base: Duration::from_millis(2), per_mille: 100 };

    fn terms(ttl: Duration, margin: Duration) -> Terms {
        Terms { ttl, drift: DRIFT, margin }
    }

    #[test]
    fn takes_drift_and_margin_off_the_end() {
        let terms = terms(Duration::from_secs(10), Duration::from_millis(400));
        let sent = Moment::from_nanos(7);
        assert_eq!(terms.validity(), Duration::from_millis(10_000 - 1_002 - 400));
        assert_eq!(terms.valid_until(sent), sent.after(Duration::from_millis(8_598)));
    }

    #[test]
    fn the_share_is_exact_to_the_nanosecond() {
        for ttl_ns in [0, 1, 999, 1_000, 1_001, 123_456_789_987, u64::MAX / 1_000] {
            for per_mille in [0, 1, 7, 100, 999, 1_000, 1_001] {
                let drift = Drift { base: Duration::ZERO, per_mille };
                let share_ns = u128::from(ttl_ns) * u128::from(per_mille) / 1_000;
                assert_eq!(drift.of(Duration::from_nanos(ttl_ns)).as_nanos(), share_ns);
            }
        }
    }

    #[test]
    fn a_lease_shorter_than_its_allowances_is_never_valid_instead_of_for_ever() {
        let terms = terms(Duration::from_millis(1), Duration::from_secs(1));
        assert_eq!(terms.valid_until(Moment::from_nanos(7)), Moment::from_nanos(7));
    }

    #[test]
    fn the_longest_durations_do_not_overflow() {
        let terms = terms(Duration::MAX, Duration::ZERO);
        assert!(terms.valid_until(Moment::from_nanos(u64::MAX)) == Moment::from_nanos(u64::MAX));
    }
}
