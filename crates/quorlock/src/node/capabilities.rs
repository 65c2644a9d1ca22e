//! What differs between kinds of nodes, as data.

use std::time::Duration;

use quorlock_protocol::Drift;

/// What a node can do, and what it asks of its clients.
///
/// Read once the node is [ready](super::Node::ready): some of it may be known only then. A node that is not ready says what
/// is known by then, and asks for no more than it will. One that becomes ready later, and cannot do what the locker
/// needs, says so as [unfit](super::FailureKind::Unfit).
///
/// ```
/// use std::time::Duration;
/// use quorlock::node::{Capabilities, RecordEnd, TtlRange};
///
/// // Keeps whole seconds, two at the least, and drops all records of a client whose session ends.
/// let engine = Capabilities::new()
///     .ttls(TtlRange { shortest: Duration::from_secs(2), step: Duration::from_secs(1), ..TtlRange::ANY })
///     .records_end(RecordEnd::Session)
///     .usual_limit(Duration::from_millis(500))
///     .stands_alone();
/// assert!(engine.stands_alone && !engine.queues);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Capabilities {
    /// How far the node's clock may run apart from the client's during one lease.
    pub drift: Drift,
    /// What has to be taken off the end of the validity besides.
    pub margin: Duration,
    /// Whether a lease also ends when the *time of day* has advanced by its validity, as it does on a
    /// node that compares clients' times of day. The time since the machine started always ends it.
    pub by_wall_clock: bool,
    /// Whether its fences follow the time of day of all clients, so that one which is more than a day ahead of
    /// it is a [failure](super::FailureKind::Fence) of the node. Not so where one machine has the only clock: fences
    /// stay ahead of it when it is set back.
    pub fences_by_clock: bool,
    /// The TTLs that it can keep. A lock with another one is refused.
    pub ttls: TtlRange,
    /// What ends a record that nobody releases.
    pub records_end: RecordEnd,
    /// How long it may take to answer when all is well, if that is longer than what a node of a quorum usually
    /// gets: as long as an election takes, say.
    pub usual_limit: Option<Duration>,
    /// Whether it is a cluster by itself, and cannot be one of several nodes of a quorum.
    pub stands_alone: bool,
    /// Whether it keeps the queue of each lock, and sends messages of grants. Otherwise those who wait ask again.
    pub queues: bool,
    /// Whether the engine itself puts those who want a lock in an order, and numbers holders by it. A [`Proposal`](super::Proposal)
    /// says no more then than that a fence is wanted: no fence can be proposed, reserved or
    /// [confirmed](super::Verb::Confirm), and a [ticket number](super::TicketNumber) is what the engine makes it. So each
    /// holder of a process asks the node. Only a node that [stands alone](Self::stands_alone) can do that.
    pub own_order: bool,
    /// Whether several processes can [take part](super::ParticipantId) in one lock.
    pub participants: bool,
}

/// The TTLs that a node can keep.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TtlRange {
    /// The shortest.
    pub shortest: Duration,
    /// The longest.
    pub longest: Duration,
    /// A TTL that is no multiple of this is kept for the next one: the record of a holder that died lasts
    /// so much longer at the most. Not zero.
    pub step: Duration,
}

impl TtlRange {
    /// As short and as long as anybody wants it, to the nanosecond.
    pub const ANY: Self =
        Self { shortest: Duration::ZERO, longest: Duration::MAX, step: Duration::from_nanos(1) };

    /// How long a record is kept that is asked for with this TTL.
    #[must_use]
    pub fn kept(&self, ttl: Duration) -> Duration {
        let ttl = ttl.max(self.shortest);
        let step = self.step.as_nanos().max(1);
        let over = ttl.as_nanos() % step;
        if over == 0 {
            return ttl;
        }
        let missing = u64::try_from(step - over).unwrap_or(u64::MAX);
        ttl.saturating_add(Duration::from_nanos(missing))
    }

    /// What nodes with these ranges can all keep.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self {
            shortest: self.shortest.max(other.shortest),
            longest: self.longest.min(other.longest),
            step: self.step.max(other.step),
        }
    }
}

/// What ends a record that nobody releases.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum RecordEnd {
    /// Its TTL, whatever becomes of the client. It can be handed to another process.
    Lease,
    /// The end of the session of its client, if that comes before its TTL does. It cannot outlive the client.
    Session,
}

impl Capabilities {
    /// One clock that never drifts, any TTL, records that end by their lease, one of many, without queues: what
    /// differs from that is set by the methods.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            drift: Drift { base: Duration::ZERO, per_mille: 0 },
            margin: Duration::ZERO,
            by_wall_clock: false,
            fences_by_clock: false,
            ttls: TtlRange::ANY,
            records_end: RecordEnd::Lease,
            usual_limit: None,
            stands_alone: false,
            queues: false,
            own_order: false,
            participants: true,
        }
    }

    /// Clocks may run apart by this during one lease.
    #[must_use]
    pub const fn drift(self, drift: Drift) -> Self {
        Self { drift, ..self }
    }

    /// This is taken off the end of the validity besides.
    #[must_use]
    pub const fn margin(self, margin: Duration) -> Self {
        Self { margin, ..self }
    }

    /// It compares clients' times of day: a lease ends by that too, and fences follow it.
    #[must_use]
    pub const fn by_wall_clock(self) -> Self {
        Self { by_wall_clock: true, fences_by_clock: true, ..self }
    }

    /// Its fences follow the time of day of all clients.
    #[must_use]
    pub const fn fences_by_clock(self) -> Self {
        Self { fences_by_clock: true, ..self }
    }

    /// It can keep these TTLs.
    #[must_use]
    pub const fn ttls(self, ttls: TtlRange) -> Self {
        Self { ttls, ..self }
    }

    /// This ends a record that nobody releases.
    #[must_use]
    pub const fn records_end(self, records_end: RecordEnd) -> Self {
        Self { records_end, ..self }
    }

    /// It may take so long to answer when all is well.
    #[must_use]
    pub const fn usual_limit(self, limit: Duration) -> Self {
        Self { usual_limit: Some(limit), ..self }
    }

    /// It cannot be one of several nodes of a quorum.
    #[must_use]
    pub const fn stands_alone(self) -> Self {
        Self { stands_alone: true, ..self }
    }

    /// It keeps queues, and sends messages of grants.
    #[must_use]
    pub const fn queues(self) -> Self {
        Self { queues: true, ..self }
    }

    /// The engine puts those who want a lock in an order of its own, and numbers holders by it.
    #[must_use]
    pub const fn own_order(self) -> Self {
        Self { own_order: true, ..self }
    }

    /// A lock is held by one process at a time.
    #[must_use]
    pub const fn without_participants(self) -> Self {
        Self { participants: false, ..self }
    }
}

impl Default for Capabilities {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ttl_is_kept_for_the_next_multiple_of_the_step() {
        let (ms, s) = (Duration::from_millis, Duration::from_secs);
        let whole = TtlRange { shortest: s(2), longest: s(60), step: s(1) };
        assert_eq!(whole.kept(ms(1_500)), s(2));
        assert_eq!(whole.kept(s(2)), s(2));
        assert_eq!(whole.kept(ms(2_001)), s(3));
        assert_eq!(TtlRange::ANY.kept(ms(10)), ms(10));
        assert_eq!(TtlRange { step: Duration::ZERO, ..whole }.kept(ms(2_001)), ms(2_001));
        let odd = TtlRange { shortest: ms(100), longest: s(30), step: ms(10) };
        assert_eq!(whole.and(odd), TtlRange { shortest: s(2), longest: s(30), step: s(1) });
    }
}
