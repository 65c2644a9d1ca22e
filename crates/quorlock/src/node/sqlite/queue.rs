//! Who waits for a lock, in the order of their turns.
//!
//! A ticket stays in the file until it is served, given up, or found to be of a process that is
//! gone. The writer of a grant has made sure, in the same transaction, that the process is there.

use std::collections::HashMap;
use std::time::Duration;

use rusqlite::{OptionalExtension, Row, params};

use super::verbs::{Verbs, granted, moment, nanos, signed};
use super::wake::Peer;
use crate::name::Name;
use crate::node::{
    Answer, ClientId, Failure, Grant, Proposal, Queued, Request, Secret, TicketNumber, Verb,
};
use crate::runtime::Moment;
use crate::token::Token;

/// By ticket number and token, so that two tickets with one number stand in the same order everywhere.
/// What follows the client is always of one request, the latest. `block` is zero for a holder without
/// fences.
pub(super) const SCHEMA: &str = "
    CREATE TABLE ticket(
        name BLOB NOT NULL, number INTEGER NOT NULL, token BLOB NOT NULL, client INTEGER NOT NULL,
        waiter INTEGER NOT NULL, ttl_ns INTEGER NOT NULL, sent_ns INTEGER NOT NULL,
        least INTEGER NOT NULL, block INTEGER NOT NULL,
        PRIMARY KEY(name, number, token)
    ) WITHOUT ROWID;";

const ANYBODY: &str = "SELECT 1 FROM ticket WHERE name = ?1 LIMIT 1";
const COUNT: &str = "SELECT count(*) FROM ticket WHERE name = ?1";
const FIRST: &str = "
    SELECT number, token, client, waiter, ttl_ns, sent_ns, least, block FROM ticket WHERE name = ?1
    ORDER BY number, token LIMIT 1";
const LAST: &str =
    "SELECT number FROM ticket WHERE name = ?1 ORDER BY number DESC, token DESC LIMIT 1";
const JOIN: &str = "
    INSERT INTO ticket(name, number, token, client, waiter, ttl_ns, sent_ns, least, block)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)";
const LEAVE: &str =
    "DELETE FROM ticket WHERE name = ?1 AND token = ?2 RETURNING number, client, waiter";
const REMOVE: &str = "DELETE FROM ticket WHERE name = ?1 AND number = ?2 AND token = ?3";
const IS_THERE: &str = "SELECT 1 FROM ticket WHERE name = ?1 AND token = ?2";

/// The tickets of this client that are in the file, by the id of the waiter.
#[derive(Debug, Default)]
pub(super) struct Tickets(HashMap<u64, Standing>);

#[derive(Debug, Clone)]
struct Standing {
    name: Name,
    token: Token,
    /// When the latest request with this ticket was sent, and its secret.
    sent: Moment,
    secret: Secret,
}

/// A grant message, to be sent after the commit.
#[derive(Debug)]
pub(super) struct GrantMessage {
    pub(super) peer: Peer,
    pub(super) waiter: u64,
    pub(super) name: Vec<u8>,
    pub(super) token: Vec<u8>,
}

/// What one transaction does to queues.
pub(super) struct Queue<'a> {
    pub(super) tickets: &'a mut Tickets,
    /// Whether grant messages to this client will come. It is found out when it is needed.
    pub(super) will_notify: &'a mut dyn FnMut(&mut Verbs<'_>) -> bool,
    pub(super) messages: &'a mut Vec<GrantMessage>,
}

/// Whose turn it is.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Turn {
    /// The turn of the client that asks: the record is left to it.
    Mine,
    /// Another's, which has the record and is to be notified.
    Another,
    /// No waiter is there.
    Nobody,
}

struct Place {
    ticket_no: i64,
    token: Vec<u8>,
    client: ClientId,
    waiter: u64,
    ttl: Duration,
    sent: Moment,
    proposal: Option<Proposal>,
}

impl Place {
    fn read(row: &Row<'_>) -> rusqlite::Result<Self> {
        Ok(Self {
            ticket_no: row.get(0)?,
            token: row.get(1)?,
            client: ClientId(row.get::<_, i64>(2)?.cast_unsigned()),
            waiter: row.get::<_, i64>(3)?.cast_unsigned(),
            ttl: Duration::from_nanos(row.get::<_, i64>(4)?.try_into().unwrap_or(0)),
            sent: moment(row.get(5)?),
            proposal: match row.get(7)? {
                0 => None,
                block => Some(Proposal { least: row.get::<_, i64>(6)?.cast_unsigned(), block }),
            },
        })
    }
}

