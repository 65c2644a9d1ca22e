//! The round that makes a lease last longer.

use std::sync::Arc;
use std::task::{Context, Poll};

use super::{Claim, Extending, refusals::Refusals};
use crate::Error;
use crate::core::Stamp;
use crate::error::Loss;
use crate::node::{Answer, Failure, ParticipantId, Request, Round, Verb};
use crate::waitable::Waitable;
use quorlock_protocol::{Extend, ExtendOutcome, Fences, HolderFence, Moment, Restore, Vote};

#[derive(Debug)]
pub(crate) struct ExtendRound {
    claim: Arc<Claim>,
    from: Extending,
    /// The last fence of the claim, and who takes part in it. Kept here: nodes ask for the request under a mutex
    /// of their own, and must not wait for the claim's.
    last: u64,
    participant: Option<ParticipantId>,
    /// Nobody waits for it: what is amiss goes to the log.
    unattended: bool,
    state: Waitable<State>,
}

#[derive(Debug)]
struct State {
    round: Extend,
    fences: Fences,
    refusals: Refusals,
}

impl ExtendRound {
    /// Asks all nodes to keep the record longer, for a caller that wants to know what comes of it.
    pub(crate) fn start(claim: &Arc<Claim>) -> Result<Arc<Self>, Error> {
        Self::ask(claim, false)
    }

    /// The same for the watchdog.
    pub(crate) fn renew(claim: &Arc<Claim>) -> Result<Arc<Self>, Error> {
        Self::ask(claim, true)
    }

    fn ask(claim: &Arc<Claim>, unattended: bool) -> Result<Arc<Self>, Error> {
        let from = claim.extending()?;
        let core = &claim.core;
        let terms = core.terms(claim.ttl());
        let round = Extend::new(core.quorum, &terms, from.since, from.deadline, from.backing);
        let fences = Fences::default();
        let state = Waitable::new(State { round, fences, refusals: Refusals::default() });
        let (last, participant) = (claim.last_fence(), claim.participant());
        let claim = Arc::clone(claim);
        let round = Arc::new(Self { claim, from, last, participant, unattended, state });
        round.claim.core.ask_all(&round);
        round.claim.send_note();
        Ok(round)
    }

    /// Ready once it is known how the extension ended, or that it cannot be known in time.
    pub(crate) fn poll(&self, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        let name = || self.claim.name.clone();
        let core = &self.claim.core;
        self.state.poll(cx, |state| {
            Some(match state.round.outcome()? {
                ExtendOutcome::Renewed { .. } => Ok(()),
                ExtendOutcome::Apart => Err(Error::Lost { name: name(), reason: Loss::Clock }),
                ExtendOutcome::Lost => {
                    let reason = if state.round.is_refused() { Loss::Gone } else { Loss::Expired };
                    Err(Error::Lost { name: name(), reason })
                }
                ExtendOutcome::Unknown => {
                    let verb = format!("extended the lock {}", name());
                    let have = state.round.tally().yes().len();
                    Err(Error::no_quorum(verb, have, core.quorum, state.refusals.answers(core)))
                }
            })
        })
    }

    /// The highest fence that the nodes have of it by now.
    pub(crate) fn fence(&self) -> HolderFence {
        self.state.lock().fences.highest(self.claim.core.quorum)
    }

    fn vote(&self, node: usize, record: impl FnOnce(&mut Refusals) -> Vote) {
        let now = self.claim.core.now();
        let (deadline, stands_on) = self.claim.stands(self.from.backed);
        let (outcome, backing, waker) = {
            let mut state = self.state.lock();
            state.round.outlived(deadline);
            state.round.stands_on(stands_on);
            let vote = record(&mut state.refusals);
            let decided = state.round.vote(node, vote, now);
            let backing = state.round.tally().yes();
            let Some(outcome) = decided else {
                drop(state);
                self.claim.backed(self.from.since, backing);
                return;
            };
            (outcome, backing, state.take_waker())
        };
        let doubtful = self.claim.extended(outcome, self.from.since, backing);
        if doubtful && self.unattended {
            self.warn(now);
        }
        if matches!(outcome, ExtendOutcome::Renewed { .. }) && self.claim.end_doubt() {
            let name = &self.claim.name;
            tracing::warn!(all_clear = true, lock = %name, "the lock {name} is extended again");
        }
        waker.wake();
    }
}

impl ExtendRound {
    /// Says that the lock may get lost. When nodes are down every lock has the same to say: of
    /// those, one each second is enough. That it is over is said of the same locks.
    fn warn(&self, now: Moment) {
        let Claim { core, name, .. } = &*self.claim;
        let why = self.state.lock().refusals.answers(core);
        if self.claim.say_doubt(&why, now, || core.watchdog.may_warn(now)) {
            tracing::warn!(lock = %name, "the lock {name} is not extended yet, trying again: {why}");
        } else {
            tracing::debug!(lock = %name, "the lock {name} is not extended yet, trying again: {why}");
        }
    }
}

impl Round for ExtendRound {
    fn request(&self, node: usize) -> Request<'_> {
        let Stamp { sent, wall_us } = self.from.stamp;
        let Claim { name, token, .. } = &*self.claim;
        let restore = Restore::on(node, self.from.backing, self.claim.core.quorum, self.last);
        let (ttl, participant) = (self.claim.ttl(), self.participant);
        Request { name, sent, wall_us, verb: Verb::Extend { token, ttl, restore, participant } }
    }

    fn cast(self: Arc<Self>, node: usize, answer: Answer) {
        let answer = self.claim.core.heard(node, self.from.stamp.wall_us, answer);
        if let Answer::Granted { fence } = answer {
            self.state.lock().fences.record(fence);
        }
        self.vote(node, |refusals| refusals.record(node, answer));
    }

    fn overdue(self: Arc<Self>, node: usize, why: Failure) {
        self.vote(node, |refusals| refusals.timed_out(node, why));
    }

    /// What it may restore rests on the lease that there was. A later extension rests on its own.
    fn is_moot(&self) -> bool {
        self.claim.core.now() >= self.from.deadline
    }
}
