//! A file as version 0.1.0 wrote it: what is held in it stays held, and its tokens are good.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use quorlock::runtime::{Runtime, TokioRuntime};

use super::Place;
use crate::earlier_build::{TOKEN, is_honoured};

const SCHEMA: &str = "
    PRAGMA journal_mode = WAL;
    PRAGMA application_id = 1366650738;
    PRAGMA user_version = 4;
    CREATE TABLE boot(
        one INTEGER PRIMARY KEY CHECK (one = 1), id TEXT NOT NULL,
        device INTEGER NOT NULL, inode INTEGER NOT NULL, max_ttl_ns INTEGER NOT NULL,
        grants_from_ns INTEGER NOT NULL, mark INTEGER NOT NULL, floor INTEGER NOT NULL
    );
    CREATE TABLE lock(
        name BLOB PRIMARY KEY, token BLOB NOT NULL, expires_ns INTEGER NOT NULL,
        number INTEGER NOT NULL, participants BLOB NOT NULL DEFAULT x''
    ) WITHOUT ROWID;
    CREATE TABLE note(
        name BLOB PRIMARY KEY, text TEXT NOT NULL, expires_ns INTEGER NOT NULL
    ) WITHOUT ROWID;
    CREATE INDEX note_by_end ON note(expires_ns);
    CREATE TABLE ticket(
        name BLOB NOT NULL, number INTEGER NOT NULL, token BLOB NOT NULL, client INTEGER NOT NULL,
        waiter INTEGER NOT NULL, ttl_ns INTEGER NOT NULL, sent_ns INTEGER NOT NULL,
        least INTEGER NOT NULL, block INTEGER NOT NULL,
        PRIMARY KEY(name, number, token)
    ) WITHOUT ROWID;";

#[tokio::test]
async fn a_lock_in_a_file_is_honoured() {
    let place = Place::new();
    let sql = place.sql();
    sql.execute_batch(SCHEMA).expect("a file of then");
    let file = fs::metadata(&place.file).expect("a file");
    let boot_id = fs::read_to_string("/proc/sys/kernel/random/boot_id").expect("Linux");
    let fence = SystemTime::now().duration_since(UNIX_EPOCH).expect("a time of day").as_micros();
    let fence = u64::try_from(fence).expect("this century");
    let boot = "INSERT INTO boot VALUES(1, ?1, ?2, ?3, 30000000000, 0, ?4, ?5)";
    let (mark, floor) = (fence + 120_000_000, fence);
    let boot_id = boot_id.trim();
    let signed = |value: u64| i64::try_from(value).expect("it is small");
    let (device, inode) = (signed(file.dev()), signed(file.ino()));
    let values = (boot_id, device, inode, signed(mark), signed(floor));
    assert_eq!(sql.execute(boot, values), Ok(1));
    let end = TokioRuntime::current().now().after(Duration::from_secs(25)).as_nanos();
    let lock = "INSERT INTO lock VALUES(CAST('held' AS BLOB), CAST(?1 AS BLOB), ?2, ?3, x'')";
    assert_eq!(sql.execute(lock, (TOKEN, signed(end), signed(fence))), Ok(1));

    is_honoured(&place.locker().await, fence).await;
}
