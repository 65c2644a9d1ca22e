//! What a case needs of a node. One that lacks it is skipped aloud, and never silently.

use std::sync::Arc;
use std::time::Duration;

use quorlock::node::{Capabilities, Node, RecordEnd};

use super::Backend;
use super::client::open;
use crate::skipping::report;

/// What not every kind of node has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Need {
    /// Queues that the node keeps, and messages of grants.
    Queues,
    /// Records that end by their TTL, and by nothing else.
    Leases,
    /// Records that end with the session of their client.
    Sessions,
    /// Fences and places in queues that are what a client proposes.
    Proposals,
    /// Several processes that take part in one lock.
    Participants,
}

impl Need {
    fn is_met(self, capabilities: &Capabilities) -> bool {
        match self {
            Self::Queues => capabilities.queues,
            Self::Leases => capabilities.records_end == RecordEnd::Lease,
            Self::Sessions => capabilities.records_end == RecordEnd::Session,
            Self::Proposals => !capabilities.own_order,
            Self::Participants => capabilities.participants,
        }
    }
}

/// Whether the nodes of that backend lack any of these, by their own capabilities. Says so on stderr.
pub(super) async fn lacks(backend: &impl Backend, needs: &[Need]) -> bool {
    let node = open(backend).await;
    let capabilities = node.capabilities();
    let Some(missing) = needs.iter().find(|need| !need.is_met(&capabilities)) else {
        return false;
    };
    let thread = std::thread::current();
    let (case, label) = (thread.name().unwrap_or("a case"), node.label());
    report(case, format_args!("{label} has no {missing:?}"));
    true
}

/// A TTL that is over before long: the shortest that the node keeps, but for one that is no use.
pub(super) fn short(node: &Arc<dyn Node>) -> Duration {
    node.capabilities().ttls.kept(Duration::from_millis(20))
}

/// How often something is tried that needs a record which does not run out on the way.
pub(super) const TRIES: usize = 100;
