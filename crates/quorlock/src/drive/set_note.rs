//! The round that stores the note of a holder, for those who inspect the lock.

use std::sync::{Arc, Mutex};

use super::Claim;
use crate::core::{Core, Stamp};
use crate::locked::locked;
use crate::name::Name;
use crate::node::{Answer, Failure, Request, Round, Verb};
use crate::token::Token;
use quorlock_protocol::NodeSet;

/// A note outlives its last refreshment by so many TTLs.
const KEPT_TTLS: u32 = 3;

/// Leaves a note on the nodes, or takes it away. Nobody waits for it but a shutdown, and nothing
/// depends on it.
#[derive(Debug)]
pub(crate) struct SetNoteRound {
    core: Arc<Core>,
    name: Name,
    token: Token,
    note: Arc<str>,
    stamp: Stamp,
    keep: std::time::Duration,
    heard: Mutex<NodeSet>,
}

impl SetNoteRound {
    pub(crate) fn send(claim: &Claim, note: Arc<str>) {
        let core = Arc::clone(&claim.core);
        core.releases.begin();
        let round = Arc::new(Self {
            name: claim.name.clone(),
            token: claim.token,
            note,
            stamp: core.stamp(),
            keep: claim.ttl() * KEPT_TTLS,
            heard: Mutex::new(NodeSet::EMPTY),
            core,
        });
        round.core.ask_all(&round);
    }

    fn hear(&self, node: usize) {
        let last = {
            let mut heard = locked(&self.heard);
            let before = heard.len();
            heard.insert(node);
            before < heard.len() && heard.len() == self.core.nodes.len()
        };
        if last {
            self.core.releases.end();
        }
    }

    fn failed(&self, node: usize, why: &Failure) {
        let node = self.core.label(node);
        tracing::debug!(node, "the note of the lock {} is not kept: {why}", self.name);
    }
}

impl Round for SetNoteRound {
    fn request(&self, _node: usize) -> Request<'_> {
        let verb = Verb::SetNote { token: &self.token, note: &self.note, keep: self.keep };
        let Stamp { sent, wall_us } = self.stamp;
        Request { name: &self.name, sent, wall_us, verb }
    }

    fn cast(self: Arc<Self>, node: usize, answer: Answer) {
        if let Answer::Failed(why) = answer {
            self.failed(node, &why);
        }
        self.hear(node);
    }

    fn overdue(self: Arc<Self>, node: usize, why: Failure) {
        self.failed(node, &why);
        self.hear(node);
    }
}
