//! Clocks that run at rates of their own, and dice.

use quorlock_protocol::Moment;

/// True time, in nanoseconds.
pub(crate) const fn ms(ms: u64) -> u64 {
    ms * 1_000_000
}

/// A clock with a beginning and a rate of its own, and without jumps.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Clock {
    ahead: u64,
    /// So many nanoseconds pass on it in a true millisecond.
    rate: u64,
}

impl Clock {
    /// Off by up to 4 %: two of them never run apart by more than the tenth that is allowed for.
    pub(crate) fn random(dice: &mut Dice) -> Self {
        let ahead = ms(dice.below(1_000_000));
        Self { ahead, rate: 960_000 + dice.below(80_001) }
    }

    pub(crate) fn read(self, at: u64) -> u64 {
        self.ahead
            + u64::try_from(u128::from(at) * u128::from(self.rate) / 1_000_000)
                .expect("small numbers")
    }

    /// The first true time at which it shows `local` or later.
    pub(crate) fn when(self, local: u64) -> u64 {
        let past = u128::from(local.saturating_sub(self.ahead)) * 1_000_000;
        u64::try_from(past.div_ceil(u128::from(self.rate))).expect("small numbers")
    }

    pub(crate) fn moment(self, at: u64) -> Moment {
        Moment::from_nanos(self.read(at))
    }
}

/// The same dice for the same seed.
#[derive(Debug)]
pub(crate) struct Dice(u64);

impl Dice {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// From zero to `end`, without it.
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.next() % end.max(1)
    }

    pub(crate) fn within(&mut self, count: usize) -> usize {
        usize::try_from(self.below(count as u64)).expect("small numbers")
    }

    pub(crate) fn in_a_hundred(&mut self, share: u64) -> bool {
        self.below(100) < share
    }
}
