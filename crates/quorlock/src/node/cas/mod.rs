//! Nodes on stores that can compare and set: all that is known of a lock is one value with a version, and the verbs
//! are plain functions from what was found to what is to be written.
//!
//! ```text
//!   submit ──▶ worker: one call of a name at a time, names side by side      worker, ../lanes
//!                │  what was found + what is asked ──▶ answer, or a change    step
//!                ▼
//!              store: reads; writes if the version is still the same         node/{etcd,zookeeper}
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
//!
//! # Holds that end by a clock
//!
//! One store ends holds by itself, and what it says of them is true. Another keeps them until somebody writes, and
//! knows only when each version was *written*, by a clock that may be wrong: it has a [`Window`]. There the end of a
//! hold is a time of that clock, and nothing that is read shows that it has come. Two rules take the place of trust:
//!
//! ```text
//!   holder   asks at p ── write ──▶ at m   believed only if it ends at p + TTL − behind, or later
//!   next              ── write ──▶ at m'  over only if m' has reached the end, and m' ≤ our time of day + ahead
//!                        then another write, onto the version of that one
//! ```
//!
//! So between the two the time of day of the clients has advanced by the TTL less the window, whatever the clock of the
//! store did. The write that shows the time changes nothing ([`barrier`](step::barrier)). Who writes for another reason
//! carries the ends of the others forward.

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
pub(super) use step::fence_forgotten;
pub(super) use worker::CasNode;

use std::sync::Weak;
use std::time::Duration;

/// The clocks of stores have their grain, and so have ours.
const GRAIN: Duration = Duration::from_millis(2);

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

    /// Which of these clients are not there to get grant messages, as of no earlier than the call.
    fn absent(
        &self,
        clients: &[ClientId],
    ) -> impl Future<Output = Result<Vec<ClientId>, Failure>> + Send;

    /// Some of the locks that are held.
    fn list(&self, from: &[u8]) -> impl Future<Output = Result<Listed, Failure>> + Send;

    /// How far its clock may be from ours, if holds end by that; `None` if what it says of them is true.
    fn window(&self) -> Option<Window>;

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
    /// Another one after each write; zero if nothing is there.
    pub(super) version: i64,
    pub(super) state: State,
    /// Who holds the lock with the token of the state. None for a free one. Where holds end by a clock, all that are
    /// not known to be over.
    pub(super) holds: Vec<Hold>,
}

/// How far the clock of a store, by which holds end, may be from the time of day of its clients.
#[derive(Debug, Clone, Copy)]
pub(super) struct Window {
    pub(super) behind: Duration,
    pub(super) ahead: Duration,
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
    /// When it ends, in microseconds by the clock of a store that has a [`Window`].
    pub(super) end_us: u64,
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
    /// A new maker holds it, alone, for so long from now on. If that is another who waited for it, from when the
    /// clock of the store said `seen_us`, should that be later.
    Replace { ttl: Duration, seen_us: u64 },
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
    /// The same, at a time of the store's clock that is outside of its [`Window`]. Nothing that rests on the time of
    /// this write is to be believed.
    Apart(Found, Failure),
    /// Another client was faster. What is there now.
    Conflict(Found),
    /// Nothing was written: the client that the message is for is gone.
    Gone,
}

impl Found {
    /// Whether some hold may be over by now, where that is not known without a write.
    pub(super) fn may_be_over(&self, now: Moment) -> bool {
        self.holds.iter().any(|hold| hold.seems_over(now))
    }

    /// What is shown to people: without the holds that seem to be over.
    pub(super) fn as_it_seems(&self, now: Moment) -> Self {
        let holds = self.holds.iter().filter(|hold| !hold.seems_over(now)).copied().collect();
        Self { version: self.version, state: self.state.clone(), holds }
    }

    /// Whether this hold is recorded until then, by the clock of the store.
    fn lasts_until(&self, who: Option<ParticipantId>, end_us: u64) -> bool {
        self.holds.iter().any(|hold| hold.who == who && hold.end_us >= end_us)
    }
}

impl Hold {
    /// A write a moment too early would show nothing.
    fn seems_over(&self, now: Moment) -> bool {
        self.until.after(GRAIN) <= now
    }
}

impl Window {
    /// The least end, by the store's clock, of a hold that was asked for at this time of day.
    fn least_end_us(&self, asked_us: u64, ttl: Duration) -> u64 {
        let micros = |duration: Duration| u64::try_from(duration.as_micros()).unwrap_or(u64::MAX);
        asked_us.saturating_add(micros(ttl)).saturating_sub(micros(self.behind))
    }
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
                    .chain([Hold { who, kind, until, end_us: 0 }])
                    .collect()
            }
            Self::Remove { who } => holds.filter(|hold| hold.who != who).collect(),
            Self::Replace { ttl, .. } => {
                vec![Hold { who: None, kind, until: now.after(ttl), end_us: 0 }]
            }
            Self::Clear => Vec::new(),
        }
    }
}
