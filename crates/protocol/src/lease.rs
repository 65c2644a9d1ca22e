//! What a holder may believe about its lock.

use core::time::Duration;

use crate::{ExtendOutcome, Moment};

/// A lease that was won, as its holder knows it.
///
/// ```text
///           renewed                 unknown
///   Held ───────────▶ Renewed ◀────────────▶ Unknown     all three: valid until the deadline
///     └──────────────────┴──────────┬────────────┘
///                                   ▼
///                                 Lost        final: a late success does not revive it
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lease {
    valid_until: Moment,
    state: LeaseState,
}

/// The four things that can be known of a lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LeaseState {
    /// Taken, and not extended since.
    Held,
    /// Extended, and the last extension was confirmed.
    Renewed,
    /// The last extension was neither confirmed nor refused: valid until the old deadline.
    Unknown,
    /// Not held any more.
    Lost(LossReason),
}

/// Why a lease is lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LossReason {
    /// Its validity ran out.
    Expired,
    /// A majority of the nodes has no record of it.
    Gone,
}

impl Lease {
    /// A lease that was just won.
    #[must_use]
    pub const fn new(valid_until: Moment) -> Self {
        Self { valid_until, state: LeaseState::Held }
    }

    /// Takes in how an extension ended.
    ///
    /// A success that arrives after the deadline, or after a loss, changes nothing.
    pub fn extended(&mut self, outcome: ExtendOutcome, now: Moment) {
        if matches!(self.state(now), LeaseState::Lost(_)) {
            return;
        }
        match outcome {
            ExtendOutcome::Renewed { valid_until } => {
                self.valid_until = self.valid_until.max(valid_until);
                self.state = LeaseState::Renewed;
            }
            ExtendOutcome::Unknown => self.state = LeaseState::Unknown,
            ExtendOutcome::Lost => self.state = LeaseState::Lost(LossReason::Gone),
        }
    }

    /// What is known at `now`. Asking after the deadline makes the loss final.
    pub fn state(&mut self, now: Moment) -> LeaseState {
        if !matches!(self.state, LeaseState::Lost(_)) && now >= self.valid_until {
            self.state = LeaseState::Lost(LossReason::Expired);
        }
        self.state
    }

    /// What is left of the validity; zero once it is lost.
    pub fn remaining(&mut self, now: Moment) -> Duration {
        match self.state(now) {
            LeaseState::Lost(_) => Duration::ZERO,
            _ => self.valid_until.since(now),
        }
    }

    /// What is left until `lead` before the deadline, for a holder that needs so long to stop its
    /// work. `None` if nothing is: the lease counts as lost from then on, and is not extended any
    /// more, since its holder was told.
    pub fn notice(&mut self, lead: Duration, now: Moment) -> Option<Duration> {
        let left = self.valid_until.before(lead).since(now);
        if left.is_zero() && !matches!(self.state, LeaseState::Lost(_)) {
            self.state = LeaseState::Lost(LossReason::Expired);
        }
        match self.state {
            LeaseState::Lost(_) => None,
            _ => Some(left),
        }
    }

    /// The end of the validity.
    #[must_use]
    pub const fn valid_until(&self) -> Moment {
        self.valid_until
    }
}
