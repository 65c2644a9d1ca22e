//! Guards of one owner that hold a claim together.
//!
//! In one process they share the claim, which counts them. A process that finds the lock held by another one for the
//! same owner *borrows* it: it makes a claim with the same token, and the nodes list it as a participant.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::{Claim, Origin, Won};
use crate::core::Core;
use crate::lock_options::LockOptions;
use crate::locked::locked;
use crate::name::Name;
use crate::node::ParticipantId;
use crate::token::Token;

impl Claim {
    /// Counts another guard of its owner. Returns `false` if the last one is gone, or the claim is lost.
    pub(crate) fn add_guard(&self) -> bool {
        let more = |guards: u32| (guards > 0).then(|| guards + 1);
        !self.is_lost()
            && self.guards.fetch_update(Ordering::AcqRel, Ordering::Acquire, more).is_ok()
    }

    /// Counts a guard less. Returns whether that was the last one.
    pub(super) fn remove_guard(&self) -> bool {
        self.guards.fetch_sub(1, Ordering::AcqRel) <= 1
    }

    /// Counts no guard any more if there is one. Returns `false` if there are others.
    pub(super) fn remove_only_guard(&self) -> bool {
        self.guards.compare_exchange(1, 0, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// A part in a claim that another process has taken for the same owner. It is worth something only
    /// once it was extended: from then on the nodes count this process as well.
    pub(crate) fn borrowed(
        core: &Arc<Core>,
        name: Name,
        token: Token,
        options: LockOptions,
    ) -> Arc<Self> {
        let won = Won::elsewhere(core, Origin::Borrowed, options.ttl);
        let claim = Self::new(core, name, token, options, won);
        let participant = Some(ParticipantId::random(&*core.runtime));
        locked(&claim.state).rare.get_or_insert_default().participant = participant;
        claim
    }

    /// Who this is on the nodes beside the maker; `None` for the maker itself.
    pub(crate) fn participant(&self) -> Option<ParticipantId> {
        if !self.borrowed {
            return None;
        }
        locked(&self.state).rare.as_ref().and_then(|rare| rare.participant)
    }
}
