//! The terminal: which process group may read from it, and is reached by Ctrl-C and Ctrl-Z.
//!
//! That is one group at a time, the one in the foreground. The command has a group of its own, so it
//! is put there if `quorlock` was, and `quorlock` takes the terminal back afterwards.

use std::fs::{File, OpenOptions};
use std::io::{self, IsTerminal};
use std::os::fd::AsFd;

use nix::sys::signal::{SigSet, SigmaskHow, Signal};
use rustix::fs::{FileType, fstat};
use rustix::process::{Pid, getpgrp};
use rustix::termios::{tcgetpgrp, tcsetpgrp};

/// The terminal that controls this process.
pub(crate) struct Terminal {
    file: File,
    /// Whether the command has it.
    is_given: bool,
}

impl Terminal {
    /// The terminal, if there is one: there is none under cron, systemd or CI.
    pub(crate) fn open() -> Option<Self> {
        let file = OpenOptions::new().read(true).write(true).open("/dev/tty").ok()?;
        Some(Self { file, is_given: false })
    }

    /// Whether this process may read from it now.
    fn is_ours(&self) -> bool {
        tcgetpgrp(&self.file) == Ok(getpgrp())
    }

    /// Notes that the command takes it as it starts, if it is to.
    ///
    /// It is not in the middle of a pipeline such as `quorlock run x -- make | less`, where the
    /// terminal is that of `less` as well. A command that reads from it there is helped when it
    /// does.
    pub(crate) fn goes_to_command(&mut self) -> bool {
        let piped = |fd| fstat(fd).is_ok_and(|stat| is_pipe(stat.st_mode));
        self.is_given = io::stdin().is_terminal()
            && tcgetpgrp(io::stdin()) == Ok(getpgrp())
            && !piped(io::stdout().as_fd());
        self.is_given
    }

    /// Whether the command has it.
    pub(crate) fn is_given(&self) -> bool {
        self.is_given
    }

    /// Gives it to a group, if it is this process's to give.
    pub(crate) fn give(&mut self, group: Pid) -> bool {
        if self.is_ours() {
            self.is_given = make_foreground(&self.file, group).is_ok();
        }
        self.is_given
    }

    /// Takes it back from the command. Whatever group has it now got it from the command.
    pub(crate) fn take_back(&mut self) {
        if self.is_given {
            self.is_given = false;
            // A terminal that has hung up is nobody's any more.
            let _ = make_foreground(&self.file, getpgrp());
        }
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        self.take_back();
    }
}

fn is_pipe(mode: rustix::fs::RawMode) -> bool {
    matches!(FileType::from_raw_mode(mode), FileType::Fifo | FileType::Socket)
}

/// Puts a group into the foreground, from the background as well.
pub(crate) fn make_foreground(terminal: impl AsFd, group: Pid) -> io::Result<()> {
    let before = may_write()?;
    let done = tcsetpgrp(terminal, group);
    before.thread_set_mask()?;
    Ok(done?)
}

/// Lets this thread do to a terminal what is for the foreground only: it would be stopped by SIGTTOU
/// otherwise. Returns the signals that it blocked before.
pub(crate) fn may_write() -> io::Result<SigSet> {
    let mut stop = SigSet::empty();
    stop.add(Signal::SIGTTOU);
    Ok(stop.thread_swap_mask(SigmaskHow::SIG_BLOCK)?)
}
