//! `quorlock run`, as it is written.

use std::ffi::OsString;
use std::time::Duration;

use clap::Parser;

use super::ClusterArgs;
use crate::duration;
use crate::exit;

const RUN_EXAMPLES: &str = "\
The command runs in a process group of its own, so it cannot read from a terminal. SIGINT, SIGTERM,
SIGHUP and SIGQUIT are passed on to the group. Ctrl-Z does nothing: a lock that nobody extends would
be lost. The command finds the lock's name in QUORLOCK_NAME. The lock is released when the command
has ended, even if something it started runs on.

While the command runs, the lock is extended every third of its TTL. If that fails until a sixth of
the TTL is left, the group gets SIGTERM, and half of that time later SIGKILL: it is gone before the
lock is. If the lock is found lost, the group gets SIGTERM at once and SIGKILL within 0.1 s.

Exit codes:
    *  that of the command; 128+N if signal N ended it
   69  too few nodes can be reached
   75  the lock is taken (-n; another code with -E)
   76  the lock was lost, and the command ended
   78  arguments or settings that cannot work
  124  the lock did not become free in time (-w)
  125  quorlock itself failed
  126  the command cannot be run
  127  the command was not found
  128+N  signal N came while quorlock waited for the lock

Examples:
  quorlock run --node redis://a,redis://b,redis://c nightly -- ./backup.sh --full
  quorlock run -n -E 0 nightly -- ./backup.sh     # somebody else does it: fine
  quorlock run -w 1m30s --ttl 5s deploy/web -- sh -c './build && ./deploy'

Passwords belong into QUORLOCK_NODES or a file: the arguments of a process can be seen by every user
of the machine. QUORLOCK_LOG says what is logged to stderr: off, error, warn (the default), info, debug.";

/// Take a lock, run a command, release the lock.
///
/// Waits without end for the lock, unless -w or -n is given.
#[derive(Parser)]
#[command(after_help = RUN_EXAMPLES)]
pub(crate) struct RunArgs {
    #[arg(
        help = "How long the lock outlives this process if the machine dies; it is extended for as \
                  long as the command runs. At most 30s [env: QUORLOCK_TTL] [default: 10s]"
    )]
    #[arg(long, value_name = "DURATION", value_parser = duration::parse)]
    pub(crate) ttl: Option<Duration>,

    #[arg(help = "Wait so long at the most: 10s, 1m30s, 500ms, 2h, or seconds such as 0.5 [env: \
                  QUORLOCK_WAIT] [default: without end]")]
    #[arg(short, long, value_name = "DURATION", value_parser = duration::parse)]
    pub(crate) wait: Option<Duration>,

    /// Do not wait: fail if the lock is taken
    #[arg(short, long, conflicts_with = "wait")]
    pub(crate) nonblock: bool,

    /// The exit code if the lock is taken
    #[arg(short = 'E', long, value_name = "CODE", requires = "nonblock")]
    #[arg(default_value_t = exit::TAKEN)]
    pub(crate) conflict_exit_code: u8,

    #[command(flatten)]
    pub(crate) cluster: ClusterArgs,

    /// The lock
    pub(crate) name: OsString,

    /// The command, with its arguments
    #[arg(last = true, required = true, value_name = "CMD")]
    pub(crate) command: Vec<OsString>,
}
