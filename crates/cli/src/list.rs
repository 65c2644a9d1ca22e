//! `quorlock list`: what is held.

use quorlock::Status;
use serde_json::Value;

use crate::args::ListArgs;
use crate::duration::shown;
use crate::exit::Failed;
use crate::note;
use crate::plan::Cluster;
use crate::status::json;
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
    let locks = plan.cluster.connect().await?.list().await?;
    let text = match &*locks {
        locks if plan.json => format!("{}\n", Value::Array(locks.iter().map(json).collect())),
        [] => "no lock is held\n".to_owned(),
        locks => columns(locks),
    };
    stdout::write(&text)?;
    Ok(0)
}

fn columns(locks: &[Status]) -> String {
    let mut rows = vec![["NAME", "HOLDER", "SINCE", "LEFT", "WAITING"].map(str::to_owned)];
    rows.extend(locks.iter().map(row));
    let mut widths = [0; 5];
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

fn row(status: &Status) -> [String; 5] {
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
    ]
}
