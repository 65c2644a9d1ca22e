//! A server with the scripts of the `redlock` dialect: a string with an expiry for each lock, and a
//! queue beside it.
//!
//! The names of the functions are those of the scripts. Time is the server's, in milliseconds, and
//! stands still while a script runs.

use std::collections::BTreeMap;
use std::time::Duration;

use quorlock::node::{Answer, Grant, Holder, Listed, Queued, Record, Seen, Ticket, TicketNumber};
use quorlock::runtime::Moment;
use quorlock::{Name, Token};

use super::{Asked, AskedVerb, ByName, Words};
use crate::planted::Planted;
use crate::trace::{Kept, digest};

/// What the server keeps. Whatever has expired counts as gone, and goes when it is in the way.
#[derive(Debug, Clone, Default)]
pub(crate) struct Data {
    locks: ByName<Text>,
    notes: ByName<Text>,
    queues: ByName<Queue>,
}

/// A string with an expiry.
#[derive(Debug, Clone)]
struct Text {
    text: Vec<u8>,
    /// The last millisecond of its life.
    until: u64,
}

#[derive(Debug, Clone, Default)]
struct Queue {
    /// By number, then by token, as a sorted set has them.
    places: BTreeMap<(u64, Vec<u8>), Waiter>,
    until: u64,
}

/// What the latest request with a ticket said.
#[derive(Debug, Clone, Copy)]
struct Waiter {
    ticket: Ticket,
    ttl_ms: u64,
    sent: Moment,
}

/// Whose turn it is.
enum Turn {
    Mine,
    Another,
    Nobody,
}

impl Data {
    /// Runs a script at a time of the server in nanoseconds.
    pub(super) fn execute(
        &mut self,
        asked: &Asked,
        clock: u64,
        words: &mut Words<'_>,
        planted: Option<Planted>,
    ) -> Answer {
        let now = clock / 1_000_000;
        let name = asked.name.as_slice();
        self.expire(name, now);
        let owner = self.locks.get(name);
        let mine = |token: &Token| owner.is_some_and(|lock| lock.text == *token.text());
        match &asked.verb {
            AskedVerb::Acquire { token, ttl } => {
                if owner.is_some() && planted != Some(Planted::AcquireOverwrites) {
                    return Answer::Refused;
                }
                self.set(name, token.text().to_vec(), now + millis(*ttl));
                Answer::Done
            }
            AskedVerb::Extend { token, ttl } => {
                let stranger = !mine(token);
                if stranger && planted != Some(Planted::ExtendCreates) {
                    return Answer::Refused;
                }
                if stranger {
                    self.set(name, token.text().to_vec(), now + millis(*ttl));
                } else {
                    self.prolong(name, now + millis(*ttl));
                }
                Answer::Done
            }
            AskedVerb::Wait { token, ttl, ticket, yielding } => {
                let waiter = Waiter { ticket: *ticket, ttl_ms: millis(*ttl), sent: asked.sent };
                self.wait(name, token, waiter, *yielding, now, words)
            }
            AskedVerb::Release { token } => {
                let unchecked = planted == Some(Planted::ReleaseUnchecked) && owner.is_some();
                if !mine(token) && !unchecked {
                    self.leave(name, &token.text());
                    return Answer::Refused;
                }
                while let Turn::Mine = self.pass_on(name, &token.text(), now, words) {}
                Answer::Done
            }
            AskedVerb::Inspect => {
                let waiters = self.queues.get(name).map_or(0, |queue| queue.places.len());
                let noted = self.notes.get(name).map(|note| note.text.as_slice());
                let record = self.locks.get(name).map(|lock| lock.record(now));
                Answer::Seen(Seen::new(record, noted, Some(waiters as u64)))
            }
            AskedVerb::Describe { token, note, keep } => {
                if !mine(token) {
                    return Answer::Refused;
                }
                if note.is_empty() {
                    self.notes.remove(name);
                } else {
                    let text = format!("{} {note}", Holder::of(&token.text())).into_bytes();
                    self.notes.insert(name.to_vec(), Text { text, until: now + millis(*keep) });
                }
                Answer::Done
            }
            AskedVerb::Break { holder } => {
                if !owner.is_some_and(|lock| Holder::of(&lock.text) == *holder) {
                    return Answer::Refused;
                }
                self.notes.remove(name);
                self.pass_on(name, b"", now, words);
                Answer::Done
            }
            AskedVerb::List => {
                let live = self.locks.iter().filter(|(_, lock)| lock.until >= now);
                let names = live.filter_map(|(name, _)| Name::new(name).ok()).collect();
                Answer::Listed(Listed { names, next: None })
            }
        }
    }

