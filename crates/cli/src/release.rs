//! `quorlock release`: give a lock back that another process has taken, or take it away.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;

use quorlock::{Error, Locker, NodeReleaseState, Status, Verdict};

use crate::args::ReleaseArgs;
use crate::ask::is_meant;
use crate::exit::{self, Failed};
use crate::note;
use crate::plan::Cluster;
use crate::stdout;
use crate::time::utc_for_people;
use crate::token::{self, Secret};

/// A lock to be given back.
pub(crate) struct Release {
    cluster: Cluster,
    pub(crate) name: OsString,
    right: Right,
}

/// By what right.
enum Right {
    Token(Secret),
    Force {
        /// Whether it is known that this is meant.
        confirmed: bool,
    },
}

impl Release {
    pub(crate) fn new(args: ReleaseArgs) -> Result<Self, Failed> {
        let cluster = Cluster::new(args.cluster, None)?;
        let right = if args.force {
            Right::Force { confirmed: args.yes }
        } else {
            Right::Token(token::read(args.token)?)
        };
        Ok(Self { cluster, name: args.name, right })
    }
}

/// Does it, and returns the code to exit with.
pub(crate) async fn release(plan: &Release) -> Result<u8, Failed> {
    let locker = plan.cluster.connect().await?;
    let released = match &plan.right {
        Right::Token(token) => release_with_token(plan, &locker, token).await.map_err(Failed::from),
        Right::Force { confirmed } => take_away(plan, &locker, *confirmed).await,
    };
    locker.shutdown().await;
    released.map(|()| 0)
}

async fn release_with_token(plan: &Release, locker: &Locker, token: &Secret) -> Result<(), Error> {
    locker.resume(plan.name.as_bytes(), &token.0).await?.release().await.map(drop)
}

async fn take_away(plan: &Release, locker: &Locker, confirmed: bool) -> Result<(), Failed> {
    let seen = locker.inspect(plan.name.as_bytes()).await?;
    let name = &seen.name;
    if seen.verdict() == Verdict::Free && seen.nodes.iter().all(|node| !holds(&node.record)) {
        let forgotten = if confirmed { forget_fence(plan).await? } else { String::new() };
        return stdout::write(&format!("{name} is free{forgotten}\n"));
    }
    let holder = described(&seen);
    if !confirmed && !is_meant(&format!("break the lock {name}, {holder}?"))? {
        return Err(Failed::new(exit::MISUSE, format!("the lock {name} is left as it is")));
    }
    let nodes = locker.force_release(&seen).await?;
    let count =
        nodes.iter().filter(|node| matches!(node.state, NodeReleaseState::Released)).count();
    let text = match count {
        0 => format!("the lock {name} has changed hands meanwhile, and is left as it is"),
        _ => format!("broke the lock {name}, {holder}, on {count} of {} nodes", nodes.len()),
    };
    let forgotten = forget_fence(plan).await?;
    stdout::write(&format!("{text}{forgotten}\n"))
}

/// Has nodes forget a fence that no holder can have got, and says so.
async fn forget_fence(plan: &Release) -> Result<String, Failed> {
    match plan.cluster.builder().admin().forget_fence(plan.name.as_bytes()).await? {
        (0, _) => Ok(String::new()),
        (count, _) => Ok(format!("; {count} of the nodes have forgotten a fence that was none")),
    }
}

fn holds<E>(record: &Result<Option<quorlock::node::Record>, E>) -> bool {
    matches!(record, Ok(Some(_)))
}

/// Who would lose it.
fn described(seen: &Status) -> String {
    let Some(holder) = seen.holder() else { return "which nobody holds on a majority".to_owned() };
    let Some(note) = seen.note() else { return format!("held by {holder}") };
    let since = note.since.map(|at| format!(", since {}", utc_for_people(at)));
    format!("held by {holder} ({}{})", note::shown(note), since.unwrap_or_default())
}
