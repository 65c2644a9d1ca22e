//! Removing what nobody will come back for: records that have ended, tickets of the killed.
//!
//! A record that has ended stays for its fence, for a day. Then it is found, as is what a killed process
//! leaves behind, by walking through the file, a stretch at a time, round and round.

use std::time::Duration;

use rusqlite::params;

use super::boot;
use super::verbs::{Verbs, nanos};
use crate::node::ClientId;

/// One stretch for so many grants. More records are looked at than grants can leave behind, so that
/// names that are never used again do not pile up; rarely, so that few locks pay for it.
pub(super) const GRANTS: usize = 256;
const RECORDS: usize = 2 * GRANTS;
const TICKETS: usize = 32;
/// A record that has ended stays for its fence. Fences follow the clock: after so long any new one
/// is higher, and if the clock was moved, the floor sees to it.
const FENCES_KEPT: Duration = Duration::from_secs(24 * 60 * 60);

const SOME_RECORDS: &str = "
    SELECT name, expires_ns, number FROM lock WHERE name > ?1 ORDER BY name LIMIT ?2";
const SOME_TICKETS: &str = "
    SELECT name, number, token, client FROM ticket WHERE name > ?1
    ORDER BY name, number, token LIMIT ?2";
const REMOVE_RECORD: &str = "DELETE FROM lock WHERE name = ?1";
const REMOVE_TICKET: &str = "DELETE FROM ticket WHERE name = ?1 AND number = ?2 AND token = ?3";

/// Where the walk through the file goes on.
#[derive(Debug, Default)]
pub(super) struct Sweeper {
    /// How many locks may be granted before the next stretch. The first one is due at once: many
    /// processes take a single lock.
    rest: usize,
    /// `None` before the first stretch, which begins where the process works.
    records_from: Option<Vec<u8>>,
    tickets_from: Vec<u8>,
}

impl Sweeper {
    /// Counts grants, and sweeps if it is time. `near` is the name of one of them.
    pub(super) fn after(
        &mut self,
        grants: usize,
        near: &[u8],
        verbs: &mut Verbs<'_>,
    ) -> rusqlite::Result<()> {
        if self.rest >= grants {
            self.rest -= grants;
            return Ok(());
        }
        self.rest = GRANTS;
        self.sweep_records(near, verbs)?;
        self.sweep_tickets(verbs)
    }

    fn sweep_records(&mut self, near: &[u8], verbs: &Verbs<'_>) -> rusqlite::Result<()> {
        let mut some = verbs.connection.prepare_cached(SOME_RECORDS)?;
        let mut some = |from: &[u8], rows: usize| {
            let rows = some.query_map(params![from, count(rows)], |row| {
                Ok((row.get::<_, Vec<u8>>(0)?, row.get::<_, i64>(1)?, row.get::<_, i64>(2)?))
            });
            rows?.collect::<rusqlite::Result<Vec<_>>>()
        };
        let mut rows = some(self.records_from.as_deref().unwrap_or(near), RECORDS)?;
        if rows.len() < RECORDS {
            // Round the end, and on from the beginning.
            rows.extend(some(b"", RECORDS - rows.len())?);
        }
        let long_ago = nanos(verbs.now.before(FENCES_KEPT));
        let mut highest = 0;
        for (name, _, fence) in rows.iter().filter(|(_, end, _)| *end <= long_ago) {
            verbs.execute(REMOVE_RECORD, [name])?;
            highest = highest.max(*fence);
        }
        if highest > 0 {
            boot::raise_floor(verbs.connection, highest)?;
        }
        self.records_from = rows.pop().map(|(name, ..)| name);
        Ok(())
    }

    fn sweep_tickets(&mut self, verbs: &mut Verbs<'_>) -> rusqlite::Result<()> {
        let mut some = verbs.connection.prepare_cached(SOME_TICKETS)?;
        let row = |row: &rusqlite::Row<'_>| {
            let client = ClientId(row.get::<_, i64>(3)?.cast_unsigned());
            Ok((
                row.get::<_, Vec<u8>>(0)?,
                row.get::<_, i64>(1)?,
                row.get::<_, Vec<u8>>(2)?,
                client,
            ))
        };
        let rows = some.query_map(params![self.tickets_from, count(TICKETS)], row)?;
        let rows = rows.collect::<rusqlite::Result<Vec<_>>>()?;
        for (name, ticket_no, token, client) in &rows {
            if matches!(verbs.sockets.call(*client), Ok(None)) {
                verbs.execute(REMOVE_TICKET, params![name, ticket_no, token])?;
            }
        }
        let last = rows.into_iter().nth(TICKETS - 1);
        self.tickets_from = last.map(|(name, ..)| name).unwrap_or_default();
        Ok(())
    }
}

fn count(rows: usize) -> i64 {
    i64::try_from(rows).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::super::verbs::tests::read_no_more_than_they_need;
    use super::super::{queue, verbs};
    use super::*;

    #[test]
    fn no_stretch_reads_more_than_it_needs() {
        let all = [SOME_RECORDS, SOME_TICKETS, REMOVE_RECORD, REMOVE_TICKET];
        read_no_more_than_they_need(&format!("{}{}", verbs::SCHEMA, queue::SCHEMA), &all);
    }
}
