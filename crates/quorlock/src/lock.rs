//! Asking for a lock, and waiting for it.

use std::fmt;
use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use crate::Error;
use crate::core::Core;
use crate::drive::{
    AcquireRound, Claim, ConfirmRound, Defeated, ExtendRound, InspectRound, LocalTurn, Status,
    WaitRound, hopeless,
};
use crate::gate::Admission;
use crate::guard::Guard;
use crate::line::{Entry, Seat};
use crate::lock_options::LockOptions;
use crate::name::Name;
use crate::node::{Failure, FailureKind};
use crate::note::{MAX_NOTE_BYTES, Note};
use crate::owner::Owner;
use crate::runtime::{BoxFuture, Runtime};
use quorlock_protocol::{Defeat, Moment, rest_in_quarantine};

/// How long to wait before a new attempt where nobody knows when there are votes.
const PAUSE_FOR_VOTES: Duration = Duration::from_millis(250);

/// Nodes that are so busy that requests arrive too late are asked again so often, whoever wants the lock.
const MOST_LATE: u8 = 8;

/// A lock to be taken: refine it, then `.await` it.
///
/// Made by [`Locker::lock`](crate::Locker::lock) and [`Locker::try_lock`](crate::Locker::try_lock).
#[derive(Debug)]
#[must_use = "a lock is taken only when it is awaited"]
pub struct Lock {
    core: Arc<Core>,
    /// In a box, since a lock is moved about, and hardly ever has one.
    name: Result<Name, Box<Error>>,
    wait: Option<Duration>,
    options: LockOptions,
    /// Whether the owner may hold it by another process.
    from_elsewhere: bool,
    /// What the holder says of itself.
    note: Option<Box<str>>,
    /// How long to wait for votes that are missing, though not for a holder. In a box as well.
    votes_within: Option<Box<Duration>>,
}

impl Lock {
    pub(crate) fn new(core: &Arc<Core>, name: Result<Name, Error>) -> Self {
        Self {
            core: Arc::clone(core),
            name: name.map_err(Box::new),
            wait: None,
            options: LockOptions {
                ttl: core.settings.ttl,
                least: Duration::ZERO,
                owner: None,
                keep: core.settings.keep(),
                noted: false,
            },
            from_elsewhere: false,
            note: None,
            votes_within: None,
        }
    }

    /// Waits so long at the most, then fails with [`Error::TimedOut`]. Zero is a single attempt.
    pub fn wait(mut self, at_most: Duration) -> Self {
        self.wait = Some(at_most);
        self
    }

    /// With [`try_lock`](crate::Locker::try_lock), or a [`wait`](Self::wait) of zero: waits so long at the most
    /// for votes that are missing, and not for anybody who holds the lock. Nodes that were restarted cast no
    /// vote for a while, the set of nodes may be forming, or too few of them can be reached. If it is known that
    /// the time is not enough, it fails at once. Who waits for the lock waits for all of that anyway.
    pub fn votes_within(mut self, at_most: Duration) -> Self {
        self.votes_within = (!at_most.is_zero()).then(|| Box::new(at_most));
        self
    }

