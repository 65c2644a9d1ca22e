//! Taking a lock: the future that asks for it, and waits for it.
//!
//! ```text
//!   New ──▶ Seated ─────────────────────────────────────────┐ the lock itself
//!    │        │ the place in front                          │
//!    │        ▼                                             │
//!    ├─▶ Recognizing ─▶ Borrowing ──────────┐               │
//!    ▼                     │                ▼               ▼
//!   Admitting ─▶ Asking ◀──┘           Confirming ──────▶ Guard
//!                  │  └───────────────────▲ │               ▲
//!                  ▼                      │ │               │
//!               Waiting ──────────────────┴─┼───────────────┘
//!                  └──────────▶ GivingUp ◀──┘
//!                                  └─▶ Error, or WithoutVotes ─▶ New
//! ```
//!
//! Each stage is a method of its own, which returns what to do [next](Next). Why it failed is found out in `failing.rs`.

mod failing;

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use crate::Error;
use crate::drive::{
    AcquireRound, Claim, ConfirmRound, Defeated, ExtendRound, InspectRound, LocalTurn, Status,
    WaitRound,
};
use crate::gate::Admission;
use crate::guard::Guard;
use crate::line::{Entry, Seat};
use crate::lock::Lock;
use crate::note::Note;
use crate::runtime::BoxFuture;
use failing::GivenUp;
use quorlock_protocol::{Defeat, Lease, Moment};

/// Nodes that are so busy that requests arrive too late are asked again so often, for every caller.
const MOST_LATE: u8 = 8;

/// A lock that is being taken, from awaiting a [`Lock`].
///
/// # Errors
/// - [`Error::Taken`]: not waiting, and somebody else holds it.
/// - [`Error::TimedOut`]: it did not become free in time; `last` says how the last attempt ended.
/// - [`Error::NoQuorum`]: not waiting, and too few nodes answered. Waiting, it tries again.
/// - [`Error::Quarantined`]: too many nodes cast no vote yet, and that lasts longer than is waited: then it
///   fails at once. Otherwise it is waited out.
/// - [`Error::Clock`]: not waiting, and the clocks of too many nodes are too far from this one's.
/// - [`Error::Node`]: the name is in use for something that is not a lock.
/// - [`Error::Misuse`]: a name or a time that cannot work, or the locker was shut down.
///
/// While it waits it asks nothing of the nodes: they notify it when it is this one's turn, in the
/// order of coming. In one process, one of those who want a lock stands in the queues of the nodes,
/// and the others behind it.
///
/// # Cancel safety
/// Dropping it in the middle leaves nothing behind: whatever was granted, or is granted later, is
/// released.
#[must_use = "a lock is taken only when it is awaited"]
pub struct Locking {
    lock: Lock,
    stage: Stage,
    /// Since when the waiting time runs; `None` before the first poll.
    began: Option<Moment>,
    /// How often requests have arrived too late.
    late: u8,
    /// How often it was behind another caller of this process, and nobody had the lock.
    looks: u8,
    /// The end of the waiting time.
    timer: Option<BoxFuture<'static, ()>>,
}

/// Where it stands.
enum Stage {
    /// It has asked for nothing yet, or starts over.
    New,
    /// In line behind others of this process.
    Seated(Arc<Seat>),
    /// In front of the line, finding out whether another process holds it for the same owner.
    Recognizing(Arc<InspectRound>),
    /// Another process does: making sure.
    Borrowing(Arc<Claim>, Arc<ExtendRound>),
    /// In front, until the nodes can be asked: many others are before it.
    Admitting(Arc<Admission>),
    /// In front, trying whether it is free.
    Asking(Arc<AcquireRound>),
    /// In front, and in the queues of the nodes.
    Waiting(Arc<WaitRound>),
    /// In front with the lock, whose fence is not sure yet.
    Confirming(Arc<ConfirmRound>),
    /// Not in line any more, looking who holds it for the error message.
    GivingUp(Arc<InspectRound>, Box<GivenUp>),
    /// Not in line, until votes may be had that were missing.
    WithoutVotes(BoxFuture<'static, ()>),
    /// It has returned its result.
    Over,
}

/// What to do after a step.
enum Next {
    /// Take another step at once.
    Step,
    /// Return, and be polled again.
    Wait,
    /// Return the result.
    Done(Result<Guard, Error>),
}

impl Locking {
    pub(crate) fn new(lock: Lock, began: Option<Moment>) -> Self {
        Self { lock, stage: Stage::New, began, late: 0, looks: 0, timer: None }
    }