impl Queue<'_> {
    /// Takes a lock if it is our turn, keeps it if it is ours, or takes or keeps a place.
    pub(super) fn wait(
        &mut self,
        verbs: &mut Verbs<'_>,
        request: &Request<'_>,
    ) -> rusqlite::Result<Answer> {
        let Verb::Wait { token, ttl, ticket, yielding, proposal } = request.verb else {
            return Ok(Answer::Refused);
        };
        if let Some(proposal) = proposal.filter(|proposal| proposal.after(0).is_none()) {
            return Ok(Answer::Failed(Failure::fence(proposal.last(), request.wall_us)));
        }
        let (name, text) = (request.name.as_bytes(), token.text());
        let until = verbs.now.after(ttl);
        let mut record = verbs.record(name)?;
        let ours = record.take_if(|record| record.token == Some(*token)).is_some();
        // Who takes part has not yielded.
        let yielding = yielding && !(ours && verbs.is_shared(name, &text)?);
        // A client with no other before it needs no place.
        let alone = record.is_none() && (ours && !yielding || !anybody(verbs, name)?);
        let mut ticket_no = 0;
        if !alone {
            ticket_no = self.join(verbs, request)?;
            let (name, sent, secret) = (request.name.clone(), ticket.sent, ticket.secret);
            let standing = Standing { name, token: *token, sent, secret };
            self.tickets.0.insert(ticket.waiter, standing);
        }
        let least = proposal.map_or(0, |proposal| proposal.least);
        if record.is_none()
            && (alone || self.pass_on(verbs, name, Some(token), least)? != Turn::Another)
        {
            let fence = if ours {
                let kept = verbs.keep(name, &text, None, until)?;
                match proposal.map(Proposal::last).filter(|last| kept < Some(*last)) {
                    Some(last) => verbs.raise(name, &text, last)?,
                    None => kept,
                }
            } else {
                verbs.acquire(name, &text, until, proposal)?
            };
            self.tickets.0.remove(&ticket.waiter);
            // Nobody else has it: that was seen above.
            return match fence {
                None if !ours => verbs.refusal(request, proposal),
                fence => Ok(granted(fence)),
            };
        }
        let will_notify = ticket.client == verbs.me && (self.will_notify)(verbs);
        Ok(Answer::Queued(Box::new(Queued { ticket_no, record, will_notify })))
    }

    /// Takes or keeps a place, and returns its ticket number.
    fn join(&mut self, verbs: &Verbs<'_>, request: &Request<'_>) -> rusqlite::Result<u64> {
        let Verb::Wait { token, ttl, ticket, proposal, .. } = request.verb else { return Ok(0) };
        let (name, text) = (request.name.as_bytes(), token.text());
        let mine = self.leave(verbs, name, &text)?;
        let ticket_no = match (ticket.ticket_no, mine) {
            (TicketNumber::Agreed(ticket_no), _) => signed(ticket_no),
            (TicketNumber::New(_), Some(mine)) => mine,
            (TicketNumber::New(least), None) => {
                let mut last = verbs.connection.prepare_cached(LAST)?;
                let last = last.query_row([name], |row| row.get::<_, i64>(0)).optional()?;
                last.map_or(signed(least), |last| last.saturating_add(1).max(signed(least)))
            }
        };
        let ttl = signed(u64::try_from(ttl.as_nanos()).unwrap_or(u64::MAX));
        let (client, waiter) = (ticket.client.0.cast_signed(), ticket.waiter.cast_signed());
        let sent = nanos(request.sent);
        let (least, block) = proposal.map_or((0, 0), |wanted| (signed(wanted.least), wanted.block));
        let values = params![name, ticket_no, &*text, client, waiter, ttl, sent, least, block];
        verbs.execute(JOIN, values)?;
        Ok(ticket_no.cast_unsigned())
    }

    /// Gives up a place, and returns the ticket number it had.
    pub(super) fn leave(
        &mut self,
        verbs: &Verbs<'_>,
        name: &[u8],
        token: &[u8],
    ) -> rusqlite::Result<Option<i64>> {
        let mut leave = verbs.connection.prepare_cached(LEAVE)?;
        let left = leave.query_row(params![name, token], |row| {
            let client = ClientId(row.get::<_, i64>(1)?.cast_unsigned());
            Ok((row.get(0)?, client, row.get::<_, i64>(2)?.cast_unsigned()))
        });
        let Some((ticket_no, client, waiter)) = left.optional()? else { return Ok(None) };
        if client == verbs.me {
            self.tickets.0.remove(&waiter);
        }
        Ok(Some(ticket_no))
    }

    /// Passes a record on whose new holder went before it could be notified.
    pub(super) fn take_back(
        &mut self,
        verbs: &mut Verbs<'_>,
        name: &[u8],
        token: &[u8],
    ) -> rusqlite::Result<()> {
        if verbs.release_unshared(name, token)? {
            self.pass_on(verbs, name, None, 0)?;
        }
        Ok(())
    }

    /// Passes a record that has ended on to the first in the queue that is still there, with the fence
    /// `next` at least. Otherwise there is none that this could have changed.
    pub(super) fn pass_on(
        &mut self,
        verbs: &mut Verbs<'_>,
        name: &[u8],
        me: Option<&Token>,
        next: u64,
    ) -> rusqlite::Result<Turn> {
        loop {
            let mut first = verbs.connection.prepare_cached(FIRST)?;
            let Some(place) = first.query_row([name], Place::read).optional()? else {
                return Ok(Turn::Nobody);
            };
            let is_me = me.is_some_and(|me| place.token == *me.text());
            let peer = if is_me { None } else { verbs.sockets.call(place.client).transpose() };
            if let Some(Err(error)) = peer {
                // A process that can notify no other must not empty the queue by passing all waiters over.
                tracing::warn!("waiters cannot be told of a lock that is free: {error}");
                return Ok(Turn::Nobody);
            }
            verbs.execute(REMOVE, params![name, place.ticket_no, place.token])?;
            if is_me {
                return Ok(Turn::Mine);
            }
            if let Some(Ok(peer)) = peer {
                // The record must last as long as the new holder believes, who counts from there.
                let end = verbs.now.max(place.sent).after(place.ttl);
                let proposal = place.proposal.map(|wanted| wanted.at_least(next));
                // One that is yielded has not ended yet.
                if let Some(me) = me {
                    verbs.release(name, &me.text())?;
                }
                if verbs.acquire(name, &place.token, end, proposal)?.is_none() {
                    // There is no fence for this waiter: it is passed over.
                    continue;
                }
                let (name, Place { token, waiter, .. }) = (name.to_vec(), place);
                self.messages.push(GrantMessage { peer, waiter, name, token });
                return Ok(Turn::Another);
            }
        }
    }
}

