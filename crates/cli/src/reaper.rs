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
    if *IS_REAPER {
        collect_all_but(leader);
    }
}

fn collect_all_but(leader: Option<Pid>) {
    let ended = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG;
    let leader = leader.map(|pid| pid.as_raw_nonzero().get());
    // Looked at first, and left where it is.
    while let Ok(status) = waitid(Id::All, ended | WaitPidFlag::WNOWAIT)
        && let Some(pid) = status.pid()
        && Some(pid.as_raw()) != leader
        && waitid(Id::Pid(pid), ended).is_ok()
    {}
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::process::{Child, Command};
    use std::thread;
    use std::time::Duration;

    use super::*;

    /// A child that has ended and was not collected.
    fn dead() -> Child {
        let child = Command::new("sh").args(["-c", "exit 7"]).spawn().unwrap();
        let stat = format!("/proc/{}/stat", child.id());
        while !fs::read_to_string(&stat).unwrap().contains(") Z ") {
            thread::sleep(Duration::from_millis(1));
        }
        child
    }

    // The only test of this program that has children: it collects those of all.
    #[test]
    fn somebody_elses_exit_code_is_left_and_all_others_are_collected() {
        let mut leader = dead();
        collect_all_but(Some(Pid::from_child(&leader)));
        assert_eq!(leader.wait().unwrap().code(), Some(7));
        let strangers = [dead(), dead()];
        collect_all_but(Some(Pid::from_child(&leader)));
        for mut stranger in strangers {
            stranger.wait().expect_err("it was collected");
        }
    }
}
