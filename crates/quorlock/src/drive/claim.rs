//! A claim on a name: the round that takes it, and what is held of it afterwards.

use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tokio::sync::Notify;

use super::{ReleaseRound, said::Said};
use crate::core::Core;
use crate::error::{Loss, NodeAnswers};
use crate::locked::locked;
use crate::name::Name;
use crate::node::{Answer, Failure, Request, Round, Verb};
use crate::token::Token;
use quorlock_protocol::{
    Acquire, AcquireOutcome, Defeat, ExtendOutcome, Lease, LeaseState, Moment, NodeSet, Vote,
};

/// One token's claim on one name, from the first byte sent to the release.
///
/// A claim that comes to nothing, or whose caller goes away, releases itself on all nodes at once:
/// a request that seems lost may still run, and the release runs after it.
#[derive(Debug)]
pub(crate) struct Claim {
    pub(crate) core: Arc<Core>,
    pub(crate) name: Name,
    pub(crate) token: Token,
    pub(crate) ttl: Duration,
    sent: Moment,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    round: Acquire,
    /// What was won, once it was.
    lease: Option<Lease>,
    said: Said,
    /// Not all nodes have been asked yet: a release now would overtake the requests to the rest.
    asking: bool,
    waker: Option<Waker>,
    /// Told of a loss, once somebody wants to know.
    loss: Option<Arc<Notify>>,
}

/// How an attempt failed.
#[derive(Debug)]
pub(crate) struct Defeated {
    pub(crate) defeat: Defeat,
    pub(crate) granted: usize,
    pub(crate) answers: NodeAnswers,
    pub(crate) took: Duration,
}

impl Claim {
    /// Asks all nodes for the name.
    pub(crate) fn start(core: &Arc<Core>, name: Name, ttl: Duration, least: Duration) -> Arc<Self> {
        let token = Token::random(&*core.runtime);
        let sent = core.now();
        let round = Acquire::new(core.quorum, &core.terms(ttl), sent, least);
        let claim = Arc::new(Self {
            core: Arc::clone(core),
            name,
            token,
            ttl,
            sent,
            state: Mutex::new(State {
                round,
                lease: None,
                said: Said::default(),
                asking: true,
                waker: None,
                loss: None,
            }),
        });
        core.ask_all(&claim);
        let lost = {
            let mut state = locked(&claim.state);
            state.asking = false;
            matches!(state.round.outcome(), Some(AcquireOutcome::Lost(_)))
        };
        if lost {
            ReleaseRound::start(Arc::clone(&claim));
        }
        claim
    }

    /// Ready once the round is decided: the claim is held, or it was lost and is being cleaned up.
    pub(crate) fn poll(&self, cx: &mut Context<'_>) -> Poll<Result<(), Defeated>> {
        let mut state = locked(&self.state);
        match state.round.outcome() {
            None => {
                state.waker = Some(cx.waker().clone());
                Poll::Pending
            }
            Some(AcquireOutcome::Won { .. }) => Poll::Ready(Ok(())),
            Some(AcquireOutcome::Lost(defeat)) => Poll::Ready(Err(Defeated {
                defeat,
                granted: state.round.tally().yes().len(),
                answers: state.said.answers(&self.core),
                took: self.core.now().since(self.sent),
            })),
        }
    }

    /// The caller has gone away: gives back whatever was or will be granted.
    pub(crate) fn abandon(self: Arc<Self>) {
        let give_back = {
            let mut state = locked(&self.state);
            state.round.abandon().is_some() || state.lease.is_some()
        };
        if give_back {
            ReleaseRound::start(self);
        }
    }

    /// Reads or changes the lease; `None` unless it was won.
    pub(crate) fn with_lease<T>(&self, change: impl FnOnce(&mut Lease, Moment) -> T) -> Option<T> {
        let now = self.core.now();
        locked(&self.state).lease.as_mut().map(|lease| change(lease, now))
    }

    /// Takes in how an extension ended, and tells whoever waits for it if that was the end.
    pub(crate) fn extended(&self, outcome: ExtendOutcome) {
        let now = self.core.now();
        let told = {
            let mut state = locked(&self.state);
            let Some(lease) = &mut state.lease else { return };
            lease.extended(outcome, now);
            match lease.state(now) {
                LeaseState::Lost(_) => state.loss.clone(),
                _ => None,
            }
        };
        if let Some(told) = told {
            told.notify_waiters();
        }
    }

    /// What is left until its holder has to be told of the loss, or why that is now.
    pub(crate) fn notice(&self) -> Result<Duration, Loss> {
        let lead = self.core.settings.loss_lead;
        let noticed = self.with_lease(|lease, now| (lease.notice(lead, now), lease.state(now)));
        match noticed {
            Some((Some(left), _)) => Ok(left),
            Some((None, LeaseState::Lost(reason))) => Err(reason.into()),
            _ => Err(Loss::Gone),
        }
    }

    /// What is told of a loss that comes before its time.
    pub(crate) fn early_loss(&self) -> Arc<Notify> {
        Arc::clone(locked(&self.state).loss.get_or_insert_default())
    }

    /// The nodes on which a record of this claim can be, now or later.
    pub(crate) fn may_be_on(&self) -> NodeSet {
        locked(&self.state).round.tally().may_have_run()
    }

    fn vote(self: Arc<Self>, node: usize, hear: impl FnOnce(&mut Said) -> Vote) {
        let now = self.core.now();
        let (waker, give_back) = {
            let mut state = locked(&self.state);
            let vote = hear(&mut state.said);
            match state.round.vote(node, vote, now) {
                None => return,
                Some(AcquireOutcome::Won { valid_until }) => {
                    state.lease = Some(Lease::new(valid_until));
                    (state.waker.take(), false)
                }
                Some(AcquireOutcome::Lost(_)) => (state.waker.take(), !state.asking),
            }
        };
        if give_back {
            ReleaseRound::start(self);
        }
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

impl Round for Claim {
    fn request(&self, _node: usize) -> Request<'_> {
        let verb = Verb::Acquire { token: &self.token, ttl: self.ttl };
        Request { name: &self.name, sent: self.sent, verb }
    }

    fn cast(self: Arc<Self>, node: usize, answer: Answer) {
        self.vote(node, |said| said.hear(node, answer));
    }

    fn overdue(self: Arc<Self>, node: usize, why: Failure) {
        self.vote(node, |said| said.miss(node, why));
    }
}
