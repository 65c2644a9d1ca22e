//! Opening the file, and refusing what would not keep a lock.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags, Transaction, TransactionBehavior};
use rustix::fs::statfs;

use super::address::Address;
use super::boot::{self, Mark, Start};
use super::error::{MAKE_WRITABLE, Trouble, cannot, is_busy, unfit};
use super::identity::{Files, Identity, LOOK_UP_AFTER, lost_its_wal};
use super::place::Place;
use super::wake::Gate;
use super::{queue, verbs};
use crate::node::servers::Servers;
use crate::node::{Failure, FailureKind, NodeContext};
use crate::runtime::Moment;

/// Tells a file of locks from those of other programs: "Quor" in ASCII.
const APPLICATION_ID: i32 = 0x5175_6f72;
/// Goes up by one with each change of the schema that an older program would get wrong.
const SCHEMA_VERSION: i32 = 4;

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
    pub(super) mark: Mark,
    place: Place,
    files: Files,
    /// Nothing is granted before, since what was granted may be lost.
    grants_from: Moment,
    _claim: Claim,
}

/// That no other node of this locker has the same file.
#[derive(Debug)]
struct Claim {
    server: String,
    index: usize,
    servers: Arc<Servers>,
}

impl OpenFile {
    /// Opens the file, and creates it if it is not there.
    pub(super) fn open(address: &Address, context: &NodeContext) -> Result<Self, Trouble> {
        let path = &address.path;
        let boot = boot_id()?;
        check_clock()?;
        check_file_system(path)?;
        let place = Place::prepare(path)?;
        // Before it is opened: if it is replaced in between, `is_current` notices.
        let identity = Identity::of(path)?;
        let claim = Claim::of(identity, address, context)?;
        // One process at a time: what this one finds is not what another is just making.
        let gate = Gate::enter(&place)?;
        let connection = match prepare(&place, &boot, identity, gate.was_there(), context) {
            Ok(connection) => connection,
            Err(trouble) => {
                gate.leave_nothing();
                return Err(trouble);
            }
        };
        gate.sweep(context.client);
        let row = boot::read(&connection)?;
        let files = Files::of(&place, identity)?;
        let (mark, grants_from) = (Mark::at(row.mark), row.grants_from);
        Ok(Self { connection, mark, place, files, grants_from, _claim: claim })
    }

    /// Where it is.
    pub(super) fn place(&self) -> &Place {
        &self.place
    }

    /// Whether the path still leads to this file, and all that belongs to it is there. Otherwise
    /// it was removed or replaced, and a process that opens it now keeps locks in another.
    pub(super) fn is_current(&self, now: Moment) -> bool {
        self.files.are_in_place(now)
    }

    /// Why nothing is granted yet.
    pub(super) fn grants_nothing(&self, now: Moment) -> Option<Failure> {
        let left = self.grants_from.since(now);
        if left.is_zero() {
            return None;
        }
        let text = format!(
            "grants nothing for {left:.1?}: the file or its -wal was removed or replaced, or used \
             under another boot id, so that what it granted before may be lost"
        );
        Some(Failure::new(FailureKind::Quarantined(left), text))
    }
}

impl Claim {
    fn of(identity: Identity, address: &Address, context: &NodeContext) -> Result<Self, Failure> {
        let Identity { device, inode } = identity;
        let (server, index) = (format!("file {device}:{inode}"), address.index);
        let servers = Arc::clone(&context.servers);
        if let Err(other) = servers.claim(&server, index, &address.label) {
            let text = format!("is the same file as {other}");
            return Err(Failure::new(FailureKind::Duplicate, text));
        }
        Ok(Self { server, index, servers })
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        self.servers.give_up(&self.server, self.index);
    }
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

/// What a file holds.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Content {
    Nothing,
    /// Locks of this boot.
    Locks,
    /// Locks of another boot, if its id can be read, which are void if that was an earlier one. The
    /// machine may have crashed and left the file damaged: see the durability of the module.
    Past(Option<String>),
}

/// Opens a file that is ours, of this version and of this boot, and makes it so if that can be done
/// without harm to anybody. Nobody else opens it meanwhile.
///
/// `was_ours` says that it was a file of locks once, though it may not be readable now.
fn prepare(
    place: &Place,
    boot: &str,
    identity: Identity,
    was_ours: bool,
    context: &NodeContext,
) -> Result<Connection, Trouble> {
    let now = context.runtime.now();
    let max_ttl = context.settings.max_ttl;
    let lost_its_wal = lost_its_wal(place);
    let mut connection = connect(place)?;
    let mut found = content(&connection, boot);
    let unreadable = was_ours && matches!(found, Err(Trouble::Failed(_)));
    if lost_its_wal && (unreadable || matches!(found, Ok(Content::Locks))) {
        // What others have of the old WAL may not be mixed with the new one. They notice.
        drop(connection);
        place.remove_wal()?;
        connection = connect(place)?;
        found = content(&connection, boot);
    }
    match found? {
        Content::Nothing => {
            let start = Start { max_ttl, grants_from: Moment::default(), mark: 0 };
            create_tables(&connection, boot, identity, start)?;
        }
        Content::Past(theirs) => {
            drop(connection);
            start_anew(place, (boot, theirs.as_deref()), identity, now, max_ttl)?;
            connection = connect(place)?;
        }
        Content::Locks => {
            let row = boot::read(&connection)?;
            if lost_its_wal || row.identity != identity {
                tracing::warn!(
                    path = %place.given.display(),
                    "the file or its -wal was removed or replaced: nothing is granted until all \
                     locks that it may have kept have ended"
                );
                boot::doubt(&connection, identity, now.after(LOOK_UP_AFTER))?;
            }
            if Duration::from_nanos(row.max_ttl_ns.try_into().unwrap_or(0)) < max_ttl {
                boot::allow_ttl(&connection, max_ttl)?;
            }
        }
    }
    use_wal(&connection)?;
    connection.pragma_update(None, "synchronous", "off")?;
    connection.pragma_update(None, "wal_autocheckpoint", CHECKPOINT_PAGES)?;
    Ok(connection)
}

