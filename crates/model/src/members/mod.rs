//! The set of nodes as a model: which nodes vote together, and how that changes.
//!
//! Two lists of nodes that differ can have majorities that share no node. So each node has a marker
//! that says which set it votes in. Here every order is looked at in which clients and operators may
//! write these markers, while nodes forget them.
//!
//! # The rules
//!
//! A marker is *blank*, carries a set that is *forming* or has *formed*, or is *closed* from one set
//! in favour of another. A node votes for a set that it carries as formed, from the end of its
//! quarantine on. A client reads the markers of the members of its set one after the other, and then
//! writes, each time naming what it has read: a write finds the marker as it was read, in the same run
//! of the server, or does nothing. A node is *free* for a set if it is blank, if it has restarted with
//! a marker of that set, or if it is closed in favour of it.
//!
//! - **Take back.** If a majority carries the set as formed, in quarantine or not, then a member that
//!   is free, or still forming, carries it as formed, in quarantine.
//! - **Form.** If every member is free or carries the set, then those that are free carry it as
//!   forming. If any of them is closed, this needs a majority of the old set that is closed in favour
//!   of this one or carries it, or one member that carries it already.
//! - **Complete.** If every member has carried the set as forming for a quarantine, or carries it as
//!   formed, then it has formed, and all of them vote.
//! - **Close.** An operator closes members of the old set, be they formed, forming or restarted, if a
//!   majority carries it as formed or already takes part in this change.
//!
//! A client acts on what it has read for less than half a quarantine, counted from its first read to
//! the moment at which a node does what it is asked.
//!
//! # How it is modelled
//!
//! **Clients** have no state. A write may be done if each marker that it depends on was there at some
//! moment within the time for which a client acts on what it read: a client can have read just these.
//! So there is any number of clients and operators, each may be killed at any point, and any number of
//! writes may be late. A node keeps what its markers have said within that time (`Statements`), and no
//! more of it than the rules ask for.
//!
//! **Time** passes in ticks, without an end: ages are counted up to the quarantine.
//!
//! **Nodes** forget a bounded number of times. One that is emptied is blank. One that restarts comes
//! back with any marker that it has had since it was last emptied, not only the last one.
//!
//! **Votes** are cast whenever they can be. A lease of a set may be valid if a majority could vote for
//! it within the last quarantine, and what a node has voted before it forgot is remembered as well.
//!
//! # What it has shown
//!
//! - A member in quarantine counts as evidence that a set has formed, and as one that has waited.
//! - Twice the time for which a client acts on what it read has to be less than the quarantine: a
//!   member is taken back by what was read of one set, while another set is completed by what was read
//!   of that member. However long the quarantine is, what was read must not be used for ever.
//! - Two changes of the same set at once are safe only if both rules about majorities are kept, that of
//!   *close* and that of *form*.
//! - Whatever is interrupted, and whatever one node has forgotten, can be completed. If a majority
//!   forgets while it is closed, neither the old nor the new set can form without an operator's consent.
//! - It cannot be noticed if two lists share no node, or only nodes that have forgotten.

mod cases;
mod check;
mod node;
mod setup;
mod trace;
mod world;

pub use cases::{Case, all};
pub use check::{LEASES_END, NO_EARLY_MEMBER, ONE_SET, STAYS_IN_FORCE};
pub use node::{Marker, Node, Past, Statements};
pub use setup::{Bounds, Setup, Variant};
pub use world::{Action, World};
