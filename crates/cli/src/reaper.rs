//! The dead that others have left to this process.
//!
//! A process whose parent has ended becomes a child of process 1, or of the nearest one that has
//! asked for it. In a container that may be this program, which has to do what an init process
//! does: collect those that have ended, or they stay in the table of processes for good.

use std::sync::LazyLock;

use nix::sys::wait::{Id, WaitPidFlag, waitid};
use rustix::process::{Pid, getpid};

/// Whether strangers become children of this process.
static IS_REAPER: LazyLock<bool> = LazyLock::new(|| getpid().is_init() || is_subreaper());

#[cfg(target_os = "linux")]
fn is_subreaper() -> bool {
    matches!(rustix::process::child_subreaper(), Ok(Some(_)))
}

#[cfg(not(target_os = "linux"))]
fn is_subreaper() -> bool {
    false
}

/// Collects the children that have ended. Not `leader`, for whose exit code somebody else waits;
/// while that is dead and not collected, others behind it have to wait as well.
pub(crate) fn collect(leader: Option<Pid>) {
    if !*IS_REAPER {
        return;
    }
    let ended = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG;
    let leader = leader.map(|pid| pid.as_raw_nonzero().get());
    // Looked at first, and left where it is.
    while let Ok(status) = waitid(Id::All, ended | WaitPidFlag::WNOWAIT)
        && let Some(pid) = status.pid()
        && Some(pid.as_raw()) != leader
        && waitid(Id::Pid(pid), ended).is_ok()
    {}
}
