//! Opening the file, and refusing what would not keep a lock.

use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags, OptionalExtension, Transaction, TransactionBehavior};
use rustix::fs::{CWD, FileType, FlockOperation, Mode, flock, mknodat, statfs};
use rustix::io::Errno;

use super::address::Address;
use super::error::{MAKE_WRITABLE, Trouble, is_busy, unfit};
use super::{queue, verbs};
use crate::node::servers::Servers;
use crate::node::{Failure, FailureKind, Setting};

/// Tells a file of locks from those of other programs: "Quor" in ASCII.
const APPLICATION_ID: i32 = 0x5175_6f72;
/// Goes up by one with each change of the schema that an older program would get wrong.
const SCHEMA_VERSION: i32 = 4;
/// The boot in which all of the file was written.
const BOOT: &str = "CREATE TABLE boot(id TEXT NOT NULL);";

/// Every lock and every release write one page, so they are as small as is sensible. What they wrote
/// is moved from the WAL to the file when there are so many.
const PAGE_BYTES: i32 = 1_024;
const CHECKPOINT_PAGES: i32 = 1_000;
/// More than there are different statements.
const STATEMENTS: usize = 32;

const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";
const TIME_NAMESPACE: &str = "/proc/self/timens_offsets";

/// File systems whose files other machines can open too, by the numbers that `statfs` gives them.
const SHARED_BY_MACHINES: [(i64, &str); 7] = [
    (0x6969, "NFS"),
    (0x517b, "SMB"),
    (0xff53_4d42, "CIFS"),
    (0xfe53_4d42, "SMB2"),
    (0x00c3_6400, "Ceph"),
    (0x5346_414f, "AFS"),
    (0x0102_1997, "9P"),
];
const FUSE: i64 = 0x6573_5546;

/// A file that is open, and fit to keep locks.
#[derive(Debug)]
pub(super) struct OpenFile {
    pub(super) connection: Connection,
    address: Address,
    identity: (u64, u64),
    servers: Arc<Servers>,
}

impl OpenFile {
    /// Opens the file, and creates it if it is not there.
    pub(super) fn open(address: &Address, setting: &Setting) -> Result<Self, Trouble> {
        let path = &address.path;
        let boot = boot_id()?;
        check_clock()?;
        check_file_system(path)?;
        create(path)?;
        // Before it is opened: if it is replaced in between, `is_current` notices.
        let identity = identity(path)?;
        // SQLite forbids opening a file by any other means beside it: closing it would drop the
        // locks of all connections in this process.
        let connection = Connection::open_with_flags(
            path,
            OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX,
        )?;
        prepare(&connection, path, &boot)?;
        let servers = &setting.servers;
        if let Err(other) = servers.claim(&server(identity), address.index, &address.label) {
            let text = format!("is the same file as {other}");
            return Err(Failure::new(FailureKind::Duplicate, text).into());
        }
        let (address, servers) = (address.clone(), Arc::clone(servers));
        Ok(Self { connection, address, identity, servers })
    }

    /// Its path.
    pub(super) fn path(&self) -> &Path {
        &self.address.path
    }

    /// Whether the path still leads to this file. Otherwise somebody has removed or replaced it,
    /// and who opens it now keeps locks in another.
    pub(super) fn is_current(&self) -> bool {
        identity(&self.address.path).is_ok_and(|identity| identity == self.identity)
    }
}

impl Drop for OpenFile {
    fn drop(&mut self) {
        self.servers.give_up(&server(self.identity), self.address.index);
    }
}

fn server((device, inode): (u64, u64)) -> String {
    format!("file {device}:{inode}")
}

fn identity(path: &Path) -> Result<(u64, u64), Failure> {
    let metadata = fs::metadata(path).map_err(|error| cannot("looked at", &error))?;
    if metadata.is_dir() {
        return Err(unfit("it is a directory", "name a file in it, such as locks.db"));
    }
    if !metadata.is_file() {
        return Err(unfit("it is no regular file", "name one, or a new one"));
    }
    Ok((metadata.dev(), metadata.ino()))
}

fn cannot(what: &str, error: &io::Error) -> Failure {
    unfit(format!("it cannot be {what}: {error}"), MAKE_WRITABLE)
}

fn boot_id() -> Result<String, Failure> {
    match fs::read_to_string(BOOT_ID) {
        Ok(text) if !text.trim().is_empty() => Ok(text.trim().to_owned()),
        Ok(_) => Err(unfit(format!("{BOOT_ID} is empty"), "use a Redis node")),
        Err(error) => {
            let problem = format!("{BOOT_ID} cannot be read: {error}");
            Err(unfit(problem, "mount /proc, or use a Redis node"))
        }
    }
}

