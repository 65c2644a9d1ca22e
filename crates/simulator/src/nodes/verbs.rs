//! The verbs, as the scripts of all dialects have them.

use std::time::Duration;

use quorlock::Name;
use quorlock::node::{
    Answer, Failure, FailureKind, Holder, Listed, Mark, Marker, Proposal, Queued, Record, Restore,
    Seen,
};

use super::participants::Shares;
use super::queue::{Queue, Turn, Waiter};
use super::{Asked, AskedVerb, ByName, Script, Served, millis};
use crate::planted::Planted;

/// All keys of a server.
#[derive(Debug, Clone, Default)]
pub(super) struct Keys<R> {
    pub(super) records: R,
    notes: ByName<(Vec<u8>, u64)>,
    pub(super) queues: ByName<Queue>,
}

/// How a record gets an owner.
#[derive(Debug, Clone, Copy)]
pub(super) struct Taking {
    pub(super) ttl_ms: u64,
    pub(super) proposal: Option<Proposal>,
    /// The least fence, though none is asked for.
    pub(super) least: u64,
    /// When the request that its holder counts from was seen, if it was an earlier one.
    pub(super) seen_us: Option<u64>,
}

/// How a record is taken anew for a client that holds the lock by other servers.
#[derive(Debug, Clone)]
pub(super) struct Winning {
    pub(super) ttl_ms: u64,
    /// The last fence of the holder.
    pub(super) last: u64,
    pub(super) shares: Shares,
    /// Whether anybody stands in its queue.
    pub(super) waited: bool,
}

/// No fence reaches this: one more would not be a different number in Lua.
pub(super) const FENCES_END: u64 = 1 << 53;

impl Taking {
    /// The last fence of the new holder, where `last` was given out.
    pub(super) fn fence(self, last: u64, script: &Script<'_>) -> Result<u64, Refusal> {
        let proposal = self.proposal.unwrap_or(Proposal { least: self.least, block: 1 });
        if script.has(Planted::PoisonAdopted) {
            // As Lua counts.
            let first = (last as f64 + 1.0).max(proposal.least as f64);
            return Ok((first + f64::from(proposal.block.saturating_sub(1))) as u64);
        }
        proposal.after(last).ok_or(Refusal::Fence)
    }
}

/// Ends a script that is refused.
pub(super) fn refuse(refusal: Option<Refusal>) -> Result<(), Refusal> {
    refusal.map_or(Ok(()), Err)
}

/// Why a server does not vote.
#[derive(Clone)]
pub(super) enum Refusal {
    Clock,
    /// By its marker.
    Marker(Box<Marker>),
    /// It has no fence that can be given out.
    Fence,
}

