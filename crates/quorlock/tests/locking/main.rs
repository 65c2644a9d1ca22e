//! A lock from its acquisition to its release, as callers meet it: `lock`, `guard`, `owner`, `line`, `many`, and
//! the rounds in `drive`.
//!
//! Where time matters it is virtual, and the nodes are in memory; the others use real servers.

mod acquire;
mod blocking;
mod contention;
mod fence;
mod guard;
mod lease_clock;
mod line;
mod many;
mod owner;
mod participants;
mod release;
mod resume;
mod settings;
mod unpolled;
mod wait;
mod wait_time;
mod watchdog;
mod without_votes;
