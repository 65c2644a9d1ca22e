//! When a lease is extended, and when its holder is notified that it ends.

use core::time::Duration;

use crate::{Lease, LeaseState, LossReason, Moment, Terms};

/// The rhythm in which one lease is looked after.
///
/// ```text
///   sent                                              told           validity ends
///     ├────── TTL/3 ──────┤                             │──── lead ────│
///     │                 renew ─ fails ─ again: TTL/12 ──┤              │
///     │                   └─ confirmed: all of this moves on           │
/// ```
///
/// Towards the end attempts come closer together, each after a quarter of what is left: nodes that answer
/// again shortly before it are asked in time.
///
/// Every look says when the next one is due, so that the caller needs one timer and remembers
/// nothing but the moment of the last attempt. A look that comes early changes nothing, and one that
/// comes late finds what was due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Upkeep {
    /// From the sending of the extension that was confirmed last to the next; `None` never.
    every: Option<Duration>,
    /// From one attempt to the next, at the most and at the least.
    retry: Duration,
    round: Duration,
    lead: Duration,
    validity: Duration,
}

/// What is to be done about a lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Duty {
    /// Extend it now.
    Renew {
        /// When to look again, whatever comes of it.
        again: Moment,
    },
    /// Nothing.
    Wait {
        /// When to look again.
        until: Moment,
    },
    /// It is lost, and those who listen for that have to be notified.
    Over(LossReason),
}

/// An extension comes after this share of the TTL: two may fail and a third still be in time.
const RENEW_SHARE: u32 = 3;
/// One that failed is repeated after this share.
const RETRY_SHARE: u32 = 12;
/// But not after more than this share of what is left.
const LAST_SHARE: u32 = 4;
/// Many leases that began together are extended apart, each by up to this share earlier.
const SPREAD_SHARE: u32 = 8;

impl Upkeep {
    /// Extends a lease on these terms while a round may take as long as `round`, and tells of its
    /// loss by `lead` before the end.
    ///
    /// A lead so long that the holder would be notified before the first extension brings the
    /// extensions forward.
    #[must_use]
    pub fn renewing(terms: &Terms, round: Duration, lead: Duration) -> Self {
        let validity = terms.validity();
        let every = (terms.ttl / RENEW_SHARE).min(validity.saturating_sub(lead) / 2);
        let retry = (terms.ttl / RETRY_SHARE).max(round);
        Self { every: Some(every), retry, round, lead, validity }
    }

    /// The same for one of many leases, by a lot of its own: its extensions come a little earlier, by up to an
    /// eighth. Leases that began at the same moment would otherwise be extended at the same moment for ever.
    #[must_use]
    pub fn spread(self, lot: u8) -> Self {
        let earlier = |every: Duration| every / SPREAD_SHARE * u32::from(lot) / 256;
        Self { every: self.every.map(|every| every.saturating_sub(earlier(every))), ..self }
    }

    /// Extends nothing, and tells of the loss by `lead` before the end.
    #[must_use]
    pub fn fixed(terms: &Terms, lead: Duration) -> Self {
        Self { every: None, retry: terms.ttl, round: terms.ttl, lead, validity: terms.validity() }
    }

    /// What is to be done at `now` about a lease that was last tried to be extended at `tried`, which
    /// is the beginning of the clock if that never was.
    ///
    /// `has_listener` says whether anybody waits to be notified of the loss. If not, the lease is
    /// extended up to its very end, and not lost before it.
    #[must_use]
    pub fn duty(&self, lease: &mut Lease, tried: Moment, has_listener: bool, now: Moment) -> Duty {
        let lead = if has_listener { self.lead } else { Duration::ZERO };
        if lease.notice(lead, now).is_none()
            && let LeaseState::Lost(reason) = lease.state(now)
        {
            return Duty::Over(reason);
        }
        let end = lease.valid_until();
        let notice_at = end.before(self.lead);
        let last = if now < notice_at { notice_at } else { end };
        match self.renewal(lease, tried) {
            Some(due) if due <= now => Duty::Renew { again: last.min(self.next_try(now, last)) },
            Some(due) => Duty::Wait { until: last.min(due) },
            None => Duty::Wait { until: last },
        }
    }

    /// When to look at a lease that was just won.
    #[must_use]
    pub fn first_look(&self, lease: &Lease) -> Moment {
        let notice_at = lease.valid_until().before(self.lead);
        self.renewal(lease, Moment::default()).map_or(notice_at, |due| due.min(notice_at))
    }

    /// When the next extension is due. The moment from which the validity counts is not remembered:
    /// it follows from its end.
    fn renewal(&self, lease: &Lease, tried: Moment) -> Option<Moment> {
        if lease.capped().is_some() {
            return None;
        }
        let end = lease.valid_until();
        let due = end.before(self.validity.saturating_sub(self.every?));
        if tried == Moment::default() {
            return Some(due);
        }
        let notice_at = end.before(self.lead);
        let last = if tried < notice_at { notice_at } else { end };
        Some(due.max(self.next_try(tried, last)))
    }

    /// When to try again after an attempt at `tried`, of a lease that is of use until `last`.
    fn next_try(&self, tried: Moment, last: Moment) -> Moment {
        let left = last.since(tried);
        tried.after(self.retry.min((left / LAST_SHARE).max(self.round)))
    }
}
