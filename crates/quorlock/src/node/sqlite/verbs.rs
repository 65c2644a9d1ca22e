//! The verbs in SQL, but for the queue, which has a file of its own.

use rusqlite::{Connection, OptionalExtension, params};

use super::boot::Mark;
use super::notes;
use super::queue::{self, Queue};
use super::wake::SocketDir;
use crate::name::Name;
use crate::node::participants::{Left, Participants};
use crate::node::{
    Answer, ClientId, Failure, Holder, Listed, ParticipantId, Proposal, Record, Request, Seen,
    Verb, noted,
};
use crate::runtime::Moment;
use quorlock_protocol::FENCES_END;

/// What the verbs work on. A record that is released stays for its fence, without a token, and has
/// ended then; the walk through the file removes it a day later. Nothing lies by its end: an index of that
/// would double what every lock and every release write. `participants` is empty while nobody takes part but the maker.
pub(super) const SCHEMA: &str = "
    CREATE TABLE lock(
        name BLOB PRIMARY KEY, token BLOB NOT NULL, expires_ns INTEGER NOT NULL,
        number INTEGER NOT NULL, participants BLOB NOT NULL DEFAULT x''
    ) WITHOUT ROWID;";

pub(super) const BEGIN: &str = "BEGIN IMMEDIATE";
pub(super) const COMMIT: &str = "COMMIT";

/// Stores the record of a new holder, which gets the fences from ?4 or the next one on, and so many
/// more as ?5 says; or replaces one that has ended by ?6. None at all if the last of them reaches ?7. A name
/// without a record may have had one, and a fence up to the floor.
const ACQUIRE: &str = "
    INSERT INTO lock(name, token, expires_ns, number)
    VALUES (?1, ?2, ?3, max(?4, (SELECT floor + 1 FROM boot WHERE one = 1)) + ?5)
    ON CONFLICT(name) DO UPDATE SET
        token = excluded.token, expires_ns = excluded.expires_ns,
        number = max(lock.number + 1, ?4) + ?5, participants = x''
    WHERE lock.expires_ns <= ?6 AND max(lock.number + 1, ?4) + ?5 < ?7
    RETURNING number";

/// The same without fences.
const ACQUIRE_WITHOUT_FENCE: &str = "
    INSERT INTO lock(name, token, expires_ns, number) VALUES (?1, ?2, ?3, 0)
    ON CONFLICT(name) DO UPDATE SET
        token = excluded.token, expires_ns = excluded.expires_ns, participants = x''
    WHERE lock.expires_ns <= ?4
    RETURNING number";

const EXTEND: &str = "
    UPDATE lock SET expires_ns = max(expires_ns, ?3)
    WHERE name = ?1 AND token = ?2 AND expires_ns > ?4 AND participants = x''
    RETURNING number";

/// The same for a record that several processes hold.
const SHARE: &str = "
    UPDATE lock SET expires_ns = ?3, participants = ?4
    WHERE name = ?1 AND token = ?2
    RETURNING number";

const PARTICIPANTS: &str = "
    SELECT participants, expires_ns FROM lock WHERE name = ?1 AND token = ?2 AND expires_ns > ?3";

const CONFIRM: &str = "
    UPDATE lock SET number = max(number, ?3)
    WHERE name = ?1 AND token = ?2 AND expires_ns > ?4
    RETURNING number";

const LAST_FENCE: &str = "SELECT number FROM lock WHERE name = ?1";

const RELEASE: &str = "
    UPDATE lock SET token = x'', expires_ns = ?3, participants = x''
    WHERE name = ?1 AND token = ?2 AND expires_ns > ?3";

/// The same if nobody takes part in it but its maker.
const RELEASE_UNSHARED: &str = "
    UPDATE lock SET token = x'', expires_ns = ?3
    WHERE name = ?1 AND token = ?2 AND expires_ns > ?3 AND participants = x''";

const INSPECT: &str =
    "SELECT token, expires_ns, number FROM lock WHERE name = ?1 AND expires_ns > ?2";

/// The names of live records whose tokens are of this library, from one on.
const LIST: &str = "
    SELECT name FROM lock
    WHERE name > ?1 AND expires_ns > ?2 AND substr(token, 1, 3) = CAST('ql:' AS BLOB)
    ORDER BY name LIMIT ?3";

/// So many names are read at once.
const NAMES_PER_LIST: usize = 256;

