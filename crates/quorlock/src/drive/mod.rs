//! Rounds in flight: the only place where time, nodes and rules meet.
//!
//! Each round is one shared object. It is handed to every node inside a
//! [`Call`](crate::node::Call), counts their answers by the rules of `quorlock-protocol`, and wakes
//! the one task that waits for it, if one still does. Nothing is spawned, and a round goes on
//! without its caller: what it has to clean up, it cleans up by itself.

mod acquire;
mod claim;
mod confirm;
mod doubt;
mod extend;
mod force_release;
mod inspect;
mod list;
mod membership;
mod refusals;
mod release;
mod set_note;
mod wait;

pub(crate) use acquire::{AcquireRound, Defeated};
pub(crate) use claim::{Claim, Extending, LocalTurn, Origin, Passed, Won};
pub(crate) use confirm::ConfirmRound;
pub(crate) use extend::ExtendRound;
pub(crate) use force_release::ForceReleaseRound;
pub(crate) use inspect::InspectRound;
pub use inspect::{NodeStatus, Status, Verdict};
pub(crate) use list::{ListProgress, ListRound};
pub(crate) use membership::{Known, Looked, Set, Settled, Settling};
pub(crate) use refusals::hopeless;
pub(crate) use release::ReleaseRound;
pub use release::{NodeRelease, NodeReleaseState, Released};
pub(crate) use set_note::SetNoteRound;
pub(crate) use wait::WaitRound;
