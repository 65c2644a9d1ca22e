//! The set of nodes: what each of them says of it, and changing it.
//!
//! ```text
//!   {a, b, c}                                               {a, b, d}
//!   open ──▶ a, b and c are closed: they refuse it for good ──▶ a, b and d carry it ── quarantine ──▶ votes
//!            nobody gets a lock from here ─────────────────────────────────────────────▶ to here
//! ```
//!
//! At no point two sets vote, so that killing a change anywhere is safe; running it again completes it.

mod change;

use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use crate::Error;
use crate::drive::{Known, Looked, Set};
use crate::node::{self, Failure, FailureKind, Members, Node, NodeContext};
use quorlock_protocol::Carries;

pub(crate) use change::change;
pub use change::change_own_nodes;

/// A set of nodes, from [`Admin::members`](crate::admin::Admin::members).
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct MemberReport {
    /// What its nodes are called, in order: where they are, or the `name` in their URL.
    pub members: Vec<String>,
    /// How many of them have to vote for a lock.
    pub needed: usize,
    /// How each of them stands to it.
    pub nodes: Vec<MemberStatus>,
}

impl MemberReport {
    /// How many of the nodes vote.
    #[must_use]
    pub fn voting(&self) -> usize {
        let votes = |node: &&MemberStatus| {
            matches!(node.state, MemberState::Votes | MemberState::WithoutMarker)
        };
        self.nodes.iter().filter(votes).count()
    }
}

/// How one node stands to a set.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct MemberStatus {
    /// Its address without secrets.
    pub node: String,
    /// What it is called in the set.
    pub name: String,
    /// How it stands to the set.
    pub state: MemberState,
}

/// How a node stands to a set.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum MemberState {
    /// It votes.
    Votes,
    /// Nodes of this kind have no marker, and vote for everybody.
    WithoutMarker,
    /// It was started or emptied, and votes after so long.
    Quarantined(Duration),
    /// The set is new, or all of its nodes have forgotten something. They vote once all of them carry it, after
    /// so long at the earliest.
    Forming(Duration),
    /// It carries no set: it is new, or was emptied.
    New,
    /// It was started again, and nobody has asked it since.
    Restarted,
    /// The set was replaced, and this node does not serve it any more.
    Closed {
        /// By this one.
        successor: Vec<String>,
    },
    /// It belongs to another set, or serves clients with other settings: why nobody gets its vote.
    Other(String),
    /// It cannot be asked.
    Failed(Failure),
}

/// A change of a set by one node.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum MemberChange {
    /// The node behind this URL is added.
    Add(String),
    /// This member is removed: its name in the set, or its URL.
    Remove(String),
    /// This member, by its name or URL, gives its place to the node behind the other URL.
    Replace {
        /// Its name in the set, or its URL.
        old: String,
        /// The URL of the new one.
        new: String,
    },
}

/// What came of a change, from [`Admin::change_members`](crate::admin::Admin::change_members).
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Changed {
    /// The new set.
    pub report: MemberReport,
    /// How far it is.
    pub progress: Progress,
}

/// How far a change is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Progress {
    /// The new set votes.
    Done,
    /// All of its nodes carry it. Run the change again after so long, or leave it to its clients.
    Forming(Duration),
    /// Some of its nodes cannot be asked. Run the change again when they can.
    Interrupted,
}

/// The nodes behind some URLs.
struct Nodes<'a> {
    nodes: Vec<Arc<dyn Node>>,
    context: &'a NodeContext,
}

impl<'a> Nodes<'a> {
    /// Connects to those that can be reached in time.
    async fn open(
        urls: &[String],
        own: &[Arc<dyn Node>],
        context: &'a NodeContext,
    ) -> Result<Self, Error> {
        let mut nodes = node::open_with(urls, context)?;
        nodes.extend(own.iter().cloned());
        {
            let mut waiting: Vec<_> = nodes.iter().map(|node| Some(node.ready())).collect();
            let mut end = context.runtime.sleep(2 * context.settings.connect_limit);
            poll_fn(|cx| {
                for slot in &mut waiting {
                    if slot.as_mut().is_some_and(|ready| ready.as_mut().poll(cx).is_ready()) {
                        *slot = None;
                    }
                }
                if waiting.iter().all(Option::is_none) {
                    return Poll::Ready(());
                }
                end.as_mut().poll(cx)
            })
            .await;
        }
        Ok(Self { nodes, context })
    }

    async fn look(&self) -> Looked {
        Looked::at(&self.nodes, &*self.context.runtime).await
    }
}

/// What each node says of the set, and nothing is changed.
pub(crate) async fn members(
    urls: &[String],
    own: &[Arc<dyn Node>],
    context: &NodeContext,
) -> Result<MemberReport, Error> {
    let nodes = Nodes::open(urls, own, context).await?;
    let looked = nodes.look().await;
    report(&nodes.nodes, &looked.known, &names(urls, own)?, &context.members)
}

/// Does for nodes that cast no vote what any client does that meets them: their time without votes begins. Returns
/// what is known of each node then.
pub(crate) async fn begin(
    urls: &[String],
    own: &[Arc<dyn Node>],
    context: &NodeContext,
) -> Result<Vec<Known>, Error> {
    let nodes = Nodes::open(urls, own, context).await?;
    let (_, known) = Set { trusting: false, ..context.set(&nodes.nodes) }.settle().await;
    Ok(known)
}

fn names(urls: &[String], own: &[Arc<dyn Node>]) -> Result<Vec<String>, Error> {
    let named = urls.iter().enumerate().map(|(index, url)| node::member(index, url));
    named.chain(own.iter().map(|node| Ok(node.label().to_owned()))).collect()
}

fn report(
    nodes: &[Arc<dyn Node>],
    known: &[Known],
    names: &[String],
    members: &Members,
) -> Result<MemberReport, Error> {
    let mut found = Vec::new();
    for ((node, known), name) in nodes.iter().zip(known).zip(names) {
        if let Err(failure) = known
            && failure.kind() == FailureKind::Duplicate
        {
            return Err(Error::duplicate(node.label(), failure));
        }
        let (node, name) = (node.label().to_owned(), name.clone());
        found.push(MemberStatus { node, name, state: state(known, members) });
    }
    let (members, needed) = (members.names().to_vec(), members.quorum().enough());
    Ok(MemberReport { members, needed, nodes: found })
}

fn state(known: &Known, members: &Members) -> MemberState {
    let marker = match known {
        Ok(Some(marker)) => marker,
        Ok(None) => return MemberState::WithoutMarker,
        Err(failure) => return MemberState::Failed(failure.clone()),
    };
    match marker.carries(members) {
        Carries::Formed { due: true } => MemberState::Votes,
        Carries::Formed { .. } => MemberState::Quarantined(marker.left),
        Carries::Forming { .. } => MemberState::Forming(marker.left),
        Carries::Closed { .. } => MemberState::New,
        Carries::Nothing if marker.members.is_some() => MemberState::Restarted,
        Carries::Nothing => MemberState::New,
        Carries::Another if marker.is_closed_for(members) => {
            let successor = marker.members.as_ref().map(|members| members.names().to_vec());
            MemberState::Closed { successor: successor.unwrap_or_default() }
        }
        Carries::Another => MemberState::Other(marker.of_another_set(members)),
    }
}

impl std::fmt::Debug for MemberChange {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Not the URLs: they may hold passwords.
        f.write_str(match self {
            Self::Add(_) => "Add",
            Self::Remove(_) => "Remove",
            Self::Replace { .. } => "Replace",
        })
    }
}