    /// Takes it for another time than the [`Locker`](crate::Locker)'s own.
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.options.ttl = ttl;
        self
    }

    /// Takes it only if more than this is left of its validity when the nodes have answered.
    pub fn at_least(mut self, validity: Duration) -> Self {
        self.options.least = validity;
        self
    }

    /// Does not extend it by itself: it ends after its TTL, unless [`Guard::extend`] is called.
    ///
    /// For a lock that is to outlive its process, or that must not be kept by a holder that hangs.
    pub fn fixed(mut self) -> Self {
        self.options.keep.renew = false;
        self
    }

    /// Extends it so many times at the most, counting those that [`Guard::extend`] asks for. After
    /// that it ends by itself, with [`Loss::Capped`](crate::Loss::Capped).
    pub fn max_extensions(mut self, most: u32) -> Self {
        self.options.keep.max_extensions = Some(most);
        self
    }

    /// Holds it for so long at the most, however often it is extended. Then it ends by itself, with
    /// [`Loss::Capped`](crate::Loss::Capped).
    pub fn max_hold(mut self, longest: Duration) -> Self {
        self.options.keep.max_hold = Some(longest);
        self
    }

    /// Takes it for somebody who may hold it already, and then gets it at once.
    pub fn owner(mut self, owner: &Owner) -> Self {
        self.options.owner = Some(owner.id);
        self.from_elsewhere = owner.from_elsewhere;
        self
    }

    /// Leaves a note on the nodes for people who ask who holds it, at most [`MAX_NOTE_BYTES`] long,
    /// with the time of day at which it was taken. Whoever can [inspect](crate::Locker::inspect) the
    /// lock can read it: no secrets.
    ///
    /// It is kept while the lock is, and goes with it. That takes one more command for each node with
    /// each step, which nobody waits for and nothing depends on. An owner's further guards, here or in
    /// other processes, change nothing about the note of the first. An empty one is none.
    pub fn note(mut self, note: impl Into<String>) -> Self {
        let note: String = note.into();
        self.options.noted = !note.is_empty();
        self.note = self.options.noted.then(|| note.into());
        self
    }

    pub(crate) fn runtime(&self) -> Arc<dyn Runtime> {
        Arc::clone(&self.core.runtime)
    }

    /// The same for another name.
    pub(crate) fn also(&self, name: Name) -> Self {
        let Self { wait, options, from_elsewhere, .. } = *self;
        let (core, note) = (Arc::clone(&self.core), self.note.clone());
        let votes_within = self.votes_within.clone();
        Self { core, name: Ok(name), wait, options, from_elsewhere, note, votes_within }
    }

    /// Begins, with a waiting time that has run since then.
    pub(crate) fn since(self, began: Moment) -> Locking {
        Locking { lock: self, stage: Stage::New, began: Some(began), late: 0, timer: None }
    }

    #[cfg(test)]
    pub(crate) fn options(&self) -> LockOptions {
        self.options
    }

    /// Whether it is waited for: a time of zero is a single attempt.
    fn waits(&self) -> bool {
        self.wait.is_none_or(|wait| !wait.is_zero())
    }

    fn check(&self, name: &Name) -> Result<(), Error> {
        // The locker's own was looked at when that was built.
        if self.options.ttl != self.core.settings.ttl {
            self.core.settings.check_ttl(self.options.ttl)?;
        }
        self.core.settings.check_keep(self.options.keep)?;
        if self.from_elsewhere {
            let what = format!("another process was to take part in the lock {name}");
            self.core.settings.check_outlives(&what)?;
        }
        if let Some(note) = self.note.as_ref().filter(|note| note.len() > MAX_NOTE_BYTES) {
            return Err(Error::misuse(
                format!("the note for the lock {name} is {} bytes long", note.len()),
                format!("use at most {MAX_NOTE_BYTES} bytes"),
            ));
        }
        // Every lock has more than none.
        if !self.options.least.is_zero() {
            let most = self.core.terms(self.options.ttl).validity();
            let most = self.options.keep.max_hold.map_or(most, |hold| hold.min(most));
            if self.options.least >= most {
                return Err(Error::misuse(
                    format!(
                        "a validity of {:?} was asked for, and a TTL of {:?} gives less than {most:?}",
                        self.options.least, self.options.ttl
                    ),
                    "ask for less, or use a longer TTL",
                ));
            }
        }
        if self.core.closed.load(Ordering::Acquire) {
            return Err(Error::misuse(
                format!("the lock {name} was asked for after the shutdown of its Locker"),
                "connect a new Locker",
            ));
        }
        Ok(())
    }
}

impl IntoFuture for Lock {
    type Output = Result<Guard, Error>;
    type IntoFuture = Locking;

    fn into_future(self) -> Locking {
        Locking { lock: self, stage: Stage::New, began: None, late: 0, timer: None }
    }
}

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
/// While it waits it asks nothing of the nodes: they send word when it is this one's turn, in the
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
    /// The end of the caller's patience.
    timer: Option<BoxFuture<'static, ()>>,
}

enum Stage {
    New,
    /// Behind others of this process.
    Seated(Arc<Seat>),
    /// In front of the line, finding out whether another process holds it for the same owner.
    Recognizing(Arc<InspectRound>),
    /// It does: making sure.
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
    Over,
}

/// How things stood at the moment of giving up.
struct GivenUp {
    defeated: Defeated,
    /// What the nodes had said to whoever stood in their queues for this process. It may be gone when the look at them
    /// is over.
    before_us: Option<Defeated>,
}

impl Locking {
    /// Since when the waiting time runs.
    pub(crate) fn began(&self) -> Moment {
        self.began.unwrap_or_else(|| self.lock.core.runtime.now())
    }

    /// Whether it has failed, and only finds out what to tell the caller.
    pub(crate) fn is_giving_up(&self) -> bool {
        matches!(self.stage, Stage::GivingUp(..))
    }

    fn ask(&mut self) {
        if let Lock { core, name: Ok(name), options, .. } = &self.lock {
            self.stage = match core.gate.enter(name, options) {
                None => Stage::Asking(AcquireRound::start(core, name.clone(), *options)),
                Some(admission) => Stage::Admitting(admission),
            };
        }
    }

    fn stand(&mut self) {
        if let Lock { core, name: Ok(name), options, .. } = &self.lock {
            self.stage = Stage::Waiting(WaitRound::start(core, name.clone(), *options));
        }
    }

