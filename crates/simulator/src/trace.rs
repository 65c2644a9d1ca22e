//! What happened, in the order of true time.

use std::hash::{Hash, Hasher};

use crate::store::mark_late;

/// All that happened in one run.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Trace {
    entries: Vec<Entry>,
}

/// Something that happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Entry {
    /// The true time, in nanoseconds from the beginning.
    pub at: u64,
    /// What it was.
    pub what: What,
}

/// What can happen. Times are true ones in nanoseconds, unless they say otherwise.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum What {
    /// A fault of the plan begins, by its number.
    Fault(u32),
    /// It is over.
    Mended(u32),
    /// The time of day is set by so much everywhere.
    Stepped {
        /// In nanoseconds, ahead or back.
        by: i64,
    },
    /// A process starts.
    Started(u8),
    /// A process does not run until then, and notices only by the clock.
    Stopped {
        /// Which process.
        process: u8,
        /// The time at which it goes on.
        until: u64,
        /// Whether its machine slept, so that its timers did not run either.
        asleep: bool,
    },
    /// A process is killed.
    Killed(u8),
    /// A server begins to answer, or stops to.
    Server {
        /// Which node.
        node: u8,
        /// Whether it is there now.
        up: bool,
    },
    /// A server has another run than before, or was emptied: it may have forgotten votes.
    Forgot {
        /// Which node.
        node: u8,
    },
    /// A server will cast no vote until then, on its own clock.
    Quarantined {
        /// Which node.
        node: u8,
        /// The end, by its own clock in nanoseconds.
        until: u64,
    },
    /// A request takes effect on a node.
    Executed(Executed),
    /// The answer to a request reaches its client.
    Answered {
        /// The number of the request.
        request: u32,
    },
    /// A grant message leaves a node.
    GrantMessage {
        /// From this node.
        node: u8,
        /// To this process.
        process: u8,
    },
    /// A client asks for a lock.
    Wanted {
        /// By which process.
        process: u8,
        /// Which lock.
        name: u16,
    },
    /// A client learns that another has the lock that it wanted.
    Taken {
        /// Which process.
        process: u8,
        /// Which lock.
        name: u16,
        /// Since when it wanted it.
        since: u64,
    },
    /// A client learns that too few nodes have voted for it.
    Failed {
        /// Which process.
        process: u8,
        /// Which lock.
        name: u16,
        /// Since when it wanted it.
        since: u64,
    },
    /// A client learns that it holds a lock.
    Opened(Opened),
    /// Its validity was found to end at another time than before.
    Until {
        /// Which window.
        window: u32,
        /// The end of the validity.
        until: u64,
    },
    /// Its holder was notified of the loss.
    LossSignal {
        /// Which window.
        window: u32,
    },
    /// Its holder lets go of it.
    Closed {
        /// Which window.
        window: u32,
    },
    /// A client begins to take a lock away, whichever holder it has.
    Forcing {
        /// Which process.
        process: u8,
        /// Which lock.
        name: u16,
    },
    /// Its holder has lost it, but for what is still under way.
    Forced {
        /// Which process.
        process: u8,
        /// Which lock.
        name: u16,
    },
    /// A write reaches the resource.
    Written(Written),
    /// From now on nothing goes wrong any more.
    Calm,
    /// A process has asked for a lock in the calm.
    Asks(u8),
    /// And has got it.
    Got(u8),
    /// What was left when everything was over.
    Leftover {
        /// Of what kind.
        kind: Leftover,
        /// How many.
        count: u32,
    },
}

/// A request that took effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Executed {
    /// The number of the request.
    pub request: u32,
    /// On which node.
    pub node: u8,
    /// Of which process.
    pub process: u8,
    /// When it left.
    pub sent: u64,
    /// What was asked.
    pub verb: VerbKind,
    /// For which lock.
    pub name: u16,
    /// With which token, as a digest.
    pub token: u64,
    /// What was answered.
    pub reply: Reply,
    /// The node's own clock, in nanoseconds.
    pub clock: u64,
    /// The record before it.
    pub before: Kept,
    /// The record after it.
    pub after: Kept,
}

