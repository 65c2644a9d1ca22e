//! The round that takes a name which nobody has.

use std::sync::Arc;
use std::task::{Context, Poll};

use super::{Claim, LocalTurn, Origin, ReleaseRound, Won, refusals::Refusals};
use crate::Error;
use crate::core::{Core, Stamp};
use crate::error::NodeAnswers;
use crate::lock_options::LockOptions;
use crate::name::Name;
use crate::node::{Answer, Failure, FailureKind, Request, Round, Verb};
use crate::token::Token;
use crate::waitable::{Waitable, WaitableGuard};
use quorlock_protocol::{Acquire, AcquireOutcome, Defeat, HolderFence, Moment, Proposal, Vote};

/// One attempt, from the first byte sent to the claim that comes of it.
///
/// An attempt that comes to nothing, or whose caller goes away, releases itself on all nodes at
/// once: a request that seems lost may still run, and the release runs after it.
///
/// What is won stands in front of the line at once, though the caller may look for it late, or never: a seat
/// behind waits no longer than for the end of its lease.
#[derive(Debug)]
pub(crate) struct AcquireRound {
    core: Arc<Core>,
    name: Name,
    token: Token,
    options: LockOptions,
    stamp: Stamp,
    proposal: Option<Proposal>,
    turns: u16,
    state: Waitable<State>,
}

#[derive(Debug)]
struct State {
    round: Acquire,
    refusals: Refusals,
    /// Not all nodes have been asked yet: a release now would overtake the requests to the rest.
    asking: bool,
    /// What was won, once it stands in front of the line.
    claim: Option<Arc<Claim>>,
    /// The caller went away before that.
    left: bool,
}

/// How an attempt failed.
#[derive(Debug)]
pub(crate) struct Defeated {
    pub(crate) defeat: Defeat,
    pub(crate) granted: usize,
    pub(crate) answers: NodeAnswers,
}

impl Defeated {
    /// The error for the caller that wanted the lock, since too few nodes have voted.
    pub(crate) fn without_votes(self, core: &Core, name: &Name) -> Error {
        let Self { defeat, granted, answers } = self;
        let missing = core.quorum.enough().saturating_sub(granted);
        if let Some(remaining) = answers.quarantine(missing) {
            return Error::Quarantined { name: name.clone(), remaining, answers };
        }
        if answers.apart() >= core.quorum.too_many() {
            return Error::Clock { name: name.clone(), answers };
        }
        let late = defeat == Defeat::TooLate;
        let too_late = if late { " too late for it to be of use" } else { "" };
        Error::no_quorum(
            format!("granted the lock {name}{too_late}"),
            granted,
            core.quorum,
            answers,
        )
    }

    /// Whether nothing but that requests or answers arrived too late was in the way. Nodes have not looked at the one,
    /// and are told to forget the other, so that they can be asked again at once.
    pub(crate) fn is_late(&self, core: &Core, options: &LockOptions) -> bool {
        if self.defeat == Defeat::TooLate {
            return options.least.is_zero();
        }
        let failures = self.answers.0.iter().filter_map(|answer| answer.failure.as_ref());
        let late = failures.filter(|failure| failure.kind() == FailureKind::Late).count();
        self.defeat == Defeat::Unreachable && self.granted + late >= core.quorum.enough()
    }

    /// By another caller of this process.
    pub(crate) fn taken() -> Self {
        Self { defeat: Defeat::Taken, granted: 0, answers: NodeAnswers::default() }
    }

    /// Whether another caller of this process was before it, so that the nodes were not asked.
    pub(crate) fn was_behind_another(&self) -> bool {
        self.defeat == Defeat::Taken && self.answers.0.is_empty()
    }

    /// By nobody: the nodes were not asked before the caller's patience ended.
    pub(crate) fn unasked() -> Self {
        Self { defeat: Defeat::Unreachable, ..Self::taken() }
    }

    /// By others who got some of the nodes.
    pub(crate) fn split() -> Self {
        Self { defeat: Defeat::Split, ..Self::taken() }
    }
}

impl AcquireRound {
    /// Asks all nodes for the name. The caller was [admitted](crate::gate::Gate), and has not let go of that: the
    /// round does, once it is decided.
    pub(crate) fn start(core: &Arc<Core>, name: Name, options: LockOptions) -> Arc<Self> {
        let token = Token::owned(&*core.runtime, options.owner);
        let (stamp, since) = core.clock.stamp();
        let most = options.turns(core.settings.local_turns);
        let proposal = core.proposal(stamp.wall_us, most);
        let turns = proposal.map_or(most, |proposal| proposal.block);
        let round = Acquire::new(core.quorum, &core.terms(options.ttl), since, options.least);
        let refusals = Refusals::default();
        let state = State { round, refusals, asking: true, claim: None, left: false };
        let core = Arc::clone(core);
        let round = Arc::new(Self {
            core,
            name,
            token,
            options,
            stamp,
            proposal,
            turns,
            state: Waitable::new(state),
        });
        round.core.ask_all(&round);
        let lost = {
            let mut state = round.state.lock();
            state.asking = false;
            matches!(state.round.outcome(), Some(AcquireOutcome::Lost(_)))
        };
        if lost {
            round.release_on_nodes();
        }
        round
    }

