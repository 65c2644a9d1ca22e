//! The lease of a claim: what extends it, and what ends it.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::sync::Notify;

use super::Claim;
use crate::core::Stamp;
use crate::drive::ExtendRound;
use crate::drive::doubt::Doubt;
use crate::error::{Error, Loss, NodeAnswers};
use crate::lease_clock::Deadline;
use crate::locked::locked;
use crate::watchdog::{Alarm, WheelSlot};
use quorlock_protocol::{Duty, ExtendOutcome, Lease, LeaseState, Moment, NodeSet, Vote};

/// What an extension begins with.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Extending {
    /// When it is sent, for the nodes.
    pub(crate) stamp: Stamp,
    /// What a lease that comes of it counts from.
    pub(crate) since: Moment,
    /// When the present lease ends, and what that stands on.
    pub(crate) deadline: Moment,
    pub(crate) backing: NodeSet,
    /// Since the extension that was sent then; the beginning of the clock if there was none.
    pub(crate) backed: Moment,
}

impl Claim {
    /// Reads or changes the lease.
    pub(crate) fn with_lease<T>(&self, change: impl FnOnce(&mut Lease, Moment) -> T) -> T {
        let now = self.core.now();
        change(&mut locked(&self.state).lease, now)
    }

    pub(crate) fn is_lost(&self) -> bool {
        matches!(self.with_lease(Lease::state), LeaseState::Lost(_))
    }

    /// When it ends, unless it is extended.
    pub(crate) fn deadline(&self) -> Deadline {
        self.core.clock.deadline(|now| locked(&self.state).lease.remaining(now))
    }

    /// What is left until its holder has to be notified of the loss, or why that is now.
    pub(crate) fn notice(&self) -> Result<Duration, Loss> {
        let lead = self.core.settings.loss_lead;
        match self.with_lease(|lease, now| (lease.notice(lead, now), lease.state(now))) {
            (Some(left), _) => Ok(left),
            (None, LeaseState::Lost(reason)) => Err(reason.into()),
            (None, _) => Err(Loss::Gone),
        }
    }

    /// What is notified of the loss.
    pub(crate) fn loss_signal(&self) -> Arc<Notify> {
        let mut state = locked(&self.state);
        Arc::clone(state.rare.get_or_insert_default().loss.get_or_insert_default())
    }

    /// Notifies those who listen for the loss, and keeps nobody waiting any longer.
    pub(super) fn tell_loss(&self, loss_signal: Option<Arc<Notify>>) {
        if let Some(loss_signal) = loss_signal {
            loss_signal.notify_waiters();
        }
        self.unblock_line();
    }

    /// An extension is about to be sent. Returns what it begins with, or why there cannot be one.
    pub(crate) fn extending(&self) -> Result<Extending, Error> {
        let (stamp, now) = self.core.clock.stamp();
        let mut state = locked(&self.state);
        let lease = &mut state.lease;
        if let LeaseState::Lost(reason) = lease.state(now) {
            return Err(Error::Lost { name: self.name.clone(), reason: reason.into() });
        }
        if let Some(cap) = lease.capped() {
            let remaining = lease.remaining(now);
            return Err(Error::Capped { name: self.name.clone(), cap, remaining });
        }
        let deadline = lease.valid_until();
        state.tried = now;
        // Those that it does not stand on may be won back by this.
        state.on = NodeSet::first(self.core.nodes.len());
        Ok(Extending { stamp, since: now, deadline, backing: state.backing, backed: state.backed })
    }

    /// When it ends, and which nodes are known by now to have it since the extension that was sent then.
    pub(crate) fn stands(&self, backed: Moment) -> (Moment, NodeSet) {
        let state = locked(&self.state);
        let sure = if state.backed == backed { state.backing } else { NodeSet::EMPTY };
        (state.lease.valid_until(), sure)
    }

    /// Takes in how an extension ended that was sent then, and notifies those who listen for the loss if
    /// that was the end. Returns whether it became doubtful by this one that the lock can be kept.
    pub(crate) fn extended(&self, outcome: ExtendOutcome, sent: Moment, backing: NodeSet) -> bool {
        let now = self.core.now();
        let loss_signal = {
            let mut state = locked(&self.state);
            if outcome == ExtendOutcome::Unknown && state.tried > sent {
                return false;
            }
            let before = state.lease.state(now);
            let ended = state.lease.valid_until();
            state.lease.extended(outcome, now);
            // Of one from elsewhere nothing was known before, and a coarse clock may not have gone on since.
            let first =
                matches!(outcome, ExtendOutcome::Renewed { .. }) && state.backing.is_empty();
            if state.lease.valid_until() > ended || first {
                (state.backing, state.backed) = (backing, sent);
            }
            match state.lease.state(now) {
                LeaseState::Lost(_) => state.loss().cloned(),
                after => return after == LeaseState::Unknown && before != after,
            }
        };
        self.core.watchdog.clear(self);
        self.tell_loss(loss_signal);
        false
    }