impl Tickets {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// What a look into the file says about a waiter that a message has come for.
    pub(super) fn look(
        &mut self,
        verbs: &Verbs<'_>,
        waiter: u64,
    ) -> rusqlite::Result<Option<Grant>> {
        let Some(Standing { name, token, sent, secret }) = self.0.get(&waiter).cloned() else {
            return Ok(None);
        };
        let name = name.as_bytes();
        let record = verbs.record(name)?.filter(|record| record.token == Some(token));
        if let Some(record) = record {
            let fence = record.fence.unwrap_or(0);
            self.0.remove(&waiter);
            let others = anybody(verbs, name)?;
            return Ok(Some(Grant { waiter, secret, sent, others, fence }));
        }
        // It may be over already. Otherwise it was a false alarm.
        let mut is_there = verbs.connection.prepare_cached(IS_THERE)?;
        if !is_there.exists(params![name, &*token.text()])? {
            self.0.remove(&waiter);
        }
        Ok(None)
    }

    pub(super) fn waiters(&self) -> Vec<u64> {
        self.0.keys().copied().collect()
    }
}

/// Whether there is a queue.
pub(super) fn anybody(verbs: &Verbs<'_>, name: &[u8]) -> rusqlite::Result<bool> {
    verbs.connection.prepare_cached(ANYBODY)?.exists([name])
}

/// How many wait.
pub(super) fn count(verbs: &Verbs<'_>, name: &[u8]) -> rusqlite::Result<u64> {
    let mut count = verbs.connection.prepare_cached(COUNT)?;
    count.query_row([name], |row| row.get::<_, u32>(0)).map(u64::from)
}

#[cfg(test)]
mod tests {
    use super::super::verbs::tests::read_no_more_than_they_need;
    use super::*;

    #[test]
    fn no_queue_reads_more_than_it_needs() {
        let all = [ANYBODY, FIRST, LAST, JOIN, LEAVE, REMOVE, IS_THERE];
        read_no_more_than_they_need(SCHEMA, &all);
    }
}
