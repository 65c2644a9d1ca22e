//! What is held of a name.
//!
//! ```text
//!   mod.rs       what a claim is, and how it is made
//!   lease.rs     how long it lasts: what extends the lease, and what ends it
//!   sharing.rs   guards of one owner hold it together, in this process and in others
//!   ending.rs    the ways in which this process ends it
//!   handover.rs  the next of this process gets it, or the place in front of the line
//! ```

mod ending;
mod handover;
mod lease;
mod sharing;

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::Notify;

pub(crate) use handover::{LocalTurn, Passed};
pub(crate) use lease::Extending;

use super::doubt::Doubt;
use super::{ReleaseRound, SetNoteRound};
use crate::core::Core;
use crate::lock_options::LockOptions;
use crate::locked::locked;
use crate::name::Name;
use crate::node::ParticipantId;
use crate::note::Note;
use crate::token::Token;
use crate::watchdog::{Alarm, WheelSlot};
use quorlock_protocol::{Caps, HolderFence, Lease, Moment, NodeSet, Turns};

/// One token's claim on one name, from the majority that granted it to its release.
///
/// It may change hands inside of the process. While it is held, the watchdog extends it.
///
/// Every lock that is held has one: its size counts.
#[derive(Debug)]
pub(crate) struct Claim {
    pub(crate) core: Arc<Core>,
    pub(crate) name: Name,
    pub(crate) token: Token,
    ttl_ns: u64,
    /// Tickets of it may be left in the queues of the nodes.
    queued: bool,
    /// Another process took it, perhaps with another TTL, and has handed it over.
    resumed: bool,
    /// A majority of the nodes gave out the same fence at once.
    fence_agreed: bool,
    /// Another process has taken it, and this one takes part in it.
    borrowed: bool,
    /// The watchdog extends it.
    renewed: bool,
    /// Other processes were waiting for it when it was granted.
    wanted: bool,
    /// The next holder of this process may have it.
    passable: bool,
    /// Its holder has a note.
    noted: bool,
    /// Whether it is in front of the line, and keeps others of this process waiting.
    in_line: AtomicBool,
    /// Whether a guard has been made of it. Until then it is not extended: the future that asked for it may never be
    /// polled again.
    taken: AtomicBool,
    /// The guards of the present turn.
    guards: AtomicU32,
    slot: WheelSlot,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    lease: Lease,
    /// The nodes on which a record or a ticket of it can be, now or later.
    on: NodeSet,
    /// The nodes that have confirmed the present end of the lease. None if nothing is known of it.
    backing: NodeSet,
    /// They have confirmed the extension that was sent then; at the beginning of the clock there was none.
    backed: Moment,
    /// The fence of the present holder.
    fence: u64,
    turns: Turns,
    /// When the last extension was sent; at the beginning of the clock if none was.
    tried: Moment,
    /// The watchdog is asking the nodes to extend it: a release now would overtake the requests to
    /// the rest.
    renewing: bool,
    /// By how much its extensions come earlier, so that those of many are not all made at once.
    lot: u8,
    rare: Option<Box<Rare>>,
}

/// What few claims need.
#[derive(Debug, Default)]
struct Rare {
    /// Notified of the loss, once somebody listens for it.
    loss: Option<Arc<Notify>>,
    /// The release that waits until all nodes have been asked to extend it.
    release: Option<Arc<ReleaseRound>>,
    /// The note of the holder, as the nodes store it.
    note: Option<Arc<str>>,
    /// Who this is beside the maker, if another process is that.
    participant: Option<ParticipantId>,
    /// The last warning that it is not extended.
    doubt: Option<Doubt>,
}

impl State {
    fn loss(&self) -> Option<&Arc<Notify>> {
        self.rare.as_ref()?.loss.as_ref()
    }
}

/// How a claim came about.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Origin {
    /// By one question to the nodes.
    Asked {
        /// A record of it can be on these.
        on: NodeSet,
        /// It stands on these.
        backing: NodeSet,
    },
    /// In the queues of the nodes.
    Queued {
        /// Whether others were left there.
        others: bool,
        /// It stands on these.
        backing: NodeSet,
    },
    /// By another process, for the same owner.
    Borrowed,
    /// By another process, which has handed it over.
    Resumed,
}

/// What was won.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Won {
    pub(crate) origin: Origin,
    pub(crate) valid_until: Moment,
    pub(crate) fence: HolderFence,
    /// How many holders of this process may have it in a row: so many fences are reserved.
    pub(crate) turns: u16,
}

impl Won {
    /// A claim of another process, of which nothing is known yet.
    fn elsewhere(core: &Core, origin: Origin, ttl: Duration) -> Self {
        let valid_until = core.terms(ttl).valid_until(core.now());
        // Of those from elsewhere it is not known how many fences are theirs.
        Self { origin, valid_until, fence: HolderFence::default(), turns: 1 }
    }
}

