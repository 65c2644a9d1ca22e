//! What holders say of themselves.
//!
//! A table of its own, made with the first note: a file whose locks have none is as it always was.
//! A note that is left behind does no harm, since it says whom it is about.

use rusqlite::{Connection, OptionalExtension, params};

const SCHEMA: &str = "
    CREATE TABLE IF NOT EXISTS note(
        name BLOB PRIMARY KEY, text TEXT NOT NULL, expires_ns INTEGER NOT NULL
    ) WITHOUT ROWID;
    CREATE INDEX IF NOT EXISTS note_by_end ON note(expires_ns);";

const EXISTS: &str = "SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = 'note'";

const WRITE: &str = "
    INSERT INTO note(name, text, expires_ns) VALUES (?1, ?2, ?3)
    ON CONFLICT(name) DO UPDATE SET text = excluded.text, expires_ns = excluded.expires_ns";

/// Removes some that nobody has come back for. Those of an earlier boot have their time too, by the
/// present clock.
const SWEEP: &str = "
    DELETE FROM note WHERE name IN (SELECT name FROM note WHERE expires_ns <= ?1 LIMIT 2)";

/// Keeps the text, until `end` at least.
pub(super) fn write(
    file: &Connection,
    name: &[u8],
    text: &str,
    end: i64,
    now: i64,
) -> rusqlite::Result<()> {
    if !exists(file)? {
        file.execute_batch(SCHEMA)?;
    }
    file.prepare(WRITE)?.execute(params![name, text, end])?;
    file.prepare(SWEEP)?.execute([now])?;
    Ok(())
}

pub(super) fn remove(file: &Connection, name: &[u8]) -> rusqlite::Result<()> {
    if exists(file)? {
        file.prepare("DELETE FROM note WHERE name = ?1")?.execute([name])?;
    }
    Ok(())
}

pub(super) fn read(file: &Connection, name: &[u8]) -> rusqlite::Result<Option<Vec<u8>>> {
    if !exists(file)? {
        return Ok(None);
    }
    let mut read = file.prepare("SELECT text FROM note WHERE name = ?1")?;
    read.query_row([name], |row| Ok(row.get_ref(0)?.as_bytes()?.to_vec())).optional()
}

fn exists(file: &Connection) -> rusqlite::Result<bool> {
    file.prepare(EXISTS)?.exists([])
}