    /// Holds what stands in front of the line already, unless its time is over; or once its fence is sure.
    fn win_in_front(&mut self, claim: Arc<Claim>) -> Option<Poll<Result<Guard, Error>>> {
        if claim.to_confirm().is_some() {
            return self.win(claim);
        }
        if !claim.is_in_line() {
            // Nobody came for it in time.
            self.stage = Stage::New;
            claim.drop_guard();
            return None;
        }
        Some(self.take(claim))
    }

    /// Holds what was won, once its fence is sure.
    fn win(&mut self, claim: Arc<Claim>) -> Option<Poll<Result<Guard, Error>>> {
        let Some(fence) = claim.to_confirm() else { return Some(self.hold(claim)) };
        self.stage = Stage::Confirming(ConfirmRound::start(&claim, fence));
        None
    }

    fn hold(&mut self, claim: Arc<Claim>) -> Poll<Result<Guard, Error>> {
        self.lock.core.hold_in_front(&claim);
        self.take(claim)
    }

    fn take(&mut self, claim: Arc<Claim>) -> Poll<Result<Guard, Error>> {
        self.stage = Stage::Over;
        if let Some(note) = &self.lock.note {
            claim.set_note(&Note::new(note, self.lock.core.runtime.wall()));
            claim.send_note();
        }
        Poll::Ready(Ok(Guard::new(claim)))
    }

    /// Leaves the line, and finds out what to tell the caller. That takes a look at the nodes, but
    /// not at those that do not answer.
    fn give_up(&mut self, defeated: Defeated) -> Option<Poll<Result<Guard, Error>>> {
        let is_taken = matches!(defeated.defeat, Defeat::Taken | Defeat::Split);
        let before_us = if is_taken { self.before_us() } else { None };
        self.leave();
        let name = match &self.lock.name {
            Ok(name) => name,
            Err(error) => return Some(Poll::Ready(Err(Error::clone(error)))),
        };
        if is_taken {
            let look = InspectRound::start(&self.lock.core, name.clone());
            self.stage = Stage::GivingUp(look, Box::new(GivenUp { defeated, before_us }));
            return None;
        }
        let error = self.error(name, GivenUp { defeated, before_us }, None);
        self.fail(error)
    }

    /// What the nodes have said to whoever stands in their queues for this process, if nobody of it holds the lock.
    fn before_us(&self) -> Option<Defeated> {
        let (core, name) = (&self.lock.core, self.lock.name.as_ref().ok()?);
        let waiting = (!core.is_held_here(name)).then(|| core.waiters.of(name)).flatten()?;
        Some(waiting.defeated())
    }

