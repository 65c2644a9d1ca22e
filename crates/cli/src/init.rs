//! `quorlock init`: tell new nodes that they are new.

use std::fmt::Write;

use quorlock::Name;
use quorlock::admin::{InitState, NodeInit, Refusal};
use quorlock::node::Failure;
use serde_json::{Value, json};

use crate::args::InitArgs;
use crate::ask::is_meant;
use crate::duration::shown;
use crate::exit::{self, Failed};
use crate::note::printable_json;
use crate::plan::Cluster;
use crate::stdout;

/// So many locks are named for people.
const SHOWN_LOCKS: usize = 5;

/// Nodes to be marked as new.
pub(crate) struct Init {
    cluster: Cluster,
    confirmed: bool,
    force: bool,
    print_sql: bool,
    json: bool,
}

impl Init {
    pub(crate) fn new(args: InitArgs) -> Result<Self, Failed> {
        let cluster = Cluster::new(args.cluster, None)?;
        let (confirmed, force, print_sql) = (args.yes, args.force, args.print_sql);
        Ok(Self { cluster, confirmed, force, print_sql, json: args.json })
    }
}

/// Does it, says of each node what was done, and returns the code to exit with.
pub(crate) async fn init(plan: &Init) -> Result<u8, Failed> {
    if plan.print_sql {
        return print_sql(plan);
    }
    if plan.cluster.has_markers() && !plan.confirmed && !is_meant(&question(plan))? {
        return Err(Failed::new(exit::MISUSE, "the nodes are left as they are"));
    }
    let nodes = plan.cluster.builder().admin().init(plan.force).await?;
    let code = code(&nodes);
    let text = match plan.json {
        true => printable_json(&format!("{:#}\n", object(&nodes, code))),
        false => table(&nodes),
    };
    stdout::write(&text)?;
    Ok(code)
}

/// Prints what an owner of the databases runs in the place of this command.
fn print_sql(plan: &Init) -> Result<u8, Failed> {
    let mut scripts: Vec<String> = plan.cluster.setup_sql().collect::<Result<_, _>>()?;
    // Several databases with the same schema need the same.
    scripts.dedup();
    if scripts.is_empty() {
        return Err(Failed::new(
            exit::MISUSE,
            "no node is a PostgreSQL, MySQL or MariaDB database, and others need no SQL; leave --print-sql away",
        ));
    }
    stdout::write(&scripts.join("\n"))?;
    Ok(0)
}

fn question(plan: &Init) -> String {
    let nodes = plan.cluster.shown_nodes().join("\n  ");
    let prefix = match &*plan.cluster.prefix() {
        "" => String::new(),
        prefix => format!(" under the prefix {prefix}"),
    };
    let force = if plan.force {
        " With --force that is done also where they are in use, belong to another set, or wait until forgotten \
         locks have ended."
    } else {
        ""
    };
    format!(
        "these nodes are new: no lock that any client still believes in was ever granted by them{prefix}:\n  \
         {nodes}\nIf that is wrong, two may hold one lock.{force} Mark them as new?"
    )
}

pub(crate) fn code(nodes: &[NodeInit]) -> u8 {
    let any = |is: fn(&InitState) -> bool| nodes.iter().any(|node| is(&node.state));
    if any(|state| matches!(state, InitState::Refused(_))) {
        exit::ERRORS_FOUND
    } else if any(|state| matches!(state, InitState::Failed(_))) {
        exit::UNAVAILABLE
    } else {
        0
    }
}

/// A word for programs, and what it means.
fn state(node: &NodeInit) -> (&'static str, String) {
    match &node.state {
        InitState::Marked => ("marked", "is marked as new, and votes from now on".to_owned()),
        InitState::Voting => ("voting", "votes already, and is left alone".to_owned()),
        InitState::NotNeeded => ("not-needed", "needs no mark: it keeps none".to_owned()),
        InitState::Refused(refusal) => ("refused", refused(refusal)),
        InitState::Left => (
            "left",
            "looks new, but is left as it is: others do not, or cannot be reached".to_owned(),
        ),
        InitState::Failed(failure) => ("failed", failure.to_string()),
        _ => ("unknown", "is in a state that this version does not know".to_owned()),
    }
}

fn refused(refusal: &Refusal) -> String {
    match refusal {
        Refusal::HoldsLocks(names) => format!(
            "is not new, and neither are its companions: somebody holds {}; wait until no lock is held \
             (quorlock list), or leave the nodes to vote again by themselves",
            named(names)
        ),
        Refusal::Restarted => {
            "was restarted, and may have forgotten locks; wait, and it votes again by \
                               itself, or use --force if no client believes in any lock"
                .to_owned()
        }
        Refusal::Emptied => {
            "has no mark, and others of its set vote: it was emptied, and is taken back by \
                             itself; --force only if no client believes in any lock"
                .to_owned()
        }
        Refusal::Quarantined(left) => format!(
            "casts no vote for another {}, since it may have forgotten locks; wait, and it votes by \
             itself, or use --force if no client believes in any lock",
            shown(*left)
        ),
        Refusal::OtherSet { theirs } if theirs.is_empty() => {
            "has a mark that this version cannot read; use --force once all clients are stopped"
                .to_owned()
        }
        Refusal::OtherSet { theirs } => format!(
            "belongs to the set of nodes {}; change the set with quorlock nodes, or use --force once all \
             clients of that set are stopped",
            theirs.join(", ")
        ),
        Refusal::OtherSettings { max_ttl, clock_ahead } => format!(
            "serves clients with a max_ttl of {} and a clock_ahead of {}; use the same, or --force once \
             all clients are stopped and have the new ones",
            shown(*max_ttl),
            shown(*clock_ahead)
        ),
        _ => "was refused".to_owned(),
    }
}

fn named(names: &[Name]) -> String {
    let mut text = if names.len() == 1 { "the lock " } else { "the locks " }.to_owned();
    for (index, name) in names.iter().take(SHOWN_LOCKS).enumerate() {
        let between = if index > 0 { ", " } else { "" };
        // Writing to a string cannot fail.
        let _ = write!(text, "{between}{name}");
    }
    if names.len() > SHOWN_LOCKS {
        text.push_str(" and others");
    }
    text
}

pub(crate) fn table(nodes: &[NodeInit]) -> String {
    let width = nodes.iter().map(|node| node.node.chars().count()).max().unwrap_or(0);
    let lines = nodes.iter().map(|node| format!("{:width$}  {}\n", node.node, state(node).1));
    lines.collect()
}

fn object(nodes: &[NodeInit], code: u8) -> Value {
    let nodes = nodes.iter().map(|node| {
        let locks = match &node.state {
            InitState::Refused(Refusal::HoldsLocks(names)) => {
                Some(names.iter().map(ToString::to_string).collect::<Vec<_>>())
            }
            _ => None,
        };
        let error = match &node.state {
            InitState::Refused(refusal) => Some(refused(refusal)),
            InitState::Failed(failure) => Some(Failure::to_string(failure)),
            _ => None,
        };
        json!({ "node": node.node, "state": state(node).0, "locks": locks, "error": error })
    });
    json!({ "exit_code": code, "nodes": nodes.collect::<Value>() })
}
