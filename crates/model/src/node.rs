//! One node: what it keeps, and the verbs of the strict dialect.

use crate::setup::{CLIENTS, Fence, Setup, Time, Variant};

/// A quarantine whose end is not known yet.
pub(crate) const FOREVER: Time = Time::MAX;

/// Who owns a record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Owner {
    /// Nobody.
    #[default]
    Nobody,
    /// The token of this client's latest round.
    Client(u8),
    /// A token of an earlier round: no client will ask with it again.
    Gone,
}

/// The record of the lock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Record {
    /// Whose it is.
    pub owner: Owner,
    /// Until when, on the node's clock.
    pub expiry: Time,
    /// The largest fence given so far.
    pub fence: Fence,
}

/// The marker that tells a node that has forgotten from one that has not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Marker {
    /// None is there.
    #[default]
    Absent,
    /// One with the run id of an earlier run of the server.
    OfAnotherRun,
    /// One with the run id of this run.
    OfThisRun,
}

/// A client that was answered that another has the lock, and is remembered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket {
    /// When it sent its latest request.
    pub sent: Time,
    /// When that arrived, on the node's clock.
    pub seen: Time,
    /// The fence that it proposed.
    pub proposal: Fence,
}

/// All that a node keeps, and may forget.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Memory {
    /// The record of the lock.
    pub record: Record,
    /// The marker.
    pub marker: Marker,
    /// Until when no votes are cast, on the node's clock.
    pub quarantine: Time,
    /// Who waits.
    pub waiting: [Option<Ticket>; CLIENTS],
}

/// One node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Node {
    /// What it knows.
    pub memory: Memory,
    /// What it would know if it restarted from its disk.
    pub disk: Memory,
    /// Until when a vote that it has forgotten may count. No node knows: for the properties only.
    pub forgotten: Time,
}

/// What a node knows after it has forgotten.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fault {
    /// Nothing.
    Emptied,
    /// What its disk holds. The run is a new one.
    Restored,
}

/// What a node is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Request {
    /// To give the lock.
    Acquire {
        /// When this was sent.
        sent: Time,
        /// The least fence that it wants.
        proposal: Fence,
        /// Whether the client had heard of the node's present marker when it sent this.
        informed: bool,
    },
    /// To keep the lock longer.
    Extend {
        /// When this was sent.
        sent: Time,
        /// The fence of the lock.
        fence: Fence,
        /// Whether the record may be re-created.
        heal: bool,
        /// Whether the client had heard of the node's present marker when it sent this.
        informed: bool,
    },
    /// To take in the fence.
    Confirm {
        /// The fence.
        fence: Fence,
    },
    /// To let go of the lock.
    Release {
        /// When this was sent.
        sent: Time,
    },
}

/// What it answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The lock is the client's, with this fence.
    Granted(Fence),
    /// Another has it.
    Held,
    /// No votes are cast.
    Quarantined,
    /// The record was the client's, and lasts longer now.
    Extended {
        /// Whether the node is in quarantine.
        quarantined: bool,
    },
    /// The record was forgotten, and is there again.
    Healed,
    /// The lock was free here, and is the client's anew.
    WonBack,
    /// The fence was taken in.
    Confirmed,
    /// The record is not the client's.
    Refused,
    /// Nothing is the client's any more.
    Released,
}

/// A lock that was passed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grant {
    /// To whom.
    pub client: usize,
    /// When that client had sent the request that it waited with.
    pub sent: Time,
    /// The fence that it got.
    pub fence: Fence,
}

impl Memory {
    /// The memory of a node that an operator has marked as new.
    #[must_use]
    pub fn marked() -> Self {
        Self { marker: Marker::OfThisRun, ..Self::default() }
    }

    /// Sees to the marker, and says whether the node is in quarantine.
    ///
    /// The quarantine has to outlast every vote that was forgotten, so it must not start with a
    /// request that was sent before the loss: the node's clock may be as far behind as that request
    /// is late. A client that has heard of the marker has heard of it after the loss.
    pub fn quarantined(&mut self, setup: &Setup, informed: bool, clock: Time) -> bool {
        let valid = match self.marker {
            Marker::Absent => false,
            Marker::OfAnotherRun => setup.variant == Variant::MarkerByPresence,
            Marker::OfThisRun => true,
        };
        if setup.variant == Variant::NoQuarantine {
            return false;
        }
        if !valid {
            self.marker = Marker::OfThisRun;
            self.waiting = [None; CLIENTS];
            self.quarantine = FOREVER;
        }
        let may_start = informed || setup.variant == Variant::QuarantineFromAnyRequest;
        if self.quarantine == FOREVER && may_start {
            self.quarantine = clock + setup.quarantine();
        }
        clock < self.quarantine
    }

