//! Who said what in one round.

use crate::{NodeSet, Quorum};

/// What one node's answer means for a round, whatever the verb.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Vote {
    /// It did it: granted, extended, released.
    Yes,
    /// It answered that it will not: another holds the name, or the record is not ours.
    No,
    /// It did not look at the request: its clock and ours are too far apart.
    Apart,
    /// The request never left this process, or the node refused to look at it: nothing changed.
    NotSent,
    /// Its time limit has passed. The answer may still come, and counts when it does.
    Silent,
    /// No answer will come, and nobody knows whether the request ran, or still will.
    Unknown,
}

/// The votes of one round, at most one per node.
///
/// A node's first definite vote stands. Only [`Vote::Silent`] may be followed by another.
#[derive(Debug, Clone, Copy)]
pub struct Tally {
    quorum: Quorum,
    yes: NodeSet,
    no: NodeSet,
    apart: NodeSet,
    not_sent: NodeSet,
    silent: NodeSet,
    unknown: NodeSet,
}

impl Tally {
    /// Nobody has spoken yet.
    #[must_use]
    pub const fn new(quorum: Quorum) -> Self {
        Self {
            quorum,
            yes: NodeSet::EMPTY,
            no: NodeSet::EMPTY,
            apart: NodeSet::EMPTY,
            not_sent: NodeSet::EMPTY,
            silent: NodeSet::EMPTY,
            unknown: NodeSet::EMPTY,
        }
    }

    /// Takes a vote in; `false` if it changes nothing (said before, or no such node).
    pub const fn record(&mut self, node: usize, vote: Vote) -> bool {
        if node >= self.quorum.nodes() || self.definite().contains(node) {
            return false;
        }
        if matches!(vote, Vote::Silent) && self.silent.contains(node) {
            return false;
        }
        self.silent.remove(node);
        match vote {
            Vote::Yes => self.yes.insert(node),
            Vote::No => self.no.insert(node),
            Vote::Apart => self.apart.insert(node),
            Vote::NotSent => self.not_sent.insert(node),
            Vote::Silent => self.silent.insert(node),
            Vote::Unknown => self.unknown.insert(node),
        }
        true
    }

    /// The nodes that did it.
    #[must_use]
    pub const fn yes(&self) -> NodeSet {
        self.yes
    }

    /// The nodes that answered that they will not.
    #[must_use]
    pub const fn no(&self) -> NodeSet {
        self.no
    }

    /// The nodes whose clock is too far from ours.
    #[must_use]
    pub const fn apart(&self) -> NodeSet {
        self.apart
    }

    /// Whether enough nodes did it.
    #[must_use]
    pub const fn enough_yes(&self) -> bool {
        self.yes.len() >= self.quorum.enough()
    }

    /// Whether so many nodes did not do it that too few are left.
    #[must_use]
    pub const fn too_many_others(&self) -> bool {
        self.heard().len() - self.yes.len() >= self.quorum.too_many()
    }

    /// Whether every node has spoken, be it by its silence.
    #[must_use]
    pub const fn all_heard(&self) -> bool {
        self.heard().len() == self.quorum.nodes()
    }

    /// The nodes where the request can have changed something, now or later.
    #[must_use]
    pub const fn may_have_run(&self) -> NodeSet {
        NodeSet::first(self.quorum.nodes()).without(self.no.union(self.apart).union(self.not_sent))
    }

    /// N and its thresholds.
    #[must_use]
    pub const fn quorum(&self) -> Quorum {
        self.quorum
    }

    const fn definite(&self) -> NodeSet {
        self.yes.union(self.no).union(self.apart).union(self.not_sent).union(self.unknown)
    }

    /// The nodes that have spoken, be it by their silence.
    #[must_use]
    pub const fn heard(&self) -> NodeSet {
        self.definite().union(self.silent)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_definite_vote_stands_and_silence_may_be_broken_once() {
        let mut tally = Tally::new(Quorum::of(3).unwrap());
        assert!(tally.record(0, Vote::Silent));
        assert!(!tally.record(0, Vote::Silent));
        assert!(tally.record(0, Vote::Yes));
        assert!(!tally.record(0, Vote::No));
        assert!(!tally.record(0, Vote::Silent));
        assert!(tally.record(1, Vote::Unknown));
        assert!(!tally.record(1, Vote::Yes));
        assert!(!tally.record(3, Vote::Yes), "there is no fourth node");
        assert_eq!(tally.yes().len(), 1);
        assert!(!tally.all_heard());
    }

    #[test]
    fn only_a_definite_no_rules_out_that_something_was_left_behind() {
        let mut tally = Tally::new(Quorum::of(6).unwrap());
        let votes = [Vote::Yes, Vote::No, Vote::NotSent, Vote::Silent, Vote::Unknown, Vote::Apart];
        for (node, vote) in votes.into_iter().enumerate() {
            tally.record(node, vote);
        }
        let may: [bool; 6] = core::array::from_fn(|node| tally.may_have_run().contains(node));
        assert_eq!(may, [true, false, false, true, true, false]);
    }
}
