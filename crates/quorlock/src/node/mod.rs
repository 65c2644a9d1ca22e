//! The seam to the nodes: one authority each, asked with a handful of verbs.
//!
//! ```text
//!   a round ── Call ──▶ Node::submit ──▶ server        nothing waits here, nothing is spawned
//!      ▲                                   │
//!      └────────── Call::answer ◀──────────┘           the answer finds the round, early or late
//! ```
//!
//! A node knows nothing of quorums or of guards. It is handed a [`Call`], does what
//! [`Call::request`] says, and answers. That the answer is *pushed* to the round, and not returned
//! from a future, is what makes the lock safe to cancel: a caller that goes away takes no request
//! with it, and a late answer still reaches the round it belongs to.
//!
//! A node keeps the queue of each lock as well, if it can. The message that a waiter's turn has come is
//! not asked for: it goes to an [`Inbox`].

#![cfg_attr(
    not(feature = "redis"),
    allow(
        dead_code,
        unused_imports,
        unused_variables,
        reason = "other kinds of nodes use less of it"
    )
)]

#[cfg(feature = "etcd")]
mod etcd;
pub mod memory;
#[cfg(feature = "mysql")]
pub mod mysql;
#[cfg(feature = "postgres")]
pub mod postgres;
#[cfg(feature = "redis")]
pub mod redis;
#[cfg(feature = "sqlite")]
pub mod sqlite;
#[cfg(feature = "zookeeper")]
mod zookeeper;

mod capabilities;
#[cfg(any(feature = "etcd", feature = "zookeeper"))]
mod cas;
#[cfg(any(feature = "mysql", feature = "postgres", feature = "redis", feature = "zookeeper"))]
pub(crate) mod clock_window;
#[cfg(any(feature = "etcd", feature = "zookeeper"))]
mod contenders;
mod context;
#[cfg(any(feature = "redis", feature = "zookeeper"))]
mod dial;
mod failure;
#[cfg(any(feature = "mysql", feature = "postgres", feature = "redis"))]
mod incoming;
mod kinds;
#[cfg(any(feature = "etcd", feature = "zookeeper"))]
mod lanes;
#[cfg(any(feature = "mysql", feature = "postgres", feature = "redis"))]
mod marker;
mod members;
mod participants;
#[cfg(any(feature = "mysql", feature = "postgres", feature = "redis"))]
mod refusals;
mod secret;
mod seen;
mod servers;
#[cfg(any(feature = "redis", feature = "zookeeper"))]
#[cfg_attr(not(feature = "tls"), path = "no_tls.rs")]
mod tls;
#[cfg(any(feature = "etcd", feature = "redis", feature = "zookeeper"))]
mod tls_files;
mod url;

use std::fmt;
use std::num::NonZero;
use std::sync::{Arc, Weak};
use std::time::Duration;

pub use capabilities::{Capabilities, RecordEnd, TtlRange};
pub(crate) use context::NodeContext;
pub use failure::{Failure, FailureKind};
pub(crate) use kinds::KindTerms;
pub use kinds::NodeOptions;
pub use members::{ClosedFor, Mark, Marker, MarkerState, Members, Writes};
pub use secret::Secret;
pub(crate) use secret::Secrets;
pub(crate) use seen::noted;
pub use seen::{Listed, MAX_NOTED_BYTES, Seen};
pub use url::{
    Login, default_url, has_marker, login_of, members, open, open_some, split_urls, url_forms,
};
pub(crate) use url::{examine, forget, forget_fence, init, is_local, member, open_with};

use crate::name::Name;
use crate::runtime::{BoxFuture, Runtime, random_u64};
use crate::token::Token;
use quorlock_protocol::Moment;

pub use quorlock_protocol::{Proposal, Restore};

