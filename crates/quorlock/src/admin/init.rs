//! Marking nodes as new, as an operator states.
//!
//! In the `strict` dialect a node that was emptied casts no vote for a while, since it may have granted
//! locks that it does not know of any more. A new node looks like one that was emptied: only people know
//! better.

use std::sync::Arc;
use std::time::Duration;

use crate::Error;
use crate::admin::examine::all;
use crate::name::Name;
use crate::node::{self, Failure, FailureKind, Marker, MarkerState, Members, Node, NodeContext};
use crate::runtime::BoxFuture;
use quorlock_protocol::Carries;

/// What became of one node, from [`Admin::init`](crate::admin::Admin::init).
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct NodeInit {
    /// Its address without secrets.
    pub node: String,
    /// What became of it.
    pub state: InitState,
}

/// What became of a node that was to be marked as new.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum InitState {
    /// It is marked, and votes from now on.
    Marked,
    /// It was marked before, and votes: nothing was changed.
    Voting,
    /// Nodes of this kind, or of this dialect, have no marker.
    NotNeeded,
    /// It does not look like a new one: nothing was changed.
    Refused(Refusal),
    /// It could be marked, but others were refused or cannot be reached: nothing was changed.
    Left,
    /// It cannot be reached or used.
    Failed(Failure),
}

/// Why a node does not look like a new one.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Refusal {
    /// These locks are held on it, and maybe more.
    HoldsLocks(Vec<Name>),
    /// It is marked by another start of the server: it was restarted, and may have forgotten locks.
    Restarted,
    /// It has no marker, and others of its set vote: it was emptied, and may have forgotten locks.
    Emptied,
    /// It casts no vote for so long, since it may have forgotten locks, and votes by itself after that.
    Quarantined(Duration),
    /// It is marked for clients with these settings, and this one has others.
    OtherSettings {
        /// Their longest TTL.
        max_ttl: Duration,
        /// How far they let the node's clock be ahead.
        clock_ahead: Duration,
    },
    /// It belongs to another set of nodes.
    OtherSet {
        /// That set; empty if it cannot be read.
        theirs: Vec<String>,
    },
}

/// A node that was looked at.
pub(crate) struct Look {
    pub(crate) node: String,
    /// Its marker, or why that is not known; nothing if nodes of its kind have none.
    pub(crate) marker: Result<Option<Marker>, Failure>,
    /// Some of the locks that are held there.
    pub(crate) locks: Vec<Name>,
    /// Has it carry our set, without a vote.
    pub(crate) claim: Option<BoxFuture<'static, Result<Claimed, Failure>>>,
}

/// Has a node vote that carries our set, and tells what is there then.
pub(crate) type Claimed = BoxFuture<'static, Result<Marker, Failure>>;

impl Look {
    pub(crate) fn without_marker(node: String) -> Self {
        Self { node, marker: Ok(None), locks: Vec::new(), claim: None }
    }

    #[cfg(any(feature = "mysql", feature = "postgres", feature = "redis"))]
    pub(crate) fn failed(node: String, failure: Failure) -> Self {
        Self { node, marker: Err(failure), locks: Vec::new(), claim: None }
    }

    /// What would become of it, if it was for this node alone.
    fn state(&self, ours: &Members) -> InitState {
        let marker = match &self.marker {
            Ok(Some(marker)) => marker,
            Ok(None) => return InitState::NotNeeded,
            Err(failure) => return InitState::Failed(failure.clone()),
        };
        InitState::Refused(match (marker.carries(ours), &marker.members) {
            (Carries::Formed { due: true }, _) => return InitState::Voting,
            (Carries::Formed { .. } | Carries::Forming { .. }, _) => {
                Refusal::Quarantined(marker.left)
            }
            (Carries::Nothing, None) => return InitState::Left,
            (Carries::Nothing, Some(_)) => Refusal::Restarted,
            (Carries::Another, Some(theirs)) if theirs.names() == ours.names() => {
                let (max_ttl, clock_ahead) = (theirs.max_ttl(), theirs.clock_ahead());
                Refusal::OtherSettings { max_ttl, clock_ahead }
            }
            (_, theirs) => Refusal::OtherSet {
                theirs: theirs.as_ref().map_or_else(Vec::new, |theirs| theirs.names().to_vec()),
            },
        })
    }
}

