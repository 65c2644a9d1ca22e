//! `quorlock status`: who holds a lock, and what each node says.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::time::Duration;

use quorlock::Status;
use quorlock::node::Holder;

use crate::duration::shown;
use crate::exit::{self, Failed};
use crate::plan;

/// Shows it, and returns the code to exit with.
pub(crate) async fn status(plan: &plan::Status) -> Result<u8, Failed> {
    let locker = plan.cluster.connect().await?;
    let status = locker.inspect(plan.name.as_bytes()).await?;
    let verdict = Verdict::of(&status);
    io::Write::write_all(&mut io::stdout(), table(&status, &verdict).as_bytes()).map_err(
        |error| Failed::new(exit::OWN_FAILURE, format!("the status cannot be written: {error}")),
    )?;
    Ok(if matches!(verdict, Verdict::Unknown { .. }) { exit::UNAVAILABLE } else { 0 })
}

/// What the nodes say, taken together.
#[derive(Debug, PartialEq, Eq)]
enum Verdict {
    Held(Holder),
    Free,
    /// Nobody has a majority, and nobody can get one before some records are gone.
    Split,
    /// The nodes that did not answer could make a majority for somebody.
    Unknown {
        answered: usize,
    },
}

impl Verdict {
    fn of(status: &Status) -> Self {
        if let Some(holder) = status.holder() {
            return Self::Held(holder);
        }
        let nodes = status.nodes.len();
        let majority = nodes / 2 + 1;
        let records: Vec<_> =
            status.nodes.iter().filter_map(|node| node.record.as_ref().ok()).collect();
        let mut holders: BTreeMap<Holder, usize> = BTreeMap::new();
        for record in records.iter().copied().flatten() {
            *holders.entry(record.holder).or_default() += 1;
        }
        let silent = nodes - records.len();
        let most = holders.values().max().copied().unwrap_or(0);
        let free = records.iter().filter(|record| record.is_none()).count();
        if most + silent >= majority {
            Self::Unknown { answered: records.len() }
        } else if free >= majority {
            Self::Free
        } else {
            Self::Split
        }
    }
}

fn table(status: &Status, verdict: &Verdict) -> String {
    let name = &status.name;
    let lasts = |left: Option<Duration>| match left {
        Some(left) => format!("for another {} unless renewed", shown(left)),
        None => "for how long is not known".to_owned(),
    };
    let mut text = match verdict {
        Verdict::Held(holder) => {
            format!("{name} is held by {holder}, {}\n", lasts(status.remaining()))
        }
        Verdict::Free => format!("{name} is free\n"),
        Verdict::Split => format!(
            "{name} is held by nobody, but not free {}: no holder has a majority\n",
            lasts(status.remaining())
        ),
        Verdict::Unknown { answered } => format!(
            "{name} may be held or free: {answered} of {} nodes answered, too few to tell\n",
            status.nodes.len()
        ),
    };
    let width = status.nodes.iter().map(|node| node.node.chars().count()).max().unwrap_or(0);
    for node in &status.nodes {
        let said = match &node.record {
            Ok(None) => "free".to_owned(),
            Ok(Some(record)) => {
                let left = record.remaining.map_or("for ever".to_owned(), shown);
                format!("{}  {left}", record.holder)
            }
            Err(failure) => failure.to_string(),
        };
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{:width$}  {said}", node.node);
    }
    text
}
