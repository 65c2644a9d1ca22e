//! The round that gives a lock back.

use crate::{Quorum, Tally, Vote};

/// One release on all nodes, those included that never answered the acquisition.
#[derive(Debug, Clone)]
pub struct Release {
    tally: Tally,
    outcome: Option<ReleaseOutcome>,
}

/// What a release achieved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReleaseOutcome {
    /// A majority let go of the record: the name is free.
    Released,
    /// So many nodes had no record of ours that it cannot have been held any more.
    AlreadyLost,
    /// Every node was heard or given up on, and neither is known. The name may stay taken on the
    /// others until the record expires.
    Partial,
}

impl Release {
    /// A release that nobody has answered yet.
    #[must_use]
    pub const fn new(quorum: Quorum) -> Self {
        Self { tally: Tally::new(quorum), outcome: None }
    }

    /// Takes a vote in. Returns the outcome with the vote that decides, and only with that one.
    pub fn vote(&mut self, node: usize, vote: Vote) -> Option<ReleaseOutcome> {
        if !self.tally.record(node, vote) || self.outcome.is_some() {
            return None;
        }
        self.outcome = if self.tally.enough_yes() {
            Some(ReleaseOutcome::Released)
        } else if self.tally.no().len() >= self.tally.quorum().too_many() {
            Some(ReleaseOutcome::AlreadyLost)
        } else if self.tally.all_heard() {
            Some(ReleaseOutcome::Partial)
        } else {
            None
        };
        self.outcome
    }

    /// How it ended, if it has.
    #[must_use]
    pub const fn outcome(&self) -> Option<ReleaseOutcome> {
        self.outcome
    }

    /// Who said what so far.
    #[must_use]
    pub const fn tally(&self) -> &Tally {
        &self.tally
    }
}
