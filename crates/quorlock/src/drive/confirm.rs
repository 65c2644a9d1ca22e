//! The round that makes sure of a holder's fence.

use std::sync::Arc;
use std::task::{Context, Poll};

use super::{Claim, refusals::Refusals};
use crate::Error;
use crate::core::Stamp;
use crate::node::{Answer, Failure, Request, Round, Verb};
use crate::waitable::Waitable;
use quorlock_protocol::{Confirm, NodeSet, Vote};

/// Raises the nodes to the fence of a claim, where its record still is. Needed when they gave out
/// different ones.
#[derive(Debug)]
pub(crate) struct ConfirmRound {
    claim: Arc<Claim>,
    fence: u64,
    /// The nodes that the claim's lease stands on: only their answers count. Another may have its record
    /// from an earlier request, and lose it before the lease ends.
    backing: NodeSet,
    stamp: Stamp,
    state: Waitable<State>,
}

#[derive(Debug)]
struct State {
    round: Confirm,
    refusals: Refusals,
}

impl ConfirmRound {
    pub(crate) fn start(claim: &Arc<Claim>, fence: u64) -> Arc<Self> {
        let (claim, core) = (Arc::clone(claim), Arc::clone(&claim.core));
        let round = Confirm::new(core.quorum);
        let state = Waitable::new(State { round, refusals: Refusals::default() });
        let (backing, stamp) = (claim.backing(), core.stamp());
        let round = Arc::new(Self { claim, fence, backing, stamp, state });
        core.ask_all(&round);
        round
    }

    pub(crate) fn claim(&self) -> &Arc<Claim> {
        &self.claim
    }

    /// Ready with whether the fence is sure, once that is known.
    pub(crate) fn poll(&self, cx: &mut Context<'_>) -> Poll<bool> {
        self.state.poll(cx, |state| state.round.outcome())
    }

    /// What to tell the caller if it is not.
    pub(crate) fn unsure(&self) -> Error {
        let Claim { core, name, .. } = &*self.claim;
        let state = self.state.lock();
        let verb = format!("confirmed the fence of the lock {name}");
        let have = state.round.tally().yes().len();
        Error::no_quorum(verb, have, core.quorum, state.refusals.answers(core))
    }

    fn vote(&self, node: usize, record: impl FnOnce(&mut Refusals) -> Vote) {
        self.state.update_and_wake(|state| {
            let vote = match record(&mut state.refusals) {
                Vote::Yes if !self.backing.contains(node) => Vote::Unknown,
                vote => vote,
            };
            state.round.vote(node, vote).is_some()
        });
    }
}

impl Round for ConfirmRound {
    fn request(&self, _node: usize) -> Request<'_> {
        let Stamp { sent, wall_us } = self.stamp;
        let Claim { name, token, .. } = &*self.claim;
        Request { name, sent, wall_us, verb: Verb::Confirm { token, fence: self.fence } }
    }

    fn cast(self: Arc<Self>, node: usize, answer: Answer) {
        let answer = self.claim.core.heard(node, self.stamp.wall_us, answer);
        self.vote(node, |refusals| refusals.record(node, answer));
    }

    fn overdue(self: Arc<Self>, node: usize, why: Failure) {
        self.vote(node, |refusals| refusals.timed_out(node, why));
    }
}
