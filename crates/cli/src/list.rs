//! `quorlock list`: what is held.

use quorlock::admin::Listing;
use quorlock::{Locker, NodeAnswer, Status, Verdict};
use serde_json::Value;

use crate::args::ListArgs;
use crate::duration::shown;
use crate::exit::{self, Failed};
use crate::note;
use crate::plan::Cluster;
use crate::status::json;
use crate::stderr::warn;
use crate::stdout;
use crate::time::utc_for_people;

/// Locks to be listed.
pub(crate) struct List {
    cluster: Cluster,
    json: bool,
}

impl List {
    pub(crate) fn new(args: ListArgs) -> Result<Self, Failed> {
        let cluster = Cluster::new(args.cluster, None)?;
        Ok(Self { cluster, json: args.json })
    }
}

/// Shows them, and returns the code to exit with.
pub(crate) async fn list(plan: &List) -> Result<u8, Failed> {
    let locker = plan.cluster.connect_to_look().await?;
    let forgetful = tell_who_does_not_vote(plan, &locker).await?;
    let Listing { locks, silent, complete, .. } = locker.list_known().await;
    let text = match &*locks {
        locks if plan.json => {
            let locks = Value::Array(locks.iter().map(json).collect());
            note::printable_json(&format!("{locks}\n"))
        }
        [] if complete && !forgetful => "no lock is held\n".to_owned(),
        [] => "no lock is held as far as the nodes know that can be asked\n".to_owned(),
        locks => columns(locks),
    };
    stdout::write(&text)?;
    for NodeAnswer { node, failure } in &silent.0 {
        let why = failure.as_ref().map_or_else(String::new, |failure| format!(": {failure}"));
        warn(format_args!("node {node} cannot be asked{why}"));
    }
    match (complete, forgetful) {
        (true, false) => Ok(0),
        (true, true) => Err(Failed::new(
            exit::UNAVAILABLE,
            "too many nodes may have forgotten locks: some may be held that are not listed",
        )),
        (false, _) => Err(Failed::new(
            exit::UNAVAILABLE,
            "too many nodes cannot be asked: locks may be missing, and those that are unknown may be free",
        )),
    }
}

/// Beside the table, which may be empty: nodes that were emptied have none of the locks. Returns whether there are too
/// many of them for the others to know of all locks.
async fn tell_who_does_not_vote(plan: &List, locker: &Locker) -> Result<bool, Failed> {
    // Any name will do, and nobody has to hold it.
    let status = locker.inspect("quorlock-list").await?;
    plan.cluster.refuse_other_set(&status).await?;
    for node in status.nodes.iter().filter(|_| !plan.json) {
        if let Some(left) = node.quarantine {
            let (node, left) = (&node.node, shown(left));
            warn(format_args!("node {node} casts no vote for another {left}"));
        }
    }
    Ok(status.quarantine().is_some())
}

fn columns(locks: &[Status]) -> String {
    let mut rows = vec![["NAME", "HOLDER", "SINCE", "LEFT", "WAITING", "FENCE"].map(str::to_owned)];
    rows.extend(locks.iter().map(row));
    let mut widths = [0; 6];
    for row in &rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = cell.chars().count().max(*width);
        }
    }
    let lines = rows.iter().map(|row| {
        let cells = row.iter().zip(widths).map(|(cell, width)| format!("{cell:width$}"));
        format!("{}\n", cells.collect::<Vec<_>>().join("  ").trim_end())
    });
    lines.collect()
}

/// Who some nodes say that it is, where no majority does.
fn held_by_some(status: &Status) -> String {
    let known = status.nodes.iter().find_map(|node| {
        let record = (*node.record.as_ref().ok()?)?;
        Some(node.note.as_ref().map_or_else(|| record.holder.to_string(), note::shown))
    });
    let word = if status.verdict() == Verdict::Unknown { "unknown" } else { "split" };
    known.map_or_else(|| "?".to_owned(), |known| format!("{word}; {known} on some nodes"))
}

fn row(status: &Status) -> [String; 6] {
    let unknown = || "?".to_owned();
    let holder = match (status.note(), status.holder()) {
        (Some(note), _) => note::shown(note),
        (None, Some(holder)) => holder.to_string(),
        (None, None) => held_by_some(status),
    };
    [
        status.name.to_string(),
        holder,
        status.note().and_then(|note| note.since).map_or_else(unknown, utc_for_people),
        status.remaining().map_or_else(unknown, shown),
        status.waiters().map_or_else(unknown, |count| count.to_string()),
        status.fence().map_or_else(unknown, |fence| fence.to_string()),
    ]
}