/// One transaction that has begun.
#[derive(Debug)]
pub(super) struct Verbs<'a> {
    pub(super) connection: &'a Connection,
    /// One moment for all of it, read when no other process can write any more. It is later than
    /// the calls were sent, so no record ends before its holder believes it does.
    pub(super) now: Moment,
    /// The client that asks, of which it may be known that it will be notified.
    pub(super) me: ClientId,
    pub(super) sockets: &'a mut SocketDir,
    /// Goes ahead of the fences that are given out.
    pub(super) mark: &'a Mark,
}

impl Verbs<'_> {
    /// Does what is asked for. `queue` takes in what is to be done about waiters after the commit.
    pub(super) fn answer(
        &mut self,
        request: &Request<'_>,
        queue: &mut Queue<'_>,
    ) -> rusqlite::Result<Answer> {
        let name = request.name.as_bytes();
        let done = match request.verb {
            Verb::Acquire { token, ttl, proposal } => {
                let end = self.now.after(ttl);
                return Ok(match self.acquire(name, &token.text(), end, proposal)? {
                    Some(fence) => Answer::Granted { fence },
                    None => self.refusal(request, proposal)?,
                });
            }
            Verb::Confirm { fence, .. } if fence >= FENCES_END => {
                return Ok(Answer::Failed(Failure::fence(fence, request.wall_us)));
            }
            Verb::Confirm { token, fence } => {
                return Ok(granted(self.raise(name, &token.text(), fence)?));
            }
            // It does not forget while the machine runs, so there is nothing to heal. And it is the only
            // node of its locks: who has no record there has lost the lock.
            Verb::Extend { token, ttl, restore: _, participant } => {
                let (text, end) = (token.text(), self.now.after(ttl));
                return Ok(granted(self.keep(name, &text, participant, end)?));
            }
            Verb::Release { token, next, participant, .. } => {
                return self.release_share(name, &token.text(), participant, next, queue);
            }
            Verb::Wait { .. } => return queue.wait(self, request),
            Verb::Inspect => {
                let (record, noted) = (self.record(name)?, notes::read(self.connection, name)?);
                let waiting = queue::count(self, name)?;
                return Ok(Answer::Seen(Box::new(Seen::new(
                    record,
                    noted.as_deref(),
                    Some(waiting),
                ))));
            }
            Verb::SetNote { token, note, keep } => {
                let record = self.record(name)?;
                if record.and_then(|record| record.token) != Some(*token) {
                    return Ok(Answer::Refused);
                }
                if note.is_empty() {
                    notes::remove(self.connection, name)?;
                } else {
                    let text = noted(Holder::of(&token.text()), note);
                    let end = nanos(self.now.after(keep));
                    notes::write(self.connection, name, &text, end, self.now())?;
                }
                true
            }
            Verb::ForceRelease { holder } => match self.token(name)? {
                Some(token) if Holder::of(&token) == holder => {
                    notes::remove(self.connection, name)?;
                    self.release_record(RELEASE, name, &token, 0, queue)?
                }
                _ => false,
            },
            Verb::List { from } => return Ok(Answer::Listed(Box::new(self.list(from)?))),
            // A file has no majorities of its own making: every process that opens it has the same one.
            Verb::Look | Verb::Mark(_) => return Ok(Answer::Marker(None)),
        };
        Ok(if done { Answer::Done } else { Answer::Refused })
    }

    /// Why nothing was stored for a new holder: there is a live record, or no fence that is higher.
    pub(super) fn refusal(
        &self,
        request: &Request<'_>,
        proposal: Option<Proposal>,
    ) -> rusqlite::Result<Answer> {
        let name = request.name.as_bytes();
        if self.record(name)?.is_some() {
            return Ok(Answer::Refused);
        }
        let wanted = proposal.map_or(0, Proposal::last);
        let fence = self.fence(LAST_FENCE, [name])?.unwrap_or(0).max(wanted);
        Ok(Answer::Failed(Failure::fence(fence, request.wall_us)))
    }

    /// Stores a record unless a live one is there, or there is no fence for it. Returns the last fence of
    /// its holder if it did.
    pub(super) fn acquire(
        &self,
        name: &[u8],
        token: &[u8],
        end: Moment,
        proposal: Option<Proposal>,
    ) -> rusqlite::Result<Option<u64>> {
        let (end, now) = (nanos(end), self.now());
        match proposal {
            Some(proposal) if proposal.after(0).is_none() => Ok(None),
            Some(Proposal { least, block }) => {
                let more = i64::from(block.saturating_sub(1));
                let most = signed(FENCES_END);
                let values = params![name, token, end, signed(least), more, now, most];
                self.fence(ACQUIRE, values)
            }
            None => self.fence(ACQUIRE_WITHOUT_FENCE, params![name, token, end, now]),
        }
    }

    /// Makes a live record last until then at least, for its maker or for who takes part. Returns the
    /// last fence of its holder.
    pub(super) fn keep(
        &self,
        name: &[u8],
        token: &[u8],
        who: Option<ParticipantId>,
        end: Moment,
    ) -> rusqlite::Result<Option<u64>> {
        if who.is_none() {
            let kept = self.fence(EXTEND, params![name, token, nanos(end), self.now()])?;
            if kept.is_some() {
                return Ok(kept);
            }
        }
        let Some((mut all, lasts)) = self.participants(name, token)? else { return Ok(None) };
        if !all.extend(who, end, lasts, self.now) {
            return Ok(None);
        }
        self.share(name, token, lasts.max(end), &all)
    }

    /// Who takes part in a live record, and when that ends.
    fn participants(
        &self,
        name: &[u8],
        token: &[u8],
    ) -> rusqlite::Result<Option<(Participants, Moment)>> {
        let mut look = self.connection.prepare_cached(PARTICIPANTS)?;
        let all = look.query_row(params![name, token, self.now()], |row| {
            Ok((Participants::read(row.get_ref(0)?.as_blob()?), moment(row.get(1)?)))
        });
        all.optional()
    }

    /// Whether anybody takes part in a live record besides its maker.
    pub(super) fn is_shared(&self, name: &[u8], token: &[u8]) -> rusqlite::Result<bool> {
        let all = self.participants(name, token)?;
        Ok(all.is_some_and(|(all, _)| all.are_there(self.now)))
    }

    fn share(
        &self,
        name: &[u8],
        token: &[u8],
        end: Moment,
        all: &Participants,
    ) -> rusqlite::Result<Option<u64>> {
        self.fence(SHARE, params![name, token, nanos(end), all.bytes()])
    }

    /// Has the fences of a holder go so far at least.
    pub(super) fn raise(
        &self,
        name: &[u8],
        token: &[u8],
        least: u64,
    ) -> rusqlite::Result<Option<u64>> {
        self.fence(CONFIRM, params![name, token, signed(least), self.now()])
    }

    /// The fence of the one row that was changed, if one was.
    fn fence(&self, sql: &str, values: impl rusqlite::Params) -> rusqlite::Result<Option<u64>> {
        let mut statement = self.connection.prepare_cached(sql)?;
        let fence = statement.query_row(values, |row| row.get::<_, i64>(0)).optional()?;
        let fence = fence.map(|fence| u64::try_from(fence).unwrap_or(0));
        if let Some(fence) = fence {
            self.mark.cover(self.connection, fence)?;
        }
        Ok(fence)
    }

    /// Ends a live record if it is of that token, even if others take part in it. Returns whether it was.
    pub(super) fn release(&self, name: &[u8], token: &[u8]) -> rusqlite::Result<bool> {
        Ok(self.execute(RELEASE, params![name, token, self.now()])? > 0)
    }

    /// The same if nobody takes part in it but its maker.
    pub(super) fn release_unshared(&self, name: &[u8], token: &[u8]) -> rusqlite::Result<bool> {
        Ok(self.execute(RELEASE_UNSHARED, params![name, token, self.now()])? > 0)
    }

    /// The live record of that name.
    pub(super) fn record(&self, name: &[u8]) -> rusqlite::Result<Option<Record>> {
        let mut inspect = self.connection.prepare_cached(INSPECT)?;
        let record = inspect.query_row(params![name, self.now()], |row| {
            let token = row.get_ref(0)?.as_blob()?;
            let end = moment(row.get(1)?);
            let fence = u64::try_from(row.get::<_, i64>(2)?).unwrap_or(0);
            Ok(Record::new(token, Some(end.since(self.now))).with_fence(fence))
        });
        record.optional()
    }

    pub(super) fn execute(
        &self,
        sql: &str,
        values: impl rusqlite::Params,
    ) -> rusqlite::Result<usize> {
        self.connection.prepare_cached(sql)?.execute(values)
    }

    pub(super) fn now(&self) -> i64 {
        nanos(self.now)
    }

    /// One of those who hold a record with that token releases it. The last one frees it.
    fn release_share(
        &mut self,
        name: &[u8],
        token: &[u8],
        who: Option<ParticipantId>,
        next: u64,
        queue: &mut Queue<'_>,
    ) -> rusqlite::Result<Answer> {
        // Most of the time nobody takes part.
        if who.is_none() && self.release_record(RELEASE_UNSHARED, name, token, next, queue)? {
            return Ok(Answer::Done);
        }
        let Some((mut all, _)) = self.participants(name, token)? else {
            return Ok(Answer::Refused);
        };
        Ok(match all.leave(who, self.now) {
            Left::All => Answer::Refused,
            Left::Others(until) => {
                self.share(name, token, until, &all)?;
                Answer::LeftToOthers
            }
            Left::Nobody => {
                self.release_record(RELEASE, name, token, next, queue)?;
                Answer::Done
            }
        })
    }

    /// Removes a live record, by this statement, and a place in the queue if they are of that token, and
    /// passes the record on, with the fence `next` at least. Returns whether there was one.
    fn release_record(
        &mut self,
        release: &str,
        name: &[u8],
        token: &[u8],
        next: u64,
        queue: &mut Queue<'_>,
    ) -> rusqlite::Result<bool> {
        let mine = self.execute(release, params![name, token, self.now()])? > 0;
        // Most of the time there is no queue.
        if queue::anybody(self, name)? {
            queue.leave(self, name, token)?;
            if mine {
                queue.pass_on(self, name, None, next)?;
            }
        }
        Ok(mine)
    }

    fn token(&self, name: &[u8]) -> rusqlite::Result<Option<Vec<u8>>> {
        let mut inspect = self.connection.prepare_cached(INSPECT)?;
        inspect.query_row(params![name, self.now()], |row| row.get(0)).optional()
    }

    fn list(&self, from: &[u8]) -> rusqlite::Result<Listed> {
        let mut list = self.connection.prepare_cached(LIST)?;
        let values = params![from, self.now(), NAMES_PER_LIST as i64];
        let names = list.query_map(values, |row| row.get(0))?;
        let names: Vec<Vec<u8>> = names.collect::<rusqlite::Result<_>>()?;
        let next = names.last().filter(|_| names.len() == NAMES_PER_LIST).cloned();
        Ok(Listed { names: names.iter().filter_map(|name| Name::new(name).ok()).collect(), next })
    }
}

