//! What is held of a name.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::Notify;

use super::ReleaseRound;
use crate::core::Core;
use crate::error::Loss;
use crate::line::{Passed, Turn};
use crate::locked::locked;
use crate::name::Name;
use crate::token::Token;
use crate::wish::Wish;
use quorlock_protocol::{ExtendOutcome, Lease, LeaseState, Moment, NodeSet, Turns};

/// One token's claim on one name, from the majority that granted it to its release.
#[derive(Debug)]
pub(crate) struct Claim {
    pub(crate) core: Arc<Core>,
    pub(crate) name: Name,
    pub(crate) token: Token,
    pub(crate) wish: Wish,
    /// The nodes on which a record or a ticket of it can be, now or later.
    on: NodeSet,
    /// How long those last without a word from us.
    lingers: Duration,
    /// Whether another process has taken it, and will release it.
    borrowed: bool,
    /// The guards of the present turn.
    guards: AtomicU32,
    /// Whether it keeps others of this process waiting.
    in_line: AtomicBool,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    lease: Lease,
    turns: Turns,
    /// Told of a loss, once somebody wants to know.
    loss: Option<Arc<Notify>>,
}

impl Claim {
    /// A claim that was won with one question.
    pub(crate) fn new(
        core: &Arc<Core>,
        name: Name,
        token: Token,
        wish: Wish,
        on: NodeSet,
        valid_until: Moment,
    ) -> Arc<Self> {
        Self { on, ..Self::held(core, name, token, wish, valid_until) }.into()
    }

    /// A claim that was won in the queues of the nodes, where tickets of it may be left.
    pub(crate) fn queued(
        core: &Arc<Core>,
        name: Name,
        token: Token,
        wish: Wish,
        lingers: Duration,
        valid_until: Moment,
    ) -> Arc<Self> {
        Self { lingers, ..Self::held(core, name, token, wish, valid_until) }.into()
    }

    /// A claim that another process has taken for the same owner. It is worth something only
    /// once it was extended.
    pub(crate) fn borrowed(core: &Arc<Core>, name: Name, token: Token, wish: Wish) -> Arc<Self> {
        let valid_until = core.terms(wish.ttl).valid_until(core.now());
        Self { borrowed: true, ..Self::held(core, name, token, wish, valid_until) }.into()
    }

    fn held(core: &Arc<Core>, name: Name, token: Token, wish: Wish, valid_until: Moment) -> Self {
        Self {
            core: Arc::clone(core),
            name,
            token,
            wish,
            on: NodeSet::first(core.nodes.len()),
            lingers: wish.ttl,
            borrowed: false,
            guards: AtomicU32::new(1),
            in_line: AtomicBool::new(false),
            state: Mutex::new(State {
                lease: Lease::new(valid_until),
                turns: Turns::first_of(core.settings.local_turns),
                loss: None,
            }),
        }
    }

    /// Counts another guard of its owner; `false` if there is none left to share it with.
    pub(crate) fn enter_again(&self) -> bool {
        if self.notice().is_err() {
            return false;
        }
        let more = |guards: u32| (guards > 0).then(|| guards + 1);
        self.guards.fetch_update(Ordering::AcqRel, Ordering::Acquire, more).is_ok()
    }

    /// One guard has gone. With the last one the claim goes to the next in line, or back to the
    /// nodes. `None` if there are others.
    pub(crate) fn let_go(self: &Arc<Self>) -> Option<Passed> {
        if self.guards.fetch_sub(1, Ordering::AcqRel) > 1 {
            return None;
        }
        Some(if self.in_line.swap(false, Ordering::AcqRel) {
            self.core.pass_on(&self.name, Turn::Held(Arc::clone(self)))
        } else {
            self.give_back()
        })
    }

    /// Asks the nodes to drop it.
    pub(crate) fn give_back(&self) -> Passed {
        if self.borrowed {
            return Passed::Nothing;
        }
        let (name, token) = (self.name.clone(), self.token);
        Passed::Freed(ReleaseRound::start(&self.core, name, token, self.on, self.lingers))
    }

    /// Prepares it for the next holder of this process, unless it is of no use to that one.
    pub(crate) fn next_turn(&self, wish: &Wish) -> bool {
        if self.borrowed || *wish != self.wish || wish.owner.is_some() {
            return false;
        }
        let enough = wish.least.max(self.core.terms(wish.ttl).validity() / 2);
        let now = self.core.now();
        let mut state = locked(&self.state);
        let Some(next) = state.turns.next() else { return false };
        if state.lease.remaining(now) <= enough {
            return false;
        }
        state.turns = next;
        self.guards.store(1, Ordering::Release);
        self.join_line();
        true
    }

    pub(crate) fn is_in_line(&self) -> bool {
        self.in_line.load(Ordering::Acquire)
    }

    pub(crate) fn join_line(&self) {
        self.in_line.store(true, Ordering::Release);
    }

    /// It is lost, and keeps nobody waiting any longer.
    pub(crate) fn leave_line(&self) {
        if self.in_line.swap(false, Ordering::AcqRel) {
            self.core.pass_on(&self.name, Turn::Front(None));
        }
    }

    /// Reads or changes the lease.
    pub(crate) fn with_lease<T>(&self, change: impl FnOnce(&mut Lease, Moment) -> T) -> T {
        let now = self.core.now();
        change(&mut locked(&self.state).lease, now)
    }

    /// Takes in how an extension ended, and tells whoever waits for it if that was the end.
    pub(crate) fn extended(&self, outcome: ExtendOutcome) {
        let now = self.core.now();
        let told = {
            let mut state = locked(&self.state);
            state.lease.extended(outcome, now);
            match state.lease.state(now) {
                LeaseState::Lost(_) => state.loss.clone(),
                _ => return,
            }
        };
        if let Some(told) = told {
            told.notify_waiters();
        }
        self.leave_line();
    }

    /// What is left until its holder has to be told of the loss, or why that is now.
    pub(crate) fn notice(&self) -> Result<Duration, Loss> {
        let lead = self.core.settings.loss_lead;
        match self.with_lease(|lease, now| (lease.notice(lead, now), lease.state(now))) {
            (Some(left), _) => Ok(left),
            (None, LeaseState::Lost(reason)) => Err(reason.into()),
            (None, _) => Err(Loss::Gone),
        }
    }

    /// What is told of a loss that comes before its time.
    pub(crate) fn early_loss(&self) -> Arc<Notify> {
        Arc::clone(locked(&self.state).loss.get_or_insert_default())
    }
}