/// One authority that keeps, for each lock name, who holds it and until when.
///
/// # Contract
/// - [`submit`](Self::submit) neither blocks nor waits for the server.
/// - Calls of one name take effect in the order in which they were submitted, or not at all: a release never
///   overtakes the acquisition before it, not even over a reconnection. Calls of different names may take effect in
///   any order. (A server that forgot a script makes a call that needs it come later than its turn. For a
///   release or an extension that is harmless; a wait does not run at all then if its release came meanwhile.)
/// - A call that is not answered within the node's time limit is reported with
///   [`Call::lateness`]; its answer is still delivered when it comes.
/// - No call is made to run twice, except a release, which compares the token.
/// - A release that is [owed](Request::is_owed) is kept and sent again until it is done or is owed no more. Where
///   records end with a session, that is until the session is over.
pub trait Node: Send + Sync + fmt::Debug {
    /// The node's address without secrets, for messages.
    fn label(&self) -> &str;

    /// What it can do, and what it asks of its clients. Read once it is [ready](Self::ready).
    fn capabilities(&self) -> Capabilities;

    /// Ends when the node can be asked, or when it is known why not (it keeps trying then).
    fn ready(&self) -> BoxFuture<'_, Result<(), Failure>>;

    /// Takes a call in.
    fn submit(&self, call: Call);

    /// Sets where to send grant messages for tickets of `client`, as the node with the index
    /// `node`. The latest call counts. A node that cannot send any answers [`Verb::Wait`] accordingly.
    fn listen(&self, client: ClientId, node: usize, inbox: Weak<dyn Inbox>);
}

/// Takes in what nodes say without being asked.
///
/// Anyone may have sent it. The receiver compares the secret.
pub trait Inbox: Send + Sync {
    /// `node` has passed the record of a lock on to a ticket.
    fn granted(&self, node: usize, grant: Grant);

    /// Grant messages may have got lost on the way from `node`, and tickets there may be gone.
    fn interrupted(&self, node: usize);

    /// `node` casts no vote: it does not carry the set of nodes, or not for long enough.
    fn unsettled(&self, node: usize);

    /// The session of this client on `node` has ended, and with it everything that the node has granted so far.
    /// Holders learn of their loss at once. For nodes whose [records end](RecordEnd::Session) with the session, which
    /// call this before they answer anything in the next one.
    fn session_ended(&self, node: usize);
}

/// A message that a ticket has got the record of its lock.
///
/// It names the ticket, and not the lock or its token: a client knows both of all tickets that a node may still serve,
/// and a channel may have other listeners. What is granted to a ticket that nobody wants any more is released at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Grant {
    /// Which ticket of the client.
    pub waiter: u64,
    /// [`Ticket::sent`] of the latest request with this ticket that the node had seen by then.
    pub sent: Moment,
    /// The secret that came with that request.
    pub secret: Secret,
    /// Whether others are left in the queue.
    pub others: bool,
    /// The last fence of its block, see [`Answer::Granted`].
    pub fence: u64,
}

/// Who asks: one for each [`Locker`](crate::Locker), so that a grant message finds its way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ClientId(u64);

impl ClientId {
    /// An id that nobody else has.
    pub fn random(runtime: &dyn Runtime) -> Self {
        Self(random_u64(runtime))
    }
}

impl fmt::Display for ClientId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

/// Who takes part in a lock that another process has made: one for each such claim. It is no secret,
/// since it counts only together with the token of the lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ParticipantId(u64);

impl ParticipantId {
    /// An id that nobody else has.
    pub fn random(runtime: &dyn Runtime) -> Self {
        Self(random_u64(runtime).max(1))
    }
}

impl fmt::Display for ParticipantId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

/// A place in the queue of a lock.
#[derive(Debug, Clone, Copy)]
pub struct Ticket {
    /// Which client to send the grant message to.
    pub client: ClientId,
    /// What distinguishes this ticket from others of that client.
    pub waiter: u64,
    /// What a grant message has to repeat. Another one with each request.
    pub secret: Secret,
    /// Where it stands.
    pub ticket_no: TicketNumber,
    /// What [`Grant::sent`] repeats: when the request with it was sent, by the clock of its lease. It
    /// grows from request to request.
    pub sent: Moment,
    /// How long a node keeps the place after this request. A client that still wants it asks again before.
    pub keep: Duration,
}

