//! How long to wait before the next session is begun.

use std::time::Duration;

use crate::runtime::{Runtime, random_u64};

/// Before an ensemble that cannot be used is tried again, at the least and at the most.
const PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_millis(500);
/// A session that has lived for so long was of use. To begin one is a write to a majority.
const OF_USE: Duration = Duration::from_secs(1);

/// The pauses of one client: short at first, and longer with each session that was of no use.
#[derive(Debug)]
pub(super) struct Pauses(Duration);

impl Pauses {
    pub(super) fn new() -> Self {
        Self(PAUSE)
    }

    /// A session could not be had.
    pub(super) fn after_failure(&mut self, runtime: &dyn Runtime) -> Duration {
        let longest = self.0;
        self.0 = (longest * 2).min(LONGEST_PAUSE);
        // Those that have lost the same member do not all come at once.
        let random = random_u64(runtime) % 1_024;
        let part = u32::try_from(random).unwrap_or_default();
        longest / 2 + longest / 2 * part / 1_024
    }

    /// A session has ended after so long.
    pub(super) fn after_session(&mut self, lived: Duration, runtime: &dyn Runtime) -> Duration {
        if lived >= OF_USE {
            *self = Self::new();
            return Duration::ZERO;
        }
        self.after_failure(runtime)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::TokioRuntime;

    #[tokio::test]
    async fn sessions_that_end_at_once_are_begun_more_and_more_seldom() {
        let (mut pauses, runtime) = (Pauses::new(), TokioRuntime::current());
        let mut after = |ms| pauses.after_session(Duration::from_millis(ms), &runtime);
        assert!(after(1_000).is_zero(), "a member that was stopped is missed by nobody");
        let first = after(3);
        assert!(first >= PAUSE / 2 && first <= PAUSE, "{first:?}");
        for _ in 0..4 {
            after(3);
        }
        let later = after(999);
        assert!(later >= LONGEST_PAUSE / 2 && later <= LONGEST_PAUSE, "{later:?}");
        assert!(after(60_000).is_zero());
        assert!(after(3) <= PAUSE, "it begins anew");
    }
}
