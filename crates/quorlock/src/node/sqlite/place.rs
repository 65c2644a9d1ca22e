//! Where the file lies, and who else may write there.
//!
//! Where every user may write, as in `/tmp`, another user can plant a link, or a file of its own, under
//! the name that a process is about to use. So whatever lies there has to belong to this user, to root
//! or to the owner of the directory, and the file and what SQLite keeps beside it may not be links.
//! Links elsewhere are followed: a home may be one, and `/var/run` is.

use std::fs::{self, DirBuilder, Metadata};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, FileType, Mode, mknodat};
use rustix::io::Errno;
use rustix::process::geteuid;

use super::error::{MAKE_WRITABLE, cannot, unfit};
use crate::node::Failure;

/// What lies beside the file, by the ends of their names: the files of SQLite, and the directory of
/// the sockets.
pub(super) const WAL: &str = "-wal";
pub(super) const SHM: &str = "-shm";
const JOURNAL: &str = "-journal";
pub(super) const WAKE: &str = "-wake";

const WRITTEN_BY_ALL: u32 = 0o002;
const WRITTEN_BY_OTHERS: u32 = 0o022;

const OWN_DIRECTORY: &str =
    "name a file in a directory of its own, which only the users of its locks may write to";

/// A file that is there.
#[derive(Debug, Clone)]
pub(super) struct Place {
    /// As it was named.
    pub(super) given: PathBuf,
    /// Where that leads, without any links. What lies beside the file lies here.
    pub(super) real: PathBuf,
}

impl Place {
    /// Makes the file and its directory, for this user alone, unless they are there. Refuses what
    /// somebody else may have planted.
    pub(super) fn prepare(given: &Path) -> Result<Self, Failure> {
        check_way(given)?;
        create(given)?;
        let real = fs::canonicalize(given).map_err(|error| cannot("looked at", &error))?;
        let place = Self { given: given.to_owned(), real };
        // Again, now that all of it is there: in a directory of all nobody can take away what belongs
        // to others.
        check_way(given)?;
        check_way(&place.real)?;
        for suffix in [WAL, SHM, JOURNAL, WAKE] {
            place.check_beside(suffix)?;
        }
        place.check_rights()?;
        Ok(place)
    }

    /// The path of what lies beside the file.
    pub(super) fn beside(&self, suffix: &str) -> PathBuf {
        let mut path = self.real.as_os_str().to_owned();
        path.push(suffix);
        path.into()
    }

    /// Refuses what somebody else may have planted beside the file.
    pub(super) fn check_beside(&self, suffix: &str) -> Result<(), Failure> {
        check(&self.beside(suffix), true)
    }

    /// The directory of the file.
    pub(super) fn directory(&self) -> &Path {
        self.real.parent().unwrap_or(Path::new("/"))
    }

    /// Removes the WAL and the shared memory.
    pub(super) fn remove_wal(&self) -> Result<(), Failure> {
        for suffix in [SHM, WAL] {
            match fs::remove_file(self.beside(suffix)) {
                Err(error) if error.kind() != ErrorKind::NotFound => {
                    return Err(cannot("made anew", &error));
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// A user that may write to the WAL or cut the shared memory short can harm all who use the file.
    fn check_rights(&self) -> Result<(), Failure> {
        let file = fs::metadata(&self.real).map_err(|error| cannot("looked at", &error))?;
        for suffix in [WAL, SHM] {
            let path = self.beside(suffix);
            let Ok(beside) = fs::symlink_metadata(&path) else { continue };
            if beside.mode() & WRITTEN_BY_OTHERS & !file.mode() != 0 {
                let problem =
                    format!("more users may write to {} than to the file itself", path.display());
                return Err(unfit(problem, "chmod it to the mode of the file"));
            }
        }
        Ok(())
    }
}

/// Checks everything on the way to the file, and the file.
fn check_way(path: &Path) -> Result<(), Failure> {
    for (index, place) in path.ancestors().enumerate() {
        check(place, index == 0)?;
    }
    Ok(())
}

/// Checks one thing, if it is there and lies where every user may write.
fn check(path: &Path, is_last: bool) -> Result<(), Failure> {
    let Some(directory) = path.parent() else { return Ok(()) };
    let Ok(around) = fs::metadata(directory) else { return Ok(()) };
    if around.mode() & WRITTEN_BY_ALL == 0 {
        return Ok(());
    }
    let there = match fs::symlink_metadata(path) {
        Ok(there) => there,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(cannot("looked at", &error)),
    };
    let planted = if is_last && there.is_symlink() {
        "is a symbolic link".to_owned()
    } else if !is_trusted(&there, &around) {
        format!("belongs to user {}", there.uid())
    } else {
        return Ok(());
    };
    let problem =
        format!("{} {planted}, in a directory that every user may write to", path.display());
    Err(unfit(problem, OWN_DIRECTORY))
}

fn is_trusted(there: &Metadata, around: &Metadata) -> bool {
    [geteuid().as_raw(), 0, around.uid()].contains(&there.uid())
}

fn create(path: &Path) -> Result<(), Failure> {
    if let Some(directory) = path.parent() {
        let made = DirBuilder::new().recursive(true).mode(0o700).create(directory);
        made.map_err(|error| {
            unfit(format!("{} cannot be created: {error}", directory.display()), MAKE_WRITABLE)
        })?;
    }
    // Made without being opened: closing it would drop the locks of all connections in this process.
    // A link that leads nowhere counts as being there, and is not followed.
    match mknodat(CWD, path, FileType::RegularFile, Mode::RUSR | Mode::WUSR, 0) {
        Ok(()) | Err(Errno::EXIST) => Ok(()),
        Err(error) => Err(cannot("created", &io::Error::from(error))),
    }
}
