//! `quorlock run`, as it is written.

use std::ffi::OsString;
use std::time::Duration;

use clap::Parser;
use rustix::process::Signal;

use super::{ClusterArgs, NoteArgs};
use crate::duration;
use crate::signals;

const RUN_EXAMPLES: &str = "\
The command runs in a process group of its own. SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1 and \
SIGUSR2 are passed on to the group. The lock is released when all of the group has ended, the \
command and what it left running (but see -o). If quorlock itself is killed, the group is killed \
at once.

While the command runs, the lock is extended every third of its TTL. If that fails until a sixth \
of the TTL is left, or what --end-before says, the group gets SIGTERM, and when a twelfth of the TTL \
is left SIGKILL: it is gone before the lock is. If the lock is found lost, the group gets SIGTERM at once and SIGKILL within \
0.1 s. What the command moved out of its group, as a daemon does, is not ended.

On a terminal quorlock shows who holds the lock, what is left of the lease and how many wait, \
while it waits. The command can read from the terminal. Ctrl-Z stops the command and quorlock. A \
lock that nobody extends lasts no longer than its TTL: the command goes on (fg, bg) if the lock \
is still held then, and is killed if not.

Ctrl-C reaches the command. If it ends by that, or by another signal that quorlock has passed \
on, then quorlock ends by the same signal, as the process that waits for it can tell: a script stops its \
loop. If the command makes something else of it, quorlock ends with its exit code, and a script \
goes on.

The command finds in its environment:
  QUORLOCK_NAME   the lock
  QUORLOCK_TOKEN  its token, a secret: a process with it can extend and release
                  the lock. Another one with every run, so a value for a
                  compare-and-set in what the lock protects
  QUORLOCK_FENCE  its fence, a number: higher than that of everybody who held
                  the lock before. Pass it on with every write, and let what the
                  lock protects refuse a lower one than it has seen
  QUORLOCK_OWNER  its owner, a secret
  QUORLOCK_HELD   the owners of all runs around it, secrets too

By the owner a run of the same name inside the command takes part in its lock: it starts at \
once, and releases nothing.

Passwords belong into QUORLOCK_NODES or a file: the arguments of a process can be seen by every \
user of the machine. QUORLOCK_LOG says what is logged to stderr: off, error, warn (the default), \
info, debug. NO_COLOR turns colours off.

Exit codes:
    *  that of the command; 128+N if signal N ended it
   69  too few nodes can be reached, or vote yet, in the time of -w, or with -n
       in that of --votes-within; at once if that time cannot be enough
   75  the lock is taken by somebody else (-n; another code with -E)
   76  the lock was lost or held for as long as it may be, and the command was
       ended
   78  arguments or settings that cannot work
  124  the lock did not become free in time (-w; another code with -E)
  125  quorlock itself failed
  126  the command cannot be run
  127  the command was not found
  128+N  signal N came while quorlock waited for the lock

Examples:
  quorlock run --node redis://a,redis://b,redis://c nightly -- ./backup.sh
  quorlock run -n -E 0 nightly -- ./backup.sh     # somebody else does it: fine
  quorlock run -w 1m30s --ttl 5s deploy/web -c './build && ./deploy'
  quorlock run --ttl 30s --end-before 10s sync -- ./sync  # 7.5 s to clean up
  quorlock run --hold-at-least 1m mail -- ./send  # once, though clocks differ";

const OWNER_HELP: &str = "\
For whom to take the lock: with the QUORLOCK_OWNER of another run, it takes part in its lock. A secret \
[default: that of a run of the same name around this one, or somebody new]";

/// Take a lock, run a command, release the lock.
///
/// Waits without end for the lock and for nodes that cannot be reached, unless -w or -n is given.
#[derive(Parser)]
#[command(after_help = RUN_EXAMPLES)]
pub(crate) struct RunArgs {
    /// A line for the shell, instead of a command
    #[arg(short = 'c', long = "command", value_name = "LINE", conflicts_with = "command")]
    pub(crate) line: Option<OsString>,

    #[arg(
        help = "How long the lock outlives this process if the machine dies; it is extended for as \
                  long as the command runs. At most --max-ttl [env: QUORLOCK_TTL] [default: 10s]"
    )]
    #[arg(long, value_name = "DURATION", value_parser = duration::parse)]
    pub(crate) ttl: Option<Duration>,

    #[arg(help = "Wait so long at the most: 10s, 1m30s, 500ms, 2h, or seconds such as 0.5 [env: \
                  QUORLOCK_WAIT] [default: without end]")]
    #[arg(short, long, value_name = "DURATION", value_parser = duration::parse)]
    pub(crate) wait: Option<Duration>,

    /// Do not wait behind another holder: fail if the lock is taken. Votes that are missing are waited for, see
    /// --votes-within
    #[arg(short, long, conflicts_with = "wait")]
    pub(crate) nonblock: bool,

    #[arg(
        help = "With -n, wait so long at the most for votes that are missing, since nodes were restarted, or \
                  cannot be reached; 0 for not at all [env: QUORLOCK_VOTES_WITHIN] [default: until nodes that \
                  were all restarted vote again, and 5s; at most 2m]"
    )]
    #[arg(long, value_name = "DURATION", value_parser = duration::parse, requires = "nonblock")]
    pub(crate) votes_within: Option<Duration>,

    /// The exit code if the lock is taken (-n) or does not become free in time (-w) [default: 75
    /// and 124]
    #[arg(short = 'E', long, value_name = "CODE")]
    pub(crate) conflict_exit_code: Option<u8>,

    /// End the command before the lock was held for longer than this, with exit code 76 [default:
    /// no limit]
    #[arg(long, value_name = "DURATION", value_parser = duration::parse)]
    pub(crate) max_hold: Option<Duration>,

    /// Keep the lock for so long, though the command ends earlier; a signal ends it [default: no
    /// longer than the command]
    #[arg(long, value_name = "DURATION", value_parser = duration::parse)]
    pub(crate) hold_at_least: Option<Duration>,

    /// Kill the command (SIGKILL) so long after a signal that was to end it, if it still runs;
    /// --max-hold ends it so much earlier. If the lock is lost, what is left of it decides [default:
    /// never]
    #[arg(short, long, value_name = "DURATION", value_parser = duration::parse)]
    pub(crate) kill_after: Option<Duration>,

    #[arg(
        help = "How long before the end of the lease the command gets its signal (--signal), if the lock cannot be extended: \
                what it gets to clean up in, before it is killed (SIGKILL). At most half of the lease, which is \
                a little less than the TTL [default: a sixth of the TTL]"
    )]
    #[arg(long, value_name = "DURATION", value_parser = duration::parse)]
    pub(crate) end_before: Option<Duration>,

    /// What to end the command with
    #[arg(short, long, value_name = "SIGNAL", default_value = "TERM", value_parser = signals::parse)]
    pub(crate) signal: Signal,

    /// Release the lock when the command itself has ended, whatever it left running
    #[arg(short = 'o', long)]
    pub(crate) leave_behind: bool,

    #[arg(long, value_name = "ID", help = OWNER_HELP)]
    pub(crate) owner: Option<String>,

    #[command(flatten)]
    pub(crate) note: NoteArgs,

    #[command(flatten)]
    pub(crate) cluster: ClusterArgs,

    /// The lock
    pub(crate) name: OsString,

    /// The command, with its arguments
    #[arg(last = true, required_unless_present = "line", value_name = "CMD")]
    pub(crate) command: Vec<OsString>,
}
