//! Whether the open file is still the one that its path leads to.
//!
//! Who removes or replaces the file, its WAL or its shared memory under a process makes a double: that
//! process goes on with what it has open, and the process that comes next begins with something else. So all
//! three are looked at before each transaction.
//!
//! The shared memory is mapped, and a process that touches a part of it which was cut off is ended by
//! a signal. So its length is looked at as well.

use std::cell::Cell;
use std::ffi::{CString, OsString};
use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;

use rustix::fs::{AtFlags, CWD, Mode, OFlags, Stat, fstat, openat, stat, statat};
use rustix::io::Errno;

use super::error::{Trouble, cannot, unfit};
use super::place::{Place, SHM, WAL};
use crate::node::Failure;
use crate::runtime::Moment;

/// A WAL has a header and one frame at least, with a page in it, once something was written.
const LEAST_WAL_BYTES: u64 = 32 + 24 + 512;
const OPEN_FILES: &str = "/proc/self/fd";
/// How long it may take until a file that was moved away is noticed.
pub(super) const LOOK_UP_AFTER: Duration = Duration::from_millis(100);

/// A file, whatever it is called.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Identity {
    pub(super) device: u64,
    pub(super) inode: u64,
}

impl Identity {
    /// What a path leads to, if that can be a file of locks.
    pub(super) fn of(path: &Path) -> Result<Self, Failure> {
        let metadata = fs::metadata(path).map_err(|error| cannot("looked at", &error))?;
        if metadata.is_dir() {
            return Err(unfit("it is a directory", "name a file in it, such as locks.db"));
        }
        if !metadata.is_file() {
            return Err(unfit("it is no regular file", "name one, or a new one"));
        }
        Ok(Self { device: metadata.dev(), inode: metadata.ino() })
    }

    #[allow(clippy::useless_conversion, reason = "they have other types on some machines")]
    fn from_stat(stat: &Stat) -> Self {
        Self { device: stat.st_dev.into(), inode: stat.st_ino.into() }
    }
}

/// Whether a file that is not empty has lost its WAL, and with it what was written last: it is never
/// without one. Asked before SQLite makes a new one.
pub(super) fn lost_its_wal(place: &Place) -> bool {
    let is_empty = fs::metadata(&place.real).is_ok_and(|file| file.len() == 0);
    let wal = fs::symlink_metadata(place.beside(WAL));
    !is_empty && wal.map_or(0, |wal| wal.len()) < LEAST_WAL_BYTES
}

/// The file and what belongs to it, as a connection has them open.
#[derive(Debug)]
pub(super) struct Files {
    given: CString,
    main: Identity,
    directory: OwnedFd,
    wal: Beside,
    shm: Beside,
    /// The longest that it was. It never becomes shorter while it is in use.
    shm_bytes: Cell<i64>,
    /// When the names were last looked up.
    looked_up: Cell<Moment>,
}

/// A file of SQLite's. It is not opened for reading or writing: closing it would drop the locks on it.
#[derive(Debug)]
struct Beside {
    name: CString,
    handle: OwnedFd,
    identity: Identity,
}

impl Files {
    /// Those of a connection that has read something. `main` was looked at before it was opened: if
    /// the file was replaced in between, that shows.
    pub(super) fn of(place: &Place, main: Identity) -> Result<Self, Trouble> {
        let looked_at = |error: io::Error| cannot("looked at", &error);
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory = openat(CWD, place.directory(), flags, Mode::empty());
        let directory = directory.map_err(|error| looked_at(error.into()))?;
        let wal = Beside::of(&directory, &place.beside(WAL))?;
        let shm = Beside::of(&directory, &place.beside(SHM))?;
        if has_another_open(&place.beside(SHM), shm.identity).map_err(looked_at)? {
            return Err(Trouble::Busy);
        }
        Ok(Self {
            given: c_string(place.given.as_os_str().as_bytes())?,
            main,
            directory,
            wal,
            shm,
            shm_bytes: Cell::new(0),
            looked_up: Cell::default(),
        })
    }

    /// Whether all of them are still where they were, and whole.
    pub(super) fn are_in_place(&self, now: Moment) -> bool {
        let main = stat(&self.given).is_ok_and(|stat| Identity::from_stat(&stat) == self.main);
        main && self.wal.bytes() > 0 && self.is_shm_whole() && self.are_names_in_place(now)
    }

    fn is_shm_whole(&self) -> bool {
        let bytes = self.shm.bytes();
        let longest = self.shm_bytes.get().max(bytes);
        self.shm_bytes.set(longest);
        bytes > 0 && bytes == longest
    }

    /// Looking a name up takes much longer than looking at what is open, and tells of a file that was
    /// moved away. So it is not done each time.
    fn are_names_in_place(&self, now: Moment) -> bool {
        if now.since(self.looked_up.get()) < LOOK_UP_AFTER {
            return true;
        }
        self.looked_up.set(now);
        self.wal.is_at_its_name(&self.directory) && self.shm.is_at_its_name(&self.directory)
    }
}

impl Beside {
    fn of(directory: &OwnedFd, path: &Path) -> Result<Self, Trouble> {
        let name = c_string(path.file_name().unwrap_or_default().as_bytes())?;
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let handle = match openat(directory, &name, flags, Mode::empty()) {
            Ok(handle) => handle,
            // Removed since SQLite opened it.
            Err(Errno::NOENT) => return Err(Trouble::Closed),
            Err(error) => return Err(cannot("looked at", &error.into()).into()),
        };
        let stat = fstat(&handle).map_err(|error| cannot("looked at", &error.into()))?;
        Ok(Self { name, handle, identity: Identity::from_stat(&stat) })
    }

    /// How long it is; zero if it has no name any more.
    fn bytes(&self) -> i64 {
        fstat(&self.handle).map_or(0, |stat| if stat.st_nlink > 0 { stat.st_size } else { 0 })
    }

    fn is_at_its_name(&self, directory: &OwnedFd) -> bool {
        let stat = statat(directory, &self.name, AtFlags::SYMLINK_NOFOLLOW);
        stat.is_ok_and(|stat| Identity::from_stat(&stat) == self.identity)
    }
}

fn c_string(bytes: &[u8]) -> Result<CString, Failure> {
    // A path with a zero in it was refused with the URL.
    CString::new(bytes).map_err(|error| cannot("looked at", &error.into()))
}

/// Whether this process has a file open that once was at that path, and is not this one. Connections of
/// one process share their shared memory, for as long as one of them has it.
fn has_another_open(path: &Path, current: Identity) -> io::Result<bool> {
    let removed = OsString::from_vec([path.as_os_str().as_bytes(), b" (deleted)"].concat());
    for open in fs::read_dir(OPEN_FILES)? {
        let open = open?.path();
        // Whatever is closed meanwhile is nobody's.
        let Ok(leads_to) = fs::read_link(&open) else { continue };
        if leads_to != path && leads_to.as_os_str() != removed {
            continue;
        }
        let Ok(metadata) = fs::metadata(&open) else { continue };
        if (Identity { device: metadata.dev(), inode: metadata.ino() }) != current {
            return Ok(true);
        }
    }
    Ok(false)
}
