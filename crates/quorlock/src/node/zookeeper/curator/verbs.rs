//! The verbs, on lines of entries.
//!
//! | verb | asks the ensemble |
//! | --- | --- |
//! | acquire | reads the line; if it is empty makes an entry and reads again, since others may be as fast |
//! | wait | makes an entry, and reads who is ahead of it |
//! | extend, wait again | to check that the entry is there |
//! | note | to write the data of the entry |
//! | release, force | to delete the entry |
//!
//! All but reads go through the leader, which refuses them if the session has ended. An entry that may have been made
//! without our hearing of it is found by its UUID: what was sent on an earlier connection is done before anything on the
//! next one, or never.

use std::sync::{Arc, Weak};

use super::line::Line;
use super::paths::{entry, prefix};
use super::store::CuratorStore;
use crate::node::contenders::{Turn, Value, Waiter};
use crate::node::lanes::{Attempts, Remember, Serve};
use crate::node::zookeeper::connection::Connection;
use crate::node::zookeeper::trouble::Trouble;
use crate::node::zookeeper::wire::{Code, Request};
use crate::node::{
    Answer, Call, Failure, FailureKind, Holder, Inbox, Queued, Record, Seen, Ticket, Verb,
};
use crate::runtime::wall_us;
use crate::token::Token;

/// What is known of a lock from the calls before.
#[derive(Debug, Default)]
pub(super) struct Known {
    mine: Option<Own>,
    /// A request was sent whose fate is not known.
    is_unsure: bool,
}

/// An entry of ours.
#[derive(Debug, Clone)]
struct Own {
    token: Token,
    /// The session that it ends with.
    session: i64,
    /// The last part of its path.
    entry: String,
    /// The change that made it.
    place: i64,
    is_fenced: bool,
    /// Whether it has been seen to be the first. It stays so then.
    holds: bool,
}

impl Remember for Known {
    fn is_unsure(&self) -> bool {
        self.is_unsure
    }

    /// An entry stays what it is for as long as its session lasts.
    fn stale(&mut self) {}
}

impl Serve for Arc<CuratorStore> {
    type Known = Known;

    async fn attempt(
        &self,
        call: &Call,
        known: &mut Known,
        attempts: &mut Attempts,
    ) -> Result<Answer, Failure> {
        let request = call.request();
        let connection = self.client.connection().await?;
        let session = connection.id.number;
        known.mine.take_if(|own| own.session != session);
        let lock = self.paths.lock(request.name);
        let was_unsure = std::mem::replace(&mut known.is_unsure, true);
        let asked = Asked { store: self, connection: &connection, lock: &lock, known, attempts };
        let answer = match request.verb {
            Verb::Acquire { token, proposal, .. } => asked.acquire(token, proposal.is_some()).await,
            Verb::Wait { token, ticket, proposal, .. } => {
                asked.wait(token, &ticket, proposal.is_some()).await
            }
            Verb::Extend { token, participant: None, .. } => asked.extend(token).await,
            Verb::Release { token, participant: None, .. } => asked.release(token).await,
            Verb::Confirm { token, fence } => asked.confirm(token, fence).await,
            Verb::SetNote { token, note, keep } => asked.set_note(token, note, keep).await,
            Verb::ForceRelease { holder } => asked.force_release(holder).await,
            Verb::Inspect => asked.inspect().await,
            Verb::List { from } => {
                self.list(&connection, from).await.map(|listed| Answer::Listed(Box::new(listed)))
            }
            // Nobody takes part in a lock here.
            Verb::Extend { .. } | Verb::Release { .. } => Ok(Answer::Refused),
            Verb::Look | Verb::Mark(_) => Ok(Answer::Marker(None)),
        };
        let answer = answer.map_err(|trouble| self.failure(trouble));
        known.is_unsure = is_unsure(was_unsure, &request.verb, &answer);
        answer
    }

    fn listen(&self, node: usize, inbox: Weak<dyn Inbox>) {
        self.set_inbox(node, inbox);
    }

    async fn close(&self) {
        self.is_closed.send_replace(true);
        // All entries go with the session.
        if let Some(connection) = self.client.close() {
            connection.close().await;
        }
    }
}

