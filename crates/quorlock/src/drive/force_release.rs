//! The round that takes a lock away from its holder.

use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use super::{NodeRelease, NodeReleaseState, Status};
use crate::Error;
use crate::core::{Core, Stamp};
use crate::error::{NodeAnswer, NodeAnswers};
use crate::locked::locked;
use crate::name::Name;
use crate::node::{Answer, Failure, Holder, Request, Round, Verb};
use quorlock_protocol::NodeSet;

#[derive(Debug)]
pub(crate) struct ForceReleaseRound {
    core: Arc<Core>,
    name: Name,
    stamp: Stamp,
    /// Who was seen on each node.
    seen: Vec<Option<Holder>>,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// What is known of each node; `None` until it has answered.
    nodes: Vec<Option<NodeReleaseState>>,
    waker: Option<Waker>,
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
            state: Mutex::new(State { nodes, waker: None }),
        });
        core.ask(&round, ask);
        round
    }

    /// Ready once every node was heard or given up on.
    pub(crate) fn poll(&self, cx: &mut Context<'_>) -> Poll<Result<Vec<NodeRelease>, Error>> {
        let mut state = locked(&self.state);
        if state.nodes.iter().any(Option::is_none) {
            state.waker = Some(cx.waker().clone());
            return Poll::Pending;
        }
        let nodes = state.nodes.iter().flatten().cloned().enumerate();
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
            Err(Error::NoQuorum {
                verb: format!("dropped the lock {}", self.name),
                have,
                need: quorum.enough(),
                nodes: quorum.nodes(),
                answers: NodeAnswers(open),
            })
        })
    }

    fn hear(&self, node: usize, heard: NodeReleaseState) {
        let waker = {
            let mut state = locked(&self.state);
            if let Some(place) = state.nodes.get_mut(node) {
                *place = Some(heard);
            }
            if state.nodes.iter().all(Option::is_some) { state.waker.take() } else { None }
        };
        if let Some(waker) = waker {
            waker.wake();
        }
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