    /// Gives the lock to `me`, if it may have it.
    pub fn acquire(
        &mut self,
        setup: &Setup,
        me: Owner,
        (sent, proposal, informed): (Time, Fence, bool),
        clock: Time,
    ) -> Answer {
        if self.quarantined(setup, informed, clock) {
            return Answer::Quarantined;
        }
        let free = self.record.owner == Owner::Nobody || self.record.expiry <= clock;
        // Of tokens that no client uses any more, no two are the same.
        let mine = self.record.owner == me && me != Owner::Gone;
        if !mine && !free {
            if let (Owner::Client(client), true) = (me, setup.bounds.grants) {
                self.waiting[usize::from(client)] = Some(Ticket { sent, seen: clock, proposal });
            }
            return Answer::Held;
        }
        if let Owner::Client(client) = me {
            self.waiting[usize::from(client)] = None;
        }
        self.give(me, clock + setup.ttl(), proposal);
        Answer::Granted(self.record.fence)
    }

    /// Keeps the record of `client` longer, or re-creates it.
    pub fn extend(
        &mut self,
        setup: &Setup,
        client: usize,
        (fence, heal, informed): (Fence, bool, bool),
        clock: Time,
    ) -> Answer {
        let me = Owner::of(client);
        let mine = self.record.owner == me;
        let expiry = clock + setup.ttl();
        if mine && setup.variant == Variant::ExtendIgnoresMarker {
            self.record.expiry = self.record.expiry.max(expiry);
            return Answer::Extended { quarantined: false };
        }
        let quarantined = self.quarantined(setup, informed, clock);
        if mine {
            self.record.expiry = self.record.expiry.max(expiry);
            return Answer::Extended { quarantined };
        }
        let free = self.record.owner == Owner::Nobody || self.record.expiry <= clock;
        if quarantined && heal && free {
            let fence = self.record.fence.max(fence);
            self.record = Record { owner: me, expiry, fence };
            return Answer::Healed;
        }
        let votes = !quarantined || setup.variant == Variant::WinBackInQuarantine;
        let nobodys = free || setup.variant == Variant::WinBackFromAnother;
        if setup.bounds.wins_back && votes && nobodys {
            // The fence may be above the holder's: another has tried in vain.
            let fence = self.record.fence.max(fence);
            self.record = Record { owner: me, expiry, fence };
            return Answer::WonBack;
        }
        Answer::Refused
    }

    /// Takes in the fence of `client`.
    pub fn confirm(&mut self, setup: &Setup, client: usize, fence: Fence) -> Answer {
        let mine = self.record.owner == Owner::of(client);
        if !mine && setup.variant != Variant::ConfirmWithoutOwner {
            return Answer::Refused;
        }
        self.record.fence = self.record.fence.max(fence);
        Answer::Confirmed
    }

    /// Lets go of a record if it is `owner`'s, and passes it on to a waiter: to `first`, if both clients
    /// wait.
    ///
    /// The new record counts from when that client's request was seen, if the clock has been set
    /// back since, or the release was sent before it.
    ///
    /// No client waits on a node in quarantine: a new marker empties the queue, and it takes none in
    /// until the quarantine is over. So there is no need to ask a clock, which a release does not
    /// check, whether that is so.
    pub fn release(
        &mut self,
        setup: &Setup,
        owner: Owner,
        clock: Time,
        first: usize,
    ) -> Option<Grant> {
        if let Owner::Client(client) = owner {
            self.waiting[usize::from(client)] = None;
        }
        if self.record.owner != owner {
            return None;
        }
        self.record.owner = Owner::Nobody;
        self.record.expiry = 0;
        if self.marker != Marker::OfThisRun && setup.variant != Variant::GrantInQuarantine {
            return None;
        }
        let (client, ticket) = [first, 1 - first]
            .into_iter()
            .find_map(|client| Some((client, self.waiting[client]?)))?;
        self.waiting[client] = None;
        let from = match setup.variant {
            Variant::GrantFromClockAlone => clock,
            _ => clock.max(ticket.seen),
        };
        self.give(Owner::of(client), from + setup.ttl(), ticket.proposal);
        Some(Grant { client, sent: ticket.sent, fence: self.record.fence })
    }

    /// Drops a record that seems to be over.
    pub fn drop_expired(&mut self) {
        self.record = Record { fence: self.record.fence, ..Record::default() };
    }

    fn give(&mut self, owner: Owner, expiry: Time, proposal: Fence) {
        let fence = proposal.max(self.record.fence + 1);
        self.record = Record { owner, expiry, fence };
    }
}

impl Node {
    /// A node that an operator has marked as new.
    #[must_use]
    pub fn marked() -> Self {
        Self { memory: Memory::marked(), disk: Memory::marked(), forgotten: 0 }
    }

    /// Loses what it knew.
    pub fn suffer(&mut self, fault: Fault) {
        let lost = self.memory.record;
        self.memory = match fault {
            Fault::Emptied => Memory::default(),
            Fault::Restored => Memory {
                marker: match self.disk.marker {
                    Marker::Absent => Marker::Absent,
                    _ => Marker::OfAnotherRun,
                },
                ..self.disk
            },
        };
        if lost != self.memory.record {
            self.forgotten = self.forgotten.max(lost.expiry);
        }
    }
}

impl Owner {
    /// The token of this client's latest round.
    #[must_use]
    pub fn of(client: usize) -> Self {
        Self::Client(u8::try_from(client).expect("there are two clients"))
    }
}
