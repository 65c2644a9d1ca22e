//! The first run on new servers, at a terminal: they are shown, and the user is asked whether they are new.
//!
//! It is asked before anything connects to them for good, for that begins the time in which they cast no vote. What
//! `quorlock init` refuses is refused here as well.

use std::io::{self, IsTerminal};
use std::time::Duration;

use quorlock::admin::{MemberReport, MemberState};
use rustix::process::getpgrp;
use rustix::termios::tcgetpgrp;
use tokio::time::timeout;

use crate::ask::is_meant;
use crate::duration::shown;
use crate::exit::Failed;
use crate::init;
use crate::plan::Cluster;
use crate::stderr::{self, say};
use crate::warnings::HeldBack;

/// New servers that are up say so sooner. Those that do not are left to the run itself.
const LOOK: Duration = Duration::from_millis(300);

/// Asks, if there is somebody to ask and all servers look new, and marks them if that is confirmed.
pub(crate) async fn offer(cluster: &Cluster) -> Result<(), Failed> {
    if !cluster.has_markers() || cluster.promises.trusts_new_nodes() || !somebody_is_there() {
        return Ok(());
    }
    let Some(new) = look(cluster).await else { return Ok(()) };
    stderr::flush();
    if !is_meant(&question(cluster, &new))? {
        return Ok(());
    }
    let nodes = cluster.builder().admin().init(false).await?;
    match init::code(&nodes) {
        0 => {
            say("the nodes are marked as new, and vote from now on");
            Ok(())
        }
        code => Err(Failed::new(
            code,
            format!("the nodes are left as they are:\n{}", init::table(&nodes)),
        )),
    }
}

/// Whether somebody reads what is asked, and can answer.
fn somebody_is_there() -> bool {
    !stderr::is_json()
        && io::stdin().is_terminal()
        && io::stderr().is_terminal()
        && tcgetpgrp(io::stdin()) == Ok(getpgrp())
}

/// The servers, if none of them carries a mark. Where some do, the others were emptied.
async fn look(cluster: &Cluster) -> Option<Vec<String>> {
    let _unsaid = HeldBack::new();
    let looked = timeout(LOOK, cluster.builder().admin().members()).await;
    let MemberReport { nodes, .. } = looked.ok()?.ok()?;
    let is_new = |state: &MemberState| matches!(state, MemberState::New);
    let has_none =
        |state: &MemberState| matches!(state, MemberState::New | MemberState::WithoutMarker);
    if !nodes.iter().all(|node| has_none(&node.state)) {
        return None;
    }
    let new: Vec<_> = nodes.into_iter().filter(|node| is_new(&node.state)).collect();
    (!new.is_empty()).then(|| new.into_iter().map(|node| node.node).collect())
}

fn question(cluster: &Cluster, new: &[String]) -> String {
    let servers = new.join("\n  ");
    let wait = shown(cluster.promises.quarantine());
    let (taken, emptied, under) = match &*cluster.prefix() {
        "" => (String::new(), "they were emptied".to_owned(), String::new()),
        prefix => (
            format!(" under the prefix {prefix}"),
            "its keys were removed".to_owned(),
            format!(" under {prefix}"),
        ),
    };
    format!(
        "no locks were ever taken{taken} on these servers, or {emptied}:\n  {servers}\nAre they new: was no lock \
         that any client still believes in ever granted by them{under}? If that is wrong, two may hold one lock. \
         If you do not know, answer no: then they vote in {wait}. Mark them as new?"
    )
}
