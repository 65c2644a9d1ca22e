//! The verbs: from what was found of a lock, and what is asked, to an answer, or to a change to be written first.

use std::time::Duration;

use super::state::{Noted, Place, State};
use super::{Change, Found, HoldChange, Message, Window};
use crate::node::{
    Answer, Failure, FailureKind, Grant, Holder, ParticipantId, Proposal, Queued, Record, Request,
    Seen, Ticket, Verb, noted,
};
use crate::runtime::Moment;
use crate::token::Token;
use quorlock_protocol::{MOST_AHEAD_US, plausible};

/// So many can hold one lock with each other.
const MOST_HOLDS: usize = 256;

/// What comes next.
#[derive(Debug)]
pub(super) enum Step {
    /// Nothing has to be written. True only of what is there now.
    Answer(Answer),
    /// The answer is true once this is written.
    Write(Answer, Box<Change>),
}

impl Step {
    /// Whether it is right only if those who hold the lock hold it still. A write finds out by itself whether anything
    /// else has changed.
    pub(super) fn needs_to_be_fresh(&self) -> bool {
        match self {
            Self::Answer(_) => true,
            Self::Write(answer, _) => matches!(answer, Answer::Queued(_) | Answer::LeftToOthers),
        }
    }
}

impl Place {
    /// What its turn makes of the holds.
    fn takes_over(&self) -> HoldChange {
        HoldChange::Replace { ttl: self.ttl, seen_us: self.seen_us.unwrap_or(0) }
    }

    /// Whether the clock of the store was not behind when the ticket was written. The lease of a grant counts from
    /// when it was asked for, and the record from when it was written.
    fn is_timely(&self, window: Option<Window>) -> bool {
        let (Some(window), Some(seen_us)) = (window, self.seen_us) else { return true };
        seen_us >= window.least_end_us(self.asked_us, Duration::ZERO)
    }
}

/// Whom a free lock goes to.
enum Turn {
    /// The client that asks.
    Mine,
    /// Another.
    Another(Place, Message),
    /// Nobody.
    Nobody,
}

/// What has to be known besides what was found, and what is asked.
#[derive(Debug, Clone, Copy)]
pub(super) struct Around {
    /// The clock of this client.
    pub(super) now: Moment,
    /// Whether it gets grant messages.
    pub(super) will_notify: bool,
    /// Of the store's clock, if holds end by that.
    pub(super) window: Option<Window>,
}

/// What a request makes of a lock.
pub(super) fn step(found: &Found, request: &Request<'_>, around: Around) -> Step {
    let lock = Lock { found, state: found.state.clone(), wall_us: request.wall_us, around };
    match request.verb {
        Verb::Acquire { token, ttl, proposal } => lock.acquire(token, ttl, proposal),
        Verb::Confirm { token, fence } => lock.confirm(token, fence),
        Verb::Extend { token, ttl, participant, .. } => lock.extend(token, ttl, participant),
        Verb::Wait { token, ttl, ticket, yielding, proposal } => {
            lock.wait(token, ttl, &ticket, yielding, proposal)
        }
        Verb::Release { token, next, participant, .. } => lock.release(token, next, participant),
        Verb::Inspect => Step::Answer(lock.seen()),
        Verb::SetNote { token, note, keep } => lock.set_note(token, note, keep),
        Verb::ForceRelease { holder } => lock.force_release(holder),
        Verb::List { .. } | Verb::Look | Verb::Mark(_) => Step::Answer(Answer::Marker(None)),
    }
}

/// A change that changes nothing but the version.
pub(super) fn barrier(found: &Found) -> Change {
    let state = found.state.clone();
    Change { state, holds: HoldChange::Keep, only_if_held: false, message: None }
}

/// A change that has the maker hold what it holds already for as long as it asks for.
pub(super) fn kept_longer(found: &Found, request: &Request<'_>) -> Change {
    let holds = match request.verb {
        Verb::Acquire { ttl, .. } => HoldChange::Extend { who: None, ttl },
        _ => HoldChange::Keep,
    };
    Change { holds, ..barrier(found) }
}

/// A change that takes the lock from who was given it at a time that cannot be believed. Nobody has seen the fence
/// that came with it, so that it is `fence` again, as before: the clock that it followed may have been far ahead.
pub(super) fn taken_back(found: &Found, fence: u64) -> Change {
    let state = State { token: None, note: None, fence, ..found.state.clone() };
    Change { state, holds: HoldChange::Clear, only_if_held: false, message: None }
}

