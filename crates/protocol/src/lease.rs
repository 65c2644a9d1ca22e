//! What a holder may believe about its lock.

use alloc::boxed::Box;
use core::time::Duration;

use crate::{Cap, Caps, ExtendOutcome, Moment};

/// A lease that was won, as its holder knows it.
///
/// ```text
///           renewed                 unknown
///   Held ───────────▶ Renewed ◀────────────▶ Unknown     all three: valid until the deadline
///     └──────────────────┴──────────┬────────────┘
///                                   ▼
///                                 Lost        final: a late success does not revive it
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lease {
    valid_until: Moment,
    /// Few have any, and every lock that is held has a lease.
    capped: Option<Box<Capped>>,
    state: LeaseState,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Capped {
    caps: Caps,
    /// How often it was extended.
    extensions: u32,
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
    /// The clocks of a majority of the nodes are too far from the holder's.
    Clock,
    /// Its validity ran out, and a cap forbade to extend it.
    Capped,
    /// It was given back.
    Released,
}

impl Lease {
    /// A lease that was just won.
    #[must_use]
    pub fn new(valid_until: Moment) -> Self {
        Self { valid_until, capped: None, state: LeaseState::Held }
    }

    /// A lease that was just won, and that its holder may have only within these caps.
    #[must_use]
    pub fn capped_by(caps: Caps, valid_until: Moment) -> Self {
        if caps == Caps::NONE {
            return Self::new(valid_until);
        }
        let capped = Some(Box::new(Capped { caps, extensions: 0 }));
        Self { valid_until: caps.cut(valid_until), capped, state: LeaseState::Held }
    }

    /// The cap that it has reached. It cannot be extended any more then, and is valid to its end.
    #[must_use]
    pub fn capped(&self) -> Option<Cap> {
        let Capped { caps, extensions } = self.capped.as_deref()?;
        caps.reached(self.valid_until, *extensions)
    }

    /// Its holder gives it back.
    pub const fn released(&mut self) {
        if !matches!(self.state, LeaseState::Lost(_)) {
            self.state = LeaseState::Lost(LossReason::Released);
        }
    }

    /// Takes in how an extension ended.
    ///
    /// A success that arrives after the deadline, after a loss or beyond a cap changes nothing.
    pub fn extended(&mut self, outcome: ExtendOutcome, now: Moment) {
        if matches!(self.state(now), LeaseState::Lost(_)) {
            return;
        }
        match outcome {
            ExtendOutcome::Renewed { .. } if self.capped().is_some() => {}
            ExtendOutcome::Renewed { valid_until } => {
                let mut valid_until = valid_until;
                if let Some(capped) = &mut self.capped {
                    valid_until = capped.caps.cut(valid_until);
                    capped.extensions = capped.extensions.saturating_add(1);
                }
                self.valid_until = self.valid_until.max(valid_until);
                self.state = LeaseState::Renewed;
            }
            ExtendOutcome::Unknown => self.state = LeaseState::Unknown,
            ExtendOutcome::Lost => self.state = LeaseState::Lost(LossReason::Gone),
            ExtendOutcome::Apart => self.state = LeaseState::Lost(LossReason::Clock),
        }
    }

    /// What is known at `now`. Asking after the deadline makes the loss final.
    pub fn state(&mut self, now: Moment) -> LeaseState {
        if !matches!(self.state, LeaseState::Lost(_)) && now >= self.valid_until {
            self.state = LeaseState::Lost(self.end_reason());
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
    /// more, since its holder was notified.
    pub fn notice(&mut self, lead: Duration, now: Moment) -> Option<Duration> {
        let left = self.valid_until.before(lead).since(now);
        if left.is_zero() && !matches!(self.state, LeaseState::Lost(_)) {
            self.state = LeaseState::Lost(self.end_reason());
        }
        match self.state {
            LeaseState::Lost(_) => None,
            _ => Some(left),
        }
    }

    /// What a holder that was notified of its loss has left to stop its work in; zero if others may
    /// have the lock already.
    #[must_use]
    pub const fn grace(&self, now: Moment) -> Duration {
        match self.state {
            LeaseState::Lost(LossReason::Gone | LossReason::Released) => Duration::ZERO,
            _ => self.valid_until.since(now),
        }
    }

    /// The end of the validity.
    #[must_use]
    pub const fn valid_until(&self) -> Moment {
        self.valid_until
    }

    fn end_reason(&self) -> LossReason {
        if self.capped().is_some() { LossReason::Capped } else { LossReason::Expired }
    }
}
