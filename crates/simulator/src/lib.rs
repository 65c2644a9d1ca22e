//! The lock itself, run against simulated nodes, networks, clocks and processes.
//!
//! ```text
//!   seed ──▶ plan of faults ──▶ world ──▶ trace ──▶ checkers ──▶ what was promised and not kept
//!                                 │
//!             processes: the library as it is, on clocks and timers that are moved by hand
//!             network:   ordered connections that delay, hold back, break and come back
//!             nodes:     the scripts of the dialects, on servers that crash and forget
//! ```
//!
//! Nothing in it reads a real clock, starts a thread or draws real chance: a seed gives the same trace
//! every time, thousands of times faster than life.

mod board;
mod checkers;
mod clock;
mod holders;
mod nemesis;
mod network;
mod nodes;
mod picture;
mod planted;
mod process;
mod random;
mod run;
mod scenarios;
mod setup;
mod shrink;
mod simulate;
mod store;
mod story;
pub mod trace;
mod workload;
mod world;

pub use checkers::{Invariant, Violation, check, check_determinism};
pub use nemesis::{Fault, FaultClass, FaultKind, Plan};
pub use picture::{html, svg};
pub use planted::Planted;
pub use run::{Outcome, run, run_plan};
pub use scenarios::{SCENARIOS, Scenario, scenario};
pub use setup::{Dialect, Lists, Setup, Step};
pub use shrink::shrink;
pub use simulate::{Options, Summary, simulate};
