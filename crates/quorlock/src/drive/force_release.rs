//! The round that takes a lock away from its holder.

use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use super::{NodeRelease, NodeReleaseState, Status};
use crate::Error;
use crate::core::{Core, Stamp};
use crate::error::{NodeAnswer, NodeAnswers};
use crate::name::Name;
use crate::node::{Answer, Failure, Holder, Request, Round, Verb};
use crate::waitable::Waitable;
use quorlock_protocol::NodeSet;

#[derive(Debug)]
pub(crate) struct ForceReleaseRound {
    core: Arc<Core>,
    name: Name,
    stamp: Stamp,
    /// Who was seen on each node.
    seen: Vec<Option<Holder>>,
    state: Waitable<State>,
}

#[derive(Debug)]
struct State {
    /// What is known of each node; `None` until it has answered.
    nodes: Vec<Option<NodeReleaseState>>,
}

impl ForceReleaseRound {
    /// Asks each node to drop the record of the holder that `status` shows there, and no other.
    pub(crate) fn start(core: &Arc<Core>, status: &Status) -> Arc<Self> {
        let mut ask = NodeSet::EMPTY;
        let (mut seen, mut nodes) = (Vec::new(), Vec::new());
        for (index, node) in status.nodes.iter().enumerate() {
            let holder = node.record.as_ref().ok().copied().flatten().map(|record| record.holder);
            nodes.push(match &node.record {
                Ok(None) => Some(NodeReleaseState::NotHeld),
                Ok(Some(_)) => None,
                Err(why) => Some(taken(why.clone(), core.settings.max_ttl)),
            });
            if holder.is_some() {
                ask.insert(index);
            }
            seen.push(holder);
        }
        let round = Arc::new(Self {
            core: Arc::clone(core),
            name: status.name.clone(),
            stamp: core.stamp(),
            seen,
            state: Waitable::new(State { nodes }),
        });
        core.ask(&round, ask);
        round
    }

    /// Ready once every node was heard or given up on.
    pub(crate) fn poll(&self, cx: &mut Context<'_>) -> Poll<Result<Vec<NodeRelease>, Error>> {
        let nodes: Vec<_> =
            ready!(self.state.poll(cx, |state| state.nodes.iter().cloned().collect()));
        let nodes = nodes.into_iter().enumerate();
        let nodes: Vec<_> =
            nodes.map(|(node, state)| NodeRelease { node: self.core.label(node), state }).collect();
        let quorum = self.core.quorum;
        let open = nodes.iter().filter_map(|node| match &node.state {
            NodeReleaseState::Taken { why, .. } => {
                Some(NodeAnswer { node: node.node.clone(), failure: why.clone() })
            }
            _ => None,
        });
        let open: Vec<_> = open.collect();
        let have = nodes.len() - open.len();
        Poll::Ready(if have >= quorum.enough() {
            Ok(nodes)
        } else {
            let verb = format!("dropped the lock {}", self.name);
            Err(Error::no_quorum(verb, have, quorum, NodeAnswers(open)))
        })
    }

    fn hear(&self, node: usize, heard: NodeReleaseState) {
        self.state.update_and_wake(|state| {
            if let Some(known) = state.nodes.get_mut(node) {
                *known = Some(heard);
            }
            state.nodes.iter().all(Option::is_some)
        });
    }
}

fn taken(why: Failure, at_most: Duration) -> NodeReleaseState {
    NodeReleaseState::Taken { why: Some(why), at_most }
}

impl Round for ForceReleaseRound {
    fn request(&self, node: usize) -> Request<'_> {
        let verb = match self.seen.get(node).copied().flatten() {
            Some(holder) => Verb::ForceRelease { holder },
            // Not asked anything.
            None => Verb::Inspect,
        };
        let Stamp { sent, wall_us } = self.stamp;
        Request { name: &self.name, sent, wall_us, verb }
    }

    fn cast(self: Arc<Self>, node: usize, answer: Answer) {
        self.hear(
            node,
            match answer {
                Answer::Done => NodeReleaseState::Released,
                Answer::Failed(why) => taken(why, self.core.settings.max_ttl),
                _ => NodeReleaseState::NotHeld,
            },
        );
    }

    fn overdue(self: Arc<Self>, node: usize, why: Failure) {
        self.hear(node, taken(why, self.core.settings.max_ttl));
    }
}