/// Where a ticket stands in the queue: low ticket numbers are served first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TicketNumber {
    /// Behind all that are there, and not below this.
    New(u64),
    /// Exactly here: what the nodes agreed on.
    Agreed(u64),
}

/// What a node is asked to do.
#[derive(Debug, Clone, Copy)]
pub struct Request<'a> {
    /// The lock. Of no meaning with [`Verb::List`], [`Verb::Look`] and [`Verb::Mark`].
    pub name: &'a Name,
    /// Read before the first byte of the round left. The node's time limit counts from here, or from when
    /// the node could take the call.
    pub sent: Moment,
    /// The time of day then, or a little later, in microseconds since 1970. It may jump. A node that keeps
    /// calls waiting sends the server a later one, of when it sends them, except with [`Verb::Mark`]: leases
    /// count from `sent`, and so from no later than the server's records.
    pub wall_us: u64,
    /// What to do with it.
    pub verb: Verb<'a>,
}

impl Request<'_> {
    /// Whether this is a release of what the node may still hold at `now`: it must not get lost.
    #[must_use]
    pub fn is_owed(&self, now: Moment) -> bool {
        matches!(self.verb, Verb::Release { until: Some(until), .. } if until > now)
    }

    /// Whether it rests on what was read at the time that it names, and so must not be sent as of later.
    pub(crate) fn is_mark(&self) -> bool {
        matches!(self.verb, Verb::Mark(_))
    }
}

/// The verbs.
#[derive(Debug, Clone, Copy)]
pub enum Verb<'a> {
    /// Store the record if there is none: [`Answer::Granted`], or [`Answer::Refused`] if there is.
    Acquire {
        /// The owner to be.
        token: &'a Token,
        /// How long to keep it.
        ttl: Duration,
        /// Which fence it is to have; `None` for no fence.
        proposal: Option<Proposal>,
    },
    /// Stand at this fence or above, if the record is ours: [`Answer::Granted`], or refused.
    Confirm {
        /// The owner.
        token: &'a Token,
        /// The last fence of its block.
        fence: u64,
    },
    /// Keep the record longer, never shorter, if it is ours: [`Answer::Granted`], or refused.
    ///
    /// A participant is listed beside the maker from its first extension on, each with an end of its
    /// own, which only grows. The record lasts until the latest of these ends.
    Extend {
        /// The owner.
        token: &'a Token,
        /// How long to keep it from now on.
        ttl: Duration,
        /// What to do if the record is not there. [`Restore::Heal`]: a node that has lost its memory, and
        /// casts no vote for that, stores it again, unless it has seen a later holder. [`Restore::WinBack`]:
        /// a node that votes takes it anew if it is free, even if others wait for it. It stands at the
        /// fence that is given, or above, then. A node that is a majority by itself does neither.
        restore: Restore,
        /// Who takes part in the lock; `None` for its maker.
        participant: Option<ParticipantId>,
    },
    /// Store the record if there is none and nobody stands before us in the queue, or if it is
    /// ours already: [`Answer::Granted`]. Otherwise take or keep a place in the queue:
    /// [`Answer::Queued`].
    ///
    /// A record that has ended without a release goes to the head of the queue, whichever client asks.
    Wait {
        /// The owner to be.
        token: &'a Token,
        /// How long to keep the record from the moment it becomes ours.
        ttl: Duration,
        /// The place.
        ticket: Ticket,
        /// If the record is ours, and a waiter stands before us in the queue, leave it to that one.
        yielding: bool,
        /// Which fence it is to have when it becomes ours; `None` for no fence.
        proposal: Option<Proposal>,
    },
    /// Drop the record if it is ours, or pass it on to the head of the queue: done. Otherwise
    /// refused. Either way our place in the queue is gone, if we had one.
    ///
    /// While others hold the lock with the same token, the record is left to them, and ends with the
    /// latest of their ends: [`Answer::LeftToOthers`]. A participant that is not listed is refused.
    /// Whether the end of another is over is judged only by a clock on which a vote could be cast.
    Release {
        /// The owner.
        token: &'a Token,
        /// When a record of ours on this node has expired by itself: a node that cannot be reached
        /// is asked again until then. `None` if it cannot have one.
        until: Option<Moment>,
        /// The least fence for the holder that it is passed on to: the same for all nodes, so that they
        /// agree. Zero if holders have no fences.
        next: u64,
        /// Whether we may have a place in the queue.
        queued: bool,
        /// Who takes part in the lock; `None` for its maker.
        participant: Option<ParticipantId>,
    },
    /// Say who holds it: [`Answer::Seen`].
    Inspect,
    /// Keep a note about the holder beside the record, if the record is ours: done, or refused. It
    /// goes when it is replaced by an empty one, or by itself after its time.
    SetNote {
        /// The owner.
        token: &'a Token,
        /// What to show to clients that look, at most [`MAX_NOTED_BYTES`] long.
        note: &'a str,
        /// How long to keep it.
        keep: Duration,
    },
    /// Drop the record, or pass it on to the head of the queue, if this is its holder: done, or
    /// refused. The holder may be of another library.
    ForceRelease {
        /// Whose record.
        holder: Holder,
    },
    /// Name some of the locks that are held by holders of this library: [`Answer::Listed`].
    List {
        /// Where the last answer has left off; empty for the beginning.
        from: &'a [u8],
    },
    /// Say which set the node belongs to: [`Answer::Marker`].
    Look,
    /// Belong to a set from now on: [`Answer::Marker`], with what is there then.
    Mark(&'a Mark),
}

