//! A claim on a name: the round that takes it, and what is held of it afterwards.

use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tokio::sync::Notify;

use super::{ExtendRound, ReleaseRound, said::Said};
use crate::core::Core;
use crate::error::{Error, Loss, NodeAnswers};
use crate::locked::locked;
use crate::name::Name;
use crate::node::{Answer, Failure, Request, Round, Verb};
use crate::settings::Keep;
use crate::token::Token;
use crate::watchdog::{Alarm, Place};
use quorlock_protocol::{
    Acquire, AcquireOutcome, Caps, Defeat, Duty, ExtendOutcome, Lease, LeaseState, Moment, NodeSet,
    Upkeep, Vote,
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
    place: Place,
    state: Mutex<State>,
}

/// What is kept for as long as the lock is held. There may be many of them.
#[derive(Debug)]
struct State {
    /// The round that takes it; `None` once it was won and has nothing more to hear.
    taking: Option<Box<Taking>>,
    /// Where a record can be, once that is known for good.
    on: NodeSet,
    /// What was won, once it was.
    lease: Option<Lease>,
    /// Told of a loss, once somebody wants to know.
    loss: Option<Arc<Notify>>,
    /// Whether the watchdog extends it.
    renew: bool,
    /// When the last extension was sent; at the beginning of the clock if none was.
    tried: Moment,
    /// The watchdog is asking the nodes to extend it: a release now would overtake the requests to
    /// the rest.
    renewing: bool,
    /// The release that waits until they have all been asked.
    release: Option<Arc<ReleaseRound>>,
}

/// What is needed only while a name is being taken.
#[derive(Debug)]
struct Taking {
    round: Acquire,
    caps: Caps,
    said: Said,
    /// Not all nodes have been asked yet: a release now would overtake the requests to the rest.
    asking: bool,
    waker: Option<Waker>,
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
    pub(crate) fn start(
        core: &Arc<Core>,
        name: Name,
        ttl: Duration,
        least: Duration,
        keep: Keep,
    ) -> Arc<Self> {
        let token = Token::random(&*core.runtime);
        let sent = core.now();
        let taking = Taking {
            round: Acquire::new(core.quorum, &core.terms(ttl), sent, least),
            caps: Caps::new(keep.max_extensions, keep.max_hold, sent),
            said: Said::default(),
            asking: true,
            waker: None,
        };
        let claim = Arc::new(Self {
            core: Arc::clone(core),
            name,
            token,
            ttl,
            sent,
            place: Place::default(),
            state: Mutex::new(State {
                taking: Some(Box::new(taking)),
                on: NodeSet::EMPTY,
                lease: None,
                loss: None,
                renew: keep.renew,
                tried: Moment::default(),
                renewing: false,
                release: None,
            }),
        });
        core.ask_all(&claim);
        let lost = locked(&claim.state).taking.as_mut().is_some_and(|taking| {
            taking.asking = false;
            matches!(taking.round.outcome(), Some(AcquireOutcome::Lost(_)))
        });
        if lost {
            ReleaseRound::start(Arc::clone(&claim));
        }
        claim
    }

    /// Ready once the round is decided: the claim is held, or it was lost and is being cleaned up.
    pub(crate) fn poll(&self, cx: &mut Context<'_>) -> Poll<Result<(), Defeated>> {
        let mut state = locked(&self.state);
        let Some(taking) = &mut state.taking else { return Poll::Ready(Ok(())) };
        match taking.round.outcome() {
            None => {
                taking.waker = Some(cx.waker().clone());
                Poll::Pending
            }
            Some(AcquireOutcome::Won { .. }) => Poll::Ready(Ok(())),
            Some(AcquireOutcome::Lost(defeat)) => Poll::Ready(Err(Defeated {
                defeat,
                granted: taking.round.tally().yes().len(),
                answers: taking.said.answers(&self.core),
                took: self.core.now().since(self.sent),
            })),
        }
    }

