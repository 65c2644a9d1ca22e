//! `quorlock acquire`, as it is written.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::Parser;

use super::{ClusterArgs, NoteArgs};
use crate::duration;

const ACQUIRE_EXAMPLES: &str = "\
The lock is not extended by itself: it ends after its TTL, whatever becomes of the script. \
Extend it before that with quorlock extend, and give it back with quorlock release. Where the \
work is one command, quorlock run does all of this, and ends the command if the lock is lost.

The token is printed once. Any process that has it can extend and release the lock: keep it in a variable \
of the shell, or in a file. With --token-file nothing is printed. The file is for its owner \
alone (mode 0600), and appears only when the lock is taken. One that is there is replaced if it \
is empty or holds a token, and refused otherwise.

With --json it is one object in one line: name, token (null with --token-file) and fence, a number \
that is higher than that of everybody who held the lock before. Pass the fence on with every write, \
and let what the lock protects refuse a lower one than it has seen.

Exit codes:
    0  the lock is taken
   69  too few nodes can be reached, or vote yet
   75  the lock is taken by somebody else (-n; another code with -E)
   76  the lock was taken, and lost before its token was written
   78  arguments or settings that cannot work
  124  the lock did not become free in time (-w; another code with -E)
  125  quorlock itself failed; the lock is not held
  128+N  signal N came while quorlock waited for the lock

Examples:
  QUORLOCK_TOKEN=$(quorlock acquire -n deploy) || exit
  export QUORLOCK_TOKEN
  ./build && quorlock extend deploy && ./deploy
  quorlock release deploy

  quorlock acquire deploy -w 1m --token-file ~/.deploy.token
  quorlock release deploy --token-file ~/.deploy.token";

/// Take a lock for a time, and print the token that proves it.
///
/// Waits without end for the lock, unless -w or -n is given.
#[derive(Parser)]
#[command(after_help = ACQUIRE_EXAMPLES)]
pub(crate) struct AcquireArgs {
    /// How long the lock lasts unless it is extended. At most --max-ttl [default: 30s, or
    /// --max-ttl if that is less]
    #[arg(long, value_name = "DURATION", value_parser = duration::parse)]
    pub(crate) ttl: Option<Duration>,

    #[arg(help = "Wait so long at the most: 10s, 1m30s, 500ms, 2h, or seconds such as 0.5 [env: \
                  QUORLOCK_WAIT] [default: without end]")]
    #[arg(short, long, value_name = "DURATION", value_parser = duration::parse)]
    pub(crate) wait: Option<Duration>,

    /// Do not wait: fail if the lock is taken
    #[arg(short, long, conflicts_with = "wait")]
    pub(crate) nonblock: bool,

    /// The exit code if the lock is taken (-n) or does not become free in time (-w) [default: 75
    /// and 124]
    #[arg(short = 'E', long, value_name = "CODE")]
    pub(crate) conflict_exit_code: Option<u8>,

    /// Print JSON, for programs: the token, and the fence of this holder
    #[arg(long)]
    pub(crate) json: bool,

    /// Write the token to a file instead of standard output
    #[arg(long, value_name = "FILE")]
    pub(crate) token_file: Option<PathBuf>,

    #[command(flatten)]
    pub(crate) note: NoteArgs,

    #[command(flatten)]
    pub(crate) cluster: ClusterArgs,

    /// The lock
    pub(crate) name: OsString,
}
