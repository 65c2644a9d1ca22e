//! The round that makes sure of a fence.

use crate::{Quorum, Tally, Vote};

/// Asks a majority to stand at a fence or above, where the record is still ours.
///
/// Needed when the nodes gave out different ones. Without the check of the owner it would prove
/// nothing: a node whose record is another's already gave that one a lower fence.
#[derive(Debug, Clone)]
pub struct Confirm {
    tally: Tally,
    outcome: Option<bool>,
}

impl Confirm {
    /// Nobody has been heard yet.
    #[must_use]
    pub const fn new(quorum: Quorum) -> Self {
        Self { tally: Tally::new(quorum), outcome: None }
    }

    /// Takes a vote in. Returns whether the fence is sure with the vote that decides it.
    pub fn vote(&mut self, node: usize, vote: Vote) -> Option<bool> {
        if !self.tally.record(node, vote) || self.outcome.is_some() {
            return None;
        }
        self.outcome = if self.tally.enough_yes() {
            Some(true)
        } else if self.tally.too_many_others() {
            Some(false)
        } else {
            None
        };
        self.outcome
    }

    /// Who said what so far.
    #[must_use]
    pub const fn tally(&self) -> &Tally {
        &self.tally
    }

    /// Whether the fence is sure, once that is known.
    #[must_use]
    pub const fn outcome(&self) -> Option<bool> {
        self.outcome
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_majority_of_own_records_decides() {
        let quorum = Quorum::of(3).unwrap();
        let mut sure = Confirm::new(quorum);
        assert_eq!(sure.vote(0, Vote::Yes), None);
        assert_eq!(sure.vote(0, Vote::Yes), None, "one node, one vote");
        assert_eq!(sure.vote(1, Vote::Silent), None);
        assert_eq!(sure.vote(1, Vote::Yes), Some(true), "late is not too late");
        assert_eq!(sure.outcome(), Some(true));
        let mut gone = Confirm::new(quorum);
        assert_eq!(gone.vote(0, Vote::No), None);
        assert_eq!(gone.vote(1, Vote::Unknown), Some(false));
        assert_eq!(gone.vote(2, Vote::Yes), None);
        assert_eq!(gone.outcome(), Some(false));
    }
}
