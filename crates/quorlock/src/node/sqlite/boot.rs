//! What the file knows of itself: one row, which outlives its locks.
//!
//! - The boot in which its records were written, and which file it was then. A copy is known by that.
//! - The longest TTL that any of its users may ask for: what it may have granted has ended after that.
//! - Since when it grants locks again, if what it had granted may be lost.
//! - Two fences. Every fence that the file has given out is at or below the *mark*, which goes ahead
//!   of them, so that it is seldom written and long on the disk when it is needed. Those of names
//!   that the file has forgotten are at or below the *floor*: a name that it does not know gets a
//!   higher one. When a restart of the machine empties the file, the mark becomes the floor.

use std::cell::Cell;
use std::time::Duration;

use rusqlite::{Connection, OptionalExtension, Transaction, params};

use super::identity::Identity;
use super::verbs::{moment, nanos, signed};
use crate::runtime::Moment;

pub(super) const SCHEMA: &str = "
    CREATE TABLE boot(
        one INTEGER PRIMARY KEY CHECK (one = 1), id TEXT NOT NULL,
        device INTEGER NOT NULL, inode INTEGER NOT NULL, max_ttl_ns INTEGER NOT NULL,
        grants_from_ns INTEGER NOT NULL, mark INTEGER NOT NULL, floor INTEGER NOT NULL
    );";

/// Older versions have it in a row without a key.
const ID: &str = "SELECT id FROM boot LIMIT 1";
const READ: &str = "
    SELECT device, inode, max_ttl_ns, grants_from_ns, mark FROM boot WHERE one = 1";
const WRITE: &str = "
    INSERT INTO boot(one, id, device, inode, max_ttl_ns, grants_from_ns, mark, floor)
    VALUES (1, ?1, ?2, ?3, ?4, ?5, ?6, ?6)";
const ALLOW_TTL: &str = "UPDATE boot SET max_ttl_ns = max(max_ttl_ns, ?1) WHERE one = 1";
const DOUBT: &str = "
    UPDATE boot SET device = ?1, inode = ?2, grants_from_ns = ?3 + max_ttl_ns, floor = mark
    WHERE one = 1";
const RAISE_MARK: &str = "UPDATE boot SET mark = max(mark, ?1) WHERE one = 1 RETURNING mark";
const RAISE_FLOOR: &str = "UPDATE boot SET floor = max(floor, ?1) WHERE one = 1 AND floor < ?1";

/// Fences follow the time of day in microseconds. The kernel has written what is older than half a
/// minute to the disk, so the mark is raised in time if it is raised a minute before it is reached.
const LEAD: u64 = 2 * RAISED_BEFORE;
const RAISED_BEFORE: u64 = 60_000_000;
/// No fence is above this, unless the page was damaged.
const HIGHEST: i64 = 1 << 53;

/// What a new row starts from.
#[derive(Debug, Clone, Copy)]
pub(super) struct Start {
    pub(super) max_ttl: Duration,
    /// Nothing is granted before.
    pub(super) grants_from: Moment,
    /// All fences of earlier boots are at or below it.
    pub(super) mark: i64,
}

/// The row, as it is at the opening.
#[derive(Debug, Clone, Copy)]
pub(super) struct Row {
    pub(super) identity: Identity,
    pub(super) max_ttl_ns: i64,
    pub(super) grants_from: Moment,
    pub(super) mark: u64,
}

/// The boot of the file. An error if it has none that can be read.
pub(super) fn id(file: &Connection) -> rusqlite::Result<Option<String>> {
    file.query_row(ID, [], |row| row.get(0)).optional()
}

pub(super) fn read(file: &Connection) -> rusqlite::Result<Row> {
    file.query_row(READ, [], |row| {
        let unsigned = |column| row.get::<_, i64>(column).map(i64::cast_unsigned);
        Ok(Row {
            identity: Identity { device: unsigned(0)?, inode: unsigned(1)? },
            max_ttl_ns: row.get(2)?,
            grants_from: moment(row.get(3)?),
            mark: unsigned(4)?,
        })
    })
}

pub(super) fn write(
    file: &Transaction<'_>,
    id: &str,
    identity: Identity,
    start: Start,
) -> rusqlite::Result<()> {
    let Identity { device, inode } = identity;
    let (device, inode) = (device.cast_signed(), inode.cast_signed());
    let Start { max_ttl, grants_from, mark } = start;
    let values = params![id, device, inode, duration(max_ttl), nanos(grants_from), mark];
    file.execute(WRITE, values).map(drop)
}

