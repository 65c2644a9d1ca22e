//! The rules of a quorum lock, and nothing else.
//!
//! ```text
//!            votes, times                       outcome
//!  nodes ───────────────────▶ Acquire ──────▶ won until T │ lost: why
//!                             Confirm ──────▶ its fence is sure, or not
//!                             Extend  ──────▶ renewed until T │ lost │ unknown
//!                             Release ──────▶ released │ partly │ was lost already
//!                                │
//!                             Tally  (who said what)  ◀── Quorum (how many are enough)
//!
//!  Terms  ── how long a lease may be believed      Lease ── Held, Renewed, Unknown, Lost
//!  Caps   ── how much of it one holder may have    Upkeep ── when to extend it, when to tell
//!  LeaseClock ─ the time that leases are counted by, where two clocks decide
//!  Untimely ─ late, or a clock that is off?         Restore ─ where it may be won back
//!  Queueing ─ in the queues of all nodes, until a majority grants it
//!  Patience ─ how long a node may be silent     Window ─ how many calls may be on their way to it
//!  Turns ─ how often it changes hands without them      Backoff ─ how long to wait before a retry
//! ```
//!
//! Nothing here reads a clock, does I/O, is async or draws a random number: the caller passes the
//! time ([`Moment`]), the votes ([`Vote`]) and the random bits. The same state machines therefore
//! serve real servers, tests and simulations, and every decision can be replayed.
//!
//! The crate is `no_std` and has no dependencies, so that this is a fact of the build.

#![cfg_attr(not(test), no_std)]

extern crate alloc;

mod acquire;
mod backoff;
mod caps;
mod confirm;
mod extend;
mod fence;
mod lease;
mod lease_clock;
mod membership;
mod moment;
mod node_set;
mod node_standing;
mod patience;
mod queueing;
mod quorum;
mod release;
mod restore;
mod tally;
mod terms;
mod turns;
mod untimely;
mod upkeep;
mod window;

pub use acquire::{Acquire, AcquireOutcome, Defeat};
pub use backoff::{Backoff, LONGEST_PAUSE, pause_to_connect, rest_in_quarantine};
pub use caps::{Cap, Caps};
pub use confirm::Confirm;
pub use extend::{Extend, ExtendOutcome};
pub use fence::{FENCES_END, Fences, HolderFence, MOST_AHEAD_US, Proposal, plausible};
pub use lease::{Lease, LeaseState, LossReason};
pub use lease_clock::LeaseClock;
pub use membership::{Carries, MembershipStep, next_membership_step};
pub use moment::Moment;
pub use node_set::NodeSet;
pub use patience::Patience;
pub use queueing::{QueuePlace, Queueing, Step, TICKET_LEAST, TICKET_TTLS, ticket_kept};
pub use quorum::{MAX_NODES, Quorum};
pub use release::{Release, ReleaseOutcome};
pub use restore::Restore;
pub use tally::{Tally, Vote};
pub use terms::{Drift, Terms};
pub use turns::Turns;
pub use untimely::Untimely;
pub use upkeep::{Duty, Upkeep};
pub use window::Window;
