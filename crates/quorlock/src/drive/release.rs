//! The round that gives a name back, and what it achieved.

use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use super::{WaitRound, refusals::Refusals};
use crate::Error;
use crate::core::{Core, Stamp};
use crate::error::Loss;
use crate::name::Name;
use crate::node::{Answer, Failure, ParticipantId, Request, Round, Verb};
use crate::token::Token;
use crate::waitable::Waitable;
use quorlock_protocol::{Moment, NodeSet, Release, ReleaseOutcome, Vote};

#[derive(Debug)]
pub(crate) struct ReleaseRound {
    pub(super) core: Arc<Core>,
    pub(super) name: Name,
    token: Token,
    /// Who takes part in the lock of another process; `None` for the maker.
    participant: Option<ParticipantId>,
    stamp: Stamp,
    /// The least fence for the next holder.
    next: u64,
    /// Whether there may be tickets as well.
    queued: bool,
    /// The nodes that can have something to release, and when that is gone by itself.
    owing: NodeSet,
    until: Moment,
    state: Waitable<State>,
}

#[derive(Debug)]
struct State {
    round: Release,
    refusals: Refusals,
    /// The nodes that keep the record for others who take part.
    left: NodeSet,
    /// Whether a shutdown still has to wait for this round.
    pending: bool,
    /// Who wants it back, and asks once it is decided.
    next: Option<Arc<WaitRound>>,
}

impl ReleaseRound {
    /// A release on the nodes in `owing`, those included that never answered. The others have said
    /// that there is nothing. Record and ticket, if it is `queued`, are gone after `expires_after` by
    /// themselves.
    pub(crate) fn new(
        core: &Arc<Core>,
        name: Name,
        (token, participant): (Token, Option<ParticipantId>),
        owing: NodeSet,
        queued: bool,
        expires_after: Duration,
    ) -> Arc<Self> {
        let stamp = core.stamp();
        let next = core.next_fence(stamp.wall_us);
        let mut round = Release::new(core.quorum);
        for node in (0..core.nodes.len()).filter(|node| !owing.contains(*node)) {
            round.vote(node, Vote::No);
        }
        let pending = !owing.is_empty();
        let (refusals, left) = (Refusals::default(), NodeSet::EMPTY);
        let state = State { round, refusals, left, pending, next: None };
        let until = stamp.sent.after(expires_after);
        let core = Arc::clone(core);
        if pending {
            core.releases.begin();
        }
        let state = Waitable::new(state);
        Arc::new(Self { core, name, token, participant, stamp, next, queued, owing, until, state })
    }

    /// Asks the nodes to drop the record and the ticket.
    pub(crate) fn send(self: &Arc<Self>) {
        self.core.ask(self, self.owing);
    }

    /// Lets `wait` ask for it again once this is decided; returns `wait` if it already is.
    pub(super) fn follow(&self, wait: Arc<WaitRound>) -> Option<Arc<WaitRound>> {
        let mut state = self.state.lock();
        if state.round.outcome().is_some() {
            return Some(wait);
        }
        state.next = Some(wait);
        None
    }

    /// Ready once a majority has let go, or every node was heard or given up on.
    pub(crate) fn poll(self: &Arc<Self>, cx: &mut Context<'_>) -> Poll<Result<Released, Error>> {
        let name = || self.name.clone();
        let core = &self.core;
        self.state.poll(cx, |state| {
            Some(match state.round.outcome()? {
            // Where the record is left to others, the rest is no majority for anybody else.
            ReleaseOutcome::Released if self.is_left(state) => {
                Ok(Released(Outcome::LeftToOthers(Arc::clone(self))))
            }
            ReleaseOutcome::Released => Ok(Released::freed(Arc::clone(self))),
            ReleaseOutcome::AlreadyLost => {
                Err(Error::Lost { name: name(), reason: Loss::Gone })
            }
            ReleaseOutcome::Partial => {
                let verb = format!(
                    "released the lock {} (the others are asked again, and keep it for at most {:?})",
                    name(),
                    self.taken_for()
                );
                let have = state.round.tally().yes().len();
                Err(Error::no_quorum(verb, have, core.quorum, state.refusals.answers(core)))
            }
        })
        })
    }

    fn taken_for(&self) -> Duration {
        self.until.since(self.core.runtime.now())
    }

