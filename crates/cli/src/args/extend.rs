//! `quorlock extend`, as it is written.

use std::ffi::OsString;
use std::time::Duration;

use clap::Parser;

use super::{ClusterArgs, TokenArgs};
use crate::duration;

const EXTEND_EXAMPLES: &str = "\
An extension never takes a lock again that was lost, and never makes it end earlier. quorlock \
run extends its lock by itself; its command can do so before work in which it must not be \
disturbed.

Exit codes:
    0  the lock is extended
   69  too few nodes can be reached: it ends when it would have
   76  the lock is not held by this token any more: stop the work
   78  arguments or settings that cannot work
  125  quorlock itself failed

Examples:
  quorlock extend deploy                # the token is in QUORLOCK_TOKEN
  quorlock extend deploy --token-file ~/.deploy.token
  pass deploy/token | quorlock extend deploy --token-file - --ttl 15s";

/// Make a lock last longer that quorlock acquire or quorlock run has taken.
#[derive(Parser)]
#[command(after_help = EXTEND_EXAMPLES)]
pub(crate) struct ExtendArgs {
    /// How long the lock lasts from now on. At most --max-ttl [default: 30s, or
    /// --max-ttl if that is less]
    #[arg(long, value_name = "DURATION", value_parser = duration::parse)]
    pub(crate) ttl: Option<Duration>,

    #[command(flatten)]
    pub(crate) token: TokenArgs,

    #[command(flatten)]
    pub(crate) cluster: ClusterArgs,

    /// The lock
    pub(crate) name: OsString,
}
