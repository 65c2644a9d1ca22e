//! The verbs: from what was found of a lock, and what is asked, to an answer, or to a change to be written first.

use std::time::Duration;

use super::state::{Noted, Place, State};
use super::{Change, Found, HoldChange, Message, Window};
use crate::node::{
    Answer, Failure, Grant, Holder, ParticipantId, Proposal, Queued, Record, Request, Seen, Ticket,
    Verb, noted,
};
use crate::runtime::Moment;
use crate::token::Token;
use quorlock_protocol::FENCES_END;

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

/// A change that takes the lock from who was given it at a time that cannot be believed.
pub(super) fn taken_back(found: &Found) -> Change {
    let state = State { token: None, note: None, ..found.state.clone() };
    Change { state, holds: HoldChange::Clear, only_if_held: false, message: None }
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
        if fence >= FENCES_END {
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
        match self.pass_on(None, next) {
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

    /// The answer if there is no fence above the last.
    fn used_up(&self, proposal: Option<Proposal>) -> Option<Answer> {
        let (wanted, last) = (proposal?, self.state.fence);
        let is_used_up = wanted.after(last).is_none();
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
