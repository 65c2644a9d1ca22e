//! `quorlock status`: who holds a lock, and what each node says.

use std::fmt::Write;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::time::Duration;

use quorlock::{Status, Verdict};

use crate::duration::shown;
use crate::exit::{self, Failed};
use crate::plan;

/// Shows it, and returns the code to exit with.
pub(crate) async fn status(plan: &plan::Status) -> Result<u8, Failed> {
    let locker = plan.cluster.connect().await?;
    let status = locker.inspect(plan.name.as_bytes()).await?;
    io::Write::write_all(&mut io::stdout(), table(&status).as_bytes()).map_err(|error| {
        Failed::new(exit::OWN_FAILURE, format!("the status cannot be written: {error}"))
    })?;
    let told = matches!(status.verdict(), Verdict::Held(_) | Verdict::Free | Verdict::Split);
    Ok(if told { 0 } else { exit::UNAVAILABLE })
}

fn table(status: &Status) -> String {
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
        _ => format!(
            "{name} may be held or free: {} of {} nodes answered, too few to tell\n",
            status.nodes.iter().filter(|node| node.record.is_ok()).count(),
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
