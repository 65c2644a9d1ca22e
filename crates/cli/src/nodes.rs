//! `quorlock nodes`: the set of nodes, and changing it.

use std::time::Duration;

use quorlock::admin::{Changed, MemberChange, MemberReport, MemberState, MemberStatus, Progress};
use serde_json::{Value, json};

use crate::args::{ChangeArgs, NodesArgs};
use crate::ask::is_meant;
use crate::duration::shown;
use crate::exit::{self, Failed};
use crate::note::printable_json;
use crate::plan::Cluster;
use crate::stderr::say;
use crate::stdout;

/// From one attempt to the next while some node cannot be asked.
const RETRY: Duration = Duration::from_millis(500);
/// So often it is tried then.
const RETRIES: u32 = 6;

/// A set of nodes to be shown or changed.
pub(crate) struct Nodes {
    cluster: Cluster,
    change: Option<Change>,
    json: bool,
}

struct Change {
    change: MemberChange,
    gone: bool,
    confirmed: bool,
}

impl Nodes {
    pub(crate) fn new(args: NodesArgs) -> Result<Self, Failed> {
        let NodesArgs { change, json, cluster } = args;
        let new = match &change {
            Some(ChangeArgs::Add { new, .. } | ChangeArgs::Replace { new, .. }) => Some(new),
            _ => None,
        };
        let (cluster, new) = Cluster::with_another(cluster, new.map(String::as_str))?;
        let change = change.map(|change| Change::new(change, new.unwrap_or_default()));
        Ok(Self { cluster, change, json })
    }
}

impl Change {
    /// `new` is the URL of the new node with its login, if there is one.
    fn new(args: ChangeArgs, new: String) -> Self {
        let (change, gone, meant) = match args {
            ChangeArgs::Add { meant, .. } => (MemberChange::Add(new), false, meant),
            ChangeArgs::Remove { old, gone, meant } => {
                (MemberChange::Remove(old), gone.gone, meant)
            }
            ChangeArgs::Replace { old, gone, meant, .. } => {
                (MemberChange::Replace { old, new }, gone.gone, meant)
            }
        };
        Self { change, gone, confirmed: meant.yes }
    }
}

/// Shows the set or changes it, and returns the code to exit with.
pub(crate) async fn nodes(plan: &Nodes) -> Result<u8, Failed> {
    match &plan.change {
        None => {
            let report = plan.cluster.builder().admin().members().await?;
            show(plan, &report, None)
        }
        Some(change) => {
            let Changed { report, progress, .. } = carry_out(plan, change).await?;
            show(plan, &report, Some(progress))
        }
    }
}

async fn carry_out(plan: &Nodes, change: &Change) -> Result<Changed, Failed> {
    if !plan.cluster.has_markers() {
        let message = "these nodes do not keep which set they belong to (a file, or the redlock \
                       dialect): stop all clients for as long as a lock may last, and give them the new \
                       list";
        return Err(Failed::new(exit::MISUSE, message));
    }
    if !change.confirmed && !is_meant(&question(&plan.cluster, change.gone))? {
        return Err(Failed::new(exit::MISUSE, "the set of nodes is left as it is"));
    }
    let mut retries = 0;
    loop {
        let changed =
            plan.cluster.builder().admin().change_members(&change.change, change.gone).await?;
        let pause = match changed.progress {
            Progress::Forming(left) => {
                let members = changed.report.members.join(", ");
                say(format_args!(
                    "the nodes {members} carry the new set, and vote in {}",
                    shown(left)
                ));
                retries = 0;
                left.max(RETRY)
            }
            Progress::Interrupted if retries < RETRIES => {
                retries += 1;
                RETRY
            }
            _ => return Ok(changed),
        };
        tokio::time::sleep(pause).await;
    }
}

fn question(cluster: &Cluster, gone: bool) -> String {
    let word =
        if gone { " The member that leaves never comes back with what it knows." } else { "" };
    format!(
        "nobody gets a lock for about {}, and locks that are held are lost; after that clients need the \
         new list.{word} Change the set of nodes?",
        shown(cluster.promises.max_ttl)
    )
}

fn show(plan: &Nodes, report: &MemberReport, progress: Option<Progress>) -> Result<u8, Failed> {
    let votes = report.voting() >= report.needed;
    let done = progress.is_none_or(|progress| progress == Progress::Done);
    let code = if votes && done { 0 } else { exit::UNAVAILABLE };
    let text = if plan.json {
        printable_json(&format!("{:#}\n", object(report, progress, code)))
    } else {
        table(report, progress)
    };
    stdout::write(&text)?;
    Ok(code)
}

/// A word for programs, how long it lasts, and what it means.
fn state(node: &MemberStatus) -> (&'static str, Option<Duration>, String) {
    match &node.state {
        MemberState::Votes => ("votes", None, "votes".to_owned()),
        MemberState::WithoutMarker => {
            ("without-marker", None, "votes for everybody: it keeps no set".to_owned())
        }
        MemberState::Quarantined(left) => (
            "quarantined",
            Some(*left),
            format!("was started or emptied, and votes in {}", shown(*left)),
        ),
        MemberState::Forming(left) => (
            "forming",
            Some(*left),
            format!("votes once all nodes carry the set, in {} at the earliest", shown(*left)),
        ),
        MemberState::New => {
            ("new", None, "is new or was emptied, and carries no set yet".to_owned())
        }
        MemberState::Restarted => {
            ("restarted", None, "was restarted, and is taken back by the next client".to_owned())
        }
        MemberState::Closed { successor } => {
            ("closed", None, format!("its set was replaced by {}", successor.join(", ")))
        }
        MemberState::Other(why) => ("other", None, why.clone()),
        MemberState::Failed(failure) => ("failed", None, failure.to_string()),
        _ => ("unknown", None, "is in a state that this version does not know".to_owned()),
    }
}

fn table(report: &MemberReport, progress: Option<Progress>) -> String {
    let width = report.nodes.iter().map(|node| node.name.chars().count()).max().unwrap_or(0);
    let mut text: String = report
        .nodes
        .iter()
        .map(|node| format!("{:width$}  {}\n", node.name, state(node).2))
        .collect();
    let (voting, nodes, needed) = (report.voting(), report.nodes.len(), report.needed);
    text.push_str(&format!("{voting} of {nodes} vote, {needed} are needed\n"));
    match progress {
        Some(Progress::Done) => {
            text.push_str("the set is changed: give all clients the new list of nodes\n");
        }
        Some(_) => {
            text.push_str("the change is not done: run it again when all of these nodes are up\n");
        }
        None => {}
    }
    text
}

fn object(report: &MemberReport, progress: Option<Progress>, code: u8) -> Value {
    let nodes = report.nodes.iter().map(|node| {
        let (word, left, text) = state(node);
        let left_ms = left.map(|left| u64::try_from(left.as_millis()).unwrap_or(u64::MAX));
        json!({ "node": node.node, "name": node.name, "state": word, "left_ms": left_ms, "text": text })
    });
    let progress = progress.map(|progress| match progress {
        Progress::Done => "done",
        _ => "interrupted",
    });
    json!({
        "exit_code": code,
        "members": report.members,
        "needed": report.needed,
        "voting": report.voting(),
        "progress": progress,
        "nodes": nodes.collect::<Value>(),
    })
}