/// A connection that has not read anything yet.
fn connect(place: &Place) -> Result<Connection, Trouble> {
    // SQLite forbids opening a file by any other means beside it: closing it would drop the
    // locks of all connections in this process.
    let connection = Connection::open_with_flags(
        &place.real,
        OpenFlags::SQLITE_OPEN_READ_WRITE
            | OpenFlags::SQLITE_OPEN_NO_MUTEX
            | OpenFlags::SQLITE_OPEN_NOFOLLOW,
    )?;
    // A thread that finds the file busy must not sleep in SQLite.
    connection.busy_timeout(Duration::ZERO)?;
    connection.set_prepared_statement_cache_capacity(STATEMENTS);
    // Otherwise some statements are planned anew each time, for the values that they are given.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
    if connection.is_readonly("main")? {
        return Err(unfit("it cannot be written", MAKE_WRITABLE).into());
    }
    // The file is never without its WAL: one that was removed is noticed by that.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
    Ok(connection)
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

/// Empties a file of another boot, whatever state it is in, if nobody uses it.
fn start_anew(
    place: &Place,
    boots: (&str, Option<&str>),
    identity: Identity,
    now: Moment,
    max_ttl: Duration,
) -> Result<(), Trouble> {
    let connection = connect(place)?;
    // A user of the file has it locked, in part, all the time. A process that shares a running
    // kernel with them can still see another boot id. So all of the file is locked here.
    connection.pragma_update_and_check(None, "locking_mode", "exclusive", |_| Ok(()))?;
    match content(&connection, boots.0) {
        Ok(Content::Past(_)) => {}
        Ok(_) => return Err(Trouble::Busy),
        Err(Trouble::Busy) => return Err(in_use(boots).into()),
        Err(trouble) => return Err(trouble),
    }
    let start = boot::salvage(&connection, now, max_ttl);
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_RESET_DATABASE, true)?;
    let emptied = connection.execute_batch("VACUUM");
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_RESET_DATABASE, false)?;
    emptied?;
    create_tables(&connection, boots.0, identity, start)
}

fn in_use((ours, theirs): (&str, Option<&str>)) -> Failure {
    let theirs = theirs.unwrap_or("an unknown one");
    unfit(
        format!(
            "it is in use under another boot id: the file is of {theirs}, and this process sees \
             {ours} in {BOOT_ID}"
        ),
        "let all of its users see the same (systemd-nspawn mounts one of its own: bind the file of \
         the host over it), or give them another file each, or use a Redis node",
    )
}

/// Makes the tables of an empty file.
fn create_tables(
    connection: &Connection,
    boot: &str,
    identity: Identity,
    start: Start,
) -> Result<(), Trouble> {
    connection.pragma_update(None, "page_size", PAGE_BYTES)?;
    use_wal(connection)?;
    // On the disk when this returns, so that the first page, by which the file is known to be ours,
    // is whole after a crash of the machine. It hardly changes later.
    connection.pragma_update(None, "synchronous", "full")?;
    let transaction = Transaction::new_unchecked(connection, TransactionBehavior::Immediate)?;
    if content_in(&transaction, boot)? != Content::Nothing {
        return Err(Trouble::Busy);
    }
    transaction.execute_batch(&[boot::SCHEMA, verbs::SCHEMA, queue::SCHEMA].concat())?;
    boot::write(&transaction, boot, identity, start)?;
    transaction.pragma_update(None, "application_id", APPLICATION_ID)?;
    transaction.pragma_update(None, "user_version", SCHEMA_VERSION)?;
    transaction.commit()?;
    boot::move_to_file(connection);
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
        return match boot::id(file) {
            Err(error) if is_busy(&error) => Err(Trouble::Busy),
            Ok(Some(id)) if id != boot => Ok(Content::Past(Some(id))),
            _ if version != SCHEMA_VERSION => Err(other_version(version).into()),
            Ok(Some(_)) => Ok(Content::Locks),
            Ok(None) | Err(_) => Ok(Content::Past(None)),
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
