//! Why a lock was not taken, for the caller: who holds it, or which nodes do not vote, and whether to wait for them.

use std::time::Duration;

use super::{Locking, Next, Stage};
use crate::Error;
use crate::drive::{Defeated, InspectRound, Status, hopeless};
use crate::name::Name;
use crate::node::{Failure, FailureKind};
use quorlock_protocol::{Defeat, rest_in_quarantine};

/// How long to wait before a new attempt where nobody knows when there are votes.
const PAUSE_FOR_VOTES: Duration = Duration::from_millis(250);

/// How often a caller that stood behind another of its process tries again if nobody has the lock.
const LOOKS: u8 = 3;

/// How things stood at the moment of giving up.
pub(super) struct GivenUp {
    defeated: Defeated,
    /// What the nodes had said to the waiter of this process in their queues. It may be gone when the look at them
    /// is over.
    before_us: Option<Defeated>,
}

impl Locking {
    /// Leaves the line, and finds out what to tell the caller. If somebody has the lock, that takes a look at the nodes.
    pub(super) fn give_up(&mut self, defeated: Defeated) -> Next {
        let is_taken = matches!(defeated.defeat, Defeat::Taken | Defeat::Split);
        let before_us = if is_taken { self.before_us() } else { None };
        self.leave();
        let name = match &self.lock.name {
            Ok(name) => name,
            Err(error) => return Next::Done(Err(Error::clone(error))),
        };
        let given_up = GivenUp { defeated, before_us };
        if is_taken {
            let look = InspectRound::start(&self.lock.core, name.clone());
            return self.go_to(Stage::GivingUp(look, Box::new(given_up)));
        }
        let error = self.error(name, given_up, None);
        self.fail(error)
    }

    /// Fails with what the look at the nodes has found.
    pub(super) fn fail_by(&mut self, status: &Status) -> Next {
        let stage = std::mem::replace(&mut self.stage, Stage::Over);
        let (Stage::GivingUp(_, given_up), Ok(name)) = (stage, &self.lock.name) else {
            return Next::Wait;
        };
        let was_behind_another = given_up.defeated.was_behind_another();
        let error = self.error(name, *given_up, Some(status));
        // The one before it had the lock and has released it by now, or has gone without it.
        if was_behind_another && self.looks < LOOKS && self.is_free(&error) {
            self.looks += 1;
            return self.go_to(Stage::New);
        }
        self.fail(error)
    }

    /// Whether the nodes vote, and nobody holds the lock.
    fn is_free(&self, error: &Error) -> bool {
        matches!(error, Error::Taken { name, holder: None, .. } if !self.lock.core.is_held_here(name))
    }

    /// Ends with an error, unless votes are missing that are to be waited for.
    fn fail(&mut self, error: Error) -> Next {
        let first = self.began.is_none();
        let Some((pause, left)) = self.pause_for_votes(&error) else {
            return Next::Done(Err(self.after_waiting(error)));
        };
        if first {
            tracing::warn!("{error}; waiting {left:.1?} at the most for the votes");
        }
        let pause = self.lock.core.runtime.sleep(pause);
        self.go_to(Stage::WithoutVotes(pause))
    }

    /// What the nodes have said to the waiter of this process in their queues, if no caller of it holds the lock.
    fn before_us(&self) -> Option<Defeated> {
        let (core, name) = (&self.lock.core, self.lock.name.as_ref().ok()?);
        let waiting = (!core.is_held_here(name)).then(|| core.waiters.of(name)).flatten()?;
        Some(waiting.defeated())
    }

    /// When to try again, and how long there is to wait, if it is for the lack of votes that it failed and they
    /// may be had in time.
    fn pause_for_votes(&mut self, error: &Error) -> Option<(Duration, Duration)> {
        let within = **self.lock.votes_within.as_ref().filter(|_| !self.lock.waits())?;
        let now = self.lock.core.runtime.now();
        let left = within.saturating_sub(now.since(self.began.unwrap_or(now)));
        let soonest = match error {
            Error::Quarantined { answers, .. } => answers.votes_in(self.lock.core.quorum),
            _ => Duration::ZERO,
        };
        let pause = match error {
            Error::Quarantined { .. } if soonest > left => return None,
            Error::Quarantined { .. } if !soonest.is_zero() => rest_in_quarantine(soonest),
            Error::NoQuorum { need, nodes, answers, .. } if nodes - answers.lasting() < *need => {
                return None;
            }
            Error::Quarantined { .. } | Error::NoQuorum { .. } => PAUSE_FOR_VOTES,
            _ => return None,
        };
        if left.is_zero() {
            return None;
        }
        self.began = Some(self.began.unwrap_or(now));
        Some((pause.min(left), left))
    }