    /// Whether a majority of the nodes has not let go of it, as far as is known.
    fn is_left(&self, state: &State) -> bool {
        state.round.tally().yes().without(state.left).len() < self.core.quorum.enough()
    }

    fn vote(&self, node: usize, record: impl FnOnce(&mut Refusals) -> Vote) {
        let (waker, next, ended) = {
            let mut state = self.state.lock();
            let vote = record(&mut state.refusals);
            let decided = state.round.vote(node, vote).is_some();
            let ended = state.pending && state.round.tally().all_heard();
            state.pending &= !ended;
            let (waker, next) =
                if decided { (state.take_waker(), state.next.take()) } else { Default::default() };
            (waker, next, ended)
        };
        if ended {
            self.core.releases.end();
        }
        waker.wake();
        if let Some(next) = next {
            next.follows();
        }
    }
}

impl Round for ReleaseRound {
    fn request(&self, node: usize) -> Request<'_> {
        // A record that ends with the session alone is owed for as long as that lasts.
        let until = if self.core.settings.sessions { Moment::MAX } else { self.until };
        let until = self.owing.contains(node).then_some(until);
        let Stamp { sent, wall_us } = self.stamp;
        let (next, queued, participant) = (self.next, self.queued, self.participant);
        let verb = Verb::Release { token: &self.token, until, next, queued, participant };
        Request { name: &self.name, sent, wall_us, verb }
    }

    fn cast(self: Arc<Self>, node: usize, answer: Answer) {
        if matches!(answer, Answer::LeftToOthers) {
            self.state.lock().left.insert(node);
        }
        self.vote(node, |refusals| refusals.record(node, answer));
    }

    fn overdue(self: Arc<Self>, node: usize, why: Failure) {
        self.vote(node, |refusals| refusals.timed_out(node, why));
    }
}

/// What became of a lock that its holder has let go of.
#[derive(Debug, Clone)]
pub struct Released(Outcome);

#[derive(Debug, Clone)]
enum Outcome {
    Freed(Arc<ReleaseRound>),
    PassedOn,
    StillHeld,
    LeftToOthers(Arc<ReleaseRound>),
}

impl Released {
    pub(crate) fn freed(round: Arc<ReleaseRound>) -> Self {
        Self(Outcome::Freed(round))
    }

    pub(crate) const PASSED_ON: Self = Self(Outcome::PassedOn);
    pub(crate) const STILL_HELD: Self = Self(Outcome::StillHeld);

    /// Whether a majority of the nodes has let go of it: it is free, or another process has it.
    #[must_use]
    pub fn is_freed(&self) -> bool {
        matches!(self.0, Outcome::Freed(_))
    }

    /// Whether it went to a waiter of this process, without asking the nodes.
    #[must_use]
    pub fn is_passed_on(&self) -> bool {
        matches!(self.0, Outcome::PassedOn)
    }

    /// Whether its owner holds it still, by another guard of this process or of another one.
    #[must_use]
    pub fn is_still_held(&self) -> bool {
        matches!(self.0, Outcome::StillHeld | Outcome::LeftToOthers(_))
    }

    /// What is known of every node by now. Nodes that answer later change it. Empty if none was
    /// asked.
    #[must_use]
    pub fn nodes(&self) -> Vec<NodeRelease> {
        match &self.0 {
            Outcome::Freed(round) | Outcome::LeftToOthers(round) => round.report(),
            Outcome::PassedOn | Outcome::StillHeld => Vec::new(),
        }
    }
}

impl ReleaseRound {
    fn report(&self) -> Vec<NodeRelease> {
        let state = self.state.lock();
        let tally = state.round.tally();
        (0..self.core.nodes.len())
            .map(|node| NodeRelease {
                node: self.core.label(node),
                state: if state.left.contains(node) {
                    NodeReleaseState::LeftToOthers
                } else if tally.yes().contains(node) {
                    NodeReleaseState::Released
                } else if tally.no().contains(node) {
                    NodeReleaseState::NotHeld
                } else {
                    let why = state.refusals.of(node).cloned();
                    NodeReleaseState::Taken { why, at_most: self.taken_for() }
                },
            })
            .collect()
    }
}

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
    /// It is kept there for other processes that hold the lock for the same owner.
    LeftToOthers,
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
