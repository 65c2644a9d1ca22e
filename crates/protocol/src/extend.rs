//! The round that makes a lease last longer.

use crate::{Moment, NodeSet, Quorum, Tally, Terms, Vote};

/// One attempt to extend a lease on all nodes.
///
/// It counts only if enough nodes extended the record *before the old deadline*: after it somebody
/// else may have held the name in between. A round that fails takes nothing away: the lease is
/// valid until its old deadline, as before.
///
/// # A lock that was taken away is not won back
///
/// The nodes that the lease stands on have the record, unless somebody who may do so has taken it away: by force, or
/// with the token. From then on others may have had the lock, on that node and on those that are won back. So a node
/// that is won back counts only once all those have spoken that the lease stands on, and none of them has
/// said no. If one has, and too few are left of those that have had the record all the time, the lease is lost.
///
/// A node that was not heard when the lock was won may have had the record all the time as well. Nobody knows: it counts
/// like one that is won back.
#[derive(Debug, Clone)]
pub struct Extend {
    tally: Tally,
    backing: NodeSet,
    old_deadline: Moment,
    new_deadline: Moment,
    outcome: Option<ExtendOutcome>,
}

/// How an extension ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExtendOutcome {
    /// The lease lasts until then.
    Renewed {
        /// The new end of the validity, never earlier than the old one.
        valid_until: Moment,
    },
    /// So many nodes say that the record is not ours that it cannot be extended any more, or the old deadline has
    /// passed. Final.
    Lost,
    /// The clocks of a majority are too far from ours: nobody knows how long this machine was not
    /// there, so the lease is lost. Final.
    Apart,
    /// Neither: valid until the old deadline. A late answer may still turn it into one of the
    /// other two.
    Unknown,
}

impl Extend {
    /// An extension whose first byte left after `sent`, of a lease that is valid until
    /// `old_deadline` and stands on `backing`: those have confirmed that they have the record for as long.
    /// None at all if nothing is known of the lease.
    #[must_use]
    pub fn new(
        quorum: Quorum,
        terms: &Terms,
        sent: Moment,
        old_deadline: Moment,
        backing: NodeSet,
    ) -> Self {
        Self {
            tally: Tally::new(quorum),
            backing,
            old_deadline,
            new_deadline: terms.valid_until(sent).max(old_deadline),
            outcome: None,
        }
    }

    /// More nodes have been heard that the lease stands on.
    pub const fn stands_on(&mut self, nodes: NodeSet) {
        self.backing = self.backing.union(nodes);
    }

    /// Another extension of the same lease was confirmed in the meantime: what counts for this one
    /// is the deadline that the lease has now.
    pub fn outlived(&mut self, deadline: Moment) {
        self.old_deadline = self.old_deadline.max(deadline);
        self.new_deadline = self.new_deadline.max(deadline);
    }

    /// Takes a vote in. Returns the outcome with the vote that decides or changes it.
    pub fn vote(&mut self, node: usize, vote: Vote, now: Moment) -> Option<ExtendOutcome> {
        if !self.tally.record(node, vote) || self.is_final() {
            return None;
        }
        let quorum = self.tally.quorum();
        let decided = if now >= self.old_deadline {
            ExtendOutcome::Lost
        } else if self.counted().len() >= quorum.enough() {
            ExtendOutcome::Renewed { valid_until: self.new_deadline }
        } else if self.is_refused() {
            ExtendOutcome::Lost
        } else if self.tally.apart().len() >= quorum.enough() {
            ExtendOutcome::Apart
        } else if self.tally.too_many_others() || self.tally.all_heard() {
            ExtendOutcome::Unknown
        } else {
            return None;
        };
        if self.outcome == Some(decided) {
            return None;
        }
        self.outcome = Some(decided);
        self.outcome
    }

    /// The nodes that have extended it, as far as they count.
    fn counted(&self) -> NodeSet {
        let heard = self.tally.heard().without(self.tally.no());
        let yes = self.tally.yes();
        let won_back = yes.without(self.backing);
        if self.backing.without(heard).is_empty() { yes } else { yes.without(won_back) }
    }

    /// Whether so many nodes say that the record is not ours that it cannot be extended any more.
    #[must_use]
    pub const fn is_refused(&self) -> bool {
        let (enough, no) = (self.tally.quorum().enough(), self.tally.no());
        let left = self.backing.without(no).len();
        no.len() >= enough || left < self.backing.len() && left < enough
    }

    /// How it ended, if it has.
    #[must_use]
    pub const fn outcome(&self) -> Option<ExtendOutcome> {
        self.outcome
    }

    /// Who said what so far.
    #[must_use]
    pub const fn tally(&self) -> &Tally {
        &self.tally
    }

    const fn is_final(&self) -> bool {
        use ExtendOutcome::{Apart, Lost, Renewed};
        matches!(self.outcome, Some(Renewed { .. } | Lost | Apart))
    }
}
