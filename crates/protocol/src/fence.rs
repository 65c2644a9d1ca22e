//! The fence of a holder, from what the nodes gave out.

use crate::Quorum;

/// So far ahead of the time of day a fence may be, in microseconds: a day.
///
/// Fences follow the clock, and a [block](Proposal::within) never gets more than a second ahead of it. What is
/// further ahead than this was given out by a clock that was wrong, or by nobody.
pub const MOST_AHEAD_US: u64 = 24 * 60 * 60 * 1_000_000;

/// No fence reaches this: from here on, one more is not always another one for a node that counts in floating
/// point, as a script in Lua does. Microseconds since 1970 do in the year 2255.
pub const FENCES_END: u64 = 1 << 53;

/// Whether a node can have given out this fence, to a client that asked at this time of day in microseconds.
///
/// One that is not plausible is a failure of that node: no client adopts it, proposes one above it, or has it
/// confirmed by other nodes. Otherwise one fence on one node would make a lock unusable everywhere.
#[must_use]
pub const fn plausible(fence: u64, wall_us: u64) -> bool {
    fence < FENCES_END && fence <= wall_us.saturating_add(MOST_AHEAD_US)
}

/// The highest fence that a holder has from the nodes, and whether it may use it yet.
///
/// Each node counts the holders of a name upwards. A holder may use a fence once a majority of the
/// nodes stands at that fence or above *while the record there is its own*: a later holder has a
/// record on one of those nodes, and so a higher fence.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct HolderFence {
    /// The last of those that are reserved for this holder. Zero if the nodes give out none.
    pub last: u64,
    /// Whether a majority gave out this very fence. If not, a majority has to
    /// [confirm](crate::Confirm) it first.
    pub agreed: bool,
}

/// The fences that nodes gave out in one round, node by node.
#[derive(Debug, Clone, Copy, Default)]
pub struct Fences {
    highest: u64,
    same: u16,
}

impl Fences {
    /// Records that one more node has given out a fence.
    pub const fn record(&mut self, fence: u64) {
        if self.same == 0 || fence > self.highest {
            self.highest = fence;
            self.same = 1;
        } else if fence == self.highest {
            self.same += 1;
        }
    }

    /// The highest of them, and whether a majority gave it out.
    #[must_use]
    pub const fn highest(self, quorum: Quorum) -> HolderFence {
        HolderFence { last: self.highest, agreed: self.same as usize >= quorum.enough() }
    }
}

/// So far ahead of the time of day a block of fences may end, in microseconds.
const BLOCKS_AHEAD_US: u64 = 1_000_000;

/// What a client proposes to all nodes as the fence of the next holder, so that they agree at
/// once: the time of day, and in any case more than it has ever seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Proposal {
    /// The first fence to give out, unless the node has given out higher ones.
    pub least: u64,
    /// How many fences to reserve from there on, at least one: as many as there may be holders
    /// before the nodes are asked again.
    pub block: u16,
}

impl Proposal {
    /// The same, with this fence at least.
    #[must_use]
    pub fn at_least(self, least: u64) -> Self {
        Self { least: self.least.max(least), ..self }
    }

    /// The last fence of the block, if it begins with the least.
    #[must_use]
    pub const fn last(self) -> u64 {
        self.least.saturating_add(self.block.saturating_sub(1) as u64)
    }

    /// The last fence of the block for this proposal on a node that has given out `last`. `None` if it would
    /// not be one that [can grow](FENCES_END): the node has to refuse.
    #[must_use]
    pub const fn after(self, last: u64) -> Option<u64> {
        let first = if last >= self.least { last.saturating_add(1) } else { self.least };
        let last = first.saturating_add(self.block.saturating_sub(1) as u64);
        if last < FENCES_END { Some(last) } else { None }
    }