/// A process in a time namespace may have another boot clock than the rest of the machine.
fn check_clock() -> Result<(), Failure> {
    // Kernels without time namespaces have no such file.
    let offsets = fs::read_to_string(TIME_NAMESPACE).unwrap_or_default();
    if own_boot_clock(&offsets) {
        return Err(unfit(
            "this process runs in a time namespace with a boot clock of its own",
            "start it without one, or use a Redis node",
        ));
    }
    Ok(())
}

fn own_boot_clock(offsets: &str) -> bool {
    let boot = offsets.lines().find_map(|line| line.strip_prefix("boottime"));
    boot.is_some_and(|boot| boot.split_whitespace().any(|number| number != "0"))
}

fn check_file_system(path: &Path) -> Result<(), Failure> {
    // Of a file that is not there yet, the directory that it will be in.
    let Some(there) = path.ancestors().find(|place| place.exists()) else { return Ok(()) };
    let kind = statfs(there).map_err(|error| cannot("looked at", &error.into()))?.f_type;
    #[allow(clippy::useless_conversion, reason = "it has 32 bits on some machines")]
    let kind = i64::from(kind);
    if let Some(name) = shared_by_machines(kind) {
        return Err(unfit(
            format!("it is on {name}, where other machines can open it and count its time wrongly"),
            "name a file on a disk of this machine; for locks between machines use Redis nodes",
        ));
    }
    if kind == FUSE {
        tracing::warn!(
            path = %path.display(),
            "on a FUSE file system; if other machines can open the file too, it keeps no locks"
        );
    }
    Ok(())
}

fn shared_by_machines(kind: i64) -> Option<&'static str> {
    // Where it has 32 bits, one of them is the sign.
    let low = kind & 0xffff_ffff;
    SHARED_BY_MACHINES.iter().find(|(other, _)| *other == low).map(|(_, name)| *name)
}

/// Creates the file and its directory, for this user alone, unless they are there.
fn create(path: &Path) -> Result<(), Failure> {
    if let Some(directory) = path.parent() {
        let made = DirBuilder::new().recursive(true).mode(0o700).create(directory);
        made.map_err(|error| {
            unfit(format!("{} cannot be created: {error}", directory.display()), MAKE_WRITABLE)
        })?;
    }
    // Made without being opened, for the reason given in `open`.
    match mknodat(CWD, path, FileType::RegularFile, Mode::RUSR | Mode::WUSR, 0) {
        Ok(()) | Err(Errno::EXIST) => Ok(()),
        Err(error) => Err(cannot("created", &error.into())),
    }
}

/// What a file holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Content {
    Nothing,
    /// Locks of this boot.
    Locks,
    /// Locks of an earlier boot, which are void. The machine may have crashed and left the file
    /// damaged: see the durability of the module.
    Past,
}

/// Makes sure that the file is ours, of this version and of this boot.
fn prepare(connection: &Connection, path: &Path, boot: &str) -> Result<(), Trouble> {
    // Whoever finds the file busy has better things to do than to sleep in SQLite.
    connection.busy_timeout(Duration::ZERO)?;
    connection.set_prepared_statement_cache_capacity(STATEMENTS);
    // Otherwise some statements are planned anew each time, for the values that they are given.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
    if connection.is_readonly("main")? {
        return Err(unfit("it cannot be written", MAKE_WRITABLE).into());
    }
    // The file is never without its WAL: whoever opened it next would have to make a new one.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
    if content(connection, boot)? == Content::Past {
        start_anew(connection, path, boot)?;
    }
    if content(connection, boot)? == Content::Nothing {
        create_tables(connection, boot)?;
    }
    use_wal(connection)?;
    connection.pragma_update(None, "synchronous", "off")?;
    connection.pragma_update(None, "wal_autocheckpoint", CHECKPOINT_PAGES)?;
    Ok(())
}

fn use_wal(connection: &Connection) -> Result<(), Trouble> {
    let mode: String =
        connection.pragma_update_and_check(None, "journal_mode", "wal", |row| row.get(0))?;
    if mode != "wal" {
        let problem = format!("its file system allows the journal mode {mode:?} only");
        return Err(unfit(problem, "name a file on a disk of this machine").into());
    }
    Ok(())
}

