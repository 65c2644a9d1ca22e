//! The round that makes a lease last longer.

use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use super::{Claim, said::Said};
use crate::Error;
use crate::error::Loss;
use crate::locked::locked;
use crate::node::{Answer, Failure, Request, Round, Verb};
use quorlock_protocol::{Extend, ExtendOutcome, Moment, Vote};

#[derive(Debug)]
pub(crate) struct ExtendRound {
    claim: Arc<Claim>,
    sent: Moment,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    round: Extend,
    said: Said,
    waker: Option<Waker>,
}

impl ExtendRound {
    /// Asks all nodes to keep the record longer; `None` if the claim is not held.
    pub(crate) fn start(claim: &Arc<Claim>) -> Option<Arc<Self>> {
        let deadline = claim.with_lease(|lease, now| {
            (!lease.remaining(now).is_zero()).then(|| lease.valid_until())
        })?;
        let core = &claim.core;
        let sent = core.now();
        let round = Extend::new(core.quorum, &core.terms(claim.wish.ttl), sent, deadline);
        let state = State { round, said: Said::default(), waker: None };
        let round = Arc::new(Self { claim: Arc::clone(claim), sent, state: Mutex::new(state) });
        core.ask_all(&round);
        Some(round)
    }

    /// Ready once it is known how the extension ended, or that it cannot be known in time.
    pub(crate) fn poll(&self, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        let name = || self.claim.name.clone();
        let core = &self.claim.core;
        let mut state = locked(&self.state);
        Poll::Ready(match state.round.outcome() {
            None => {
                state.waker = Some(cx.waker().clone());
                return Poll::Pending;
            }
            Some(ExtendOutcome::Renewed { .. }) => Ok(()),
            Some(ExtendOutcome::Lost) => {
                let refused = state.round.tally().no().len() >= core.quorum.enough();
                let reason = if refused { Loss::Gone } else { Loss::Expired };
                Err(Error::Lost { name: name(), reason })
            }
            Some(ExtendOutcome::Unknown) => Err(Error::NoQuorum {
                verb: format!("extended the lock {}", name()),
                have: state.round.tally().yes().len(),
                need: core.quorum.enough(),
                nodes: core.quorum.nodes(),
                answers: state.said.answers(core),
            }),
        })
    }

    fn vote(&self, node: usize, hear: impl FnOnce(&mut Said) -> Vote) {
        let now = self.claim.core.now();
        let (outcome, waker) = {
            let mut state = locked(&self.state);
            let vote = hear(&mut state.said);
            let Some(outcome) = state.round.vote(node, vote, now) else { return };
            (outcome, state.waker.take())
        };
        self.claim.extended(outcome);
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

impl Round for ExtendRound {
    fn request(&self, _node: usize) -> Request<'_> {
        let verb = Verb::Extend { token: &self.claim.token, ttl: self.claim.wish.ttl };
        Request { name: &self.claim.name, sent: self.sent, verb }
    }

    fn cast(self: Arc<Self>, node: usize, answer: Answer) {
        self.vote(node, |said| said.hear(node, answer));
    }

    fn overdue(self: Arc<Self>, node: usize, why: Failure) {
        self.vote(node, |said| said.miss(node, why));
    }
}