    /// Since when the waiting time runs.
    pub(crate) fn began(&self) -> Moment {
        self.began.unwrap_or_else(|| self.lock.core.runtime.now())
    }

    /// Whether it has failed, and only finds out what to tell the caller.
    pub(crate) fn is_giving_up(&self) -> bool {
        matches!(self.stage, Stage::GivingUp(..))
    }

    fn step(&mut self, cx: &mut Context<'_>) -> Next {
        match &mut self.stage {
            Stage::New => self.enter(),
            Stage::Seated(seat) => match seat.poll(cx) {
                Poll::Ready(turn) => self.take_turn(turn),
                Poll::Pending => self.wait_until_late(cx),
            },
            Stage::Recognizing(look) => match look.poll(cx) {
                Poll::Ready(status) => self.recognize(&status),
                Poll::Pending => Next::Wait,
            },
            Stage::Borrowing(_, round) => match round.poll(cx) {
                Poll::Ready(extended) => self.borrow(extended.is_ok()),
                Poll::Pending => Next::Wait,
            },
            Stage::Admitting(admission) => match admission.poll(cx) {
                Poll::Ready(round) => self.go_to(Stage::Asking(round)),
                Poll::Pending => self.wait_until_late(cx),
            },
            Stage::Asking(round) => match round.poll(cx) {
                Poll::Ready(Ok(claim)) => self.win_in_front(claim),
                Poll::Ready(Err(defeated)) => self.lose(defeated),
                Poll::Pending => self.wait_until_late(cx),
            },
            // It was polled too late for what it had won.
            Stage::Waiting(wait) if wait.is_missed() => self.go_to(Stage::New),
            Stage::Waiting(wait) => match wait.poll(&self.lock.options, cx) {
                Poll::Ready(Some(claim)) => self.win(claim),
                Poll::Ready(None) => {
                    let defeated = wait.defeated();
                    self.give_up(defeated)
                }
                Poll::Pending => self.wait_for_votes(cx),
            },
            Stage::Confirming(round) => match round.poll(cx) {
                Poll::Ready(sure) => self.confirm(sure),
                Poll::Pending => Next::Wait,
            },
            Stage::GivingUp(look, _) => match look.poll(cx) {
                Poll::Ready(status) => self.fail_by(&status),
                Poll::Pending => Next::Wait,
            },
            Stage::WithoutVotes(pause) => match pause.as_mut().poll(cx) {
                Poll::Ready(()) => self.go_to(Stage::New),
                Poll::Pending => Next::Wait,
            },
            Stage::Over => Next::Wait,
        }
    }

    fn go_to(&mut self, stage: Stage) -> Next {
        self.stage = stage;
        Next::Step
    }

    /// Joins the line for the name.
    fn enter(&mut self) -> Next {
        let Lock { core, name, options, .. } = &self.lock;
        let name = match name {
            Ok(name) => name,
            Err(error) => return Next::Done(Err(Error::clone(error))),
        };
        if let Err(error) = self.lock.check(name) {
            return Next::Done(Err(error));
        }
        let waits = self.lock.waits();
        // Nobody asks for the time if there is no end to the waiting, or none of it.
        if waits && self.lock.wait.is_some() {
            self.began.get_or_insert_with(|| core.runtime.now());
        }
        match core.enter(name, options, waits) {
            Entry::Reentered(claim) => self.done(claim),
            Entry::Seated(seat) => self.go_to(Stage::Seated(seat)),
            Entry::Busy => self.give_up(Defeated::taken()),
            Entry::Front if self.lock.from_elsewhere => {
                let look = InspectRound::start(core, name.clone());
                self.go_to(Stage::Recognizing(look))
            }
            Entry::Front => self.ask(),
        }
    }