    /// An error that says how long votes were waited for.
    fn after_waiting(&self, error: Error) -> Error {
        match (&self.lock.name, self.began, &error) {
            (Ok(name), Some(began), Error::Quarantined { .. } | Error::NoQuorum { .. })
                if !self.lock.waits() =>
            {
                let waited = self.lock.core.runtime.now().since(began);
                Error::TimedOut { name: name.clone(), waited, last: Box::new(error) }
            }
            _ => error,
        }
    }

    /// The error to return: that it can never work, that the waiting time is over, or how the attempt failed.
    fn error(&self, name: &Name, given_up: GivenUp, status: Option<&Status>) -> Error {
        let seen = status.map_or(&[][..], |status| &status.nodes).iter();
        let seen = seen.filter_map(|node| Some((&node.node, node.record.as_ref().err()?)));
        let said = given_up.defeated.answers.0.iter();
        let said = said.filter_map(|answer| Some((&answer.node, answer.failure.as_ref()?)));
        if let Some(error) = self.hopeless(seen).or_else(|| self.hopeless(said)) {
            return error;
        }
        let last = self.explain(name, given_up, status);
        let over = self.lock.waits() && self.patience().is_some_and(|left| left.is_zero());
        if !over {
            return last;
        }
        let waited = self.lock.core.runtime.now().since(self.began());
        Error::TimedOut { name: name.clone(), waited, last: Box::new(last) }
    }

    /// How the attempt failed: somebody holds the lock, or too few nodes vote.
    fn explain(&self, name: &Name, given_up: GivenUp, status: Option<&Status>) -> Error {
        let GivenUp { defeated, before_us } = given_up;
        match defeated.defeat {
            Defeat::Taken | Defeat::Split => {
                // What the nodes said of the lock when the waiting began may be long ago; and who is in line
                // before us in this process need not have it.
                let missing = status.and_then(|status| self.nobody_can(name, status, before_us));
                missing.unwrap_or_else(|| Error::Taken {
                    name: name.clone(),
                    holder: status.and_then(Status::holder),
                    remaining: status.and_then(Status::remaining),
                    note: status.and_then(Status::note).cloned().map(Box::new),
                })
            }
            Defeat::Unreachable | Defeat::TooLate | Defeat::Abandoned => {
                defeated.without_votes(&self.lock.core, name)
            }
        }
    }

    /// Why nobody can have the lock at present, if nobody holds it as far as is known: by what the nodes have said to
    /// the waiter of this process in their queues, or one that stood there before us, or by a look at them.
    fn nobody_can(
        &self,
        name: &Name,
        status: &Status,
        before_us: Option<Defeated>,
    ) -> Option<Error> {
        let core = &self.lock.core;
        if status.holder().is_some() || core.is_held_here(name) {
            return None;
        }
        // What was said to others may be some seconds ago.
        if let Some(too_few) = status.too_few() {
            return Some(too_few);
        }
        let before_us = self.before_us().or(before_us);
        let without_votes = |it: &Defeated| {
            it.defeat == Defeat::Unreachable && it.answers.0.len() >= core.quorum.too_many()
        };
        match before_us.filter(without_votes) {
            Some(defeated) => Some(defeated.without_votes(core, name)),
            None => status.without_votes(),
        }
    }

    /// A name that so many nodes use for something else can never be locked, nor can any on nodes of another
    /// set.
    fn hopeless<'a>(
        &self,
        failures: impl Iterator<Item = (&'a String, &'a Failure)>,
    ) -> Option<Error> {
        let failures = failures.map(|(node, failure)| (node.clone(), failure));
        let (node, failure) = hopeless(&self.lock.core, failures)?;
        Some(match failure.kind() {
            FailureKind::OtherSet => Error::other_set(&node, &failure),
            _ => Error::Node { node, failure },
        })
    }
}
