//! The rules of a quorum lock, and nothing else.
//!
//! ```text
//!            votes, times                       outcome
//!  nodes ───────────────────▶ Acquire ──────▶ won until T │ lost: why
//!                             Extend  ──────▶ renewed until T │ lost │ unknown
//!                             Release ──────▶ released │ partly │ was lost already
//!                                │
//!                             Tally  (who said what)  ◀── Quorum (how many are enough)
//!
//!  Terms  ── how long a lease may be believed      Lease ── Held, Renewed, Unknown, Lost
//!  Caps   ── how much of it one holder may have    Upkeep ── when to extend it, when to tell
//!  Backoff ─ how long to wait before trying again
//! ```
//!
//! Nothing here reads a clock, does I/O, is async or draws a random number: the caller passes the
//! time ([`Moment`]), the votes ([`Vote`]) and the random bits. The same state machines therefore
//! serve real servers, tests and simulations, and every decision can be replayed.
//!
//! The crate is `no_std` and has no dependencies, so that this is a fact of the build.

#![cfg_attr(not(test), no_std)]

mod acquire;
mod backoff;
mod caps;
mod extend;
mod lease;
mod moment;
mod node_set;
mod quorum;
mod release;
mod tally;
mod terms;
mod upkeep;

pub use acquire::{Acquire, AcquireOutcome, Defeat};
pub use backoff::Backoff;
pub use caps::{Cap, Caps};
pub use extend::{Extend, ExtendOutcome};
pub use lease::{Lease, LeaseState, LossReason};
pub use moment::Moment;
pub use node_set::NodeSet;
pub use quorum::{MAX_NODES, Quorum};
pub use release::{Release, ReleaseOutcome};
pub use tally::{Tally, Vote};
pub use terms::{Drift, Terms};
pub use upkeep::{Duty, Upkeep};
