//! A modelled node: what the scripts on a server do, line by line.

use std::collections::BTreeMap;

use crate::time::{Clock, ms};

/// Who asks: every waiter and every attempt has a token of its own.
pub(crate) type Token = u64;

/// What stands in a queue, all of it of one request.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Place {
    pub(crate) client: usize,
    pub(crate) ttl: u64,
    /// On the client's clock.
    pub(crate) sent: u64,
}

/// A grant message, to whom and what.
#[derive(Debug, Clone, Copy)]
pub(crate) struct GrantMessage {
    pub(crate) client: usize,
    pub(crate) token: Token,
    pub(crate) sent: u64,
}

#[derive(Debug, Clone, Copy)]
pub(crate) enum Verb {
    Acquire { ttl: u64 },
    Extend { ttl: u64 },
    Wait { place: Place, ticket_no: TicketNumber, yielding: bool },
    Release,
}

#[derive(Debug, Clone, Copy)]
pub(crate) enum TicketNumber {
    New(u64),
    Agreed(u64),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Answer {
    Done,
    Refused,
    /// The ticket number, and what is left of another's record and whose it is; nothing if it was passed on this moment.
    Queued(u64, Option<(u64, Token)>),
    /// No answer will come.
    Failed,
}

#[derive(Debug)]
struct Record {
    token: Token,
    ends: u64,
}

#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) clock: Clock,
    record: Option<Record>,
    queue: BTreeMap<(u64, Token), Place>,
    queue_ends: u64,
}

enum Turn {
    Mine,
    Another,
    Nobody,
}

impl Node {
    pub(crate) fn new(clock: Clock) -> Self {
        Self { clock, record: None, queue: BTreeMap::new(), queue_ends: 0 }
    }

    /// `hears` says whether a client listens; what it is told goes to `messages`. With `any` a release
    /// does not look whose record it is, which is wrong.
    pub(crate) fn answer(
        &mut self,
        at: u64,
        (token, verb): (Token, Verb),
        hears: impl Fn(usize) -> bool,
        messages: &mut Vec<GrantMessage>,
        any: bool,
    ) -> Answer {
        let now = self.clock.read(at);
        self.expire(now);
        let mine = self.record.as_ref().is_some_and(|record| record.token == token);
        match verb {
            Verb::Acquire { ttl } => {
                if self.record.is_some() {
                    return Answer::Refused;
                }
                self.record = Some(Record { token, ends: now + ttl });
                Answer::Done
            }
            Verb::Extend { ttl } => match &mut self.record {
                Some(record) if mine => {
                    record.ends = record.ends.max(now + ttl);
                    Answer::Done
                }
                _ => Answer::Refused,
            },
            Verb::Release if !mine && !any => {
                self.queue.retain(|(_, other), _| *other != token);
                Answer::Refused
            }
            Verb::Release => {
                while matches!(self.pass_on(now, token, &hears, messages), Turn::Mine) {}
                Answer::Done
            }
            Verb::Wait { place, ticket_no, yielding } => {
                let ends = now + place.ttl;
                if let Some(record) = self.record.as_mut().filter(|_| mine && !yielding) {
                    record.ends = record.ends.max(ends);
                    return Answer::Done;
                }
                let ticket_no = self.take_place(now, token, place, ticket_no);
                if let Some(record) = self.record.as_ref().filter(|_| !mine) {
                    return Answer::Queued(ticket_no, Some((record.ends - now, record.token)));
                }
                let left = self.record.as_ref().map_or(0, |record| record.ends);
                match self.pass_on(now, token, &hears, messages) {
                    Turn::Mine => {
                        self.record = Some(Record { token, ends: ends.max(left) });
                        Answer::Done
                    }
                    Turn::Another | Turn::Nobody => Answer::Queued(ticket_no, None),
                }
            }
        }
    }

    fn expire(&mut self, now: u64) {
        self.record.take_if(|record| record.ends <= now);
        if self.queue_ends <= now {
            self.queue.clear();
        }
    }

    fn take_place(&mut self, now: u64, token: Token, place: Place, ticket_no: TicketNumber) -> u64 {
        let mine =
            self.queue.keys().find(|(_, other)| *other == token).map(|(ticket_no, _)| *ticket_no);
        self.queue.retain(|(_, other), _| *other != token);
        let ticket_no = match (ticket_no, mine, self.queue.last_key_value()) {
            (TicketNumber::Agreed(ticket_no), ..) | (TicketNumber::New(_), Some(ticket_no), _) => {
                ticket_no
            }
            (TicketNumber::New(least), None, Some(((last, _), _))) => least.max(last + 1),
            (TicketNumber::New(least), None, None) => least,
        };
        self.queue.insert((ticket_no, token), place);
        self.queue_ends = self.queue_ends.max(now + (3 * place.ttl).max(ms(3_000)));
        ticket_no
    }

    fn pass_on(
        &mut self,
        now: u64,
        me: Token,
        hears: impl Fn(usize) -> bool,
        messages: &mut Vec<GrantMessage>,
    ) -> Turn {
        while let Some(((_, token), Place { client, ttl, sent })) = self.queue.pop_first() {
            if token == me {
                return Turn::Mine;
            }
            if hears(client) {
                self.record = Some(Record { token, ends: now + ttl });
                messages.push(GrantMessage { client, token, sent });
                return Turn::Another;
            }
        }
        self.record = None;
        Turn::Nobody
    }

    /// Whether nothing is left at that time.
    pub(crate) fn is_empty(&mut self, at: u64) -> bool {
        self.expire(self.clock.read(at));
        self.record.is_none() && self.queue.is_empty()
    }
}