/// Some user of the file may ask for so long a TTL.
pub(super) fn allow_ttl(file: &Connection, max_ttl: Duration) -> rusqlite::Result<()> {
    file.execute(ALLOW_TTL, [duration(max_ttl)])?;
    move_to_file(file);
    Ok(())
}

/// What the file has granted up to then may be lost: nothing is granted until that has ended. One page
/// is written, so that there is no half of it.
pub(super) fn doubt(file: &Connection, identity: Identity, then: Moment) -> rusqlite::Result<()> {
    let Identity { device, inode } = identity;
    file.execute(DOUBT, params![device.cast_signed(), inode.cast_signed(), nanos(then)])?;
    // Who waited asks again.
    file.execute("DELETE FROM ticket", []).map(drop)
}

/// What can be saved of a file of another boot, in whatever state it is.
pub(super) fn salvage(file: &Connection, now: Moment, max_ttl: Duration) -> Start {
    let number = |sql: &str, values: &[i64]| {
        let number = file.query_row(sql, rusqlite::params_from_iter(values), |row| row.get(0));
        number.ok().flatten()
    };
    let marks = ["SELECT max(mark, floor) FROM boot", "SELECT max(number) FROM lock"];
    let marks = marks.into_iter().filter_map(|sql| number(sql, &[]));
    let mark = marks.filter(|mark| (0..HIGHEST).contains(mark)).max().unwrap_or(0);
    let theirs = number("SELECT max_ttl_ns FROM boot", &[]).unwrap_or(0);
    let max_ttl = max_ttl.max(Duration::from_nanos(u64::try_from(theirs).unwrap_or(0)));
    // If the machine was not restarted, a holder may believe in what ends soon by its clock.
    let ends = "SELECT max(expires_ns) FROM lock WHERE expires_ns > ?1 AND expires_ns <= ?2";
    let ends = number(ends, &[nanos(now), nanos(now.after(max_ttl))]);
    Start { max_ttl, grants_from: moment(ends.unwrap_or(0)), mark }
}

/// Names were forgotten that have had fences up to this one.
pub(super) fn raise_floor(file: &Connection, fence: i64) -> rusqlite::Result<()> {
    file.prepare_cached(RAISE_FLOOR)?.execute([fence]).map(drop)
}

/// The mark, as far as this connection knows it.
#[derive(Debug)]
pub(super) struct Mark {
    known: Cell<u64>,
    /// Whether it was raised in this transaction.
    raised: Cell<bool>,
}

impl Mark {
    pub(super) fn at(mark: u64) -> Self {
        Self { known: Cell::new(mark), raised: Cell::new(false) }
    }

    /// A fence is given out: the mark has to be above it when that is in the file.
    pub(super) fn cover(&self, file: &Connection, fence: u64) -> rusqlite::Result<()> {
        if fence.saturating_add(RAISED_BEFORE) <= self.known.get() {
            return Ok(());
        }
        let wanted = signed(fence.saturating_add(LEAD));
        let mut raise = file.prepare_cached(RAISE_MARK)?;
        let mark = raise.query_row([wanted], |row| row.get::<_, i64>(0))?;
        self.known.set(mark.cast_unsigned());
        self.raised.set(true);
        Ok(())
    }

    /// The transaction is in the file.
    pub(super) fn settle(&self, file: &Connection) {
        if self.raised.take() {
            move_to_file(file);
        }
    }
}

/// Moves what was written from the WAL to the file, as far as that is possible without waiting: so
/// that it is not lost with the WAL.
pub(super) fn move_to_file(file: &Connection) {
    let moved = file.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(()));
    if let Err(error) = moved {
        tracing::debug!("what is in the WAL stays there for now: {error}");
    }
}

fn duration(duration: Duration) -> i64 {
    i64::try_from(duration.as_nanos()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::super::verbs::tests::read_no_more_than_they_need;
    use super::*;

    #[test]
    fn the_row_is_found_by_its_key() {
        let all = [READ, WRITE, ALLOW_TTL, DOUBT, RAISE_MARK, RAISE_FLOOR];
        read_no_more_than_they_need(SCHEMA, &all);
    }
}