impl Claim {
    /// A claim that was won. Its fence may still have to be confirmed.
    pub(crate) fn new(
        core: &Arc<Core>,
        name: Name,
        token: Token,
        options: LockOptions,
        won: Won,
    ) -> Arc<Self> {
        let LockOptions { ttl, keep, noted, .. } = options;
        let Won { origin, valid_until, fence, turns } = won;
        let all = NodeSet::first(core.nodes.len());
        let (on, queued, others, backing) = match origin {
            Origin::Asked { on, backing } => (on, false, false, backing),
            Origin::Queued { others, backing } => (all, true, others, backing),
            Origin::Borrowed => (all, false, false, NodeSet::EMPTY),
            Origin::Resumed => (all, true, false, NodeSet::EMPTY),
        };
        let borrowed = matches!(origin, Origin::Borrowed);
        let resumed = matches!(origin, Origin::Resumed);
        let elsewhere = matches!(origin, Origin::Borrowed | Origin::Resumed);
        core.note_fence(fence.last);
        let now = core.now();
        let caps = Caps::new(keep.max_extensions, keep.max_hold, now);
        let lease = Lease::capped_by(caps, valid_until);
        let first = core.upkeep(ttl, keep.renew).first_look(&lease);
        let claim = Arc::new(Self {
            core: Arc::clone(core),
            name,
            token,
            ttl_ns: u64::try_from(ttl.as_nanos()).unwrap_or(u64::MAX),
            queued,
            resumed,
            fence_agreed: fence.agreed,
            borrowed,
            renewed: keep.renew,
            wanted: others,
            passable: options.is_plain() && !elsewhere,
            noted: noted && !borrowed,
            in_line: AtomicBool::new(false),
            taken: AtomicBool::new(false),
            guards: AtomicU32::new(1),
            slot: WheelSlot::default(),
            state: Mutex::new(State {
                lease,
                on,
                backing,
                backed: Moment::default(),
                fence: fence.last.saturating_sub(u64::from(turns.saturating_sub(1))),
                turns: Turns::first_of(turns),
                tried: Moment::default(),
                renewing: false,
                lot: core.next_lot(),
                rare: None,
            }),
        });
        core.watchdog.set(first, now, Arc::clone(&claim) as Arc<dyn Alarm>);
        claim
    }

    /// A claim that another process has taken and handed over, with the note that it has. It is
    /// worth something only once it was extended. It stands in no line.
    pub(crate) fn resumed(
        core: &Arc<Core>,
        name: Name,
        token: Token,
        note: Option<&Note>,
    ) -> Arc<Self> {
        let (ttl, keep) = (core.settings.ttl, core.settings.keep());
        let owner = token.owner();
        let options =
            LockOptions { ttl, least: Duration::ZERO, owner, keep, noted: note.is_some() };
        let won = Won::elsewhere(core, Origin::Resumed, ttl);
        let claim = Self::new(core, name, token, options, won);
        if let Some(note) = note {
            claim.set_note(note);
        }
        claim
    }

    pub(crate) fn set_note(&self, note: &Note) {
        if self.noted {
            locked(&self.state).rare.get_or_insert_default().note = Some(note.stored().into());
        }
    }

    /// Stores the note of the holder on the nodes, if it has one.
    pub(crate) fn send_note(&self) {
        if !self.noted {
            return;
        }
        // Nodes must not be asked under this mutex: they have their own.
        let note = locked(&self.state).rare.as_ref().and_then(|rare| rare.note.clone());
        if let Some(note) = note {
            SetNoteRound::send(self, note);
        }
    }

    pub(crate) fn ttl(&self) -> Duration {
        Duration::from_nanos(self.ttl_ns)
    }

    /// A guard is made of it: the watchdog may extend it from now on.
    pub(crate) fn mark_taken(&self) {
        self.taken.store(true, Ordering::Release);
    }

    /// The fence of the present holder; zero if holders have none.
    pub(crate) fn fence(&self) -> u64 {
        locked(&self.state).fence
    }

    /// The last fence that is reserved for holders of this claim.
    pub(crate) fn last_fence(&self) -> u64 {
        let state = locked(&self.state);
        if state.fence == 0 { 0 } else { state.fence + u64::from(state.turns.left()) }
    }

    /// The fence that a majority of the nodes has to confirm before it may be used.
    pub(crate) fn to_confirm(&self) -> Option<u64> {
        (!self.fence_agreed).then(|| self.last_fence())
    }

    /// A claim from elsewhere has this fence.
    pub(crate) fn set_fence(&self, fence: u64) {
        self.core.note_fence(fence);
        locked(&self.state).fence = fence;
    }

    /// The present turn, counted from zero.
    pub(crate) fn turn(&self) -> u16 {
        locked(&self.state).turns.current()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every lock that is held has one.
    #[test]
    fn a_claim_is_small() {
        assert!(size_of::<Claim>() <= 184, "{}", size_of::<Claim>());
    }
}
