//! `quorlock status`: who holds a lock, and what each node says.

use std::fmt::Write;
use std::io::{self, IsTerminal};
use std::os::unix::ffi::OsStrExt;
use std::time::{Duration, SystemTime};

use quorlock::{NodeStatus, Status, Verdict};
use serde_json::{Value, json};
use tokio::select;
use tokio::signal::ctrl_c;
use tokio::time::sleep;

use crate::duration::shown;
use crate::exit::{self, Failed};
use crate::init_line;
use crate::note::{self, Who, printable_json};
use crate::plan;
use crate::stdout;
use crate::time::utc;

/// How often a watched lock is looked at.
const EVERY: Duration = Duration::from_secs(1);

/// To the top left, and everything below is gone.
const CLEAR: &str = "\x1b[H\x1b[J";

/// Shows it, and returns the code to exit with.
pub(crate) async fn status(plan: &plan::Status) -> Result<u8, Failed> {
    if plan.watch {
        // From the very start, so that it never ends in another way.
        return select! {
            biased;
            _ = ctrl_c() => Ok(0),
            ended = watch(plan) => ended,
        };
    }
    let locker = plan.cluster.connect_to_look().await?;
    let status = locker.inspect(plan.name.as_bytes()).await?;
    plan.cluster.refuse_other_set(&status).await?;
    stdout::write(&text(plan, &status))?;
    let is_known = matches!(status.verdict(), Verdict::Held(_) | Verdict::Free | Verdict::Split);
    Ok(if is_known { 0 } else { exit::UNAVAILABLE })
}

/// Shows it again and again, until nobody reads it any more.
async fn watch(plan: &plan::Status) -> Result<u8, Failed> {
    let locker = plan.cluster.connect_to_look().await?;
    let redraws = !plan.json && io::stdout().is_terminal();
    loop {
        let status = locker.inspect(plan.name.as_bytes()).await?;
        let text = text(plan, &status);
        let text = if redraws { format!("{CLEAR}{text}") } else { text };
        if stdout::try_write(&text).is_err() {
            return Ok(0);
        }
        sleep(EVERY).await;
    }
}

fn text(plan: &plan::Status, status: &Status) -> String {
    if plan.json {
        printable_json(&format!("{}\n", json(status)))
    } else {
        table(status, SystemTime::now())
    }
}

/// For programs. The fields are documented in the help: none may go, or change its meaning.
pub(crate) fn json(status: &Status) -> Value {
    let millis = |left: Option<Duration>| left.map(|left| left.as_millis() as u64);
    let nodes = status.nodes.iter().map(|node| {
        let record = node.record.as_ref().ok().copied().flatten();
        json!({
            "node": node.node,
            "state": match &node.record {
                Ok(Some(_)) => "held",
                Ok(None) => "free",
                Err(_) => "failed",
            },
            "holder": record.map(|record| record.holder.to_string()),
            "by": node.note.as_ref().and_then(Who::read).as_ref().map(Who::json),
            "note": node.note.as_ref().filter(|note| Who::read(note).is_none()).map(|note| &note.text),
            "remaining_ms": millis(record.and_then(|record| record.remaining)),
            "waiting": node.waiters,
            "fence": record.and_then(|record| record.fence),
            "quarantine_ms": millis(node.quarantine),
            "error": node.record.as_ref().err().map(ToString::to_string),
        })
    });
    let note = status.note();
    let who = note.and_then(Who::read);
    let bytes = status.name.as_bytes();
    json!({
        "name": str::from_utf8(bytes).map_or_else(|_| status.name.to_string(), str::to_owned),
        "state": match status.verdict() {
            Verdict::Held(_) => "held",
            Verdict::Free => "free",
            Verdict::Split => "split",
            _ => "unknown",
        },
        "holder": status.holder().map(|holder| holder.to_string()),
        "by": who.as_ref().map(Who::json),
        "note": note.filter(|_| who.is_none()).map(|note| &note.text),
        "since": note.and_then(|note| note.since).map(utc),
        "remaining_ms": millis(status.remaining()),
        "waiting": status.waiters(),
        "fence": status.fence(),
        "quarantine_ms": millis(status.quarantine()),
        "nodes": nodes.collect::<Vec<_>>(),
    })
}

/// For people.
fn table(status: &Status, now: SystemTime) -> String {
    let name = &status.name;
    let lasts = |left: Option<Duration>| match left {
        Some(left) => format!("for another {} unless renewed", shown(left)),
        None => "for how long is not known".to_owned(),
    };
    let mut text = match status.verdict() {
        Verdict::Held(holder) => {
            format!("{name} is held by {holder}, {}\n", lasts(status.remaining()))
        }
        Verdict::Free => format!("{name} is free\n"),
        Verdict::Split => format!(
            "{name} is held by nobody, but not free {}: no holder has a majority\n",
            lasts(status.remaining())
        ),
        _ => {
            let knows = |node: &&NodeStatus| node.record.is_ok() && node.quarantine.is_none();
            let (count, all) = (status.nodes.iter().filter(knows).count(), status.nodes.len());
            format!("{name} may be held or free: {count} of {all} nodes know, too few to tell\n")
        }
    };
    // Writing to a string cannot fail.
    if let Some(note) = status.note() {
        let _ = writeln!(text, "holder:  {}", note::shown(note));
        if let Some(since) = note.since {
            let _ = writeln!(text, "since:   {}", note::since_for_people(since, now));
        }
    }
    if let Some(fence) = status.fence() {
        let _ = writeln!(text, "fence:   {fence}");
    }
    if let Some(left) = status.quarantine() {
        let _ = writeln!(
            text,
            "votes:   {}",
            init_line::complete(format!(
                "too few nodes cast one for another {}, and may have forgotten locks; wait, or run quorlock init if \
                 no lock was ever taken on them",
                shown(left)
            ))
        );
    }
    if let Some(count @ 1..) = status.waiters() {
        let _ = writeln!(text, "waiting: {count}");
    }
    // Who a majority has is named above. Without one, what each node knows is all there is.
    let named_above = status.note().is_some();
    let width = status.nodes.iter().map(|node| node.node.chars().count()).max().unwrap_or(0);
    for node in &status.nodes {
        let said = match &node.record {
            Ok(None) => "free".to_owned(),
            Ok(Some(record)) => {
                let left = record.remaining.map_or("for ever".to_owned(), shown);
                let note = node.note.as_ref().filter(|_| !named_above);
                let who = note.map(|note| format!("  {}", note::shown(note)));
                format!("{}  {left}{}", record.holder, who.unwrap_or_default())
            }
            Err(failure) => failure.to_string(),
        };
        let quiet =
            node.quarantine.map(|left| format!("  casts no vote for another {}", shown(left)));
        let _ = writeln!(text, "{:width$}  {said}{}", node.node, quiet.unwrap_or_default());
    }
    text
}
