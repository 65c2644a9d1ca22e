//! `quorlock status`, as it is written.

use std::ffi::OsString;

use clap::Parser;

use super::ClusterArgs;

const STATUS_EXAMPLES: &str = "\
The first line says whether the lock is held, by whom and how long it lasts unless it is \
renewed. Who that is, since when, and how many wait comes next, as far as it is known; then a \
line for each node. A holder is shown as #, and 8 digits made from its secret token.

With --json it is one object in one line. Fields are never removed; what is not known is null:
  name          the lock
  state         held, free, split (nobody has a majority, and it is not
                free), or unknown (too few nodes answered, or
                too many may have forgotten locks)
  holder        as above
  by            {host, user, pid, command} of a holder that runs quorlock
  note          what any other holder says of itself
  since         when it was taken, as 2026-11-16T04:48:28Z by the clock of its
                holder
  remaining_ms  how long it stays taken unless it is renewed
  waiting       how many processes wait for it
  fence         the fence of its holder, higher than those of all before
  quarantine_ms when a majority of the nodes votes again, if too many of them
                cast no vote, since they were started or emptied
  nodes         for each [{node, state, holder, by, note, remaining_ms,
                waiting, fence, quarantine_ms, error}], where state is held,
                free or failed, and error says why it could not be asked

In an outage it shows what the nodes know that are still there, with the state unknown if that is \
not enough to tell.

Passwords belong into QUORLOCK_NODES or a file: the arguments of a process can be seen by every \
user of the machine. QUORLOCK_LOG says what is logged to stderr: off, error, warn (the default), \
info, debug.

Exit codes:
    0  held, free or split; with --watch: after Ctrl-C
   69  too few nodes answered to tell
   78  arguments or settings that cannot work
  125  quorlock itself failed

Examples:
  quorlock status nightly
  quorlock status --node redis://a,redis://b,redis://c nightly
  quorlock status --watch nightly
  quorlock status --json nightly | jq -r .state";

/// Show who holds a lock, and what each node says.
#[derive(Parser)]
#[command(after_help = STATUS_EXAMPLES)]
pub(crate) struct StatusArgs {
    /// Print JSON, for programs
    #[arg(long)]
    pub(crate) json: bool,

    /// Look again every second, until Ctrl-C
    #[arg(long)]
    pub(crate) watch: bool,

    #[command(flatten)]
    pub(crate) cluster: ClusterArgs,

    /// The lock
    pub(crate) name: OsString,
}
