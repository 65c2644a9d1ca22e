//! Marking nodes as new, on somebody's word.
//!
//! In the `strict` dialect a node that was emptied casts no vote for a while, since it may have granted
//! locks that it does not know of any more. A new node looks like one that was emptied: only people know
//! better.

use std::sync::Arc;
use std::time::Duration;

use crate::Error;
use crate::examine::all;
use crate::name::Name;
use crate::node::{self, Failure, FailureKind, Node, Setting};
use crate::runtime::BoxFuture;

/// What became of one node, from [`Builder::init`](crate::Builder::init).
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
    /// It could be marked, but others were refused: nothing was changed.
    Left,
    /// It cannot be reached or used.
    Failed(Failure),
}

/// Why a node does not look like a new one.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Refusal {
    /// Somebody holds these locks on it, and maybe more.
    HoldsLocks(Vec<Name>),
    /// It is marked by another start of the server: it was restarted, and may have forgotten locks.
    Restarted,
    /// It is marked for clients with these settings, and this one has others.
    OtherSettings {
        /// Their longest TTL.
        max_ttl: Duration,
        /// How far they let the node's clock be ahead.
        clock_ahead: Duration,
    },
}

/// A node that was looked at.
pub(crate) struct Look {
    pub(crate) node: String,
    pub(crate) state: InitState,
    /// Some of the locks that are held there.
    pub(crate) locks: Vec<Name>,
    /// Marks it.
    pub(crate) mark: Option<BoxFuture<'static, InitState>>,
}

impl Look {
    pub(crate) fn settled(node: String, state: InitState) -> Self {
        Self { node, state, locks: Vec::new(), mark: None }
    }

    fn is_to_be_marked(&self) -> bool {
        matches!(self.state, InitState::Left | InitState::Refused(_))
    }

    fn done(self) -> BoxFuture<'static, NodeInit> {
        let Self { node, state, mark, .. } = self;
        Box::pin(async move {
            let state = match (state, mark) {
                (InitState::Left | InitState::Refused(_), Some(mark)) => mark.await,
                (state, _) => state,
            };
            NodeInit { node, state }
        })
    }
}

/// Looks at all nodes before any is marked. A lock that is held on any of them may have been granted by
/// those that are said to be new, and even one that votes does not help then: with the new one and a
/// third it may be taken again.
pub(crate) async fn init(
    urls: &[String],
    nodes: &[Arc<dyn Node>],
    setting: &Setting,
    force: bool,
) -> Result<Vec<NodeInit>, Error> {
    let looks = urls.iter().enumerate().map(|(index, url)| node::init(index, url, setting));
    let mut looked = all(looks.collect::<Result<_, _>>()?).await;
    for Look { node, state, .. } in &looked {
        if let InitState::Failed(failure) = state
            && failure.kind() == FailureKind::Duplicate
        {
            return Err(Error::duplicate(node, failure));
        }
    }
    let own = nodes.iter().map(|node| node.label().to_owned());
    looked.extend(own.map(|node| Look::settled(node, InitState::NotNeeded)));
    if looked.iter().any(Look::is_to_be_marked) {
        for look in looked.iter_mut().filter(|look| !look.locks.is_empty()) {
            let locks = std::mem::take(&mut look.locks);
            // One that votes is left alone, be it forced or not.
            if !(force && matches!(look.state, InitState::Voting)) {
                look.state = InitState::Refused(Refusal::HoldsLocks(locks));
            }
        }
    }
    let refused = looked.iter().any(|look| matches!(look.state, InitState::Refused(_)));
    if refused && !force {
        let left = looked.into_iter().map(|Look { node, state, .. }| NodeInit { node, state });
        return Ok(left.collect());
    }
    Ok(all(looked.into_iter().map(Look::done).collect()).await)
}