    /// Takes what those before it in line have left.
    fn take_turn(&mut self, turn: LocalTurn) -> Next {
        match turn {
            LocalTurn::Held(claim) if claim.is_lost() => {
                // It was passed on, and nobody came for it in time.
                self.stage = Stage::New;
                claim.drop_guard();
                Next::Step
            }
            LocalTurn::Held(claim) => self.done(claim),
            LocalTurn::Front(Some(wait)) => self.go_to(Stage::Waiting(wait)),
            LocalTurn::Front(None) => self.queue(),
        }
    }

    /// Takes part in the lock if another process holds it for the same owner, and asks for it otherwise.
    fn recognize(&mut self, status: &Status) -> Next {
        let Lock { core, name: Ok(name), options, .. } = &self.lock else { return Next::Wait };
        let Some(token) = options.owner.and_then(|owner| status.token_of(owner)) else {
            return self.ask();
        };
        let claim = Claim::borrowed(core, name.clone(), token, *options);
        match ExtendRound::start(&claim) {
            Ok(round) => self.go_to(Stage::Borrowing(claim, round)),
            Err(error) => Next::Done(Err(error)),
        }
    }

    /// Holds what the nodes have extended for this process too.
    fn borrow(&mut self, extended: bool) -> Next {
        let Stage::Borrowing(claim, round) = &self.stage else { return Next::Step };
        let (claim, fence) = (Arc::clone(claim), round.fence());
        if !extended {
            // It has just been released, or cannot be known: as any other then.
            claim.release_on_nodes();
            return self.ask();
        }
        claim.set_fence(fence.last);
        if fence.agreed {
            return self.hold(claim);
        }
        self.go_to(Stage::Confirming(ConfirmRound::start(&claim, fence.last)))
    }

    /// Asks the nodes for the lock, once there are not too many who do.
    fn ask(&mut self) -> Next {
        let Lock { core, name: Ok(name), options, .. } = &self.lock else { return Next::Wait };
        self.stage = match core.gate.enter(name, options) {
            None => Stage::Asking(AcquireRound::start(core, name.clone(), *options)),
            Some(admission) => Stage::Admitting(admission),
        };
        Next::Step
    }

    /// Takes a ticket in the queues of the nodes.
    fn queue(&mut self) -> Next {
        let Lock { core, name: Ok(name), options, .. } = &self.lock else { return Next::Wait };
        let wait = WaitRound::start(core, name.clone(), *options);
        self.go_to(Stage::Waiting(wait))
    }

    /// The nodes have not granted the lock.
    fn lose(&mut self, defeated: Defeated) -> Next {
        if self.late < MOST_LATE && defeated.is_late(&self.lock.core, &self.lock.options) {
            self.late += 1;
            self.ask()
        } else if self.lock.waits() {
            self.queue()
        } else {
            self.give_up(defeated)
        }
    }

    /// Holds what stands in front of the line already, unless its time is over; or once its fence is sure.
    fn win_in_front(&mut self, claim: Arc<Claim>) -> Next {
        if claim.to_confirm().is_some() {
            return self.win(claim);
        }
        if !claim.is_in_line() {
            // Nobody came for it in time.
            self.stage = Stage::New;
            claim.drop_guard();
            return Next::Step;
        }
        self.take(claim)
    }

    /// Holds what was won, once its fence is sure.
    fn win(&mut self, claim: Arc<Claim>) -> Next {
        let Some(fence) = claim.to_confirm() else { return self.hold(claim) };
        self.go_to(Stage::Confirming(ConfirmRound::start(&claim, fence)))
    }

