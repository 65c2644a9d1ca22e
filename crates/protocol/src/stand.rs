//! How a candidate stands on one node.

use crate::Moment;

/// What is known of one node, in eight bytes: each waiter has it for each node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stand {
    /// Nothing, or it could not be asked.
    Unknown,
    /// The record there is ours.
    Granted,
    /// Another has it. Our ticket may stand below those that we have elsewhere.
    Queued { free_at: Micros, told: bool, below: bool },
}

/// A moment, rounded up to a microsecond: good enough to know when to ask again. What is nine years
/// after the clock's beginning, or later, is never.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Micros([u8; 6]);

impl Micros {
    pub(crate) const NEVER: Self = Self([u8::MAX; 6]);

    pub(crate) fn at_or_after(moment: Moment) -> Self {
        match moment.as_nanos().div_ceil(1_000).to_le_bytes() {
            [micros @ .., 0, 0] => Self(micros),
            _ => Self::NEVER,
        }
    }

    pub(crate) fn moment(self) -> Moment {
        if self == Self::NEVER {
            return Moment::MAX;
        }
        let [a, b, c, d, e, f] = self.0;
        Moment::from_nanos(u64::from_le_bytes([a, b, c, d, e, f, 0, 0]) * 1_000)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn how_it_stands_on_a_node_is_small() {
        assert_eq!(size_of::<Stand>(), 8);
    }

    #[test]
    fn a_record_is_never_thought_to_end_too_early() {
        for (nanos, micros) in
            [(0, 0), (1, 1), (1_000, 1), (1_001, 2), (u64::MAX >> 7, 144_115_188_075_856)]
        {
            let moment = Micros::at_or_after(Moment::from_nanos(nanos)).moment();
            assert_eq!(moment, Moment::from_nanos(micros * 1_000));
        }
        for nanos in [((1 << 48) - 1) * 1_000, 1 << 60, u64::MAX] {
            assert_eq!(Micros::at_or_after(Moment::from_nanos(nanos)), Micros::NEVER);
        }
        assert_eq!(Micros::NEVER.moment(), Moment::MAX);
    }
}
