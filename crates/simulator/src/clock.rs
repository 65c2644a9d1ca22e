//! Clocks that run fast or slow, and jump.

/// A million millionths.
const MILLION: i128 = 1_000_000;

/// A clock that shows some time, at a rate of its own, from a true moment on.
///
/// All of it in whole nanoseconds: the same in every build.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Clock {
    since: u64,
    shown: u64,
    /// How much faster than true time, in millionths.
    ppm: i64,
}

impl Clock {
    /// A clock that shows `shown` at the true time zero.
    pub(crate) fn new(shown: u64, ppm: i64) -> Self {
        Self { since: 0, shown, ppm }
    }

    /// What it shows at a true time.
    pub(crate) fn at(&self, now: u64) -> u64 {
        let passed = i128::from(now) - i128::from(self.since);
        let shown = i128::from(self.shown) + passed * (MILLION + i128::from(self.ppm)) / MILLION;
        u64::try_from(shown).unwrap_or(0)
    }

    /// The first true time at which it shows that, unless it is set.
    pub(crate) fn when(&self, shown: u64) -> u64 {
        let ahead = i128::from(shown) - i128::from(self.shown);
        let rate = MILLION + i128::from(self.ppm);
        let passed = ahead * MILLION / rate + i128::from(ahead * MILLION % rate > 0);
        u64::try_from(i128::from(self.since) + passed).unwrap_or(0)
    }

    /// Sets it.
    pub(crate) fn set(&mut self, now: u64, shown: u64) {
        *self = Self { since: now, shown, ppm: self.ppm };
    }

    /// Sets it forward, or back.
    pub(crate) fn jump(&mut self, now: u64, by: i64) {
        self.set(now, self.at(now).saturating_add_signed(by));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shows_its_own_time_and_finds_the_true_one() {
        let mut fast = Clock::new(1_000, 10_000);
        assert_eq!((fast.at(0), fast.at(1_000_000)), (1_000, 1_011_000));
        for shown in [1_000, 1_001, 5_000, 999_999_999] {
            let when = fast.when(shown);
            assert!(fast.at(when) >= shown && (when == 0 || fast.at(when - 1) < shown), "{shown}");
        }
        fast.jump(1_000_000, -500_000);
        assert_eq!((fast.at(1_000_000), fast.at(2_000_000)), (511_000, 1_521_000));
    }
}