/// Looks at all nodes before any is marked: only together they can tell that one of them was emptied. And a
/// lock that is held on any of them may have been granted by those that are said to be new: with a third
/// one it could be taken again.
pub(crate) async fn init(
    urls: &[String],
    nodes: &[Arc<dyn Node>],
    context: &NodeContext,
    force: bool,
) -> Result<Vec<NodeInit>, Error> {
    let looks = urls.iter().enumerate().map(|(index, url)| node::init(index, url, context));
    let mut looked = all(looks.collect::<Result<_, _>>()?).await;
    for Look { node, marker, .. } in &looked {
        if let Err(failure) = marker
            && failure.kind() == FailureKind::Duplicate
        {
            return Err(Error::duplicate(node, failure));
        }
    }
    let own = nodes.iter().map(|node| node.label().to_owned());
    looked.extend(own.map(Look::without_marker));
    let states = states(&mut looked, &context.members, force);
    let stands_in_the_way = |state: &InitState| match state {
        InitState::Refused(_) | InitState::Failed(_) => !force,
        _ => false,
    };
    let left = states.iter().any(stands_in_the_way);
    if left {
        let as_it_is = looked.into_iter().zip(states);
        return Ok(as_it_is.map(|(Look { node, .. }, state)| NodeInit { node, state }).collect());
    }
    // First all of them carry the set without a vote. Somebody who marks some of them for another list at the same
    // moment keeps both sets from voting.
    let claims = looked.into_iter().zip(states).map(|(Look { node, claim, .. }, state)| {
        let claiming: BoxFuture<'static, _> = Box::pin(async move {
            match (state, claim) {
                (InitState::Left | InitState::Refused(_), Some(claim)) => match claim.await {
                    Ok(claimed) => (node, InitState::Left, Some(claimed)),
                    Err(failure) => (node, InitState::Failed(failure), None),
                },
                (state, _) => (node, state, None),
            }
        });
        claiming
    });
    let claimed = all(claims.collect()).await;
    let lost = |state: &InitState| matches!(state, InitState::Failed(why) if why.kind() == FailureKind::Rejected);
    let lost = claimed.iter().any(|(_, state, _)| lost(state));
    let become_of = claimed.into_iter().map(|(node, state, claimed)| {
        let marking: BoxFuture<'static, NodeInit> = Box::pin(async move {
            let state = match claimed {
                Some(claimed) if !lost => marked(claimed.await),
                _ => state,
            };
            NodeInit { node, state }
        });
        marking
    });
    Ok(all(become_of.collect()).await)
}

/// What each of them looks like beside the others.
fn states(looked: &mut [Look], ours: &Members, force: bool) -> Vec<InitState> {
    let mut states: Vec<_> = looked.iter().map(|look| look.state(ours)).collect();
    if states.iter().any(|state| matches!(state, InitState::Voting)) {
        for state in &mut states {
            if matches!(state, InitState::Left) {
                *state = InitState::Refused(Refusal::Emptied);
            }
        }
    }
    let to_be_marked = |state: &InitState| matches!(state, InitState::Left | InitState::Refused(_));
    if states.iter().any(to_be_marked) {
        for (look, state) in looked.iter_mut().zip(&mut states) {
            // One that votes is left alone, be it forced or not.
            let left_alone = force && matches!(state, InitState::Voting);
            if !look.locks.is_empty() && !left_alone {
                *state = InitState::Refused(Refusal::HoldsLocks(std::mem::take(&mut look.locks)));
            }
        }
    }
    states
}

fn marked(marker: Result<Marker, Failure>) -> InitState {
    match marker {
        Ok(marker) if marker.state == MarkerState::Formed && marker.left.is_zero() => {
            InitState::Marked
        }
        Ok(_) => {
            let text = "was marked by somebody else at the same moment; look at it again";
            InitState::Failed(Failure::new(FailureKind::Rejected, text))
        }
        Err(failure) => InitState::Failed(failure),
    }
}
