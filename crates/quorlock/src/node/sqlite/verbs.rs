//! The verbs in SQL, but for the queue, which has a file of its own.

use rusqlite::{Connection, OptionalExtension, params};

use super::notes;
use super::queue::{self, Queue};
use super::wake::Switchboard;
use crate::name::Name;
use crate::node::{Answer, ClientId, Holder, Listed, Record, Request, Seen, Verb, noted};
use crate::runtime::Moment;

/// What the verbs work on. Nothing lies by its end: an index of that would double what every lock
/// and every release write.
pub(super) const SCHEMA: &str = "
    CREATE TABLE lock(
        name BLOB PRIMARY KEY, token BLOB NOT NULL, expires_ns INTEGER NOT NULL
    ) WITHOUT ROWID;";

pub(super) const BEGIN: &str = "BEGIN IMMEDIATE";
pub(super) const COMMIT: &str = "COMMIT";

/// Stores the record, or replaces one that is not live.
const ACQUIRE: &str = "
    INSERT INTO lock(name, token, expires_ns) VALUES (?1, ?2, ?3)
    ON CONFLICT(name) DO UPDATE SET token = excluded.token, expires_ns = excluded.expires_ns
    WHERE lock.expires_ns <= ?4";

/// Stores the record, whoever's there was one before.
const STORE: &str = "
    INSERT INTO lock(name, token, expires_ns) VALUES (?1, ?2, ?3)
    ON CONFLICT(name) DO UPDATE SET token = excluded.token, expires_ns = excluded.expires_ns";

const EXTEND: &str = "
    UPDATE lock SET expires_ns = max(expires_ns, ?3)
    WHERE name = ?1 AND token = ?2 AND expires_ns > ?4";

const RELEASE: &str = "DELETE FROM lock WHERE name = ?1 AND token = ?2 AND expires_ns > ?3";

const INSPECT: &str = "SELECT token, expires_ns FROM lock WHERE name = ?1 AND expires_ns > ?2";

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
    /// Who asks, for whom it may be known that he will be told.
    pub(super) me: ClientId,
    pub(super) switchboard: &'a mut Switchboard,
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
            Verb::Acquire { token, ttl } => {
                let values = params![name, &*token.text(), nanos(self.now.after(ttl)), self.now()];
                self.execute(ACQUIRE, values)? > 0
            }
            Verb::Extend { token, ttl } => {
                let values = params![name, &*token.text(), nanos(self.now.after(ttl)), self.now()];
                self.execute(EXTEND, values)? > 0
            }
            Verb::Release { token, .. } => self.let_go(name, &token.text(), queue)?,
            Verb::Wait { token, ttl, ticket, yielding } => {
                return queue.wait(self, request, token, ttl, &ticket, yielding);
            }
            Verb::Inspect => {
                let (record, noted) = (self.record(name)?, notes::read(self.connection, name)?);
                let waiting = queue::count(self, name)?;
                return Ok(Answer::Seen(Seen::new(record, noted.as_deref(), Some(waiting))));
            }
            Verb::Describe { token, note, keep } => {
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
            Verb::Break { holder } => match self.token(name)? {
                Some(token) if Holder::of(&token) == holder => {
                    notes::remove(self.connection, name)?;
                    self.let_go(name, &token, queue)?
                }
                _ => false,
            },
            Verb::List { from } => return Ok(Answer::Listed(self.list(from)?)),
        };
        Ok(if done { Answer::Done } else { Answer::Refused })
    }

    /// Stores a record, whatever is there.
    pub(super) fn store(&self, name: &[u8], token: &[u8], end: Moment) -> rusqlite::Result<()> {
        self.execute(STORE, params![name, token, nanos(end)])?;
        Ok(())
    }

    /// Removes a live record if it is of that token. Returns whether it was.
    pub(super) fn release(&self, name: &[u8], token: &[u8]) -> rusqlite::Result<bool> {
        Ok(self.execute(RELEASE, params![name, token, self.now()])? > 0)
    }

    /// The live record of that name.
    pub(super) fn record(&self, name: &[u8]) -> rusqlite::Result<Option<Record>> {
        let mut inspect = self.connection.prepare_cached(INSPECT)?;
        let record = inspect.query_row(params![name, self.now()], |row| {
            let token = row.get_ref(0)?.as_blob()?;
            let end = moment(row.get(1)?);
            Ok(Record::new(token, Some(end.since(self.now))))
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

    /// Removes a live record and a place in the queue if they are of that token, and passes the
    /// record on. Returns whether there was one.
    fn let_go(
        &mut self,
        name: &[u8],
        token: &[u8],
        queue: &mut Queue<'_>,
    ) -> rusqlite::Result<bool> {
        let mine = self.release(name, token)?;
        // Most of the time there is no queue.
        if queue::anybody(self, name)? {
            queue.leave(self, name, token)?;
            if mine {
                queue.pass_on(self, name, None)?;
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

pub(super) fn moment(nanos: i64) -> Moment {
    Moment::from_nanos(u64::try_from(nanos).unwrap_or(0))
}

#[cfg(test)]
pub(super) mod tests {
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
        read_no_more_than_they_need(SCHEMA, &[ACQUIRE, STORE, EXTEND, RELEASE, INSPECT, LIST]);
    }
}