/// Empties a file of an earlier boot, whatever state it is in.
fn start_anew(connection: &Connection, path: &Path, boot: &str) -> Result<(), Trouble> {
    // One process at a time, and only what is still of the past: another may have been faster, and
    // keep locks in it already. A process that opens the file meanwhile finds it of the past, or
    // empty, or of this boot, and each is safe.
    let directory = path.parent().unwrap_or(Path::new("/"));
    let directory = File::open(directory).map_err(|error| cannot("made anew", &error))?;
    match flock(&directory, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => {}
        Err(Errno::WOULDBLOCK) => return Err(Trouble::Busy),
        Err(error) => return Err(cannot("made anew", &error.into()).into()),
    }
    if content(connection, boot)? == Content::Past {
        connection.set_db_config(DbConfig::SQLITE_DBCONFIG_RESET_DATABASE, true)?;
        let emptied = connection.execute_batch("VACUUM");
        connection.set_db_config(DbConfig::SQLITE_DBCONFIG_RESET_DATABASE, false)?;
        emptied?;
        create_tables(connection, boot)?;
    }
    Ok(())
}

/// Makes the tables unless another process was faster.
fn create_tables(connection: &Connection, boot: &str) -> Result<(), Trouble> {
    connection.pragma_update(None, "page_size", PAGE_BYTES)?;
    use_wal(connection)?;
    // On the disk when this returns, so that the first page, by which the file is known to be ours,
    // is whole after a crash of the machine. It hardly changes later.
    connection.pragma_update(None, "synchronous", "full")?;
    let transaction = Transaction::new_unchecked(connection, TransactionBehavior::Immediate)?;
    if content_in(&transaction, boot)? != Content::Nothing {
        return Ok(());
    }
    transaction.execute_batch(&[BOOT, verbs::SCHEMA, queue::SCHEMA].concat())?;
    transaction.execute("INSERT INTO boot(id) VALUES (?1)", [boot])?;
    transaction.pragma_update(None, "application_id", APPLICATION_ID)?;
    transaction.pragma_update(None, "user_version", SCHEMA_VERSION)?;
    transaction.commit()?;
    // What others write meanwhile stays in the WAL, and is moved some other time.
    let moved = connection.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(()));
    if let Err(error) = moved {
        tracing::debug!("the new file is not on the disk yet: {error}");
    }
    Ok(())
}

fn content(connection: &Connection, boot: &str) -> Result<Content, Trouble> {
    content_in(&Transaction::new_unchecked(connection, TransactionBehavior::Deferred)?, boot)
}

/// What the file holds: nothing, or something that is ours. In a transaction, so that all parts of
/// the answer are of one moment: another process may be creating the file.
fn content_in(file: &Transaction<'_>, boot: &str) -> Result<Content, Trouble> {
    let number = |pragma| file.pragma_query_value(None, pragma, |row| row.get::<_, i32>(0));
    let (application, version) = (number("application_id")?, number("user_version")?);
    if application == APPLICATION_ID {
        // After a crash of the machine the answer may be anything, but not the id of this boot.
        let id = "SELECT id FROM boot LIMIT 1";
        let id = file.query_row(id, [], |row| row.get::<_, String>(0)).optional();
        return match id {
            Err(error) if is_busy(&error) => Err(Trouble::Busy),
            Ok(Some(id)) if id != boot => Ok(Content::Past),
            _ if version != SCHEMA_VERSION => Err(other_version(version).into()),
            Ok(Some(_)) => Ok(Content::Locks),
            Ok(None) | Err(_) => Ok(Content::Past),
        };
    }
    let count = "SELECT count(*) FROM sqlite_schema";
    let empty = file.query_row(count, [], |row| Ok(row.get::<_, i64>(0)? == 0))?;
    if application == 0 && version == 0 && empty {
        return Ok(Content::Nothing);
    }
    Err(unfit("it is the database of another program", "name another file").into())
}

fn other_version(version: i32) -> Failure {
    let problem = format!("its version is {version}, and this program knows {SCHEMA_VERSION}");
    if version > SCHEMA_VERSION {
        return unfit(problem, "use the newest program everywhere, or name another file");
    }
    unfit(problem, "end the older programs that use it, then remove it; or name another file")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_systems_of_several_machines_are_known_by_their_numbers() {
        assert_eq!(shared_by_machines(0x6969), Some("NFS"));
        assert_eq!(shared_by_machines(0xff53_4d42), Some("CIFS"));
        assert_eq!(shared_by_machines(i64::from(0xfe53_4d42_u32.cast_signed())), Some("SMB2"));
        for (number, local) in [(0xef53, "ext4"), (0x0102_1994, "tmpfs"), (FUSE, "FUSE")] {
            assert_eq!(shared_by_machines(number), None, "{local}");
        }
    }

    #[test]
    fn a_boot_clock_of_its_own_is_noticed() {
        assert!(!own_boot_clock(
            "monotonic           0         0\nboottime            0         0\n"
        ));
        assert!(!own_boot_clock(""));
        assert!(!own_boot_clock("monotonic 5 0\nboottime 0 0\n"));
        assert!(own_boot_clock("monotonic 0 0\nboottime -5 0\n"));
        assert!(own_boot_clock("monotonic 0 0\nboottime 0 7\n"));
    }
}