/// A record on a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Kept {
    /// The digest of its token; zero if there is none.
    pub token: u64,
    /// When it ends, by the node's own clock in nanoseconds.
    pub until: u64,
    /// The last fence that was given out for the lock, whichever holder it has.
    pub fence: u64,
}

/// The verbs, as far as traces tell them apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "they are those of the nodes")]
pub enum VerbKind {
    Acquire,
    Extend,
    /// An extension by a holder whose lease on that node has not run out.
    Heal,
    WinBack,
    Confirm,
    Wait,
    Release,
    Look,
}

/// How a node answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Reply {
    /// It was done.
    Done,
    /// It was not, since another has the record.
    Refused,
    /// The node does not vote: its clock and the client's are too far apart, or it may have forgotten.
    NoVote,
    /// Something was told.
    Shown,
}

/// A client learns that it holds a lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Opened {
    /// The number of the window.
    pub window: u32,
    /// The process.
    pub process: u8,
    /// Which lock.
    pub name: u16,
    /// What is common to the guards of one owner.
    pub holding: u32,
    /// The end of the validity.
    pub until: u64,
    /// The fence, if there is one.
    pub fence: Option<u64>,
    /// Whether the holder waits to be notified of the loss.
    pub heeds: bool,
    /// Whether it is extended without end, for the TTL of all, and not shared.
    pub renewed: bool,
}

/// A write that reached the resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Written {
    /// From which window.
    pub window: u32,
    /// For which lock.
    pub name: u16,
    /// When it was sent.
    pub sent: u64,
    /// With which fence.
    pub fence: Option<u64>,
    /// Whether a resource that checks fences has accepted it.
    pub accepted: bool,
    /// Whether a later holder has written before: one that checks nothing has accepted it all the same.
    pub stale: bool,
}

/// What can be left.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Leftover {
    /// A record on a node.
    Record,
    /// A queue on a node.
    Queue,
    /// A connection that a node keeps.
    Connection,
    /// A task of a process.
    Task,
    /// A timer of a process.
    Timer,
}

impl Trace {
    /// A trace of these entries, such as one made by hand.
    #[must_use]
    pub fn of(mut entries: Vec<Entry>) -> Self {
        // What a process does after it stood still for a while was noted before what others did
        // meanwhile.
        entries.sort_by_key(|entry| entry.at);
        mark_late(&mut entries);
        Self { entries }
    }

    /// What happened, in order.
    #[must_use]
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// A number that is the same for the same trace, in every build and on every machine.
    #[must_use]
    pub fn digest(&self) -> u64 {
        let mut hasher = Fnv(0xcbf2_9ce4_8422_2325);
        self.entries.hash(&mut hasher);
        hasher.finish()
    }
}

/// FNV-1a, word by word.
struct Fnv(u64);

impl Hasher for Fnv {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }

    fn write_u64(&mut self, word: u64) {
        self.0 = (self.0 ^ word).wrapping_mul(0x0100_0000_01b3).rotate_left(29);
    }
}

/// The digest of a token or a client.
pub(crate) fn digest(bytes: &[u8]) -> u64 {
    let mut hasher = Fnv(0xcbf2_9ce4_8422_2325);
    hasher.write(bytes);
    hasher.finish() | 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn traces_are_in_the_order_of_time_and_differ_by_their_digest() {
        let entry = |at, process| Entry { at, what: What::Started(process) };
        let trace = Trace::of(vec![entry(5, 0), entry(3, 1), entry(5, 2)]);
        let order: Vec<_> = trace.entries().iter().map(|entry| entry.what).collect();
        assert_eq!(order, [What::Started(1), What::Started(0), What::Started(2)]);
        let other = Trace::of(vec![entry(5, 0), entry(3, 1), entry(6, 2)]);
        assert_ne!(trace.digest(), other.digest());
        assert_eq!(trace.digest(), trace.clone().digest());
    }
}
