//! The number of a holder, from what the nodes gave out.

use crate::Quorum;

/// The highest number that a holder has from the nodes, and whether it may use it yet.
///
/// Each node numbers the holders of a name, upwards. A holder may use a number once a majority of
/// the nodes stands at that number or above *while the record there is its own*: whoever holds the
/// name later has a record on one of those nodes, and so a higher number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Number {
    /// The last of those that are reserved for this holder. Zero if the nodes give out none.
    pub last: u64,
    /// Whether a majority gave out this very number. If not, a majority has to
    /// [confirm](crate::Confirm) it first.
    pub agreed: bool,
}

/// What nodes gave out in one round, node by node.
#[derive(Debug, Clone, Copy, Default)]
pub struct Numbers {
    highest: u64,
    same: u16,
}

impl Numbers {
    /// One more node has given out a number.
    pub const fn take(&mut self, number: u64) {
        if self.same == 0 || number > self.highest {
            self.highest = number;
            self.same = 1;
        } else if number == self.highest {
            self.same += 1;
        }
    }

    /// What the holder has of it.
    #[must_use]
    pub const fn number(self, quorum: Quorum) -> Number {
        Number { last: self.highest, agreed: self.same as usize >= quorum.enough() }
    }
}

/// What a client proposes to all nodes as the number of the next holder, so that they agree at
/// once: the time of day, and in any case more than it has ever seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Proposal {
    /// The first number to give out, unless the node has given out higher ones.
    pub least: u64,
    /// How many numbers to reserve from there on, at least one: as many as there may be holders
    /// before the nodes are asked again.
    pub block: u16,
}

impl Proposal {
    /// The same, with this number at least.
    #[must_use]
    pub fn at_least(self, least: u64) -> Self {
        Self { least: self.least.max(least), ..self }
    }

    /// The last number of the block, if it begins with the least.
    #[must_use]
    pub const fn last(self) -> u64 {
        self.least.saturating_add(self.block.saturating_sub(1) as u64)
    }

    /// The last number of the block for this proposal on a node that has given out `last`.
    #[must_use]
    pub const fn after(self, last: u64) -> u64 {
        let first = if last >= self.least { last.saturating_add(1) } else { self.least };
        first.saturating_add(self.block.saturating_sub(1) as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn number(given: &[u64]) -> Number {
        let mut numbers = Numbers::default();
        for number in given {
            numbers.take(*number);
        }
        numbers.number(Quorum::of(3).unwrap())
    }

    #[test]
    fn a_number_is_agreed_on_once_a_majority_gave_it_out_and_no_node_a_higher_one() {
        assert_eq!(number(&[7]), Number { last: 7, agreed: false });
        assert_eq!(number(&[7, 7]), Number { last: 7, agreed: true });
        assert_eq!(number(&[7, 8]), Number { last: 8, agreed: false });
        assert_eq!(number(&[8, 7]), Number { last: 8, agreed: false });
        assert_eq!(number(&[7, 8, 8]), Number { last: 8, agreed: true });
        assert_eq!(number(&[7, 7, 8]), Number { last: 8, agreed: false });
        assert_eq!(number(&[0, 0]), Number { last: 0, agreed: true });
    }

    #[test]
    fn a_block_starts_above_all_that_was_given_out() {
        let proposal = Proposal { least: 100, block: 16 };
        assert_eq!(proposal.after(0), 115);
        assert_eq!(proposal.after(99), 115);
        assert_eq!(proposal.after(100), 116);
        assert_eq!(proposal.after(115), 131);
        assert_eq!(Proposal { least: 100, block: 1 }.after(100), 101);
        assert_eq!(Proposal { least: 100, block: 0 }.after(100), 101);
        assert_eq!(proposal.after(u64::MAX), u64::MAX);
        assert_eq!(proposal.last(), 115);
        assert_eq!(proposal.at_least(200), Proposal { least: 200, block: 16 });
        assert_eq!(proposal.at_least(99), proposal);
    }
}