/// Whether a request may have been done without our hearing of it, after an attempt that has come to this.
fn is_unsure(was_unsure: bool, verb: &Verb<'_>, answer: &Result<Answer, Failure>) -> bool {
    match (answer, verb) {
        // These may not have asked for anything that is behind all earlier requests.
        (Ok(_), Verb::Confirm { .. } | Verb::List { .. } | Verb::Look | Verb::Mark(_)) => {
            was_unsure
        }
        // What was sent before has been done then, or never is, and what became of it was seen.
        (Ok(_), _) => false,
        // An attempt that cannot have done anything says nothing of those before it.
        (Err(failure), _) => {
            was_unsure || matches!(failure.kind(), FailureKind::Silent | FailureKind::Broken)
        }
    }
}

/// One call that is served.
struct Asked<'a> {
    store: &'a Arc<CuratorStore>,
    connection: &'a Connection,
    lock: &'a str,
    known: &'a mut Known,
    attempts: &'a mut Attempts,
}

impl Asked<'_> {
    async fn acquire(mut self, token: &Token, is_fenced: bool) -> Result<Answer, Trouble> {
        let line = self.store.read(self.connection, self.lock).await?;
        let own = match self.found(token, &line, is_fenced).await? {
            // An earlier attempt was not answered.
            Some(own) if line.first() == Some(&own.entry) => {
                let path = self.path(&own.entry);
                if !self.store.confirm(self.connection, &path).await? {
                    return Ok(Answer::Refused);
                }
                return Ok(self.holds(own));
            }
            Some(own) => own,
            None if line.len() > 0 => return Ok(Answer::Refused),
            None => {
                let (own, line) = self.make(token, is_fenced, None).await?;
                if line.first() == Some(&own.entry) {
                    return Ok(self.holds(own));
                }
                own
            }
        };
        self.store.remove(self.connection, &self.path(&own.entry)).await?;
        self.known.mine = None;
        Ok(Answer::Refused)
    }

    async fn wait(
        mut self,
        token: &Token,
        ticket: &Ticket,
        is_fenced: bool,
    ) -> Result<Answer, Trouble> {
        self.store.begin_to_watch(self.connection, self.lock);
        let reading = Reading { store: self.store, lock: self.lock };
        let (own, line) = self.stand(token, is_fenced, ticket).await?;
        let path = self.path(&own.entry);
        if line.first() == Some(&own.entry) {
            self.store.stop_watching(self.lock, &own.entry);
            self.store.turn_has_come(&path);
            drop(reading);
            return Ok(self.holds(own));
        }
        let Ticket { waiter, secret, sent, .. } = *ticket;
        let (others, is_fenced) = (line.is_any_behind(&own.entry), own.is_fenced);
        let waiter = Waiter { waiter, sent, secret, is_fenced, ttl: Default::default(), others };
        let (turn, _) = self.store.turns.wait(path.as_bytes(), own.place, waiter);
        if turn == Turn::Mine {
            return Ok(self.holds(own));
        }
        // A turn that comes from now on is told of.
        if self.store.watch_for(self.lock, &own.entry, &line) {
            self.store.turn_has_come(&path);
        }
        drop(reading);
        if self.store.turns.is_mine(path.as_bytes(), own.place) {
            return Ok(self.holds(own));
        }
        let record = line.holder().map(|holder| Record {
            holder,
            token: None,
            remaining: None,
            fence: None,
        });
        let ticket_no = own.place.unsigned_abs();
        Ok(Answer::Queued(Box::new(Queued { ticket_no, record, will_notify: true })))
    }

    async fn extend(mut self, token: &Token) -> Result<Answer, Trouble> {
        let Some(own) = self.held(token).await? else { return Ok(Answer::Refused) };
        if self.store.confirm(self.connection, &self.path(&own.entry)).await? {
            return Ok(self.holds(own));
        }
        self.store.turns.end(self.path(&own.entry).as_bytes());
        self.known.mine = None;
        Ok(Answer::Refused)
    }

    async fn confirm(mut self, token: &Token, fence: u64) -> Result<Answer, Trouble> {
        match self.held(token).await? {
            Some(own) if fence <= own.fence() => Ok(Answer::Granted { fence: own.fence() }),
            Some(own) => {
                let text = format!("gives out fences of its own: this is {}", own.fence());
                Err(Failure::new(FailureKind::Rejected, text).into())
            }
            None => Ok(Answer::Refused),
        }
    }

    async fn set_note(
        mut self,
        token: &Token,
        note: &str,
        keep: std::time::Duration,
    ) -> Result<Answer, Trouble> {
        let Some(own) = self.held(token).await? else { return Ok(Answer::Refused) };
        let path = self.path(&own.entry);
        loop {
            let Some((data, stat)) = self.connection.data(&path).await? else {
                return Ok(Answer::Refused);
            };
            let Some(value) = Value::decode(&data) else { return Ok(Answer::Refused) };
            let value = value.with_note(note, keep, wall_us(&*self.store.runtime));
            let set = Request::set_data(&path, &value.encode(), stat.version);
            match self.connection.send(set).await {
                Ok(_) => return Ok(Answer::Done),
                Err(Trouble::Code(Code::OTHER_VERSION)) => {}
                Err(Trouble::Code(Code::NO_NODE)) => return Ok(Answer::Refused),
                Err(trouble) => return Err(trouble),
            }
        }
    }

    async fn release(self, token: &Token) -> Result<Answer, Trouble> {
        let known = self.known.mine.clone().filter(|own| own.token == *token);
        let found = match known.filter(|own| self.is_mine(own)) {
            Some(own) => Some((own.entry, true)),
            None => {
                let line = self.store.read(self.connection, self.lock).await?;
                let mine = line.find(&prefix(token)).map(str::to_owned);
                mine.map(|mine| (mine.clone(), line.first() == Some(&*mine)))
            }
        };
        let Some((entry, holds)) = found else {
            self.known.mine = None;
            return Ok(self.attempts.released.take().unwrap_or(Answer::Refused));
        };
        let path = self.path(&entry);
        self.store.turns.end(path.as_bytes());
        self.store.stop_watching(self.lock, &entry);
        let answer = if holds { Answer::Done } else { Answer::Refused };
        // Whatever becomes of this request: if the entry is gone when it is sent again, this was true.
        let before = self.attempts.released.replace(answer.clone());
        let removed = self.store.remove(self.connection, &path).await?;
        self.known.mine = None;
        Ok(if removed { answer } else { before.unwrap_or(Answer::Refused) })
    }

    async fn force_release(self, holder: Holder) -> Result<Answer, Trouble> {
        let line = self.store.read(self.connection, self.lock).await?;
        let Some(first) = line.first().filter(|_| line.holder() == Some(holder)) else {
            return Ok(self.attempts.released.take().unwrap_or(Answer::Refused));
        };
        self.attempts.released = Some(Answer::Done);
        match self.store.remove(self.connection, &self.path(first)).await? {
            true => Ok(Answer::Done),
            false => Ok(Answer::Refused),
        }
    }

    async fn inspect(self) -> Result<Answer, Trouble> {
        loop {
            let line = self.store.read(self.connection, self.lock).await?;
            let Some((first, holder)) = line.first().zip(line.holder()) else {
                return Ok(Answer::Seen(Box::new(Seen::new(None, None, Some(0)))));
            };
            let Some((data, stat)) = self.connection.data(&self.path(first)).await? else {
                // It has left meanwhile.
                continue;
            };
            let value = Value::decode(&data);
            let token = value.as_ref().map(|value| value.token);
            let has_fence = value.as_ref().is_none_or(|value| value.is_fenced);
            // It ends with its session.
            let record = Record { holder, token, remaining: None, fence: None };
            let record = record.with_fence(if has_fence { stat.created.unsigned_abs() } else { 0 });
            let wall_us = wall_us(&*self.store.runtime);
            let note = value.as_ref().and_then(|value| value.note.as_ref());
            let note = note.filter(|(until_us, _)| *until_us > wall_us);
            let note = note.map(|(_, note)| note.as_bytes());
            let waiters = line.len() as u64 - 1;
            return Ok(Answer::Seen(Box::new(Seen::new(Some(record), note, Some(waiters)))));
        }
    }

    fn path(&self, entry: &str) -> String {
        format!("{}/{entry}", self.lock)
    }

    /// Whether an entry is known to hold the lock.
    fn is_mine(&self, own: &Own) -> bool {
        own.holds || self.store.turns.is_mine(self.path(&own.entry).as_bytes(), own.place)
    }

    /// Our entry of this session, from what is known or from a line.
    async fn found(
        &mut self,
        token: &Token,
        line: &Line,
        is_fenced: bool,
    ) -> Result<Option<Own>, Trouble> {
        let known = self.known.mine.clone().filter(|own| own.token == *token);
        if let Some(own) = known.filter(|own| line.contains(&own.entry)) {
            return Ok(Some(own));
        }
        let Some(entry) = line.find(&prefix(token)) else { return Ok(None) };
        let session = self.connection.id.number;
        let stat = self.connection.stat(&self.path(entry)).await?;
        let mine = stat.filter(|stat| stat.owner == session).map(|stat| Own {
            token: *token,
            session,
            entry: entry.to_owned(),
            place: stat.created,
            is_fenced,
            holds: false,
        });
        self.known.mine = mine.clone();
        Ok(mine)
    }

    /// Makes our entry, and reads the line behind it.
    async fn make(
        &mut self,
        token: &Token,
        is_fenced: bool,
        ticket: Option<&Ticket>,
    ) -> Result<(Own, Line), Trouble> {
        let value = Value::new(token, is_fenced, ticket.map(|ticket| ticket.client));
        let entry = entry(self.lock, token);
        let (entry, place, line) =
            self.store.make(self.connection, self.lock, &entry, &value.encode()).await?;
        let session = self.connection.id.number;
        let own = Own { token: *token, session, entry, place, is_fenced, holds: false };
        self.known.mine = Some(own.clone());
        Ok((own, line))
    }

    /// Our entry stands in the line, by the word of the ensemble.
    async fn stand(
        &mut self,
        token: &Token,
        is_fenced: bool,
        ticket: &Ticket,
    ) -> Result<(Own, Line), Trouble> {
        let line = self.store.read(self.connection, self.lock).await?;
        if let Some(own) = self.found(token, &line, is_fenced).await?
            && self.store.confirm(self.connection, &self.path(&own.entry)).await?
        {
            return Ok((own, line));
        }
        self.known.mine = None;
        self.make(token, is_fenced, Some(ticket)).await
    }

    /// Our entry of this session, if it holds the lock.
    async fn held(&mut self, token: &Token) -> Result<Option<Own>, Trouble> {
        let known = self.known.mine.clone().filter(|own| own.token == *token);
        if let Some(own) = known.filter(|own| self.is_mine(own)) {
            return Ok(Some(own));
        }
        let line = self.store.read(self.connection, self.lock).await?;
        let found = self.found(token, &line, true).await?;
        Ok(found.filter(|own| line.first() == Some(&own.entry)))
    }

    fn holds(self, own: Own) -> Answer {
        let own = Own { holds: true, ..own };
        let fence = own.fence();
        self.known.mine = Some(own);
        Answer::Granted { fence }
    }
}