    /// Ends with an error, unless votes are missing that are to be waited for.
    fn fail(&mut self, error: Error) -> Option<Poll<Result<Guard, Error>>> {
        let first = self.began.is_none();
        let Some((pause, left)) = self.pause_for_votes(&error) else {
            return Some(Poll::Ready(Err(self.after_waiting(error))));
        };
        if first {
            tracing::warn!("{error}; waiting {left:.1?} at the most for the votes");
        }
        self.stage = Stage::WithoutVotes(self.lock.core.runtime.sleep(pause));
        None
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
    /// whoever stands in their queues for this process, or stood there before us, or by a look at them.
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

    /// One step. `None` if there is another to take at once.
    fn advance(&mut self, cx: &mut Context<'_>) -> Option<Poll<Result<Guard, Error>>> {
        let waits = self.lock.waits();
        let name = match &self.lock.name {
            Ok(name) => name,
            Err(error) => return Some(Poll::Ready(Err(Error::clone(error)))),
        };
        let core = &self.lock.core;
        match &mut self.stage {
            Stage::New => {
                if let Err(error) = self.lock.check(name) {
                    return Some(Poll::Ready(Err(error)));
                }
                // Nobody asks if there is no end to the waiting, or none of it.
                if waits && self.lock.wait.is_some() {
                    self.began.get_or_insert_with(|| core.runtime.now());
                }
                match core.enter(name, &self.lock.options, waits) {
                    Entry::Reentered(claim) => {
                        self.stage = Stage::Over;
                        return Some(Poll::Ready(Ok(Guard::new(claim))));
                    }
                    Entry::Seated(seat) => self.stage = Stage::Seated(seat),
                    Entry::Busy => return self.give_up(Defeated::taken()),
                    Entry::Front if self.lock.from_elsewhere => {
                        self.stage = Stage::Recognizing(InspectRound::start(core, name.clone()));
                    }
                    Entry::Front => self.ask(),
                }
            }
            Stage::Seated(seat) => match seat.poll(cx) {
                Poll::Ready(LocalTurn::Held(claim)) if claim.is_lost() => {
                    // It was passed on, and nobody came for it in time.
                    self.stage = Stage::New;
                    claim.drop_guard();
                }
                Poll::Ready(LocalTurn::Held(claim)) => {
                    self.stage = Stage::Over;
                    return Some(Poll::Ready(Ok(Guard::new(claim))));
                }
                Poll::Ready(LocalTurn::Front(Some(wait))) => {
                    self.stage = Stage::Waiting(wait);
                }
                Poll::Ready(LocalTurn::Front(None)) => self.stand(),
                Poll::Pending => {
                    if self.poll_patience(cx).is_pending() {
                        return Some(Poll::Pending);
                    }
                    return self.give_up(Defeated::taken());
                }
            },
            Stage::Recognizing(look) => {
                let Poll::Ready(status) = look.poll(cx) else { return Some(Poll::Pending) };
                match self.lock.options.owner.and_then(|owner| status.token_of(owner)) {
                    None => self.ask(),
                    Some(token) => {
                        let Lock { core, options, .. } = &self.lock;
                        let claim = Claim::borrowed(core, name.clone(), token, *options);
                        self.stage = match ExtendRound::start(&claim) {
                            Ok(round) => Stage::Borrowing(claim, round),
                            Err(error) => return Some(Poll::Ready(Err(error))),
                        };
                    }
                }
            }
            Stage::Borrowing(claim, round) => match round.poll(cx) {
                Poll::Pending => return Some(Poll::Pending),
                Poll::Ready(Ok(())) => {
                    let (claim, fence) = (Arc::clone(claim), round.fence());
                    claim.set_fence(fence.last);
                    if fence.agreed {
                        return Some(self.hold(claim));
                    }
                    self.stage = Stage::Confirming(ConfirmRound::start(&claim, fence.last));
                }
                // It has just been released, or cannot be known: as any other then.
                Poll::Ready(Err(_)) => {
                    claim.release_on_nodes();
                    self.ask();
                }
            },
            Stage::Admitting(admission) => {
                if let Poll::Ready(round) = admission.poll(cx) {
                    self.stage = Stage::Asking(round);
                } else if !waits || self.poll_patience(cx).is_pending() {
                    return Some(Poll::Pending);
                } else {
                    return self.give_up(Defeated::unasked());
                }
            }
            Stage::Asking(round) => match round.poll(cx) {
                Poll::Ready(Ok(claim)) => return self.win_in_front(claim),
                Poll::Ready(Err(defeated))
                    if self.late < MOST_LATE && defeated.is_late(core, &self.lock.options) =>
                {
                    self.late += 1;
                    self.ask();
                }
                Poll::Ready(Err(defeated)) if !waits => return self.give_up(defeated),
                Poll::Ready(Err(_)) => self.stand(),
                Poll::Pending => {
                    let round = Arc::clone(round);
                    if !waits || self.poll_patience(cx).is_pending() {
                        return Some(Poll::Pending);
                    }
                    return self.give_up(round.defeated(Defeat::Unreachable));
                }
            },
            // It was asked too late for what it had won: from the beginning.
            Stage::Waiting(wait) if wait.is_missed() => self.stage = Stage::New,
            Stage::Waiting(wait) => match wait.poll(&self.lock.options, cx) {
                Poll::Ready(Some(claim)) => return self.win(claim),
                standing => {
                    let wait = Arc::clone(wait);
                    // No majority votes before the waiting is over: it would be in vain.
                    let in_vain = self.patience().is_some_and(|left| wait.votes_in() > left);
                    if standing.is_pending() && !in_vain && self.poll_patience(cx).is_pending() {
                        return Some(Poll::Pending);
                    }
                    return self.give_up(wait.defeated());
                }
            },
            Stage::Confirming(round) => {
                let Poll::Ready(sure) = round.poll(cx) else { return Some(Poll::Pending) };
                let claim = Arc::clone(round.claim());
                let left = claim.with_lease(quorlock_protocol::Lease::remaining);
                if sure && left > self.lock.options.least {
                    return Some(self.hold(claim));
                }
                claim.release_on_nodes();
                if !waits {
                    self.stage = Stage::Over;
                    core.pass_on(name, LocalTurn::Front(None));
                    return self.give_up(Defeated::split());
                }
                self.stand();
            }
            Stage::GivingUp(look, _) => {
                let Poll::Ready(status) = look.poll(cx) else { return Some(Poll::Pending) };
                if let Stage::GivingUp(_, given_up) =
                    std::mem::replace(&mut self.stage, Stage::Over)
                {
                    let error = self.error(name, *given_up, Some(&status));
                    return self.fail(error);
                }
            }
            Stage::WithoutVotes(pause) => match pause.as_mut().poll(cx) {
                Poll::Ready(()) => self.stage = Stage::New,
                Poll::Pending => return Some(Poll::Pending),
            },
            Stage::Over => return Some(Poll::Pending),
        }
        None
    }
}

impl Future for Locking {
    type Output = Result<Guard, Error>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        loop {
            if let Some(poll) = self.advance(cx) {
                return poll;
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
