//! The ways in which this process ends a claim.
//!
//! | | the nodes | the line of this process |
//! | --- | --- | --- |
//! | [`into_token`](Claim::into_token) | keep it for the rest of its TTL | goes on |
//! | [`detach`](Claim::detach) | keep it for the rest of its TTL | goes on |
//! | [`drop_guard`](Claim::drop_guard), the last | release it, unless the next in line gets it | goes on |
//! | [`release_on_nodes`](Claim::release_on_nodes) | release it | is left to the caller |
//! | [`discard`](Claim::discard) | release it | goes on, and does not get it |
//! | [`unblock_line`](Claim::unblock_line) | have lost it | goes on |
//!
//! How the line goes on stands in [`handover`](super::handover).

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::{Claim, LocalTurn, Passed};
use crate::drive::wait::ticket_gone_after;
use crate::drive::{ReleaseRound, SetNoteRound};
use crate::error::Error;
use crate::locked::locked;
use crate::token::Token;
use quorlock_protocol::{Lease, LeaseState};

impl Claim {
    /// Ends it for this process, and returns the token: the nodes keep the lock for the rest of its TTL, and a process
    /// with the token goes on with it.
    pub(crate) fn into_token(self: Arc<Self>) -> Result<Token, Error> {
        if let LeaseState::Lost(reason) = self.with_lease(Lease::state) {
            return Err(Error::Lost { name: self.name.clone(), reason: reason.into() });
        }
        let shared = |problem: &str, remedy: &str| {
            Err(Error::misuse(format!("the lock {} {problem}", self.name), remedy))
        };
        if self.borrowed {
            return shared("belongs to another process", "keep it there");
        }
        if !self.remove_only_guard() {
            return shared("is held by other guards of its owner", "release those first");
        }
        self.detach();
        Ok(self.token)
    }

    /// Ends it for this process, without a request to the nodes: it is not extended any more.
    pub(crate) fn detach(&self) {
        let loss_signal = {
            let mut state = locked(&self.state);
            state.lease.released();
            state.loss().cloned()
        };
        self.core.watchdog.clear(self);
        self.tell_loss(loss_signal);
    }

    /// A guard is gone. With the last one the claim goes to the next in line, or is released on the nodes. Returns
    /// `None` if there are others.
    pub(crate) fn drop_guard(self: &Arc<Self>) -> Option<Passed> {
        if !self.remove_guard() {
            return None;
        }
        Some(if self.in_line.swap(false, Ordering::AcqRel) {
            self.core.pass_on(&self.name, LocalTurn::Held(Arc::clone(self)))
        } else {
            Passed::Freed(self.release_on_nodes())
        })
    }

    /// Nobody has come for it, or wants it any more: as if its only guard were dropped. One whose fence is not sure goes
    /// to nobody.
    pub(crate) fn drop_unclaimed(self: &Arc<Self>) {
        if self.to_confirm().is_none() {
            self.drop_guard();
        } else {
            self.discard();
        }
    }

    /// Releases it on the nodes: it is not extended any more.
    pub(crate) fn release_on_nodes(&self) -> Arc<ReleaseRound> {
        let (name, queued) = (self.name.clone(), self.queued);
        let expires_after = match (queued, self.resumed) {
            (false, _) => self.ttl(),
            (true, false) => ticket_gone_after(self.ttl()),
            (true, true) => ticket_gone_after(self.ttl()).max(self.core.settings.max_ttl),
        };
        let who = (self.token, self.participant());
        let (round, loss_signal, send) = {
            let mut state = locked(&self.state);
            // No extension begins after this, so that none stores a record where nobody releases it.
            state.lease.released();
            let round = ReleaseRound::new(&self.core, name, who, state.on, queued, expires_after);
            if state.renewing {
                state.rare.get_or_insert_default().release = Some(Arc::clone(&round));
            }
            (round, state.loss().cloned(), !state.renewing)
        };
        self.in_line.store(false, Ordering::Release);
        self.core.watchdog.clear(self);
        if send {
            self.send_release(&round);
        }
        if let Some(loss_signal) = loss_signal {
            loss_signal.notify_waiters();
        }
        round
    }

    /// Nobody is to have it: releases it on the nodes, and passes the place in front on.
    pub(crate) fn discard(&self) {
        self.release_on_nodes();
        self.core.pass_on(&self.name, LocalTurn::Front(None));
    }

    /// It is lost: those who wait for it in this process do not wait any longer. Its guards are left as they are.
    pub(crate) fn unblock_line(&self) {
        if self.in_line.swap(false, Ordering::AcqRel) {
            self.core.pass_on(&self.name, LocalTurn::Front(None));
        }
    }

    /// Sends a release, behind the removal of the note, which would be refused after it.
    pub(super) fn send_release(&self, round: &Arc<ReleaseRound>) {
        if self.noted {
            SetNoteRound::send(self, "".into());
        }
        round.send();
    }
}