impl Own {
    /// Zero if it is to have none.
    fn fence(&self) -> u64 {
        if self.is_fenced { self.place.unsigned_abs() } else { 0 }
    }
}

/// A line that is being read, with what leaves it meanwhile.
struct Reading<'a> {
    store: &'a CuratorStore,
    lock: &'a str,
}

impl Drop for Reading<'_> {
    fn drop(&mut self) {
        self.store.end_reading(self.lock);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_attempt_that_was_not_sent_leaves_an_earlier_one_unsure() {
        let (verb, failed) =
            (Verb::Inspect, |kind| Err(Failure::new(kind, "the connection broke")));
        let mut unsure = is_unsure(false, &verb, &failed(FailureKind::Unreachable));
        assert!(!unsure, "nothing was sent");
        unsure = is_unsure(unsure, &verb, &failed(FailureKind::Broken));
        assert!(unsure, "it may have been done");
        unsure = is_unsure(unsure, &verb, &failed(FailureKind::Unreachable));
        assert!(unsure, "it may still have been done");
        let (from, granted) = (b"".as_slice(), || Ok(Answer::Granted { fence: 7 }));
        assert!(is_unsure(true, &Verb::List { from }, &granted()), "this asks for other locks");
        assert!(!is_unsure(true, &verb, &granted()), "all that was sent before has been seen");
    }
}
