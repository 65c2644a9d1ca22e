//! What is checked: a version of the protocol, within bounds.

/// A point in time, or a length of it, in ticks.
pub(crate) type Time = u8;

/// A fence, or a number that may become one.
pub(crate) type Fence = u8;

/// How many nodes there are.
pub(crate) const NODES: usize = 3;

/// How many of them are a majority.
pub(crate) const ENOUGH: usize = 2;

/// How many clients there are.
pub(crate) const CLIENTS: usize = 2;

/// When a run starts: late enough for a node's clock that is one tick behind.
pub(crate) const START: Time = 1;

/// How many fences their clock counts in one tick. Real ones count microseconds, so that the
/// grants of one lease never use up as many fences as the lease has; so many do not fit here, but
/// more than the grants that the bounds allow.
pub(crate) const FENCES_PER_TICK: Fence = 6;

/// The protocol, and what happens when one of its rules is left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Variant {
    /// As it is meant.
    Strict,
    /// A node takes in a fence from any client that sends it, and the answer counts.
    ConfirmWithoutOwner,
    /// A node that finds a marker does not ask whether another run of the server wrote it.
    MarkerByPresence,
    /// A node that has forgotten its votes goes on voting.
    NoQuarantine,
    /// A holder re-creates its record on a node in quarantine whether or not its lease there has run
    /// out, and counts it.
    UnguardedHeal,
    /// An extension counts whenever a majority has answered it, be the old deadline over or not.
    LateExtension,
    /// A vote that comes while a fence is being confirmed, with a larger one, confirms it.
    LateVoteConfirms,
    /// The deadline counts from the latest votes of a majority, be they of the nodes that have
    /// confirmed the fence or not.
    DeadlineFromAnyVotes,
    /// The quarantine counts from the first request after the loss, though that may have been sent
    /// before it.
    QuarantineFromAnyRequest,
    /// A node extends a record without a look at its marker.
    ExtendIgnoresMarker,
    /// The client takes twice the smaller clock error off its validity, not the sum of both.
    ShortMargin,
    /// A node drops a record that looks expired before it checks whether its clock can be believed.
    DropBeforeClockCheck,
    /// A release that passes the lock on counts from the node's clock alone.
    GrantFromClockAlone,
    /// A release passes the lock on in quarantine too.
    GrantInQuarantine,
    /// An extension wins a node back that is in quarantine.
    WinBackInQuarantine,
    /// An extension wins a node back whose record is another's.
    WinBackFromAnother,
}

/// How far a check goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// How many ticks a run lasts.
    pub ticks: Time,
    /// How long a lease is believed by its holder.
    pub validity: Time,
    /// How far a node's clock may lie behind a request.
    pub behind: Time,
    /// How far a node's clock may lie ahead of a request.
    pub ahead: Time,
    /// How often the clients try for the lock, both together, as with all that follows.
    pub rounds: u8,
    /// By how much a proposal may exceed the clock of fences.
    pub eager: Fence,
    /// How often a client asks those nodes again that did not grant it.
    pub asks: u8,
    /// How often a holder extends its lease.
    pub extensions: u8,
    /// How often nodes forget.
    pub faults: u8,
    /// They may forget everything: a restart without a disk, or a flush.
    pub emptied: bool,
    /// They may restart with what was on disk at an earlier time.
    pub restored: bool,
    /// Whether all that is under way to a node is lost when it forgets. Connections end when a server
    /// restarts, but not when it is flushed, and a client may send over a new one what it had ready
    /// for the old one.
    pub connections_end: bool,
    /// How often a node's state goes to disk. Before that, what it had at the start lies there.
    pub syncs: u8,
    /// How often a node serves a request with a token that no client uses any more.
    pub strays: u8,
    /// Whether answers may get lost.
    pub losses: bool,
    /// Whether one client has the lock on all nodes at the start, and that is on all disks.
    pub held_at_start: bool,
    /// A node that is asked for a lock that another has remembers it, and a release passes the lock
    /// on to the client that was remembered.
    pub grants: bool,
    /// An extension takes the lock anew on nodes that vote and have no record of it.
    pub wins_back: bool,
}

impl Bounds {
    /// A lock, two rounds each, nothing that goes wrong but the network and the clocks.
    pub const PLAIN: Self = Self {
        ticks: 3,
        validity: 2,
        behind: 0,
        ahead: 0,
        rounds: 2,
        eager: 0,
        asks: 0,
        extensions: 0,
        faults: 0,
        emptied: false,
        restored: false,
        connections_end: false,
        syncs: 0,
        strays: 0,
        losses: true,
        held_at_start: false,
        grants: false,
        wins_back: false,
    };
}

/// What the checker looks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Question {
    /// A state that must not be.
    Safety,
    /// A state of each kind that has to be possible, or the first question would say nothing.
    Witnesses,
}

/// A version of the protocol, within bounds.
#[derive(Clone, Copy, Debug)]
pub struct Setup {
    /// Which version.
    pub variant: Variant,
    /// How far.
    pub bounds: Bounds,
    /// What for.
    pub question: Question,
}

impl Setup {
    /// When the last tick is over.
    #[must_use]
    pub fn end(&self) -> Time {
        START + self.bounds.ticks
    }

    /// How long a node keeps a record: what the client believes, and what it takes off for clocks.
    #[must_use]
    pub fn ttl(&self) -> Time {
        self.bounds.validity + self.bounds.behind + self.bounds.ahead
    }

    /// How long the client believes in a lease from the moment that it asked.
    #[must_use]
    pub fn belief(&self) -> Time {
        match self.variant {
            Variant::ShortMargin => self.ttl() - 2 * self.bounds.behind,
            _ => self.bounds.validity,
        }
    }

    /// How long a node that has forgotten its votes casts none.
    #[must_use]
    pub fn quarantine(&self) -> Time {
        self.ttl() + self.bounds.behind + self.bounds.ahead
    }
}
