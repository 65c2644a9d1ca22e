//! Gives a lock, or the place in front of its line, to the next of this process.
//!
//! ```text
//!   what the front had                  the next in line gets
//!   the lock (its last guard is gone)   the lock itself, without a request to the nodes, if it is of use to that one;
//!                                       otherwise a ticket in the queues of the nodes, behind the release
//!   a ticket in the queues              the ticket, if it is of use to that one; otherwise a ticket of its own
//!   nothing                             the right to ask the nodes
//! ```
//!
//! Without a next in line the lock is released on the nodes, and the ticket returned.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::Claim;
use crate::core::Core;
use crate::drive::{ReleaseRound, WaitRound};
use crate::lock_options::LockOptions;
use crate::locked::locked;
use crate::name::Name;

/// What the next in line gets.
#[derive(Debug)]
pub(crate) enum LocalTurn {
    /// The lock itself.
    Held(Arc<Claim>),
    /// The place in front, and perhaps one in the queues of the nodes.
    Front(Option<Arc<WaitRound>>),
}

/// What became of a claim whose last guard is gone.
#[derive(Debug)]
pub(crate) enum Passed {
    /// The next in line has it.
    On,
    /// It is being released on the nodes.
    Freed(Arc<ReleaseRound>),
    /// There was none.
    Nothing,
}

impl Core {
    /// Gives what the front of a line had to the next seat, or to nobody if there is none. Returns what became of the
    /// lock, if it was held.
    pub(crate) fn pass_on(self: &Arc<Self>, name: &Name, mut turn: LocalTurn) -> Passed {
        let mut passed = Passed::Nothing;
        if let LocalTurn::Front(Some(wait)) = &turn
            && wait.is_missed()
        {
            // The place in front went on already.
            return passed;
        }
        loop {
            let Some(seat) = self.lines.next(name) else {
                match turn {
                    LocalTurn::Held(claim) => passed = Passed::Freed(claim.release_on_nodes()),
                    LocalTurn::Front(Some(wait)) => wait.leave(),
                    LocalTurn::Front(None) => {}
                }
                return passed;
            };
            turn = match turn {
                LocalTurn::Held(claim) if claim.begin_next_turn(seat.options()) => {
                    LocalTurn::Held(claim)
                }
                LocalTurn::Held(claim) => {
                    let release = claim.release_on_nodes();
                    let wait = WaitRound::start_behind(&release, *seat.options());
                    passed = Passed::Freed(release);
                    LocalTurn::Front(Some(wait))
                }
                LocalTurn::Front(Some(wait)) if !wait.serves(seat.options()) => {
                    let other = WaitRound::start(self, name.clone(), *seat.options());
                    wait.leave();
                    LocalTurn::Front(Some(other))
                }
                front @ LocalTurn::Front(_) => front,
            };
            let held = matches!(turn, LocalTurn::Held(_));
            match seat.give(turn) {
                Ok(()) => return if held { Passed::On } else { passed },
                // Nobody sits there any more.
                Err(back) => turn = back,
            }
        }
    }

    /// The front of a line holds the lock from now on, and those behind it who are of the same owner hold it too.
    pub(crate) fn hold_in_front(self: &Arc<Self>, claim: &Arc<Claim>) {
        let behind = self.lines.put_in_front(claim);
        for seat in behind.same_owner {
            if claim.add_guard()
                && let Err(LocalTurn::Held(claim)) = seat.give(LocalTurn::Held(Arc::clone(claim)))
            {
                claim.drop_guard();
            }
        }
        // One that was lost before it was in line has unblocked nobody behind it. Those who come later look.
        if behind.any && claim.is_lost() {
            claim.unblock_line();
        }
    }
}

impl Claim {
    /// Makes it the claim of the next holder, who wants it with `options`. Returns `false`, and changes nothing, if it
    /// is of no use to that one.
    fn begin_next_turn(&self, options: &LockOptions) -> bool {
        let LockOptions { ttl, least, .. } = *options;
        if !self.passable || !options.is_plain() || ttl != self.ttl() {
            return false;
        }
        let enough = least.max(self.core.terms(ttl).validity() / 2);
        let now = self.core.now();
        let loss_signal = {
            let mut state = locked(&self.state);
            let Some(next) = state.turns.next() else { return false };
            if state.lease.remaining(now) <= enough {
                return false;
            }
            state.turns = next;
            if state.fence > 0 {
                state.fence += 1;
            }
            self.guards.store(1, Ordering::Release);
            self.taken.store(false, Ordering::Release);
            self.join_line();
            // Those who waited for the loss of it have released it.
            state.rare.as_mut().and_then(|rare| rare.loss.take())
        };
        if let Some(loss_signal) = loss_signal {
            loss_signal.notify_waiters();
        }
        true
    }

    /// It begins, with so many of this process waiting for it. If other processes wait too, those of this process who
    /// come later wait behind them.
    pub(crate) fn begin(&self, seats: usize) {
        self.join_line();
        if self.wanted {
            let most = u16::try_from(seats + 1).unwrap_or(u16::MAX);
            locked(&self.state).turns.limit(most);
        }
    }

    pub(crate) fn is_in_line(&self) -> bool {
        self.in_line.load(Ordering::Acquire)
    }

    pub(crate) fn join_line(&self) {
        self.in_line.store(true, Ordering::Release);
    }
}
