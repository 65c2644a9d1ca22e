//! `quorlock status`, as it is written.

use std::ffi::OsString;

use clap::Parser;

use super::ClusterArgs;

const STATUS_EXAMPLES: &str = "\
The first line says whether the lock is held, by whom and how long it lasts unless it is renewed.
Then comes a line for each node. A holder is shown as #, and 8 digits made from its secret token.

Exit codes: 0 held or free, 69 too few nodes answered to tell, 78 arguments or settings that cannot
work, 125 quorlock itself failed.

Examples:
  quorlock status --node redis://a,redis://b,redis://c nightly
  QUORLOCK_NODES=redis://:PASSWORD@a quorlock status nightly

Passwords belong into QUORLOCK_NODES or a file: the arguments of a process can be seen by every user
of the machine. QUORLOCK_LOG says what is logged to stderr: off, error, warn (the default), info, debug.";

/// Show who holds a lock, and what each node says.
#[derive(Parser)]
#[command(after_help = STATUS_EXAMPLES)]
pub(crate) struct StatusArgs {
    #[command(flatten)]
    pub(crate) cluster: ClusterArgs,

    /// The lock
    pub(crate) name: OsString,
}