/// What a node says. The usual answers are small, since each is moved several times on its way.
#[derive(Debug, Clone)]
pub enum Answer {
    /// The record is ours.
    Granted {
        /// The last fence that the node has given out, which is the last of our block. Zero if
        /// holders have no fences.
        fence: u64,
    },
    /// Released, noted, broken.
    Done,
    /// Released by the process that asked: others that hold the lock with the same token keep the record.
    LeftToOthers,
    /// Held by another, or not ours.
    Refused,
    /// Held by another, and our place in the queue is kept.
    Queued(Box<Queued>),
    /// What is there.
    Seen(Box<Seen>),
    /// Some of the locks.
    Listed(Box<Listed>),
    /// The set that the node belongs to; `None` if nodes of this kind keep none, and vote for all.
    Marker(Option<Box<Marker>>),
    /// Neither.
    Failed(Failure),
}

impl Answer {
    /// The fence of a holder, if the answer has one.
    pub(crate) fn fence(&self) -> Option<u64> {
        match self {
            Self::Granted { fence } => Some(*fence),
            Self::Seen(seen) => seen.record?.fence,
            _ => None,
        }
    }
}

/// A place in the queue of one node.
#[derive(Debug, Clone, Copy)]
pub struct Queued {
    /// Where our ticket stands.
    pub ticket_no: u64,
    /// Who holds the lock; `None` if it was passed to another this moment.
    pub record: Option<Record>,
    /// Whether the node sends a message with the grant. Otherwise the client has to ask again.
    pub will_notify: bool,
}

/// A lock as one node sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Record {
    /// Who holds it.
    pub holder: Holder,
    /// Its token, unless another library took it.
    pub token: Option<Token>,
    /// How long the record lasts unless it is renewed; `None` for ever, which no lock should.
    pub remaining: Option<Duration>,
    /// The last fence of the holder's block; `None` if it has none.
    pub fence: Option<u64>,
}

impl Record {
    /// A record with the text of its token as it is stored.
    #[must_use]
    pub fn new(token: &[u8], remaining: Option<Duration>) -> Self {
        Self { holder: Holder::of(token), token: Token::parse(token), remaining, fence: None }
    }

