//! `quorlock list`: what is held.

use quorlock::{Locker, Status};
use serde_json::Value;

use crate::args::ListArgs;
use crate::duration::shown;
use crate::exit::Failed;
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
    let locker = plan.cluster.connect().await?;
    let locks = locker.list().await?;
    let text = match &*locks {
        locks if plan.json => {
            let locks = Value::Array(locks.iter().map(json).collect());
            note::printable_json(&format!("{locks}\n"))
        }
        [] => "no lock is held\n".to_owned(),
        locks => columns(locks),
    };
    stdout::write(&text)?;
    if !plan.json {
        tell_who_does_not_vote(&locker).await?;
    }
    Ok(0)
}

/// Beside the table, which may be empty: nodes that were emptied have none of the locks.
async fn tell_who_does_not_vote(locker: &Locker) -> Result<(), Failed> {
    // Any name will do, and nobody has to hold it.
    for node in locker.inspect("quorlock-list").await?.nodes {
        if let Some(left) = node.quarantine {
            let (node, left) = (node.node, shown(left));
            warn(format_args!("node {node} casts no vote for another {left}"));
        }
    }
    Ok(())
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

fn row(status: &Status) -> [String; 6] {
    let unknown = || "?".to_owned();
    let holder = match (status.note(), status.holder()) {
        (Some(note), _) => note::shown(note),
        (None, Some(holder)) => holder.to_string(),
        (None, None) => unknown(),
    };
    [
        status.name.to_string(),
        holder,
        status.note().and_then(|note| note.since).map_or_else(unknown, utc_for_people),
        status.remaining().map_or_else(unknown, shown),
        status.waiters().map_or_else(unknown, |count| count.to_string()),
        status.number().map_or_else(unknown, |number| number.to_string()),
    ]
}
