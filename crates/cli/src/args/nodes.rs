//! `quorlock nodes`, as it is written.

use clap::{Parser, Subcommand};

use super::ClusterArgs;

const NODES_EXAMPLES: &str = "\
All clients have to be given the same nodes: two lists that differ can have majorities without a \
common node, and then two hold one lock. In the strict dialect each node therefore keeps which \
set it belongs to, and refuses the clients of another one, with both lists in the error. A node is \
known by its address, or by a name of its own where machines reach it under different ones: \
redis://10.0.0.1?name=lock-a.

add, remove and replace change the set by one node. The members of the old set refuse its clients \
from then on, for good; the new set votes as soon as all of its nodes have carried it for as long \
as a lock may last (--max-ttl, and some for clocks). Until then nobody gets a lock, and locks that \
are held are lost at the end of their time. At no moment both sets vote. Then give all clients the \
new list.

Stopped at any point, the change is safe as it is, and is completed by running it again with the \
same arguments, the old list among them. A member that cannot be reached any more can leave only \
with --gone, if you are sure that it never comes back with what it knows. If a majority of the nodes is \
gone, stop all clients, wait for --max-ttl, and run quorlock init --force with the new list.

With --json it is one object: exit_code, members (names), needed, voting, and for each of the nodes \
{node, name, state, left_ms, text}; state is votes, without-marker, quarantined, forming, new, restarted, closed, \
other or failed. After a change it describes the new set, with progress: done or interrupted. Fields \
may be added, and those that are there stay.

Exit codes:
    0  a majority votes; the change is done
   69  too few nodes vote or can be reached; the change is not done yet
   78  arguments or settings that cannot work, or it is not meant
  125  quorlock itself failed

Examples:
  quorlock nodes                                   # who votes for whom
  quorlock nodes replace redis://c redis://d       # c gives its place to d
  quorlock nodes replace --gone redis://c redis://d
  quorlock nodes add redis://d
  quorlock nodes remove redis://d";

/// Show the set of nodes, or change it by one.
#[derive(Parser)]
#[command(after_help = NODES_EXAMPLES)]
pub(crate) struct NodesArgs {
    #[command(subcommand)]
    pub(crate) change: Option<ChangeArgs>,

    /// Print JSON, for programs
    #[arg(long, global = true)]
    pub(crate) json: bool,

    #[command(flatten)]
    pub(crate) cluster: ClusterArgs,
}

#[derive(Subcommand)]
pub(crate) enum ChangeArgs {
    /// Add a node to the set
    Add {
        /// The URL of the new node
        new: String,
        #[command(flatten)]
        meant: MeantArgs,
    },
    /// Remove a node from the set
    Remove {
        /// The URL of the member, or its name
        old: String,
        #[command(flatten)]
        gone: GoneArgs,
        #[command(flatten)]
        meant: MeantArgs,
    },
    /// Let another node take the place of a member
    Replace {
        /// The URL of the member, or its name
        old: String,
        /// The URL of the new node
        new: String,
        #[command(flatten)]
        gone: GoneArgs,
        #[command(flatten)]
        meant: MeantArgs,
    },
}

#[derive(clap::Args)]
pub(crate) struct MeantArgs {
    /// Do not ask
    #[arg(short, long)]
    pub(crate) yes: bool,
}

#[derive(clap::Args)]
pub(crate) struct GoneArgs {
    /// The member that leaves never comes back with what it knows
    #[arg(long)]
    pub(crate) gone: bool,
}
