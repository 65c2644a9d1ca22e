//! How long to wait before the next attempt.

use core::time::Duration;

use crate::Defeat;

/// Random delays that keep contenders from meeting again and again.
///
/// After a *split* vote nobody may hold the lock, so the next attempt comes within a few rounds,
/// and the spread only has to be wide enough for one contender to get ahead of the others. While
/// the lock is *taken* the spread grows up to `longest`, so that waiters do not wear the nodes
/// out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Backoff {
    /// The widest spread of a delay.
    pub longest: Duration,
}

/// The spread after the first attempt that found the lock taken.
const FIRST_SPREAD: Duration = Duration::from_millis(8);
/// The narrowest spread after a split vote, in rounds.
const SPLIT_ROUNDS: u32 = 4;

/// The pause after the first failed attempt to connect; it doubles with each further one.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
/// A node that returns is found again within this and the time to connect.
pub const LONGEST_PAUSE: Duration = Duration::from_millis(400);

/// Returns the longest pause before a node is connected to again, after so many failed attempts. The shortest is half
/// of it: clients choose by chance, so that many of them do not come back as one.
#[must_use]
pub fn pause_to_connect(failures: u32) -> Duration {
    FIRST_PAUSE.saturating_mul(1 << failures.saturating_sub(1).min(8)).min(LONGEST_PAUSE)
}

impl Backoff {
    /// The delay before attempt number `attempt` + 1, where the last one took `round` and ended in
    /// `defeat`. Every bit of `random` has to be drawn anew.
    ///
    /// It is never shorter than a round: a contender that tries again while its own release is
    /// still under way would meet itself.
    #[must_use]
    pub fn delay(&self, attempt: u32, round: Duration, defeat: Defeat, random: u64) -> Duration {
        let doublings = 1u32.checked_shl(attempt.saturating_sub(1).min(16)).unwrap_or(u32::MAX);
        let first = match defeat {
            Defeat::Split => round.saturating_mul(SPLIT_ROUNDS),
            _ => FIRST_SPREAD,
        };
        let spread = first.saturating_mul(doublings).min(self.longest);
        round.saturating_add(share(spread, random))
    }
}

/// The longest rest while nodes cast no vote: somebody may say meanwhile that they are new.
const LONGEST_QUIET: Duration = Duration::from_secs(5);
/// The rest while nobody knows how long that is, since a node is waited for.
const UNKNOWN_QUIET: Duration = Duration::from_secs(3);

/// For how long nodes are not asked again which have said that no majority of them votes for `left`. Zero says
/// that nobody knows how long.
#[must_use]
pub fn rest_in_quarantine(left: Duration) -> Duration {
    if left.is_zero() { UNKNOWN_QUIET } else { left.min(LONGEST_QUIET) }
}

/// `random / 2⁶⁴` of `spread`.
fn share(spread: Duration, random: u64) -> Duration {
    let nanos = (spread.as_nanos().min(u128::from(u64::MAX)) * u128::from(random)) >> 64;
    Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_between_attempts_to_connect_double_up_to_the_longest() {
        let pauses: Vec<_> =
            (1..=5).map(|failures| pause_to_connect(failures).as_millis()).collect();
        assert_eq!(pauses, [50, 100, 200, 400, 400]);
        assert_eq!(pause_to_connect(u32::MAX), LONGEST_PAUSE);
    }
}
