//! What an error of SQLite or of the file system means, and what to do about it.

use std::fmt::Display;
use std::io;
use std::time::Duration;

use rusqlite::ErrorCode;

use crate::node::{Failure, FailureKind};

/// Why something did not run. Nothing was changed, unless the failure is
/// [`FailureKind::Broken`].
#[derive(Debug)]
pub(super) enum Trouble {
    /// Another process has the file to itself right now: worth another try.
    Busy,
    /// The file is not open, or not the one that its path leads to any more, or what belongs to it is
    /// not: it has to be opened.
    Closed,
    /// Another try would not help before somebody does something.
    Failed(Failure),
}

impl From<Failure> for Trouble {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}

impl From<rusqlite::Error> for Trouble {
    fn from(error: rusqlite::Error) -> Self {
        if is_busy(&error) { Self::Busy } else { Self::Failed(rejected(&error)) }
    }
}

/// Whether another process has the file to itself.
pub(super) fn is_busy(error: &rusqlite::Error) -> bool {
    use ErrorCode::{DatabaseBusy, DatabaseLocked, FileLockingProtocolFailed};
    // The last one says that others wrote each time when SQLite was about to begin.
    let code = error.sqlite_error_code();
    matches!(code, Some(DatabaseBusy | DatabaseLocked | FileLockingProtocolFailed))
}

/// The file cannot be used as it is; `problem` says why, `remedy` what to do.
pub(super) fn unfit(problem: impl Display, remedy: &str) -> Failure {
    Failure::new(FailureKind::Unfit, format!("{problem}; {remedy}"))
}

/// The file system does not let this process do something with it.
pub(super) fn cannot(what: &str, error: &io::Error) -> Failure {
    unfit(format!("it cannot be {what}: {error}"), MAKE_WRITABLE)
}

/// A call has waited for other processes as long as it may.
pub(super) fn busy(limit: Duration) -> Failure {
    let text = format!(
        "the file is busy: other processes kept it from being written for {limit:?}; look with \
         `fuser` for one that is stopped or hangs, or allow a longer node time limit"
    );
    Failure::new(FailureKind::Rejected, text)
}

/// Nobody knows whether the transaction was written.
pub(super) fn broken(error: &rusqlite::Error) -> Failure {
    Failure::new(FailureKind::Broken, format!("the commit failed: {}", rejected(error)))
}

/// An error before the commit.
pub(super) fn rejected(error: &rusqlite::Error) -> Failure {
    let (kind, remedy) = match error.sqlite_error_code() {
        Some(ErrorCode::NotADatabase) => (
            FailureKind::Unfit,
            "it holds something else than locks; name another file, or remove this one if nothing \
             needs it",
        ),
        Some(ErrorCode::DatabaseCorrupt) => (
            FailureKind::Unfit,
            "the file is damaged; end all processes that use it and remove it, which frees its \
             locks",
        ),
        Some(ErrorCode::ReadOnly | ErrorCode::CannotOpen | ErrorCode::PermissionDenied) => {
            (FailureKind::Unfit, MAKE_WRITABLE)
        }
        Some(ErrorCode::DiskFull) => (FailureKind::Rejected, "free some space on the disk"),
        Some(ErrorCode::SystemIoFailure) => {
            (FailureKind::Rejected, "the disk fails, or its quota is used up; see the kernel's log")
        }
        _ => (FailureKind::Rejected, "name another file if this goes on"),
    };
    Failure::new(kind, format!("{error}; {remedy}"))
}

pub(super) const MAKE_WRITABLE: &str =
    "let this user write to the file and to its directory, or name another file";

#[cfg(test)]
mod tests {
    use rusqlite::ffi;

    use super::*;

    fn sqlite(code: i32) -> rusqlite::Error {
        rusqlite::Error::SqliteFailure(ffi::Error::new(code), None)
    }

    #[test]
    fn only_a_busy_file_is_worth_another_try() {
        for code in
            [ffi::SQLITE_BUSY, ffi::SQLITE_BUSY_RECOVERY, ffi::SQLITE_LOCKED, ffi::SQLITE_PROTOCOL]
        {
            assert!(matches!(Trouble::from(sqlite(code)), Trouble::Busy), "{code}");
        }
        for code in [ffi::SQLITE_FULL, ffi::SQLITE_NOTADB, ffi::SQLITE_ERROR] {
            assert!(matches!(Trouble::from(sqlite(code)), Trouble::Failed(_)), "{code}");
        }
    }

    #[test]
    fn known_errors_carry_a_remedy() {
        for (code, kind, remedy) in [
            (ffi::SQLITE_NOTADB, FailureKind::Unfit, "name another file"),
            (ffi::SQLITE_CORRUPT, FailureKind::Unfit, "remove it"),
            (ffi::SQLITE_READONLY_DIRECTORY, FailureKind::Unfit, "let this user write"),
            (ffi::SQLITE_CANTOPEN, FailureKind::Unfit, "let this user write"),
            (ffi::SQLITE_FULL, FailureKind::Rejected, "free some space"),
            (ffi::SQLITE_IOERR_WRITE, FailureKind::Rejected, "kernel's log"),
        ] {
            let failure = rejected(&sqlite(code));
            assert_eq!(failure.kind(), kind, "{failure}");
            assert!(failure.to_string().contains(remedy), "{failure}");
        }
    }

    #[test]
    fn a_failed_commit_may_have_been_written() {
        assert_eq!(broken(&sqlite(ffi::SQLITE_FULL)).kind(), FailureKind::Broken);
    }
}