/// A change that forgets the fence of a free lock, if it is above what any holder can have been given by this time of
/// day.
pub(in crate::node) fn fence_forgotten(found: &Found, wall_us: u64) -> Option<Change> {
    let is_free = found.holds.is_empty();
    let is_too_high = found.state.fence > wall_us.saturating_add(MOST_AHEAD_US);
    let state = State { fence: 0, ..found.state.clone() };
    let change = Change { state, holds: HoldChange::Keep, only_if_held: false, message: None };
    (is_free && is_too_high).then_some(change)
}

fn no_room(waiting: usize) -> Failure {
    let text = format!(
        "{waiting} wait for this lock already, and there is no room for more; try again later, or use several locks"
    );
    Failure::new(FailureKind::Rejected, text)
}

/// A lock, and what is to be made of it.
struct Lock<'a> {
    found: &'a Found,
    state: State,
    wall_us: u64,
    around: Around,
}

impl Lock<'_> {
    /// The token of the holder; `None` if nobody holds it.
    fn holder(&self) -> Option<Token> {
        self.found.state.token.filter(|_| !self.found.holds.is_empty())
    }

    fn is_held(&self) -> bool {
        !self.found.holds.is_empty()
    }

    fn is_of(&self, token: &Token) -> bool {
        self.holder() == Some(*token)
    }

    fn acquire(mut self, token: &Token, ttl: Duration, proposal: Option<Proposal>) -> Step {
        // A write that was not answered may have run.
        if self.is_of(token) {
            return Step::Answer(self.granted());
        }
        if self.is_held() {
            return Step::Answer(Answer::Refused);
        }
        match self.take(token, proposal) {
            Ok(()) => self.write_granted(HoldChange::Replace { ttl, seen_us: 0 }, false),
            Err(failed) => Step::Answer(failed),
        }
    }

    fn confirm(mut self, token: &Token, fence: u64) -> Step {
        if !self.is_of(token) {
            return Step::Answer(Answer::Refused);
        }
        if !plausible(fence, self.wall_us) {
            return Step::Answer(Answer::Failed(Failure::fence(fence, self.wall_us)));
        }
        if fence <= self.state.fence {
            return Step::Answer(self.granted());
        }
        self.state.fence = fence;
        self.write_granted(HoldChange::Keep, true)
    }

    /// The store does not forget, and stands alone: there is nothing to restore.
    fn extend(self, token: &Token, ttl: Duration, who: Option<ParticipantId>) -> Step {
        let is_there = || who.is_none() || self.found.holds.iter().any(|hold| hold.who == who);
        if !self.is_of(token) || self.found.holds.len() >= MOST_HOLDS && !is_there() {
            return Step::Answer(Answer::Refused);
        }
        self.write_granted(HoldChange::Extend { who, ttl }, true)
    }

    fn wait(
        mut self,
        token: &Token,
        ttl: Duration,
        ticket: &Ticket,
        yielding: bool,
        proposal: Option<Proposal>,
    ) -> Step {
        if let Some(failed) = self.used_up(proposal) {
            return Step::Answer(failed);
        }
        let mine = self.is_of(token);
        // Those who take part have not yielded.
        let is_shared = self.found.holds.iter().any(|hold| hold.who.is_some());
        if mine && (!yielding || is_shared) {
            self.state.fence = self.state.fence.max(proposal.map_or(0, Proposal::last));
            return self.write_granted(HoldChange::Extend { who: None, ttl }, true);
        }
        let record = self.record().filter(|_| !mine);
        let Ticket { client, waiter, secret, sent, .. } = *ticket;
        let (token, asked_us) = (*token, self.wall_us);
        let place =
            Place { token, client, waiter, secret, sent, ttl, proposal, asked_us, seen_us: None };
        self.state.queue.remove_forgotten(self.wall_us);
        // Only who joins is refused for this: who holds the lock has to be able to write.
        if record.is_some() && self.state.is_full() && !self.state.queue.has(&token) {
            return Step::Answer(Answer::Failed(no_room(self.state.waiting())));
        }
        let ticket_no = self.state.queue.join(ticket, place);
        let will_notify = self.around.will_notify;
        let queued = Answer::Queued(Box::new(Queued { ticket_no, record, will_notify }));
        if record.is_some() {
            return self.write(queued, HoldChange::Keep, false, None);
        }
        match self.pass_on(Some(&token), proposal.map_or(0, |it| it.least)) {
            Turn::Another(next, message) => {
                self.write(queued, next.takes_over(), false, Some(message))
            }
            Turn::Mine | Turn::Nobody if mine => {
                self.write_granted(HoldChange::Extend { who: None, ttl }, true)
            }
            Turn::Mine | Turn::Nobody => match self.take(&token, proposal) {
                Ok(()) => self.write_granted(HoldChange::Replace { ttl, seen_us: 0 }, false),
                Err(failed) => Step::Answer(failed),
            },
        }
    }

    fn release(mut self, token: &Token, next: u64, who: Option<ParticipantId>) -> Step {
        let left = who.is_none() && self.state.queue.leave(token).is_some();
        let is_there = self.found.holds.iter().any(|hold| hold.who == who);
        let others = self.found.holds.iter().any(|hold| hold.who != who);
        if !self.is_of(token) || who.is_some() && !is_there {
            return match left {
                true => self.write(Answer::Refused, HoldChange::Keep, false, None),
                false => Step::Answer(Answer::Refused),
            };
        }
        if others {
            return self.write(Answer::LeftToOthers, HoldChange::Remove { who }, false, None);
        }
        self.free(next)
    }

    fn set_note(mut self, token: &Token, note: &str, keep: Duration) -> Step {
        if !self.is_of(token) {
            return Step::Answer(Answer::Refused);
        }
        let keep_us = u64::try_from(keep.as_micros()).unwrap_or(u64::MAX);
        self.state.note = (!note.is_empty()).then(|| Noted {
            until_us: self.wall_us.saturating_add(keep_us),
            text: noted(Holder::of(&token.text()), note),
        });
        self.write(Answer::Done, HoldChange::Keep, true, None)
    }

    fn force_release(self, holder: Holder) -> Step {
        match self.holder() {
            Some(token) if Holder::of(&token.text()) == holder => self.free(0),
            _ => Step::Answer(Answer::Refused),
        }
    }

    fn seen(&self) -> Answer {
        let note = self.state.note.as_ref().filter(|note| note.until_us > self.wall_us);
        let waiters = Some(self.state.queue.len() as u64);
        let noted = note.map(|note| note.text.as_bytes());
        Answer::Seen(Box::new(Seen::new(self.record(), noted, waiters)))
    }

    fn record(&self) -> Option<Record> {
        let token = self.holder()?;
        let until = self.found.holds.iter().map(|hold| hold.until).max()?;
        let record = Record::new(&token.text(), Some(until.since(self.around.now)));
        Some(record.with_fence(self.found.state.fence))
    }

    /// Frees it, or passes it on.
    fn free(mut self, next: u64) -> Step {
        self.state.note = None;
        // Above such a fence nobody is given one: those who wait are told so when they ask again.
        let turn = match plausible(self.state.fence.max(next), self.wall_us) {
            true => self.pass_on(None, next),
            false => Turn::Nobody,
        };
        match turn {
            Turn::Another(place, message) => {
                self.write(Answer::Done, place.takes_over(), false, Some(message))
            }
            Turn::Mine | Turn::Nobody => {
                self.state.token = None;
                self.write(Answer::Done, HoldChange::Clear, false, None)
            }
        }
    }

    /// Has the first in the queue hold it, with the fence `next` at least, unless that is `me`.
    fn pass_on(&mut self, me: Option<&Token>, next: u64) -> Turn {
        self.state.queue.remove_forgotten(self.wall_us);
        while let Some(place) = self.state.queue.next() {
            if me == Some(&place.token) {
                return Turn::Mine;
            }
            // Its client was told so, and asks again if it still wants it.
            if !place.is_timely(self.around.window) {
                continue;
            }
            let proposal = place.proposal.map(|wanted| wanted.at_least(next));
            // There is no fence for this waiter: it is passed over.
            if self.take(&place.token, proposal).is_err() {
                continue;
            }
            let Place { client, waiter, secret, sent, .. } = place;
            let (others, fence) = (!self.state.queue.is_empty(), self.state.fence);
            let grant = Grant { waiter, sent, secret, others, fence };
            return Turn::Another(place, Message { client, grant });
        }
        Turn::Nobody
    }

    /// Gives a new holder its fences, or says why not.
    fn take(&mut self, token: &Token, proposal: Option<Proposal>) -> Result<(), Answer> {
        if let Some(failed) = self.used_up(proposal) {
            return Err(failed);
        }
        if let Some(fence) = proposal.and_then(|it| it.after(self.state.fence)) {
            self.state.fence = fence;
        }
        self.state.note = None;
        self.state.token = Some(*token);
        Ok(())
    }

    /// The answer if there is no fence above the last, or none that anybody can be given by now.
    fn used_up(&self, proposal: Option<Proposal>) -> Option<Answer> {
        let (wanted, last) = (proposal?, self.state.fence);
        let is_plausible = plausible(last.max(wanted.least), self.wall_us);
        let is_used_up = wanted.after(last).is_none() || !is_plausible;
        is_used_up.then(|| Answer::Failed(Failure::fence(last.max(wanted.last()), self.wall_us)))
    }

    fn granted(&self) -> Answer {
        Answer::Granted { fence: self.state.fence }
    }

    fn write_granted(self, holds: HoldChange, only_if_held: bool) -> Step {
        let answer = self.granted();
        self.write(answer, holds, only_if_held, None)
    }

    fn write(
        self,
        answer: Answer,
        holds: HoldChange,
        only_if_held: bool,
        message: Option<Message>,
    ) -> Step {
        Step::Write(answer, Box::new(Change { state: self.state, holds, only_if_held, message }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::name::Name;
    use crate::node::cas::Hold;
    use crate::node::cas::state::MOST_WAITING;
    use crate::node::{ClientId, Secret, TicketNumber};
    use crate::runtime::{Runtime, TokioRuntime};

    const TTL: Duration = Duration::from_secs(10);
    const NOW_US: u64 = 1_800_000_000_000_000;
    const DAY_US: u64 = MOST_AHEAD_US;

    fn proposal(least: u64) -> Option<Proposal> {
        Some(Proposal { least, block: 1 })
    }

    /// What a request at `NOW_US` makes of a lock.
    fn made(found: &Found, verb: Verb<'_>) -> Step {
        let name = Name::new("a").unwrap();
        let request = Request { name: &name, sent: Moment::default(), wall_us: NOW_US, verb };
        let around = Around { now: Moment::default(), will_notify: true, window: None };
        step(found, &request, around)
    }

    fn held_by(token: Token) -> Found {
        let until = Moment::default().after(TTL);
        let holds = vec![Hold { who: None, kind: 0, until, end_us: 0 }];
        let state = State { token: Some(token), ..State::default() };
        Found { version: 1, state, holds }
    }

    fn waiter(runtime: &dyn Runtime, asked_us: u64) -> Place {
        Place {
            token: Token::random(runtime),
            client: ClientId::random(runtime),
            waiter: 1,
            secret: Secret::random(runtime),
            sent: Moment::default(),
            ttl: TTL,
            proposal: proposal(NOW_US),
            asked_us,
            seen_us: None,
        }
    }

    fn ticket(runtime: &dyn Runtime) -> Ticket {
        Ticket {
            client: ClientId::random(runtime),
            waiter: 1,
            secret: Secret::random(runtime),
            ticket_no: TicketNumber::New(1),
            sent: Moment::default(),
            keep: TTL * 3,
        }
    }

    fn wait(token: &Token, ticket: Ticket) -> Verb<'_> {
        Verb::Wait { token, ttl: TTL, ticket, yielding: false, proposal: proposal(NOW_US) }
    }

    fn kind_of(step: &Step) -> Option<FailureKind> {
        match step {
            Step::Answer(Answer::Failed(failure)) => Some(failure.kind()),
            _ => None,
        }
    }

    #[tokio::test]
    async fn nothing_is_granted_above_a_fence_that_nobody_can_have_been_given() {
        let runtime = TokioRuntime::current();
        let token = Token::random(&runtime);
        for (fence, least, is_refused) in [
            (NOW_US + DAY_US, NOW_US, false),
            (NOW_US + DAY_US + 1, NOW_US, true),
            (0, NOW_US + DAY_US, false),
            (0, NOW_US + DAY_US + 1, true),
        ] {
            let found = Found { state: State { fence, ..State::default() }, ..Found::default() };
            let proposal = proposal(least);
            let acquired = made(&found, Verb::Acquire { token: &token, ttl: TTL, proposal });
            let ticket = ticket(&runtime);
            let waits = Verb::Wait { token: &token, ttl: TTL, ticket, yielding: false, proposal };
            for step in [acquired, made(&found, waits)] {
                let kind = kind_of(&step);
                assert_eq!(kind, is_refused.then_some(FailureKind::Fence), "{fence} {least}");
            }
        }
    }

    #[tokio::test]
    async fn a_lock_with_such_a_fence_is_freed_and_not_passed_on() {
        let runtime = TokioRuntime::current();
        let token = Token::random(&runtime);
        let mut found = held_by(token);
        found.state.queue.put(1, waiter(&runtime, NOW_US));
        let release =
            Verb::Release { token: &token, until: None, next: 0, queued: true, participant: None };
        let holds_after = |found: &Found| match made(found, release) {
            Step::Write(Answer::Done, change) => change.holds,
            other => panic!("{other:?}"),
        };
        assert!(matches!(holds_after(&found), HoldChange::Replace { .. }));
        found.state.fence = NOW_US + DAY_US + 1;
        assert_eq!(holds_after(&found), HoldChange::Clear);
    }

    #[tokio::test]
    async fn a_fence_is_forgotten_only_if_nobody_can_have_been_given_it() {
        let found = |fence| Found {
            version: 1,
            state: State { fence, ..State::default() },
            ..Found::default()
        };
        assert!(fence_forgotten(&found(NOW_US + DAY_US), NOW_US).is_none());
        let change = fence_forgotten(&found(NOW_US + DAY_US + 1), NOW_US).unwrap();
        assert_eq!((change.state.fence, change.holds), (0, HoldChange::Keep));
        let mut held = held_by(Token::random(&TokioRuntime::current()));
        held.state.fence = u64::MAX;
        assert!(fence_forgotten(&held, NOW_US).is_none());
    }

    #[tokio::test]
    async fn a_ticket_of_a_waiter_that_has_long_given_up_gets_no_turn() {
        let runtime = TokioRuntime::current();
        let token = Token::random(&runtime);
        let release =
            Verb::Release { token: &token, until: None, next: 0, queued: true, participant: None };
        let kept_us = 60_000_000;
        for (ago_us, has_turn) in [(kept_us, true), (kept_us + 1, false)] {
            let mut found = held_by(token);
            found.state.queue.put(1, waiter(&runtime, NOW_US - ago_us));
            let Step::Write(Answer::Done, change) = made(&found, release) else { panic!() };
            assert_eq!(change.message.is_some(), has_turn);
            let other = Token::random(&runtime);
            let Step::Write(_, change) = made(&found, wait(&other, ticket(&runtime))) else {
                panic!()
            };
            assert_eq!(change.state.waiting(), 1 + usize::from(has_turn));
        }
        // It was noted by a clock that is ahead of ours.
        let mut found = held_by(token);
        found.state.queue.put(1, waiter(&runtime, NOW_US + 7 * kept_us));
        let Step::Write(Answer::Done, change) = made(&found, release) else { panic!() };
        assert!(change.message.is_some());
    }

    #[tokio::test]
    async fn a_full_queue_refuses_those_who_join_and_nobody_else() {
        let runtime = TokioRuntime::current();
        let token = Token::random(&runtime);
        let mut found = held_by(token);
        let last = Place { seen_us: Some(NOW_US), ..waiter(&runtime, NOW_US) };
        for number in 0..MOST_WAITING as u64 {
            let token = Token::random(&runtime);
            found.state.queue.put(u64::MAX - number, Place { token, ..last });
        }
        let other = Token::random(&runtime);
        let joins = made(&found, wait(&other, ticket(&runtime)));
        assert_eq!(kind_of(&joins), Some(FailureKind::Rejected));
        let there = found.state.queue.next().unwrap().token;
        found.state.queue.put(1, Place { token: there, ..last });
        assert!(matches!(made(&found, wait(&there, ticket(&runtime))), Step::Write(..)));
        let extend = Verb::Extend {
            token: &token,
            ttl: TTL,
            restore: crate::node::Restore::Never,
            participant: None,
        };
        assert!(matches!(made(&found, extend), Step::Write(Answer::Granted { .. }, _)));
        let written = found.state.encode_timed();
        assert!(written.len() < 900 << 10, "{}", written.len());
        assert_eq!(State::decode(&written).as_ref(), Some(&found.state));
    }
}