    /// The nodes that have confirmed the present end of the lease.
    pub(crate) fn backing(&self) -> NodeSet {
        locked(&self.state).backing
    }

    /// One more node has extended it, after it was decided: `backing` are all that have.
    pub(crate) fn backed(&self, sent: Moment, backing: NodeSet) {
        let mut state = locked(&self.state);
        if state.backed == sent {
            state.backing = state.backing.union(backing);
        }
    }

    /// One more node has answered the request by which it was won.
    pub(crate) fn heard_late(&self, node: usize, vote: Vote) {
        let mut state = locked(&self.state);
        if vote == Vote::Yes && state.backed == Moment::default() {
            state.backing.insert(node);
        }
    }

    /// Extends it for the watchdog, and sends the release that came in between after it.
    fn renew(self: &Arc<Self>) {
        // One that is refused was lost or released just now. If somebody's waker panics, a release must not
        // wait for ever.
        let renewed = catch_unwind(AssertUnwindSafe(|| drop(ExtendRound::renew(self))));
        let release = {
            let mut state = locked(&self.state);
            state.renewing = false;
            state.rare.as_mut().and_then(|rare| rare.release.take())
        };
        if let Some(release) = release {
            self.send_release(&release);
        }
        if let Err(panicked) = renewed {
            resume_unwind(panicked);
        }
    }

    /// Whether to warn that it is not extended, and why: not if that was done a moment ago, nor if
    /// `may_say` has something against it.
    pub(crate) fn say_doubt(
        &self,
        why: &NodeAnswers,
        now: Moment,
        may_say: impl FnOnce() -> bool,
    ) -> bool {
        let said = locked(&self.state).rare.as_ref().and_then(|rare| rare.doubt);
        let say = !said.is_some_and(|doubt| doubt.was_said(why, now)) && may_say();
        if say {
            locked(&self.state).rare.get_or_insert_default().doubt = Some(Doubt::new(why, now));
        }
        say
    }

    /// It is extended. Returns whether there was a warning that it is not, and no all-clear yet.
    pub(crate) fn end_doubt(&self) -> bool {
        let mut state = locked(&self.state);
        state.rare.as_mut().and_then(|rare| rare.doubt.as_mut()).is_some_and(Doubt::end)
    }
}

impl Alarm for Claim {
    fn slot(&self) -> &WheelSlot {
        &self.slot
    }

    /// The lease stands on the other nodes alone, if those are enough.
    fn session_ended(&self, node: usize) {
        let now = self.core.now();
        let loss_signal = {
            let mut state = locked(&self.state);
            state.backing.remove(node);
            if state.backing.len() >= self.core.quorum.enough() {
                return;
            }
            state.lease.extended(ExtendOutcome::Lost, now);
            state.loss().cloned()
        };
        self.core.watchdog.clear(self);
        self.tell_loss(loss_signal);
    }

    fn ring(self: Arc<Self>, now: Moment) -> Option<Moment> {
        let upkeep = self.core.upkeep(self.ttl(), self.renewed);
        let (duty, loss_signal) = {
            let mut state = locked(&self.state);
            let upkeep = upkeep.spread(state.lot);
            // A listener holds another reference to the signal.
            let has_listener = state.loss().is_some_and(|loss| Arc::strong_count(loss) > 1);
            let tried = state.tried;
            let duty = match upkeep.duty(&mut state.lease, tried, has_listener, now) {
                Duty::Renew { again } if !self.taken.load(Ordering::Acquire) => {
                    Duty::Wait { until: again }
                }
                duty => duty,
            };
            state.renewing = matches!(duty, Duty::Renew { .. });
            (duty, state.loss().cloned())
        };
        match duty {
            Duty::Renew { again } => {
                self.renew();
                Some(again)
            }
            Duty::Wait { until } => Some(until),
            Duty::Over(_) => {
                self.tell_loss(loss_signal);
                None
            }
        }
    }
}
