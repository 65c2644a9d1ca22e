//! `quorlock list`, as it is written.

use clap::Parser;

use super::ClusterArgs;

const LIST_EXAMPLES: &str = "\
Locks that other Redlock libraries hold are not listed, since nothing tells their keys from \
other keys; quorlock status shows them by name. On Redis all keys of the database are gone \
through, a few hundred at a time.

With --json it is an array of what quorlock status --json prints. In an outage it is what the nodes \
know that are still there: exit code 69 says that locks may be missing, those that are listed have \
the state unknown if too few nodes answered to tell, and stderr names the nodes that did not.

Exit codes:
    0  listed, though there may be none
   69  too few nodes answered to know all locks: what is known is listed
   78  arguments or settings that cannot work
  125  quorlock itself failed

Examples:
  quorlock list
  quorlock list --node redis://a,redis://b,redis://c --prefix job:
  quorlock list --json | jq -r '.[] | select(.waiting > 0) | .name'";

/// List the locks that are held, and by whom.
#[derive(Parser)]
#[command(after_help = LIST_EXAMPLES)]
pub(crate) struct ListArgs {
    /// Print JSON, for programs
    #[arg(long)]
    pub(crate) json: bool,

    #[command(flatten)]
    pub(crate) cluster: ClusterArgs,
}
