//! A process that outlives this one by a moment, to end what it leaves.
//!
//! The system kills the command when this process is killed, but not what the command has started,
//! and nobody extends their lock any more. So a process of this program, in a group of its own,
//! holds the other end of a pipe. It closes when this process ends, in whatever way.
//!
//! ```text
//!   quorlock run ──pipe──▶ quorlock __bury GROUP
//!      ends by itself:     a byte, then the end     done
//!      is killed:          the end                  SIGKILL for the group
//! ```

use std::ffi::OsString;
use std::io::{self, PipeWriter, Read, Write};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use nix::sys::signal::SigSet;
use rustix::process::{Pid, Signal, kill_process_group};

use crate::exec::this_program;

/// What stands in the place of a subcommand. Nobody else is to use it: it is in no help.
pub(crate) const STAGE: &str = "__bury";

/// Somebody who kills a group if this process ends without saying that all is well.
pub(crate) struct Undertaker(PipeWriter);

impl Undertaker {
    /// Has that group killed if this process ends before [`dismiss`](Self::dismiss).
    pub(crate) fn for_group(group: Pid) -> io::Result<Self> {
        let (reader, writer) = io::pipe()?;
        Command::new(this_program())
            .arg0("quorlock")
            .args([STAGE, &group.as_raw_nonzero().to_string()])
            .env_clear()
            // Not where the command is: a folder in use cannot be unmounted.
            .current_dir("/")
            .stdin(reader)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            // Whoever ends the group of this process does not end that one.
            .process_group(0)
            .spawn()?;
        Ok(Self(writer))
    }

    /// The group may live on.
    pub(crate) fn dismiss(mut self) {
        // If it is gone, it does nothing either.
        let _ = self.0.write_all(b".");
    }
}

/// Does the work, if this process was started for that. Returns whether it was.
pub(crate) fn bury(mut args: impl Iterator<Item = OsString>) -> bool {
    if args.next().is_none_or(|stage| stage != STAGE) {
        return false;
    }
    // A service manager may ask all of its processes to end at once. This one ends with the other.
    let _ = SigSet::all().thread_block();
    let group = args.next().and_then(|id| Pid::from_raw(id.to_str()?.parse().ok()?));
    let mut word = [0];
    if matches!(io::stdin().read(&mut word), Ok(0))
        && let Some(group) = group
    {
        // The number is not in use for another group: the pipe closed this moment.
        let _ = kill_process_group(group, Signal::KILL);
    }
    true
}