    /// Holds what was won if its fence is sure, and there is enough left of it.
    fn confirm(&mut self, sure: bool) -> Next {
        let Stage::Confirming(round) = &self.stage else { return Next::Step };
        let claim = Arc::clone(round.claim());
        if sure && claim.with_lease(Lease::remaining) > self.lock.options.least {
            return self.hold(claim);
        }
        if self.lock.waits() {
            claim.release_on_nodes();
            return self.queue();
        }
        self.stage = Stage::Over;
        claim.discard();
        self.give_up(Defeated::split())
    }

    fn hold(&mut self, claim: Arc<Claim>) -> Next {
        self.lock.core.hold_in_front(&claim);
        self.take(claim)
    }

    fn take(&mut self, claim: Arc<Claim>) -> Next {
        if let Some(note) = &self.lock.note {
            claim.set_note(&Note::new(note, self.lock.core.runtime.wall()));
            claim.send_note();
        }
        self.done(claim)
    }

    fn done(&mut self, claim: Arc<Claim>) -> Next {
        self.stage = Stage::Over;
        Next::Done(Ok(Guard::new(claim)))
    }

    /// Waits for what this stage waits for, and gives up when the waiting time is over. A single attempt has none.
    fn wait_until_late(&mut self, cx: &mut Context<'_>) -> Next {
        if !self.lock.waits() || self.poll_patience(cx).is_pending() {
            return Next::Wait;
        }
        self.give_up(match &self.stage {
            Stage::Admitting(_) => Defeated::unasked(),
            Stage::Asking(round) => round.defeated(Defeat::Unreachable),
            Stage::Waiting(wait) => wait.defeated(),
            _ => Defeated::taken(),
        })
    }

    /// The same in the queues of the nodes. If it is known that no majority votes in time, it gives up at once.
    fn wait_for_votes(&mut self, cx: &mut Context<'_>) -> Next {
        let Stage::Waiting(wait) = &self.stage else { return Next::Step };
        if self.patience().is_some_and(|left| wait.votes_in() > left) {
            let defeated = wait.defeated();
            return self.give_up(defeated);
        }
        self.wait_until_late(cx)
    }

    /// What is left of the waiting time; `None` without end.
    fn patience(&self) -> Option<Duration> {
        let waited = || self.lock.core.runtime.now().since(self.began());
        self.lock.wait.map(|wait| wait.saturating_sub(waited()))
    }

    /// Ready when the caller does not want to wait any longer.
    fn poll_patience(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        loop {
            let Some(left) = self.patience() else { return Poll::Pending };
            if left.is_zero() {
                return Poll::Ready(());
            }
            let runtime = &self.lock.core.runtime;
            let timer = self.timer.get_or_insert_with(|| runtime.sleep(left));
            ready!(timer.as_mut().poll(cx));
            self.timer = None;
        }
    }

    /// Leaves the line, with nothing in hands.
    fn leave(&mut self) {
        let stage = std::mem::replace(&mut self.stage, Stage::Over);
        let (core, Ok(name)) = (&self.lock.core, &self.lock.name) else { return };
        let turn = match stage {
            Stage::New | Stage::GivingUp(..) | Stage::WithoutVotes(_) | Stage::Over => return,
            Stage::Seated(seat) => return core.get_up(name, &seat),
            Stage::Recognizing(_) => LocalTurn::Front(None),
            Stage::Admitting(admission) if admission.leave() => LocalTurn::Front(None),
            Stage::Admitting(_) => return,
            Stage::Borrowing(claim, _) => return claim.discard(),
            Stage::Asking(round) => return round.leave(),
            Stage::Waiting(wait) => LocalTurn::Front(Some(wait)),
            Stage::Confirming(round) => return round.claim().discard(),
        };
        core.pass_on(name, turn);
    }
}

impl Future for Locking {
    type Output = Result<Guard, Error>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        loop {
            match self.step(cx) {
                Next::Step => {}
                Next::Wait => return Poll::Pending,
                Next::Done(result) => return Poll::Ready(result),
            }
        }
    }
}

impl Drop for Locking {
    fn drop(&mut self) {
        self.leave();
    }
}

impl fmt::Debug for Locking {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Locking").field("lock", &self.lock).finish_non_exhaustive()
    }
}
