//! `quorlock doctor`, as it is written.

use std::ffi::OsString;
use std::time::Duration;

use clap::Parser;

use super::ClusterArgs;
use crate::duration;

const DOCTOR_EXAMPLES: &str = "\
Connects to each node, asks how it is set up, and tries a lock out: takes it, extends it, queues \
up for it, passes it on and releases it. The lock has a name of its own, and nothing is left of \
it. Where a user may only touch certain keys, give a NAME that starts like them.

What it finds is ok, a warning or an error, and comes with a remedy. It looks at: whether the \
nodes can be reached and used, how many of them may fail, one server behind two URLs, replicas, \
whether a node votes and for which clients, what a server forgets when it crashes, eviction, the \
rights of the user, whether waiters are told of their turn, round trips beside the time limits, \
clocks; and of a SQLite file, who may open it and where it lies.

With --json it is one object: severity, exit_code, quorum {nodes, needed, usable, may_fail}, \
settings {ttl_ms, node_limit_ms, connect_limit_ms, dialect, max_ttl_ms, clock_behind_ms, \
clock_ahead_ms, clients_apart_ms}, sources (for each setting the option, variable or file that it comes \
from, or default), findings, and for each of the nodes its node, usable, facts and \
findings. A finding has check, severity (ok, warn, error), text and \
remedy (or null). Fields may be added, and those that are there stay.

Exit codes:
    0  all is well, or there are warnings only
    1  there are errors, but enough nodes can be used
   69  too few nodes can be used
   78  arguments or settings that cannot work, one server behind two URLs
       among them
  125  quorlock itself failed

Examples:
  quorlock doctor
  quorlock doctor --node redis://a,redis://b,redis://c
  quorlock doctor --json | jq '.nodes[].findings[] | select(.severity != \"ok\")'";

/// Say what is wrong with the nodes, and how to mend it.
#[derive(Parser)]
#[command(after_help = DOCTOR_EXAMPLES)]
pub(crate) struct DoctorArgs {
    /// Print it as JSON
    #[arg(long)]
    pub(crate) json: bool,

    #[arg(
        help = "The TTL that the locks are to have: time limits are judged by it [env: QUORLOCK_TTL] \
                  [default: 10s]"
    )]
    #[arg(long, value_name = "DURATION", value_parser = duration::parse)]
    pub(crate) ttl: Option<Duration>,

    #[command(flatten)]
    pub(crate) cluster: ClusterArgs,

    /// How the name of the lock that is tried out starts
    #[arg(default_value = "quorlock-doctor")]
    pub(crate) name: OsString,
}
