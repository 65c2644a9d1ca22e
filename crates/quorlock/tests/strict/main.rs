//! What the `strict` dialect promises, on real servers that crash, forget, run full, stand still and
//! have their clocks moved.
//!
//! Two clients who know nothing of each other want one lock. Each fault also hits the `redlock`
//! dialect, by the same steps, where it lets both of them in: so it is seen that the fault is one.

mod agreeing;
mod all_clocks;
mod clocks;
mod contact;
mod evicting;
mod fence;
mod half_open;
mod healing;
mod late;
mod lost_votes;
mod members;
mod mixed_dialects;
mod one_clock;
mod participants;
mod poisoned;
mod quarantine;
mod rights;
mod running_full;
mod scripts;
mod tending;
mod winning_back;
mod world;

use quorlock::Dialect;

/// What each fault is tried on.
const BOTH: [Dialect; 2] = [Dialect::Strict, Dialect::Redlock];

/// The lock that both clients want.
const NAME: &str = "job";