    /// The same with a fence, unless it is zero.
    #[must_use]
    pub fn with_fence(self, fence: u64) -> Self {
        Self { fence: (fence > 0).then_some(fence), ..self }
    }
}

/// A holder, as far as others may know it: a digest of its token, the same on every node.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Holder([u8; 4]);

impl Holder {
    /// The digest of a token.
    #[must_use]
    pub fn of(token: &[u8]) -> Self {
        let [a, b, c, d, ..] = sha1_smol::Sha1::from(token).digest().bytes();
        Self([a, b, c, d])
    }

    /// As it is compared by nodes.
    #[cfg(feature = "postgres")]
    pub(crate) fn bytes(self) -> [u8; 4] {
        self.0
    }

    /// The same as a number. One of many millions has none.
    pub(crate) fn digest(self) -> Option<NonZero<u32>> {
        NonZero::new(u32::from_be_bytes(self.0))
    }
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d] = self.0;
        write!(f, "#{a:02x}{b:02x}{c:02x}{d:02x}")
    }
}

impl fmt::Debug for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Holder({self})")
    }
}

/// What asks, and takes the answers in.
pub trait Round: Send + Sync {
    /// What is asked of `node`.
    fn request(&self, node: usize) -> Request<'_>;

    /// The final answer of `node`.
    fn cast(self: Arc<Self>, node: usize, answer: Answer);

    /// `node` has not answered in time, and may yet.
    fn overdue(self: Arc<Self>, node: usize, why: Failure);

    /// Whether it is of no use any more to ask a node that is far behind: the others have decided it, or what it is for
    /// is over.
    fn is_moot(&self) -> bool {
        false
    }
}

/// One request to one node, with the way back for its answer.
///
/// Dropped without an answer, it informs its round that none will come.
pub struct Call {
    /// `None` once it has been answered.
    round: Option<Arc<dyn Round>>,
    node: usize,
}

impl Call {
    /// A call of `round` to the node with that index.
    pub fn new(round: Arc<dyn Round>, node: usize) -> Self {
        Self { round: Some(round), node }
    }

    /// What to do.
    ///
    /// # Panics
    /// Never: a call has a round until it is answered, which takes the call away.
    #[must_use]
    #[expect(
        clippy::expect_used,
        reason = "only `answer`, which consumes the call, takes the round"
    )]
    pub fn request(&self) -> Request<'_> {
        self.round.as_ref().expect("a call that is not answered").request(self.node)
    }

    /// Whether its round does not need it any more.
    #[must_use]
    pub fn is_moot(&self) -> bool {
        self.round.as_ref().is_none_or(|round| round.is_moot())
    }

    /// The means to tell the round not to wait for this call any longer.
    ///
    /// Apart from the call, because the call stays where it is, usually behind a lock of the node,
    /// and the round may put new calls to that node when it is informed.
    #[must_use = "the round learns of it by tell"]
    pub fn lateness(&self) -> Lateness {
        Lateness { round: self.round.clone(), node: self.node }
    }

    /// Gives the final answer.
    pub fn answer(mut self, answer: Answer) {
        if let Some(round) = self.round.take() {
            round.cast(self.node, answer);
        }
    }
}

/// Tells a round that one of its calls is late, from [`Call::lateness`].
pub struct Lateness {
    round: Option<Arc<dyn Round>>,
    node: usize,
}

impl Lateness {
    /// Tells it, and why. The call may still be answered.
    pub fn tell(self, why: Failure) {
        if let Some(round) = self.round {
            round.overdue(self.node, why);
        }
    }
}

impl fmt::Debug for Lateness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lateness").field("node", &self.node).finish_non_exhaustive()
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        if let Some(round) = self.round.take() {
            round.cast(self.node, Answer::Failed(Failure::closed()));
        }
    }
}

impl fmt::Debug for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Call").field("node", &self.node).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each is moved several times between the socket and its round.
    #[test]
    fn an_answer_is_small() {
        assert!(size_of::<Answer>() <= 32, "{}", size_of::<Answer>());
    }
}
