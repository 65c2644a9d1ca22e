//! Bugs that are put in on purpose, to see that they are found.

use std::time::Duration;

/// A bug, at the seam to the nodes or to the clock, or in the nodes themselves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Planted {
    /// The validity counts from the reply, and not from before the request was sent.
    DeadlineFromReply,
    /// The validity of a lock that was passed on counts from when word of it arrives.
    GrantFromArrival,
    /// A release drops the record whoever's it is.
    ReleaseUnchecked,
    /// A record that is there is overwritten.
    AcquireOverwrites,
    /// An extension creates a record that is not there, such as one that was released.
    ExtendCreates,
    /// Timers, and with them the signal of a loss, are late.
    LateTimers,
    /// Word of grants is not heard.
    MissedPush,
}

impl Planted {
    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::DeadlineFromReply,
        Self::GrantFromArrival,
        Self::ReleaseUnchecked,
        Self::AcquireOverwrites,
        Self::ExtendCreates,
        Self::LateTimers,
        Self::MissedPush,
    ];

    /// How late timers are: more than the lead that a holder has to stop its work in.
    pub(crate) const LATE_BY: Duration = Duration::from_millis(60);
}
