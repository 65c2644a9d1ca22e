//! Bugs that are put in on purpose, to see that they are found.

use std::time::Duration;

/// A bug, at the seam to the nodes or to the clock, or in the nodes themselves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Planted {
    /// The validity counts from the reply, and not from before the request was sent.
    DeadlineFromReply,
    /// The validity of a lock that was passed on counts from when the grant message arrives.
    GrantFromArrival,
    /// A release drops the record whichever owner it has.
    ReleaseUnchecked,
    /// A record that is there is overwritten.
    AcquireOverwrites,
    /// An extension creates a record that is not there, such as one that was released.
    ExtendCreates,
    /// Timers, and with them the signal of a loss, are late.
    LateTimers,
    /// Grant messages are not heard.
    MissedPush,
    /// A holder that gets the lock from another of its process has the fence of that one.
    FenceReused,
    /// A record that has expired is dropped before the clocks are compared.
    ExpiryBeforeClock,
    /// What the clock window takes off a lease is twice how far a server may be behind.
    MarginTwoBehind,
    /// An extension on a server whose clock was set back makes the record end earlier.
    ExtendShortens,
    /// A fence is confirmed on servers that have the record of another.
    ConfirmUnchecked,
    /// A marker that is there counts, whichever start of the server it is of.
    MarkerByPresence,
    /// A server that may have forgotten votes at once.
    NoQuarantine,
    /// A server votes for clients of any set of nodes.
    ServesOtherSets,
    /// A holder stores its record again on every server that has forgotten it.
    HealUnguarded,
    /// The server looks at every request, and its client at the clocks.
    ClientSeesJumps,
    /// A lease counts by the time since the machine started alone.
    LeaseByBootTime,
    /// The release of a lock's maker drops the record, though other processes take part in it.
    MakerDropsShared,
    /// A participant of a lock is over by a clock that is not compared.
    DeadByAnyClock,
    /// A grant message counts whatever its sender.
    SecretUnchecked,
    /// A fence that no holder can have got is adopted, by servers and clients.
    PoisonAdopted,
    /// A request that was late is taken for a clock that is off, if that is a little ahead.
    LateTakenForClock,
    /// A server that was away for one extension never counts again for that lock.
    NeverWinsBack,
    /// A server takes a lock anew for its holder while it casts no votes.
    WinBackInQuarantine,
    /// A server that casts no vote says that the lock is another's.
    TakenInQuarantine,
    /// A request has the time at which it was put into the client's own line, and not that of its sending.
    StampedInLine,
    /// What waits in the client's own line is taken for the silence of the server.
    LineIsSilence,
}

impl Planted {
    /// All of them.
    pub const ALL: [Self; 28] = [
        Self::DeadlineFromReply,
        Self::GrantFromArrival,
        Self::ReleaseUnchecked,
        Self::AcquireOverwrites,
        Self::ExtendCreates,
        Self::LateTimers,
        Self::MissedPush,
        Self::FenceReused,
        Self::ExpiryBeforeClock,
        Self::MarginTwoBehind,
        Self::ExtendShortens,
        Self::ConfirmUnchecked,
        Self::MarkerByPresence,
        Self::NoQuarantine,
        Self::ServesOtherSets,
        Self::HealUnguarded,
        Self::ClientSeesJumps,
        Self::LeaseByBootTime,
        Self::MakerDropsShared,
        Self::DeadByAnyClock,
        Self::SecretUnchecked,
        Self::PoisonAdopted,
        Self::LateTakenForClock,
        Self::NeverWinsBack,
        Self::WinBackInQuarantine,
        Self::TakenInQuarantine,
        Self::StampedInLine,
        Self::LineIsSilence,
    ];

    /// What a margin lacks that counts how far a server may be behind twice, and not how far ahead.
    pub(crate) const AHEAD_OVER_BEHIND: Duration = Duration::from_millis(200);
    /// How late timers are: more than the lead that a holder has to stop its work in.
    pub(crate) const LATE_BY: Duration = Duration::from_millis(60);
}
