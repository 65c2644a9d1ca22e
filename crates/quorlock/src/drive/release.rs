//! The round that gives a name back, and what it achieved.

use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use super::{Claim, said::Said};
use crate::Error;
use crate::error::Loss;
use crate::locked::locked;
use crate::node::{Answer, Failure, Request, Round, Verb};
use quorlock_protocol::{Moment, NodeSet, Release, ReleaseOutcome, Vote};

#[derive(Debug)]
pub(crate) struct ReleaseRound {
    claim: Arc<Claim>,
    sent: Moment,
    /// The nodes that can have a record to release.
    owing: NodeSet,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    round: Release,
    said: Said,
    /// Whether a shutdown still has to wait for this round.
    pending: bool,
    waker: Option<Waker>,
}

impl ReleaseRound {
    /// Asks all nodes to drop the record, those included that never answered.
    pub(crate) fn start(claim: Arc<Claim>) -> Arc<Self> {
        let core = Arc::clone(&claim.core);
        let state = State {
            round: Release::new(core.quorum),
            said: Said::default(),
            pending: true,
            waker: None,
        };
        let (sent, owing) = (core.now(), claim.may_be_on());
        let round = Arc::new(Self { claim, sent, owing, state: Mutex::new(state) });
        core.releases.begin();
        if round.claim.end(&round) {
            core.ask_all(&round);
        }
        round
    }

    /// Ready once a majority has let go, or every node was heard or given up on.
    pub(crate) fn poll(self: &Arc<Self>, cx: &mut Context<'_>) -> Poll<Result<Released, Error>> {
        let name = || self.claim.name.clone();
        let core = &self.claim.core;
        let mut state = locked(&self.state);
        Poll::Ready(match state.round.outcome() {
            None => {
                state.waker = Some(cx.waker().clone());
                return Poll::Pending;
            }
            Some(ReleaseOutcome::Released) => Ok(Released(Arc::clone(self))),
            Some(ReleaseOutcome::AlreadyLost) => {
                Err(Error::Lost { name: name(), reason: Loss::Gone })
            }
            Some(ReleaseOutcome::Partial) => Err(Error::NoQuorum {
                verb: format!(
                    "released the lock {} (the others are asked again, and keep it for at most {:?})",
                    name(),
                    self.taken_for()
                ),
                have: state.round.tally().yes().len(),
                need: core.quorum.enough(),
                nodes: core.quorum.nodes(),
                answers: state.said.answers(core),
            }),
        })
    }

    /// When no record of this claim can be left, even on a node that never hears of the release.
    fn until(&self) -> Moment {
        self.sent.after(self.claim.ttl)
    }

    fn taken_for(&self) -> Duration {
        self.until().since(self.claim.core.now())
    }

    fn vote(&self, node: usize, hear: impl FnOnce(&mut Said) -> Vote) {
        let (waker, ended) = {
            let mut state = locked(&self.state);
            let vote = hear(&mut state.said);
            let decided = state.round.vote(node, vote).is_some();
            let ended = state.pending && state.round.tally().all_heard();
            state.pending &= !ended;
            (if decided { state.waker.take() } else { None }, ended)
        };
        if ended {
            self.claim.core.releases.end();
        }
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

impl Round for ReleaseRound {
    fn request(&self, node: usize) -> Request<'_> {
        let until = self.owing.contains(node).then(|| self.until());
        let verb = Verb::Release { token: &self.claim.token, until };
        Request { name: &self.claim.name, sent: self.sent, verb }
    }

    fn cast(self: Arc<Self>, node: usize, answer: Answer) {
        self.vote(node, |said| said.hear(node, answer));
    }

    fn overdue(self: Arc<Self>, node: usize, why: Failure) {
        self.vote(node, |said| said.miss(node, why));
    }
}

/// A lock that a majority of the nodes has let go of.
#[derive(Debug, Clone)]
pub struct Released(Arc<ReleaseRound>);

/// How one node took a release.
#[derive(Debug, Clone)]
pub struct NodeRelease {
    /// The node, without its password.
    pub node: String,
    /// What is known of the record there.
    pub state: NodeReleaseState,
}

/// What is known of a record on one node after its release.
#[derive(Debug, Clone)]
pub enum NodeReleaseState {
    /// It was dropped.
    Released,
    /// There was none of ours.
    NotHeld,
    /// Not known: the node did not answer. It is asked again when it can be reached.
    Taken {
        /// What the node said, if anything.
        why: Option<Failure>,
        /// How long the name may stay taken there at the most.
        at_most: Duration,
    },
}

impl Released {
    /// What is known of every node by now. Nodes that answer later change it.
    #[must_use]
    pub fn nodes(&self) -> Vec<NodeRelease> {
        let core = &self.0.claim.core;
        let state = locked(&self.0.state);
        let tally = state.round.tally();
        (0..core.nodes.len())
            .map(|node| NodeRelease {
                node: core.label(node),
                state: if tally.yes().contains(node) {
                    NodeReleaseState::Released
                } else if tally.no().contains(node) || !self.0.owing.contains(node) {
                    NodeReleaseState::NotHeld
                } else {
                    let why = state.said.of(node).cloned();
                    NodeReleaseState::Taken { why, at_most: self.0.taken_for() }
                },
            })
            .collect()
    }
}