    /// The same with so small a block that its end is no further than a second ahead of the time of day, if it
    /// can be: at least one fence.
    ///
    /// A client that takes a lock again and again, faster than the clock counts the fences of its blocks, would
    /// otherwise get ahead of it without end. One fence for each is slower than the clock: nobody takes a lock
    /// and gives it back within a microsecond.
    #[must_use]
    pub const fn within(self, wall_us: u64) -> Self {
        let room = wall_us.saturating_add(BLOCKS_AHEAD_US).saturating_sub(self.least);
        let block = if (self.block as u64) > room { room as u16 } else { self.block };
        Self { block: if block == 0 { 1 } else { block }, ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn highest(given: &[u64]) -> HolderFence {
        let mut fences = Fences::default();
        for fence in given {
            fences.record(*fence);
        }
        fences.highest(Quorum::of(3).unwrap())
    }

    #[test]
    fn a_fence_is_agreed_on_once_a_majority_gave_it_out_and_no_node_a_higher_one() {
        assert_eq!(highest(&[7]), HolderFence { last: 7, agreed: false });
        assert_eq!(highest(&[7, 7]), HolderFence { last: 7, agreed: true });
        assert_eq!(highest(&[7, 8]), HolderFence { last: 8, agreed: false });
        assert_eq!(highest(&[8, 7]), HolderFence { last: 8, agreed: false });
        assert_eq!(highest(&[7, 8, 8]), HolderFence { last: 8, agreed: true });
        assert_eq!(highest(&[7, 7, 8]), HolderFence { last: 8, agreed: false });
        assert_eq!(highest(&[0, 0]), HolderFence { last: 0, agreed: true });
    }

    #[test]
    fn a_block_starts_above_all_that_was_given_out() {
        let proposal = Proposal { least: 100, block: 16 };
        assert_eq!(proposal.after(0), Some(115));
        assert_eq!(proposal.after(99), Some(115));
        assert_eq!(proposal.after(100), Some(116));
        assert_eq!(proposal.after(115), Some(131));
        assert_eq!(Proposal { least: 100, block: 1 }.after(100), Some(101));
        assert_eq!(Proposal { least: 100, block: 0 }.after(100), Some(101));
        assert_eq!(proposal.last(), 115);
        assert_eq!(proposal.at_least(200), Proposal { least: 200, block: 16 });
        assert_eq!(proposal.at_least(99), proposal);
    }

    #[test]
    fn no_block_ends_where_one_more_is_not_another_fence() {
        let one = Proposal { least: 1, block: 1 };
        assert_eq!(one.after(FENCES_END - 2), Some(FENCES_END - 1));
        assert_eq!(one.after(FENCES_END - 1), None);
        assert_eq!(one.after(u64::MAX), None);
        assert_eq!(Proposal { least: FENCES_END - 2, block: 2 }.after(0), Some(FENCES_END - 1));
        assert_eq!(Proposal { least: FENCES_END - 2, block: 3 }.after(0), None);
        assert_eq!(Proposal { least: u64::MAX, block: u16::MAX }.after(0), None);
    }

    #[test]
    fn a_fence_is_plausible_up_to_a_day_ahead_and_while_it_can_grow() {
        assert_eq!(MOST_AHEAD_US, 86_400_000_000, "the nodes have the same");
        let now = 1_790_000_000_000_000;
        for (fence, is) in [
            (0, true),
            (now, true),
            (now + MOST_AHEAD_US, true),
            (now + MOST_AHEAD_US + 1, false),
            (FENCES_END, false),
            (i64::MAX.unsigned_abs(), false),
            (u64::MAX, false),
        ] {
            assert_eq!(plausible(fence, now), is, "{fence}");
        }
        assert!(!plausible(FENCES_END, u64::MAX) && plausible(FENCES_END - 1, u64::MAX));
    }

    #[test]
    fn blocks_get_no_more_than_a_second_ahead_of_the_clock() {
        let now = 1_790_000_000_000_000;
        let block = |ahead: u64, block| Proposal { least: now + ahead, block }.within(now).block;
        assert_eq!((block(0, 16), block(0, u16::MAX)), (16, u16::MAX));
        assert_eq!(block(999_984, 16), 16);
        assert_eq!(block(999_985, 16), 15);
        assert_eq!(block(999_999, 16), 1);
        assert_eq!((block(1_000_000, 16), block(5_000_000, 16), block(0, 0)), (1, 1, 1));
        // As often as once in a microsecond, and no faster than that, the clock keeps up.
        let (mut wall, mut highest) = (now, now);
        for _ in 0..200_000 {
            wall += 2;
            let proposal = Proposal { least: wall.max(highest + 1), block: 128 }.within(wall);
            highest = proposal.last();
            assert!(highest < wall + BLOCKS_AHEAD_US + 2, "{} ahead", highest - wall);
        }
    }
}
