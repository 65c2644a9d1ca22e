//! Nodes on stores that can compare and set: all that is known of a lock is one value with a version, and the verbs
//! are plain functions from what was found to what is to be written.
//!
//! ```text
//!   submit ──▶ worker: one call of a name at a time, names side by side      worker, ../lanes
//!                │  what was found + what is asked ──▶ answer, or a change    step
//!                ▼
//!              store: reads; writes if the version is still the same         node/etcd
//! ```
//!
//! A change is written only onto the version that it was made from, so that no two clients decide on the same
//! version, and a write that was sent twice runs once. The store alone knows how long a [`Hold`] lasts, and how a
//! client is known to be there.
//!
//! # Writes whose fate is not known
//!
//! A write that was not answered may still run, at any later time. It names the version that it was made from. So
//! before anything is said of that name again, the version is raised by another write: after that the late one fails.

#[cfg(test)]
mod simulated;
mod state;
mod step;
mod worker;

use std::future::Future;

pub(super) use super::lanes::Readiness;
use super::{ClientId, Failure, Grant, Inbox, Listed, ParticipantId};
use crate::name::Name;
use crate::runtime::Moment;
pub(super) use state::{State, unescaped};
pub(super) use worker::CasNode;

use std::sync::Weak;
use std::time::Duration;

/// A store that can compare and set.
pub(super) trait Store: Send + Sync + 'static {
    /// What is there of a lock, as of no earlier than the call.
    fn read(&self, name: &Name) -> impl Future<Output = Result<Found, Failure>> + Send;

    /// Writes a change if what was found is still what is there. A failure of a
    /// [kind](super::FailureKind) other than `Silent` and `Broken` means that it was not and will not be written.
    fn write(
        &self,
        name: &Name,
        found: &Found,
        change: &Change,
    ) -> impl Future<Output = Result<Written, Failure>> + Send;

    /// Some of the locks that are held.
    fn list(&self, from: &[u8]) -> impl Future<Output = Result<Listed, Failure>> + Send;

    /// Whether grant messages for this client arrive.
    fn is_listening(&self) -> bool;

    /// Where grant messages for this client go.
    fn listen(&self, node: usize, inbox: Weak<dyn Inbox>);

    /// The client wants nothing more.
    fn close(&self) -> impl Future<Output = ()> + Send;
}

/// What a store has of a lock.
#[derive(Debug, Clone, Default)]
pub(super) struct Found {
    /// Grows with each write; zero if nothing is there.
    pub(super) version: i64,
    pub(super) state: State,
    /// Who holds the lock with the token of the state. None for a free one.
    pub(super) holds: Vec<Hold>,
}

/// One of those who hold a lock with the same token.
#[derive(Debug, Clone, Copy)]
pub(super) struct Hold {
    /// `None` for the maker.
    pub(super) who: Option<ParticipantId>,
    /// Tells several of one participant apart, if a store keeps several.
    pub(super) kind: u64,
    /// When it ends, by the clock of this client: for people to read, and not for decisions.
    pub(super) until: Moment,
}

/// What to write.
#[derive(Debug, Clone)]
pub(super) struct Change {
    pub(super) state: State,
    pub(super) holds: HoldChange,
    /// Only if the lock is held still.
    pub(super) only_if_held: bool,
    /// To be sent with the write, and only if that client is there.
    pub(super) message: Option<Message>,
}

/// What becomes of those who hold a lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum HoldChange {
    /// Nothing.
    Keep,
    /// One of them holds it for so long from now on, and not less long than before.
    Extend { who: Option<ParticipantId>, ttl: Duration },
    /// One of them does not any more.
    Remove { who: Option<ParticipantId> },
    /// A new maker holds it, alone.
    Replace { ttl: Duration },
    /// Nobody does.
    Clear,
}

/// Informs a client that a ticket of it has got the lock.
#[derive(Debug, Clone, Copy)]
pub(super) struct Message {
    pub(super) client: ClientId,
    pub(super) grant: Grant,
}

/// What became of a write.
#[derive(Debug)]
pub(super) enum Written {
    /// It was done. What is there now.
    Done(Found),
    /// Another client was faster. What is there now.
    Conflict(Found),
    /// Nothing was written: the client that the message is for is gone.
    Gone,
}

impl HoldChange {
    /// Who holds the lock after it. New holds are of that kind.
    pub(super) fn apply(self, holds: &[Hold], kind: u64, now: Moment) -> Vec<Hold> {
        let holds = holds.iter().copied();
        match self {
            Self::Keep => holds.collect(),
            Self::Extend { who, ttl } => {
                let is_same = move |hold: &Hold| hold.who == who && hold.kind == kind;
                let before = holds.clone().find(is_same).map_or(now, |hold| hold.until);
                let until = before.max(now.after(ttl));
                holds
                    .filter(move |hold| !is_same(hold))
                    .chain([Hold { who, kind, until }])
                    .collect()
            }
            Self::Remove { who } => holds.filter(|hold| hold.who != who).collect(),
            Self::Replace { ttl } => vec![Hold { who: None, kind, until: now.after(ttl) }],
            Self::Clear => Vec::new(),
        }
    }
}