    /// The caller has gone away: gives back whatever was or will be granted.
    pub(crate) fn abandon(self: Arc<Self>) {
        let give_back = {
            let mut state = locked(&self.state);
            let open = state.taking.as_mut().is_some_and(|taking| taking.round.abandon().is_some());
            open || state.lease.is_some()
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

    /// An extension is about to be sent. Returns when that is, and the deadline that it has to
    /// meet, or why there cannot be one.
    pub(crate) fn extending(&self) -> Result<(Moment, Moment), Error> {
        let now = self.core.now();
        let mut state = locked(&self.state);
        let lost = |reason| Error::Lost { name: self.name.clone(), reason };
        let lease = state.lease.as_mut().ok_or_else(|| lost(Loss::Gone))?;
        if let LeaseState::Lost(reason) = lease.state(now) {
            return Err(lost(reason.into()));
        }
        if let Some(cap) = lease.capped() {
            let remaining = lease.remaining(now);
            return Err(Error::Capped { name: self.name.clone(), cap, remaining });
        }
        let deadline = lease.valid_until();
        state.tried = now;
        Ok((now, deadline))
    }

    /// Takes in how an extension ended that was sent then, and tells whoever waits for it if that was the end. Returns
    /// whether it became doubtful by this one that the lock can be kept.
    pub(crate) fn extended(&self, outcome: ExtendOutcome, sent: Moment) -> bool {
        let now = self.core.now();
        let told = {
            let mut state = locked(&self.state);
            let stale = outcome == ExtendOutcome::Unknown && state.tried > sent;
            let Some(lease) = state.lease.as_mut().filter(|_| !stale) else { return false };
            let before = lease.state(now);
            lease.extended(outcome, now);
            match lease.state(now) {
                LeaseState::Lost(_) => state.loss.clone(),
                after => return after == LeaseState::Unknown && before != after,
            }
        };
        self.core.watchdog.clear(self);
        if let Some(told) = told {
            told.notify_waiters();
        }
        false
    }

    /// A release begins: nothing is extended from now on. `false` if the watchdog is just asking
    /// the nodes to, and will send the release after that.
    pub(crate) fn end(&self, release: &Arc<ReleaseRound>) -> bool {
        let (told, held_up) = {
            let mut state = locked(&self.state);
            let Some(lease) = &mut state.lease else { return true };
            lease.released();
            if state.renewing {
                state.release = Some(Arc::clone(release));
            }
            (state.loss.clone(), state.renewing)
        };
        self.core.watchdog.clear(self);
        if let Some(told) = told {
            told.notify_waiters();
        }
        !held_up
    }

    /// Extends it for the watchdog, and sends the release that came in between after it.
    fn renew(self: &Arc<Self>) {
        // One that is refused was lost or released just now.
        let _ = ExtendRound::renew(self);
        let release = {
            let mut state = locked(&self.state);
            state.renewing = false;
            state.release.take()
        };
        if let Some(release) = release {
            self.core.ask_all(&release);
        }
    }

    fn upkeep(&self, renew: bool) -> Upkeep {
        let (terms, settings) = (self.core.terms(self.ttl), &self.core.settings);
        if renew {
            Upkeep::renewing(&terms, settings.node_limit, settings.loss_lead)
        } else {
            Upkeep::fixed(&terms, settings.loss_lead)
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

    /// What is told of the loss.
    pub(crate) fn told(&self) -> Arc<Notify> {
        Arc::clone(locked(&self.state).loss.get_or_insert_default())
    }

    /// The nodes on which a record of this claim can be, now or later.
    pub(crate) fn may_be_on(&self) -> NodeSet {
        let state = locked(&self.state);
        state.taking.as_ref().map_or(state.on, |taking| taking.round.tally().may_have_run())
    }

    fn vote(self: Arc<Self>, node: usize, hear: impl FnOnce(&mut Said) -> Vote) {
        let now = self.core.now();
        let (waker, give_back) = {
            let mut state = locked(&self.state);
            let Some(taking) = &mut state.taking else { return };
            let vote = hear(&mut taking.said);
            let (waker, give_back) = match taking.round.vote(node, vote, now) {
                None => (None, false),
                Some(AcquireOutcome::Won { valid_until }) => {
                    let waker = taking.waker.take();
                    let lease = Lease::capped_by(taking.caps, valid_until);
                    let alarm = Arc::clone(&self) as Arc<dyn Alarm>;
                    // Under the mutex, so that a release cannot come before it.
                    let first = self.upkeep(state.renew).first_look(&lease);
                    self.core.watchdog.set(first, alarm);
                    state.lease = Some(lease);
                    (waker, false)
                }
                Some(AcquireOutcome::Lost(_)) => (taking.waker.take(), !taking.asking),
            };
            state.close();
            (waker, give_back)
        };
        if give_back {
            ReleaseRound::start(self);
        }
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

impl State {
    /// Lets go of the round once it was won and every node has given its final word.
    fn close(&mut self) {
        let Some(taking) = &self.taking else { return };
        let tally = taking.round.tally();
        if self.lease.is_some() && tally.all_final() {
            self.on = tally.may_have_run();
            self.taking = None;
        }
    }
}

impl Alarm for Claim {
    fn place(&self) -> &Place {
        &self.place
    }

    fn ring(self: Arc<Self>, now: Moment) -> Option<Moment> {
        let (duty, told) = {
            let mut state = locked(&self.state);
            let upkeep = self.upkeep(state.renew);
            // Whoever has the signal in hand holds another reference to it.
            let heeded = state.loss.as_ref().is_some_and(|loss| Arc::strong_count(loss) > 1);
            let tried = state.tried;
            let duty = upkeep.duty(state.lease.as_mut()?, tried, heeded, now);
            state.renewing = matches!(duty, Duty::Renew { .. });
            (duty, state.loss.clone())
        };
        match duty {
            Duty::Renew { again } => {
                self.renew();
                Some(again)
            }
            Duty::Wait { until } => Some(until),
            Duty::Over(_) => {
                if let Some(told) = told {
                    told.notify_waiters();
                }
                None
            }
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
