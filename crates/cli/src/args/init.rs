//! `quorlock init`, as it is written.

use clap::Parser;

use super::ClusterArgs;

const INIT_EXAMPLES: &str = "\
In the strict dialect a Redis or Valkey node that was started or emptied casts no vote for as \
long as a lock may last (--max-ttl, and some for clocks): it may have granted locks that it does \
not know of any more. A new node looks just like that. This tells the nodes, once, that they are \
new, and they vote from then on.

Say so only if it is true: no lock that any client still believes in was ever granted by these \
nodes. Otherwise two may hold one lock. A node that was restarted needs nothing: it votes again by \
itself.

All nodes of the set are looked at first. A node is refused, and nothing is changed on any of them, \
if a lock is held on it, if another start of the server was marked before, if it has no mark while \
others of the set vote, if it waits in quarantine, or if it belongs to another set of nodes or serves \
clients with another max_ttl or clock_ahead; nor is anything changed if a node cannot be reached. With \
--force it is done all the same: to change max_ttl, once all clients are stopped and have the new \
one. Never call it when servers start: it is for servers that were never used. Nodes that vote already \
are left alone. Files (sqlite:) and the redlock dialect need nothing.

A PostgreSQL database is set up as well, in a schema of its own (quorlock, or ?schema=), or brought forward \
from what an older version has set up there: it takes the right to create schemas once. Who may not give it \
away runs what --print-sql prints with psql, as the owner of the database, and then quorlock init. A MySQL or \
MariaDB database gets tables and procedures whose names begin with quorlock_: with the mysql client likewise.

With --json it is one object: exit_code, and for each of the nodes {node, state, locks, error}. \
state is marked, voting (it did before), not-needed, refused, left (it could be marked, but others \
were refused or failed) or failed; locks are some of those that are held there, or null; error says why it was \
refused or has failed, or null. Fields may be added, and those that are there stay.

Exit codes:
    0  all nodes vote
    1  some were refused, and nothing was changed
   69  some cannot be reached or used, and nothing was changed
   78  arguments or settings that cannot work, or it is not meant
  125  quorlock itself failed

Examples:
  quorlock init --node redis://a,redis://b,redis://c
  quorlock init --node postgres://db.example/app --print-sql | psql ...
  quorlock init --yes                 # in a script that has set the servers up
  quorlock init --yes --json | jq '.nodes[] | select(.error)'";

/// Tell new nodes that they are new, so that they vote at once.
#[derive(Parser)]
#[command(after_help = INIT_EXAMPLES)]
pub(crate) struct InitArgs {
    /// Do not ask
    #[arg(short, long)]
    pub(crate) yes: bool,

    /// Mark nodes that do not look like new ones, too
    #[arg(long)]
    pub(crate) force: bool,

    /// Print the SQL that sets the nodes up that are databases, for their owners to run, and do nothing
    #[arg(long, conflicts_with_all = ["yes", "force", "json"])]
    pub(crate) print_sql: bool,

    /// Print JSON, for programs
    #[arg(long)]
    pub(crate) json: bool,

    #[command(flatten)]
    pub(crate) cluster: ClusterArgs,
}