/// SQLite's numbers have a sign. Nothing of a clock that counts from the boot is lost by it.
pub(super) fn nanos(moment: Moment) -> i64 {
    i64::try_from(moment.as_nanos()).unwrap_or(i64::MAX)
}

/// The same with fences and ticket numbers.
pub(super) fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

pub(super) fn moment(nanos: i64) -> Moment {
    Moment::from_nanos(u64::try_from(nanos).unwrap_or(0))
}

/// The answer to a client that has a fence now, or has nothing.
pub(super) fn granted(fence: Option<u64>) -> Answer {
    fence.map_or(Answer::Refused, |fence| Answer::Granted { fence })
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::boot;
    use super::*;

    /// Whether each statement finds what it needs by an index.
    pub(in super::super) fn read_no_more_than_they_need(schema: &str, statements: &[&str]) {
        let connection = Connection::open_in_memory().unwrap();
        connection.execute_batch(schema).unwrap();
        for statement in statements {
            let explain = format!("EXPLAIN QUERY PLAN {statement}");
            let mut explain = connection.prepare(&explain).unwrap();
            // Values do not matter for the plan.
            let values = vec![rusqlite::types::Null; explain.parameter_count()];
            let values = rusqlite::params_from_iter(values);
            let steps = explain.query_map(values, |row| row.get::<_, String>(3)).unwrap();
            for step in steps.map(Result::unwrap) {
                assert!(
                    !step.contains("SCAN") && !step.contains("TEMP B-TREE"),
                    "{step}: {statement}"
                );
            }
        }
    }

    #[test]
    fn no_verb_reads_more_than_it_needs() {
        let acquire = [ACQUIRE, ACQUIRE_WITHOUT_FENCE];
        read_no_more_than_they_need(&[boot::SCHEMA, SCHEMA].concat(), &acquire);
        read_no_more_than_they_need(SCHEMA, &[EXTEND, CONFIRM, LAST_FENCE, RELEASE, INSPECT, LIST]);
        read_no_more_than_they_need(SCHEMA, &[RELEASE_UNSHARED, SHARE, PARTICIPANTS]);
    }
}
