//! How long a node may be silent.

use core::time::Duration;

use crate::Moment;

/// How long a node that owes answers may say nothing before nobody waits for it any longer.
///
/// It is silent since its last reply, or since the oldest call that it owes was sent, whichever is later: a node
/// that answers steadily is not silent, however many wait for it. What counts as silence follows what the node
/// takes to answer, so that a far or busy one is not given up for being itself:
///
/// ```text
///   least ── 2 × the slowest answer of late ── most
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Patience {
    least: Duration,
    most: Duration,
    /// The slowest answer of late, and when it came.
    slowest: Duration,
    seen: Moment,
}

/// So many times the slowest answer.
const TIMES: u32 = 2;
/// So long a slow answer is remembered: the first one after that takes its place.
const REMEMBERED: Duration = Duration::from_secs(10);

/// A node's time limit grows with its answers up to this share of the TTL.
const SHARE_OF_TTL: u32 = 10;
/// A node that is silent for so many time limits is connected to anew.
const LIMITS_UNTIL_RECONNECT: u32 = 4;
const LEAST_UNTIL_RECONNECT: Duration = Duration::from_millis(500);

impl Patience {
    /// Returns the patience with a node whose time limit is `least`, where locks have this TTL.
    #[must_use]
    pub fn within(ttl: Duration, least: Duration) -> Self {
        Self::new(least, ttl / SHARE_OF_TTL)
    }

    /// Never less than `least`, and more than `most` only if that is below it.
    #[must_use]
    pub const fn new(least: Duration, most: Duration) -> Self {
        Self { least, most, slowest: Duration::ZERO, seen: Moment::from_nanos(0) }
    }

    /// A reply came at `now`, to what was sent that long before.
    pub fn answered(&mut self, took: Duration, now: Moment) {
        if took >= self.slowest || now.since(self.seen) >= REMEMBERED {
            (self.slowest, self.seen) = (took, now);
        }
    }

    /// How long it may be silent.
    #[must_use]
    pub fn limit(&self) -> Duration {
        self.slowest.saturating_mul(TIMES).min(self.most).max(self.least)
    }

    /// Returns how long it may be silent before the connection to it is given up for a new one.
    #[must_use]
    pub fn until_reconnect(&self) -> Duration {
        self.limit().saturating_mul(LIMITS_UNTIL_RECONNECT).max(LEAST_UNTIL_RECONNECT)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn at(ms: u64) -> Moment {
        Moment::default().after(Duration::from_millis(ms))
    }

    #[test]
    fn it_follows_the_slowest_answer_between_two_bounds() {
        let mut patience = Patience::new(50 * MS, 1_000 * MS);
        assert_eq!(patience.limit(), 50 * MS);
        for (took, limit) in [(1, 50), (25, 50), (26, 52), (400, 800), (30, 800), (700, 1_000)] {
            patience.answered(took * MS, at(1));
            assert_eq!(patience.limit(), limit * MS, "after {took} ms");
        }
    }

    #[test]
    fn a_slow_answer_is_forgotten_after_a_while() {
        let mut patience = Patience::new(50 * MS, 1_000 * MS);
        patience.answered(300 * MS, at(1_000));
        patience.answered(2 * MS, at(10_999));
        assert_eq!(patience.limit(), 600 * MS);
        patience.answered(40 * MS, at(11_000));
        assert_eq!(patience.limit(), 80 * MS);
    }

    #[test]
    fn what_was_asked_for_is_never_cut_short() {
        let mut patience = Patience::new(2_000 * MS, 1_000 * MS);
        patience.answered(700 * MS, at(1));
        assert_eq!(patience.limit(), 2_000 * MS);
    }

    #[test]
    fn a_node_that_is_silent_for_some_limits_is_connected_to_anew() {
        let mut patience = Patience::within(Duration::from_secs(10), 50 * MS);
        assert_eq!(patience.until_reconnect(), 500 * MS, "never sooner");
        patience.answered(Duration::from_secs(3), at(0));
        assert_eq!(patience.limit(), Duration::from_secs(1), "a tenth of the TTL");
        assert_eq!(patience.until_reconnect(), Duration::from_secs(4));
    }
}
