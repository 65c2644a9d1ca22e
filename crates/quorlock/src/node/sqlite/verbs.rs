//! The verbs in SQL.

use rusqlite::{Connection, OptionalExtension, Statement, params};

use super::error::{Trouble, broken, rejected};
use super::notes;
use crate::name::Name;
use crate::node::{
    Answer, Call, Holder, Listed, Queued, Record, Request, Seen, TicketNumber, Verb, noted,
};
use crate::runtime::Moment;

/// What the verbs work on. `boot` comes before `expires_ns` in the index so that records of
/// earlier boots are found there too, whenever they end by a clock that is gone.
pub(super) const SCHEMA: &str = "
    CREATE TABLE lock(
        name BLOB PRIMARY KEY, token BLOB NOT NULL, expires_ns INTEGER NOT NULL, boot TEXT NOT NULL
    ) WITHOUT ROWID;
    CREATE INDEX lock_by_end ON lock(boot, expires_ns);";

/// Stores the record, or replaces one that is not live.
const ACQUIRE: &str = "
    INSERT INTO lock(name, token, expires_ns, boot) VALUES (?1, ?2, ?3, ?4)
    ON CONFLICT(name) DO UPDATE
    SET token = excluded.token, expires_ns = excluded.expires_ns, boot = excluded.boot
    WHERE lock.boot <> ?4 OR lock.expires_ns <= ?5";

const EXTEND: &str = "
    UPDATE lock SET expires_ns = max(expires_ns, ?3)
    WHERE name = ?1 AND token = ?2 AND boot = ?4 AND expires_ns > ?5";

const RELEASE: &str = "
    DELETE FROM lock WHERE name = ?1 AND token = ?2 AND boot = ?3 AND expires_ns > ?4";

const INSPECT: &str = "
    SELECT token, expires_ns FROM lock WHERE name = ?1 AND boot = ?2 AND expires_ns > ?3";

/// Removes some records that are not live. Three ranges of the index, rather than `boot <> ?`,
/// which would read all of it.
const SWEEP: &str = "
    DELETE FROM lock WHERE name IN (
        SELECT name FROM lock WHERE boot = ?1 AND expires_ns <= ?2
        UNION ALL SELECT name FROM lock WHERE boot < ?1
        UNION ALL SELECT name FROM lock WHERE boot > ?1
        LIMIT ?3
    )";

/// The names of live records whose tokens are of this library, from one on. The `+` keeps SQLite from
/// going by their ends instead, which would read and sort all of them.
const LIST: &str = "
    SELECT name FROM lock
    WHERE name > ?1 AND +boot = ?2 AND +expires_ns > ?3
        AND substr(token, 1, 3) = CAST('ql:' AS BLOB)
    ORDER BY name LIMIT ?4";

/// So many names are read at once.
const NAMES_PER_LIST: usize = 256;

/// So many dead records are removed for each one that is stored. More than one, so that names that
/// are never used again do not pile up; few, so that no lock pays for many others.
const SWEPT_PER_GRANT: i64 = 2;

/// The statements, ready to run on one connection.
#[derive(Debug)]
pub(super) struct Verbs<'c> {
    connection: &'c Connection,
    boot: &'c str,
    begin: Statement<'c>,
    commit: Statement<'c>,
    acquire: Statement<'c>,
    extend: Statement<'c>,
    release: Statement<'c>,
    inspect: Statement<'c>,
    sweep: Statement<'c>,
}

impl<'c> Verbs<'c> {
    pub(super) fn prepare(connection: &'c Connection, boot: &'c str) -> Result<Self, Trouble> {
        Ok(Self {
            connection,
            boot,
            begin: connection.prepare("BEGIN IMMEDIATE")?,
            commit: connection.prepare("COMMIT")?,
            acquire: connection.prepare(ACQUIRE)?,
            extend: connection.prepare(EXTEND)?,
            release: connection.prepare(RELEASE)?,
            inspect: connection.prepare(INSPECT)?,
            sweep: connection.prepare(SWEEP)?,
        })
    }

