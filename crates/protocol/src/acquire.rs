//! The round that takes a lock.

use core::time::Duration;

use crate::{Fences, HolderFence, Moment, Quorum, Tally, Terms, Vote};

/// One attempt to take one name on all nodes.
///
/// Won only if enough nodes granted it **and** enough of its validity is left at that moment.
/// Votes that come after the decision are still recorded: they say where a record of ours may lie.
#[derive(Debug, Clone)]
pub struct Acquire {
    tally: Tally,
    fences: Fences,
    sent: Moment,
    valid_until: Moment,
    least: Duration,
    outcome: Option<AcquireOutcome>,
}

/// How an attempt ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AcquireOutcome {
    /// Held by this client until then.
    Won {
        /// The end of the validity.
        valid_until: Moment,
        /// The fence of the holder. If it is not agreed on, it has to be confirmed before the
        /// lock may be used.
        fence: HolderFence,
    },
    /// Not held. Whatever was granted has to be released on all nodes at once.
    Lost(Defeat),
}

/// Why an attempt was lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Defeat {
    /// So many nodes answered that another holds the name that no majority is left.
    Taken,
    /// Some granted it, some refused it, and nobody need have it: contenders split the nodes.
    Split,
    /// Too many nodes could not be asked or did not answer.
    Unreachable,
    /// Enough nodes granted it, but too little of its validity was left by then.
    TooLate,
    /// The caller gave up.
    Abandoned,
}

impl Acquire {
    /// An attempt whose first byte left after `sent`, and which is of use to its caller only with
    /// more than `least` of its validity left.
    #[must_use]
    pub fn new(quorum: Quorum, terms: &Terms, sent: Moment, least: Duration) -> Self {
        Self {
            tally: Tally::new(quorum),
            fences: Fences::default(),
            sent,
            valid_until: terms.valid_until(sent),
            least,
            outcome: None,
        }
    }

    /// A node grants it with this fence; its vote follows.
    pub const fn fence_given(&mut self, fence: u64) {
        self.fences.record(fence);
    }

    /// Takes a vote in. Returns the outcome with the vote that decides, and only with that one. The
    /// time is asked for only by the vote that makes it enough.
    pub fn vote(
        &mut self,
        node: usize,
        vote: Vote,
        now: impl FnOnce() -> Moment,
    ) -> Option<AcquireOutcome> {
        if !self.tally.record(node, vote) || self.outcome.is_some() {
            return None;
        }
        self.outcome = if self.tally.enough_yes() {
            Some(if now() < self.valid_until.before(self.least) {
                let fence = self.fences.highest(self.tally.quorum());
                AcquireOutcome::Won { valid_until: self.valid_until, fence }
            } else {
                AcquireOutcome::Lost(Defeat::TooLate)
            })
        } else if self.tally.too_many_others() {
            Some(AcquireOutcome::Lost(self.defeat()))
        } else {
            None
        };
        self.outcome
    }

    /// The caller gives up. Returns the defeat if the round was still open.
    pub const fn abandon(&mut self) -> Option<AcquireOutcome> {
        if self.outcome.is_some() {
            return None;
        }
        self.outcome = Some(AcquireOutcome::Lost(Defeat::Abandoned));
        self.outcome
    }

    /// How it ended, if it has.
    #[must_use]
    pub const fn outcome(&self) -> Option<AcquireOutcome> {
        self.outcome
    }

    /// Who said what so far.
    #[must_use]
    pub const fn tally(&self) -> &Tally {
        &self.tally
    }

    /// The moment before the first byte left.
    #[must_use]
    pub const fn sent(&self) -> Moment {
        self.sent
    }

    fn defeat(&self) -> Defeat {
        let refusals = self.tally.no().len();
        let quorum = self.tally.quorum();
        if refusals >= quorum.enough() {
            Defeat::Taken
        } else if refusals >= quorum.too_many() || refusals > 0 && !self.tally.yes().is_empty() {
            Defeat::Split
        } else {
            Defeat::Unreachable
        }
    }
}