    /// Ready once the round is decided: the claim stands in front of the line, unless its fence has to be
    /// confirmed; or it was lost and is being cleaned up.
    pub(crate) fn poll(&self, cx: &mut Context<'_>) -> Poll<Result<Arc<Claim>, Defeated>> {
        let mut state = self.state.lock();
        if let Some(claim) = &state.claim {
            return Poll::Ready(Ok(Arc::clone(claim)));
        }
        if let Some(AcquireOutcome::Lost(defeat)) = state.round.outcome() {
            drop(state);
            return Poll::Ready(Err(self.defeated(defeat)));
        }
        state.pending(cx)
    }

    /// What the nodes have said by now, for a caller that gives up.
    pub(crate) fn defeated(&self, defeat: Defeat) -> Defeated {
        let state = self.state.lock();
        let granted = state.round.tally().yes().len();
        Defeated { defeat, granted, answers: state.refusals.answers(&self.core) }
    }

    /// The caller has gone away: gives back whatever was or will be granted, and passes its place in front on.
    pub(crate) fn leave(&self) {
        let mut state = self.state.lock();
        if let Some(claim) = state.claim.clone() {
            drop(state);
            return claim.drop_unclaimed();
        }
        match state.round.outcome() {
            // It is about to stand in front.
            Some(AcquireOutcome::Won { .. }) => return state.left = true,
            Some(AcquireOutcome::Lost(_)) => drop(state),
            None => {
                state.round.abandon();
                drop(state);
                self.release_on_nodes();
                self.core.gate.leave(&self.core);
            }
        }
        self.core.pass_on(&self.name, LocalTurn::Front(None));
    }

    /// Puts what was won in front of the line.
    fn won(&self, claim: &Arc<Claim>) {
        if claim.to_confirm().is_none() {
            self.core.hold_in_front(claim);
        }
        let (waker, left) = {
            let mut state = self.state.lock();
            state.claim = Some(Arc::clone(claim));
            (state.take_waker(), state.left)
        };
        if left {
            claim.drop_unclaimed();
        }
        waker.wake();
    }

    fn claim(
        &self,
        state: WaitableGuard<'_, State>,
        valid_until: Moment,
        fence: HolderFence,
    ) -> Arc<Claim> {
        let tally = *state.round.tally();
        let non_voting = self.core.non_voting(state.refusals.failures());
        drop(state);
        non_voting.log(&self.core);
        let origin = Origin::Asked { on: tally.may_have_run(), backing: tally.yes() };
        let won = Won { origin, valid_until, fence, turns: self.turns };
        Claim::new(&self.core, self.name.clone(), self.token, self.options, won)
    }

    fn release_on_nodes(&self) {
        let owing = self.state.lock().round.tally().may_have_run();
        let (name, ttl) = (self.name.clone(), self.options.ttl);
        ReleaseRound::new(&self.core, name, (self.token, None), owing, false, ttl).send();
    }

    fn vote(&self, node: usize, fence: Option<u64>, record: impl FnOnce(&mut Refusals) -> Vote) {
        let mut state = self.state.lock();
        if let Some(fence) = fence {
            state.round.fence_given(fence);
        }
        let vote = record(&mut state.refusals);
        match state.round.vote(node, vote, || self.core.now()) {
            None => {
                let claim = state.claim.clone();
                drop(state);
                if let Some(claim) = claim {
                    claim.heard_late(node, vote);
                }
                return;
            }
            Some(AcquireOutcome::Won { valid_until, fence }) => {
                let claim = self.claim(state, valid_until, fence);
                self.won(&claim);
            }
            Some(AcquireOutcome::Lost(_)) => {
                let (waker, asking) = (state.take_waker(), state.asking);
                drop(state);
                if !asking {
                    self.release_on_nodes();
                }
                waker.wake();
            }
        }
        self.core.gate.leave(&self.core);
    }
}

impl Round for AcquireRound {
    fn request(&self, _node: usize) -> Request<'_> {
        let Stamp { sent, wall_us } = self.stamp;
        let Self { name, token, proposal, .. } = self;
        let verb = Verb::Acquire { token, ttl: self.options.ttl, proposal: *proposal };
        Request { name, sent, wall_us, verb }
    }

    fn cast(self: Arc<Self>, node: usize, answer: Answer) {
        let answer = self.core.heard(node, self.stamp.wall_us, answer);
        let mut granted = None;
        match &answer {
            Answer::Granted { fence } => {
                self.core.warned.votes(node);
                granted = Some(*fence);
            }
            Answer::Failed(failure) => {
                let outcome = self.state.lock().round.outcome();
                if matches!(outcome, Some(AcquireOutcome::Won { .. })) {
                    self.core.non_voting([(node, failure)]).log(&self.core);
                }
            }
            _ => {}
        }
        self.vote(node, granted, |refusals| refusals.record(node, answer));
    }

    fn overdue(self: Arc<Self>, node: usize, why: Failure) {
        self.vote(node, None, |refusals| refusals.timed_out(node, why));
    }

    fn is_moot(&self) -> bool {
        self.state.lock().round.outcome().is_some()
    }
}