    /// Does what the calls ask for, in order and in one transaction. All of it is in the file when
    /// this returns, or nothing.
    ///
    /// After [`Trouble::Failed`] the connection has to be closed, which rolls the transaction back.
    pub(super) fn run<'a>(
        &mut self,
        calls: impl IntoIterator<Item = &'a Call>,
        clock: impl FnOnce() -> Moment,
    ) -> Result<Vec<Answer>, Trouble> {
        self.begin.execute([])?;
        // One moment for all of them, read when no other process can write any more. It is later
        // than the calls were sent, so no record ends before its holder believes it does.
        let now = clock();
        let answers = self.answers(calls, now).map_err(|error| rejected(&error))?;
        self.commit.execute([]).map_err(|error| broken(&error))?;
        Ok(answers)
    }

    fn answers<'a>(
        &mut self,
        calls: impl IntoIterator<Item = &'a Call>,
        now: Moment,
    ) -> rusqlite::Result<Vec<Answer>> {
        let mut grants = 0;
        let mut answers = Vec::new();
        for call in calls {
            let request = call.request();
            let answer = self.answer(&request, now)?;
            let granted = matches!(
                (&request.verb, &answer),
                (Verb::Acquire { .. } | Verb::Wait { .. }, Answer::Done)
            );
            grants += i64::from(granted);
            answers.push(answer);
        }
        if grants > 0 {
            self.sweep.execute(params![self.boot, nanos(now), grants * SWEPT_PER_GRANT])?;
        }
        Ok(answers)
    }

    fn answer(&mut self, request: &Request<'_>, now: Moment) -> rusqlite::Result<Answer> {
        let (boot, name) = (self.boot, request.name.as_bytes());
        let live_after = nanos(now);
        let changed = match request.verb {
            Verb::Acquire { token, ttl } => {
                let end = nanos(now.after(ttl));
                self.acquire.execute(params![name, &*token.text(), end, boot, live_after])?
            }
            Verb::Extend { token, ttl } => {
                let end = nanos(now.after(ttl));
                self.extend.execute(params![name, &*token.text(), end, boot, live_after])?
            }
            Verb::Release { token, .. } => {
                self.release.execute(params![name, &*token.text(), boot, live_after])?
            }
            // A file tells nobody of anything, so it keeps no queue: whoever waits asks again.
            Verb::Wait { token, ttl, ticket, yielding } => {
                let (TicketNumber::New(number) | TicketNumber::Agreed(number)) = ticket.number;
                let queued = |record| Answer::Queued(Queued { number, record, told: false });
                let (token, end) = (token.text(), nanos(now.after(ttl)));
                // Nobody knows whether others wait: they are let in when it might be so.
                if yielding && self.release.execute(params![name, &*token, boot, live_after])? > 0 {
                    return Ok(queued(None));
                }
                let values = params![name, &*token, end, boot, live_after];
                if self.extend.execute(values)? == 0 && self.acquire.execute(values)? == 0 {
                    return Ok(queued(self.record(name, now)?));
                }
                return Ok(Answer::Done);
            }
            Verb::Inspect => {
                let (record, noted) =
                    (self.record(name, now)?, notes::read(self.connection, name)?);
                return Ok(Answer::Seen(Seen::new(record, noted.as_deref(), None)));
            }
            Verb::Describe { token, note, keep } => {
                let record = self.record(name, now)?;
                if record.and_then(|record| record.token) != Some(*token) {
                    return Ok(Answer::Refused);
                }
                if note.is_empty() {
                    notes::remove(self.connection, name)?;
                } else {
                    let text = noted(Holder::of(&token.text()), note);
                    let end = nanos(now.after(keep));
                    notes::write(self.connection, name, &text, end, live_after)?;
                }
                1
            }
            Verb::Break { holder } => match self.token(name, now)? {
                Some(token) if Holder::of(&token) == holder => {
                    notes::remove(self.connection, name)?;
                    self.release.execute(params![name, token, boot, live_after])?
                }
                _ => 0,
            },
            Verb::List { from } => return Ok(Answer::Listed(self.list(from, now)?)),
        };
        Ok(if changed == 0 { Answer::Refused } else { Answer::Done })
    }

    fn record(&mut self, name: &[u8], now: Moment) -> rusqlite::Result<Option<Record>> {
        let record = self.inspect.query_row(params![name, self.boot, nanos(now)], |row| {
            let token = row.get_ref(0)?.as_blob()?;
            let end = Moment::from_nanos(u64::try_from(row.get::<_, i64>(1)?).unwrap_or(0));
            Ok(Record::new(token, Some(end.since(now))))
        });
        record.optional()
    }

    fn token(&mut self, name: &[u8], now: Moment) -> rusqlite::Result<Option<Vec<u8>>> {
        let values = params![name, self.boot, nanos(now)];
        self.inspect.query_row(values, |row| row.get(0)).optional()
    }

    fn list(&self, from: &[u8], now: Moment) -> rusqlite::Result<Listed> {
        let mut list = self.connection.prepare(LIST)?;
        let values = params![from, self.boot, nanos(now), NAMES_PER_LIST as i64];
        let names = list.query_map(values, |row| row.get(0))?;
        let names: Vec<Vec<u8>> = names.collect::<rusqlite::Result<_>>()?;
        let next = names.last().filter(|_| names.len() == NAMES_PER_LIST).cloned();
        Ok(Listed { names: names.iter().filter_map(|name| Name::new(name).ok()).collect(), next })
    }
}

/// SQLite's numbers have a sign. Nothing of a clock that counts from the boot is lost by it.
fn nanos(moment: Moment) -> i64 {
    i64::try_from(moment.as_nanos()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_verb_reads_more_than_it_needs() {
        let connection = Connection::open_in_memory().unwrap();
        connection.execute_batch(SCHEMA).unwrap();
        for verb in [ACQUIRE, EXTEND, RELEASE, INSPECT, SWEEP, LIST] {
            let mut explain = connection.prepare(&format!("EXPLAIN QUERY PLAN {verb}")).unwrap();
            // Values do not matter for the plan.
            let values = vec![rusqlite::types::Null; explain.parameter_count()];
            let values = rusqlite::params_from_iter(values);
            let steps = explain.query_map(values, |row| row.get::<_, String>(3)).unwrap();
            for step in steps.map(Result::unwrap) {
                assert!(
                    !step.contains("SCAN lock") && !step.contains("TEMP B-TREE"),
                    "{step}: {verb}"
                );
            }
        }
    }
}
