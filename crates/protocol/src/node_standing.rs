//! How a waiter stands on one node.

use core::num::NonZero;

use crate::Moment;

/// What is known of one node, in eight bytes: each waiter has it for each node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NodeStanding {
    /// Nothing, or it could not be asked.
    Unknown,
    /// The same. What it had granted was given back: it is not asked again before all are.
    Spared,
    /// The record there is ours.
    Granted,
    /// Another has it.
    Queued { free_at: Micros, will_notify: bool, notes: Notes },
}

/// What else is known of a node where another has the record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Notes(u8);

impl Notes {
    /// Our ticket may stand below those that we have elsewhere. Of who has the record some bits are kept: two
    /// holders seldom look alike, and it does no harm if they do.
    pub(crate) fn new(below: bool, holder: Option<NonZero<u32>>) -> Self {
        let holder = holder.map_or(0, |holder| (holder.get() % 127) as u8 + 1);
        Self(holder << 1 | u8::from(below))
    }

    pub(crate) const fn is_below(self) -> bool {
        self.0 & 1 != 0
    }

    /// Some bits of who has the record, if that is known.
    pub(crate) const fn holder(self) -> Option<NonZero<u8>> {
        NonZero::new(self.0 >> 1)
    }

    pub(crate) const fn below(self) -> Self {
        Self(self.0 | 1)
    }

    pub(crate) const fn without_holder(self) -> Self {
        Self(self.0 & 1)
    }
}

/// A moment, rounded up to a microsecond: good enough to know when to ask again. What is nine years
/// after the clock's beginning, or later, is never.
///
/// Six bytes in place of eight: with a whole [`Moment`] a standing takes 16 bytes and not 8. On five nodes that is
/// 40 bytes more for each waiter, which has 377 of the 400 that are its goal (`docs/performance.md`).
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
        assert_eq!(size_of::<NodeStanding>(), 8);
    }

    #[test]
    fn a_holder_is_told_from_another_whether_or_not_the_ticket_stands_below() {
        for (bits, kept) in [(0, 1), (1, 2), (126, 127), (127, 1)] {
            let holder = NonZero::new(127 * 3 + bits);
            for below in [false, true] {
                let notes = Notes::new(below, holder);
                assert_eq!((notes.is_below(), notes.holder()), (below, NonZero::new(kept)));
                let without = notes.without_holder();
                assert_eq!((without.is_below(), without.holder()), (below, None));
                let below = notes.below();
                assert_eq!((below.is_below(), below.holder()), (true, NonZero::new(kept)));
            }
        }
        assert_eq!(Notes::new(true, None).holder(), None);
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