/// What stands before the verbs in each dialect, with the names of the functions in the scripts.
pub(super) trait Records: Default + Clone {
    /// Drops what the server itself lets expire.
    fn expire(&mut self, name: &[u8], script: &Script<'_>);
    fn clock_refusal(&self, script: &Script<'_>) -> Option<Refusal>;
    fn vote_refusal(&mut self, script: &Script<'_>) -> Option<Refusal>;
    fn set_refusal(&self, script: &Script<'_>) -> Option<Refusal>;
    /// Writes a mark, if there is one to write. Returns the marker that is there then.
    fn mark(&mut self, mark: Option<&Mark>, script: &Script<'_>) -> Option<Marker>;
    fn may_pass_on(&mut self, script: &Script<'_>) -> bool;
    /// For how long it casts no vote, in microseconds. Only a look.
    fn quiet_us(&self, script: &Script<'_>) -> u64;
    /// The holder's token, even if its time is over.
    fn read(&self, name: &[u8]) -> Option<Vec<u8>>;
    fn is_live(&self, name: &[u8], script: &Script<'_>) -> bool;
    fn left(&self, name: &[u8], script: &Script<'_>) -> Duration;
    fn last_fence(&self, name: &[u8]) -> u64;
    /// The least fence for a waiter that gets the lock from a holder that proposes none.
    fn newest(&self, wall_us: u64) -> u64;
    /// The refusal, if no holder can get this fence.
    fn fence_refusal(&self, name: &[u8], least: u64, script: &Script<'_>) -> Option<Refusal>;
    fn raise(&mut self, name: &[u8], least: u64, script: &Script<'_>) -> Result<u64, Refusal>;
    fn take(
        &mut self,
        name: &[u8],
        token: &[u8],
        taking: Taking,
        script: &Script<'_>,
    ) -> Result<u64, Refusal>;
    fn keep(&mut self, name: &[u8], ttl_ms: u64, script: &Script<'_>) -> Result<u64, Refusal>;
    fn heal(
        &mut self,
        name: &[u8],
        token: &[u8],
        ttl_ms: u64,
        least: u64,
        shares: Shares,
        script: &Script<'_>,
    ) -> Result<Option<u64>, Refusal>;
    fn win_back(
        &mut self,
        name: &[u8],
        token: &[u8],
        winning: Winning,
        script: &Script<'_>,
    ) -> Result<Option<u64>, Refusal>;
    /// Who holds it, if more than one may.
    fn shares(&self, name: &[u8]) -> Shares;
    fn share(&mut self, name: &[u8], shares: Shares);
    /// When the record ends, in microseconds.
    fn ends(&self, name: &[u8], script: &Script<'_>) -> u64;
    fn end_at(&mut self, name: &[u8], end_us: u64);
    fn drop(&mut self, name: &[u8], script: &Script<'_>);
    /// A waiter stands in the queue behind the holder.
    fn queued_behind(&mut self, name: &[u8]);
    /// Whether any waiter is left in the queue.
    fn left_in_queue(&mut self, name: &[u8], others: bool);
    /// Whether a release looks for no waiter by what the record says.
    fn tells_that_nobody_waits(&self, name: &[u8]) -> bool;
    /// The holder's token and the end of its time in nanoseconds, if that is not over.
    fn kept(&self, name: &[u8], clock: u64) -> Option<(&[u8], u64)>;
    fn names(&self) -> Vec<Vec<u8>>;
}

impl<R: Records> Keys<R> {
    pub(super) fn of(records: R) -> Self {
        Self { records, ..Self::default() }
    }

    /// Runs a script.
    pub(super) fn execute(&mut self, asked: &Asked, script: &mut Script<'_>) -> Served {
        if script.has(Planted::ClientSeesJumps) {
            let window = std::mem::replace(&mut script.window_us, (0, u64::MAX));
            let answer = self.verb(asked, script);
            let now = script.micros();
            let outside = now < window.0 || now > window.1;
            return match answer {
                Ok(_) if outside => Served::Unchecked(now),
                Ok(answer) => Served::Answer(answer),
                Err(refusal) => refused(refusal, script),
            };
        }
        match self.verb(asked, script) {
            Ok(answer) => Served::Answer(answer),
            Err(refusal) => refused(refusal, script),
        }
    }

    fn verb(&mut self, asked: &Asked, script: &mut Script<'_>) -> Result<Answer, Refusal> {
        let name = asked.name.as_slice();
        self.expire(name, script);
        let holds = |keys: &Self, token: &[u8]| keys.records.read(name).as_deref() == Some(token);
        Ok(match &asked.verb {
            AskedVerb::Acquire { token, ttl, proposal } => {
                self.refuse_vote(script)?;
                let held = self.records.read(name).is_some() && self.records.is_live(name, script);
                if held && !script.has(Planted::AcquireOverwrites) {
                    return Ok(Answer::Refused);
                }
                let taking =
                    Taking { ttl_ms: millis(*ttl), proposal: *proposal, least: 0, seen_us: None };
                Answer::Granted { fence: self.records.take(name, &token.text(), taking, script)? }
            }
            AskedVerb::Confirm { token, fence } => {
                let ours = holds(self, &token.text()) && self.records.is_live(name, script);
                if !ours && !script.has(Planted::ConfirmUnchecked) {
                    return Ok(Answer::Refused);
                }
                Answer::Granted { fence: self.records.raise(name, *fence, script)? }
            }
            AskedVerb::Extend { token, ttl, restore, participant } => {
                let refusal = self.records.clock_refusal(script);
                if let Some(refusal) = refusal.or_else(|| self.records.set_refusal(script)) {
                    return Err(refusal);
                }
                let (text, ttl_ms) = (token.text(), millis(*ttl));
                let heals = matches!(restore, Restore::Heal(_));
                let counts = heals || self.records.quiet_us(script) == 0;
                if holds(self, &text) && self.records.is_live(name, script) && counts {
                    let kept = self.keep_for(*participant, name, ttl_ms, script)?;
                    return Ok(kept.map_or(Answer::Refused, |fence| Answer::Granted { fence }));
                }
                if script.has(Planted::ExtendCreates) {
                    let taking = Taking { ttl_ms, proposal: None, least: 0, seen_us: None };
                    let fence = self.records.take(name, &text, taking, script)?;
                    return Ok(Answer::Granted { fence });
                }
                let alone = participant.map(|who| (Some(who), script.micros() + ttl_ms * 1_000));
                let alone: Shares = alone.into_iter().collect();
                let restored = match *restore {
                    Restore::Never => None,
                    Restore::Heal(last) => {
                        self.records.heal(name, &text, ttl_ms, last, alone, script)?
                    }
                    Restore::WinBack(last) => {
                        let waited = self.queues.get(name).is_some_and(|it| !it.places.is_empty());
                        let winning = Winning { ttl_ms, last, shares: alone, waited };
                        self.records.win_back(name, &text, winning, script)?
                    }
                };
                if restored.is_some() {
                    self.leave(name, &text);
                }
                restored.map_or(Answer::Refused, |fence| Answer::Granted { fence })
            }
            AskedVerb::Wait { .. } => return self.wait(asked, script),
            AskedVerb::Release { token, next, participant, queued } => {
                let unchecked = script.has(Planted::ReleaseUnchecked);
                let anyway = unchecked && self.records.read(name).is_some();
                if !anyway && !holds(self, &token.text()) {
                    if participant.is_none() {
                        self.leave(name, &token.text());
                    }
                    return Ok(Answer::Refused);
                }
                if participant.is_some() && !self.is_listed(*participant, name) {
                    return Ok(Answer::Refused);
                }
                if self.leave_to_others(*participant, name, script) {
                    return Ok(Answer::LeftToOthers);
                }
                if !queued && !unchecked && self.records.tells_that_nobody_waits(name) {
                    self.records.drop(name, script);
                    return Ok(Answer::Done);
                }
                self.release_record(name, &token.text(), *next, script);
                Answer::Done
            }
            AskedVerb::Inspect => Answer::Seen(Box::new(self.inspect(name, script))),
            AskedVerb::SetNote { token, note, keep } => {
                if !holds(self, &token.text()) || !self.records.is_live(name, script) {
                    return Ok(Answer::Refused);
                }
                if note.is_empty() {
                    self.notes.remove(name);
                } else {
                    let text = format!("{} {note}", Holder::of(&token.text())).into_bytes();
                    self.notes.insert(name.to_vec(), (text, script.millis() + millis(*keep)));
                }
                Answer::Done
            }
            AskedVerb::ForceRelease { holder } => {
                let held_by = self.records.read(name).map(|token| Holder::of(&token));
                if held_by != Some(*holder) {
                    return Ok(Answer::Refused);
                }
                self.notes.remove(name);
                let newest = self.records.newest(asked.wall_us);
                self.release_record(name, b"", newest, script);
                Answer::Done
            }
            AskedVerb::Mark(mark) => {
                if let Some(refusal) = self.records.clock_refusal(script) {
                    return Err(refusal);
                }
                Answer::Marker(self.records.mark(mark.as_ref(), script).map(Box::new))
            }
            AskedVerb::List => {
                let live = self.records.names().into_iter();
                let live = live.filter(|name| self.records.kept(name, script.clock).is_some());
                let names = live.filter_map(|name| Name::new(name).ok()).collect();
                Answer::Listed(Box::new(Listed { names, next: None }))
            }
        })
    }

    fn refuse_vote(&mut self, script: &Script<'_>) -> Result<(), Refusal> {
        self.records.vote_refusal(script).map_or(Ok(()), Err)
    }

    fn wait(&mut self, asked: &Asked, script: &mut Script<'_>) -> Result<Answer, Refusal> {
        let AskedVerb::Wait { token, ttl, ticket, yielding, proposal } = &asked.verb else {
            return Ok(Answer::Refused);
        };
        let (name, me) = (asked.name.as_slice(), token.text());
        self.refuse_vote(script)?;
        let owner = self.records.read(name);
        let mine = owner.as_deref() == Some(&*me);
        let ttl_ms = millis(*ttl);
        if let Some(proposal) = proposal {
            refuse(self.records.fence_refusal(name, proposal.last(), script))?;
        }
        if mine && (!*yielding || self.is_shared(name, script)) {
            if let Some(proposal) = proposal
                && self.records.last_fence(name) < proposal.last()
            {
                self.records.raise(name, proposal.last(), script)?;
            }
            let fence = self.keep_for(None, name, ttl_ms, script)?.unwrap_or_default();
            return Ok(Answer::Granted { fence });
        }
        let (ticket, proposal, sent) = (*ticket, *proposal, ticket.sent);
        let waiter = Waiter { ticket, ttl_ms, sent, proposal, seen_us: script.micros() };
        let ticket_no = self.take_place(name, &me, waiter, script);
        // Whether a grant message will come is known by the connection: it listens, or it is none.
        let queued =
            |record| Answer::Queued(Box::new(Queued { ticket_no, record, will_notify: true }));
        let left = self.records.left(name, script);
        if let Some(owner) = &owner
            && !mine
            && self.records.is_live(name, script)
        {
            self.records.queued_behind(name);
            return Ok(queued(Some(Record::new(owner, Some(left)))));
        }
        let keep_ms = if mine { ttl_ms.max(millis(left)) } else { ttl_ms };
        let next = proposal.map_or(0, |proposal| proposal.least);
        if self.pass_on(name, &me, next, script) != Turn::Mine {
            return Ok(queued(None));
        }
        let taking = Taking { ttl_ms: keep_ms, proposal, least: 0, seen_us: None };
        let fence = self.records.take(name, &me, taking, script);
        if fence.is_err() {
            // The waiters before us that did not hear of their turn have used up the fences.
            self.records.drop(name, script);
        }
        Ok(Answer::Granted { fence: fence? })
    }

    fn inspect(&self, name: &[u8], script: &Script<'_>) -> Seen {
        let waiters = self.queues.get(name).map_or(0, |queue| queue.places.len());
        let noted = self.notes.get(name).map(|(text, _)| text.as_slice());
        let live = self.records.read(name).filter(|_| self.records.is_live(name, script));
        let record = live.map(|token| {
            let record = Record::new(&token, Some(self.records.left(name, script)));
            record.with_fence(self.records.last_fence(name))
        });
        let quiet = Duration::from_millis(self.records.quiet_us(script).div_ceil(1_000));
        let seen = Seen::new(record, noted, Some(waiters as u64));
        seen.quarantined(Some(quiet).filter(|quiet| !quiet.is_zero()))
    }

    /// Drops what has expired of one lock, as a server does before it looks.
    fn expire(&mut self, name: &[u8], script: &Script<'_>) {
        let now = script.millis();
        self.records.expire(name, script);
        if self.notes.get(name).is_some_and(|(_, until)| *until < now) {
            self.notes.remove(name);
        }
        if self.queues.get(name).is_some_and(|queue| queue.until < now) {
            self.queues.remove(name);
        }
    }

    /// How many records and queues count.
    pub(super) fn counts(&self, clock: u64) -> (usize, usize) {
        let names = self.records.names();
        let records = names.iter().filter(|name| self.records.kept(name, clock).is_some()).count();
        let live = self.queues.values().filter(|queue| queue.until >= clock / 1_000_000);
        (records, live.count())
    }
}

fn refused(refusal: Refusal, script: &Script<'_>) -> Served {
    match refusal {
        Refusal::Clock => Served::Clock(script.micros()),
        Refusal::Marker(marker) => Served::NoVote(*marker),
        Refusal::Fence => {
            let text = "its fence is none that anybody can be given";
            Served::Answer(Answer::Failed(Failure::new(FailureKind::Fence, text)))
        }
    }
}
