//! The strict protocol as a model, for a checker that looks at every state of it.
//!
//! ```text
//!   Setup ── a version of the protocol, and how far to go
//!     │
//!     ▼            actions, properties                       every state, once
//!   World ◀─────────────────────────────── check ◀───────── stateright
//!     ├─ Column × 3 ── Node (its verbs) and, for each client, a Side (what lies between)
//!     └─ Client × 2 ── what it may conclude from what the nodes have said
//! ```
//!
//! A simulator meets a rare order of events by luck, in one seed of many thousands or never. Here
//! three nodes and two clients are so small a world that *every* order can be looked at, up to a
//! bound on how much happens. Each rule that a version leaves out ([`Variant`]) is found to be needed
//! by a shortest run that ends in two holders, or in a fence that does not grow.
//!
//! # How to run and read it
//!
//! `cargo xtask model` checks every case within small bounds, in seconds; `cargo xtask model --full`
//! goes further, in some ten minutes; `cargo xtask model heal` takes the cases with that in their name.
//! For each it says how many states there are, how long the longest run was that it followed, and
//! whether the protocol holds or what was found instead. A run is shown step by step, with what each step
//! changed. Times are ticks. "Node 0 is A's until 3, c = 6" is its record: owner, expiry and largest
//! fence. "A asks; node 0 gave 6 until 3; request of 1 to node 1" is what A knows and what is under way:
//! the fence that node 0 granted it, how long A may believe in that, and a request to node 1 that was
//! sent at 1 and has not run.
//!
//! To read the code, start with the verbs in `node.rs`, then `client.rs` (what may be concluded),
//! `sending.rs` and `serving.rs` (what is said between the two), `check.rs` (what may happen, and what
//! must hold) and `cases.rs`.
//!
//! Which nodes vote together is a model of its own: [`members`].
//!
//! # What is modelled
//!
//! The verbs of a node (acquire, extend, confirm, release) as one atomic step each; the marker, the
//! quarantine and healing; nodes that restart empty, restart from a disk that lacks the last writes,
//! or are flushed; requests that arrive at any later time or never, and answers that are lost;
//! clients that take a lock, confirm its fence, extend it, release it or vanish. Two things go beyond
//! one round: a client may ask again the nodes that did not grant it, and count votes for requests of
//! different times; and a release may pass the lock on to a client that waits.
//!
//! # What is left out, and why nothing is lost by it
//!
//! **Clocks.** The true time is a small number of ticks. The clients' clocks show it: how far they
//! are apart is, as drift is, a part of the margin that is taken off every lease, and nothing else
//! counts on it. A node's clock has no state at all. Whenever it is looked at it shows anything that
//! the clock check lets pass, between `sent − behind` and `sent + ahead` of the request at hand, so it
//! may jump between any two requests, forwards or back. With `behind` and `ahead` at 0, as in most
//! setups, it shows the time at which the request was sent: however late a request is, there is a
//! clock that lets it pass, which is the worst case of the proof in the protocol (a vote for a
//! request of `p` keeps every client out whose request is from before `p + validity`, and no other).
//! The setups with other values check that proof itself.
//!
//! **Answers** arrive at once or never. An answer that takes its time can do no more than one that is
//! lost or one that came at once: all that a client concludes from it is bound to a deadline, and is
//! concluded here at the first moment at which it may be. Who has a lock early has it longest, and who
//! has it without using it has let go of it without a release.
//!
//! **Requests** lie in one connection for each client and node, at most one at a time: what has not
//! run when the next one is sent is lost. Of what runs later, only a request for the lock could do
//! anything to others, and with a token that no client uses any more: it is a vote for none, and has a
//! bound of its own ([`Bounds::strays`]). A request that changes nothing on the node, and whose answer
//! counts for nothing, does not run: it might as well be lost.
//!
//! **Tokens** of earlier rounds are all the same: no client asks with them again.
//!
//! **Fences** follow a clock that counts a few fences in a tick in place of a million a second. It is
//! enough that the grants of one lease do not use up the fences of that lease.
//!
//! **Worlds that behave alike** are made one (`fewer.rs`): a record that is over for every request that
//! can still come is over; and nodes, as clients, have no names.
//!
//! # What it has shown
//!
//! Each of these has a case that breaks without it, and a run that shows how.
//!
//! - **The quarantine starts with a request whose client has heard of the node's marker.** The marker
//!   that a node makes after a loss needs a name of its own, such as the token of the request that it
//!   was made for; answers tell it, requests repeat it, and the first that does starts the quarantine.
//!   Were it to start with any request, one from before the loss could start it too early, if the
//!   node's clock is behind by as much as the request is late. Where no request outlives its connection
//!   and all nodes forget only by a restart, any request will do.
//! - **An extension by a node in quarantine counts only if the client's own lease on that node has not
//!   run out**, be the record re-created or come back from disk. So *extend* looks at the marker, as
//!   *acquire* does. This is needed if votes for requests of different times are counted together,
//!   and their fences can be equal; a confirm, which asks for the owner, would find it out.
//! - **A vote that comes while a fence is being confirmed, with a larger one, does not confirm it.**
//!   The fence becomes the larger one, and is confirmed anew. For votes of different times, too.
//! - **The deadline counts from the votes of those nodes that the fence counts on.** A node that
//!   confirms a fence, and whose grant was not heard of, counts from the first request of the round.
//! - **An extension may win a node back** that votes and has no record of the lock, and counts it from that request, in
//!   the same round. The fence there need not be compared with the holder's, only never become lower: while the
//!   holder's lease lasts no other can have had the lock. It must not do so in quarantine, or take what is
//!   another's.
//! - **Passing on is safe** with a record that counts from when the waiter's request was seen, if that
//!   is later than the release, and a window that counts from when it was sent; and if a marker of
//!   another run forbids it, and a new one empties the queue. A release need not look at the clock.
//!
//! # What it does not say
//!
//! Nothing about liveness, nothing about more nodes, clients, rounds or faults than the bounds say, and
//! nothing about whether the code does what the model does.

mod cases;
mod check;
mod client;
mod fewer;
pub mod members;
mod node;
mod outcome;
mod sending;
mod serving;
mod setup;
mod trace;
mod world;

pub use cases::{Case, Expected, all};
pub use check::{FENCES_GROW, NO_EARLY_VOTE, ONE_HOLDER};
pub use outcome::{Found, Outcome};
pub use setup::{Bounds, Question, Setup, Variant};
pub use trace::Step;
pub use world::{Action, World};