    fn wait(
        &mut self,
        name: &[u8],
        token: &Token,
        waiter: Waiter,
        yielding: bool,
        now: u64,
        words: &mut Words<'_>,
    ) -> Answer {
        let me = token.text();
        let owner = self.locks.get(name);
        let mine = owner.is_some_and(|lock| lock.text == *me);
        let left_until = owner.map_or(0, |lock| lock.until);
        if mine && !yielding {
            self.prolong(name, now + waiter.ttl_ms);
            return Answer::Done;
        }
        let record = owner.filter(|_| !mine).map(|lock| lock.record(now));
        let number = self.take_place(name, &me, waiter, now);
        // Whether word will come is known by the connection: it listens, or it is none.
        let queued = |record| Answer::Queued(Queued { number, record, told: true });
        if record.is_some() {
            return queued(record);
        }
        match self.pass_on(name, &me, now, words) {
            Turn::Mine => {
                self.set(name, me.to_vec(), left_until.max(now + waiter.ttl_ms));
                Answer::Done
            }
            Turn::Another | Turn::Nobody => queued(None),
        }
    }

    fn take_place(&mut self, name: &[u8], me: &[u8], waiter: Waiter, now: u64) -> u64 {
        let queue = self.queues.entry(name.to_vec()).or_default();
        let mine = queue.places.keys().find(|(_, token)| token == me).cloned();
        let number = match (waiter.ticket.number, &mine) {
            (TicketNumber::Agreed(number), _) => number,
            (TicketNumber::New(_), Some((number, _))) => *number,
            (TicketNumber::New(least), None) => {
                let last = queue.places.last_key_value().map(|((number, _), _)| number + 1);
                last.map_or(least, |behind| behind.max(least))
            }
        };
        if let Some(mine) = mine {
            queue.places.remove(&mine);
        }
        queue.places.insert((number, me.to_vec()), waiter);
        let forgotten = (3 * waiter.ttl_ms).max(3_000);
        if queue.until.saturating_sub(now) < forgotten * 5 / 6 {
            queue.until = now + forgotten;
        }
        number
    }

    /// Passes a lock on to the first in its queue who is still there.
    fn pass_on(&mut self, name: &[u8], me: &[u8], now: u64, words: &mut Words<'_>) -> Turn {
        loop {
            let head = self.queues.get_mut(name).and_then(|queue| queue.places.pop_first());
            let Some(((_, token), waiter)) = head else {
                self.locks.remove(name);
                self.queues.remove(name);
                return Turn::Nobody;
            };
            let others = self.queues.get(name).is_some_and(|queue| !queue.places.is_empty());
            if !others {
                self.queues.remove(name);
            }
            if token == me {
                return Turn::Mine;
            }
            self.set(name, token, now + waiter.ttl_ms);
            let Ticket { client, waiter: number, .. } = waiter.ticket;
            if words.publish(client, Grant { waiter: number, sent: waiter.sent, others }) {
                return Turn::Another;
            }
        }
    }

    fn leave(&mut self, name: &[u8], me: &[u8]) {
        if let Some(queue) = self.queues.get_mut(name) {
            queue.places.retain(|(_, token), _| token != me);
            if queue.places.is_empty() {
                self.queues.remove(name);
            }
        }
    }

    fn set(&mut self, name: &[u8], text: Vec<u8>, until: u64) {
        self.locks.insert(name.to_vec(), Text { text, until });
    }

    fn prolong(&mut self, name: &[u8], until: u64) {
        if let Some(lock) = self.locks.get_mut(name) {
            lock.until = lock.until.max(until);
        }
    }

    /// Drops what has expired of one lock, as a server does before it looks.
    fn expire(&mut self, name: &[u8], now: u64) {
        for texts in [&mut self.locks, &mut self.notes] {
            if texts.get(name).is_some_and(|text| text.until < now) {
                texts.remove(name);
            }
        }
        if self.queues.get(name).is_some_and(|queue| queue.until < now) {
            self.queues.remove(name);
        }
    }

    pub(super) fn kept(&self, name: &[u8], clock: u64) -> Kept {
        let lock = self.locks.get(name).filter(|lock| lock.until >= clock / 1_000_000);
        lock.map_or(Kept::default(), |lock| Kept {
            token: digest(&lock.text),
            until: lock.until * 1_000_000,
        })
    }

    pub(super) fn counts(&self, clock: u64) -> (usize, usize) {
        let now = clock / 1_000_000;
        let locks = self.locks.values().filter(|lock| lock.until >= now).count();
        (locks, self.queues.values().filter(|queue| queue.until >= now).count())
    }
}

impl Text {
    fn record(&self, now: u64) -> Record {
        Record::new(&self.text, Some(Duration::from_millis(self.until.saturating_sub(now))))
    }
}

/// Milliseconds, rounded up, as they go over the wire.
fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
}
