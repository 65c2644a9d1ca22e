//! `quorlock release`, as it is written.

use std::ffi::OsString;

use clap::Parser;

use super::{ClusterArgs, TokenArgs};

const RELEASE_EXAMPLES: &str = "\
The token is that of quorlock acquire or of the command of a quorlock run, which loses its lock \
by this and is ended soon after.

With --force the lock is taken from its holder. The holder is not asked, and learns of it \
only when it next extends the lock: until then it may work on beside the next holder. Use it \
when you know that the holder is gone or out of order. A lock that changes hands in the meantime \
is left alone.

Exit codes:
    0  the lock is given back, or with --force: taken away, or free
   69  too few nodes can be reached
   76  the lock is not held by this token any more: somebody else may have
       held it
   78  arguments or settings that cannot work; with --force: not confirmed
  125  quorlock itself failed

Examples:
  quorlock release deploy               # the token is in QUORLOCK_TOKEN
  quorlock release deploy --token-file ~/.deploy.token
  quorlock release --force deploy       # asks, on a terminal
  quorlock release --force --yes deploy";

/// Give a lock back by its token, or take it away from its holder.
#[derive(Parser)]
#[command(after_help = RELEASE_EXAMPLES)]
pub(crate) struct ReleaseArgs {
    #[command(flatten)]
    pub(crate) token: TokenArgs,

    /// Take the lock away from its holder
    #[arg(long, conflicts_with_all = ["token", "token_file"])]
    pub(crate) force: bool,

    /// Do not ask whether that is meant
    #[arg(short, long, requires = "force")]
    pub(crate) yes: bool,

    #[command(flatten)]
    pub(crate) cluster: ClusterArgs,

    /// The lock
    pub(crate) name: OsString,
}
