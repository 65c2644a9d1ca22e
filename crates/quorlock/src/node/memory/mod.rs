//! A node in this process, for tests and examples.

mod verbs;

use std::collections::HashMap;
use std::sync::{Mutex, Weak};
use std::time::Duration;

use super::{Call, Capabilities, ClientId, Failure, Inbox, Node};
use crate::locked::locked;
use crate::runtime::{BoxFuture, Moment};
use quorlock_protocol::Drift;

/// A node that keeps its records in this process and answers at once.
///
/// Its time is that of the requests: each tells when it was sent.
#[derive(Debug, Default)]
pub struct MemoryNode {
    records: Mutex<Records>,
}

#[derive(Debug, Default)]
struct Records {
    by_name: HashMap<Vec<u8>, Kept>,
    /// Expired records are swept out when the map has grown to this size, so that names that are
    /// never used again do not pile up.
    sweep_at: usize,
}

#[derive(Debug)]
struct Kept {
    token: Vec<u8>,
    expires: Moment,
}

impl MemoryNode {
    /// A node that holds nothing.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }
}

impl Node for MemoryNode {
    fn label(&self) -> &'static str {
        "memory:"
    }

    fn capabilities(&self) -> Capabilities {
        // One process, one clock: nothing drifts.
        Capabilities { drift: Drift { base: Duration::ZERO, per_mille: 0 }, margin: Duration::ZERO }
    }

    fn ready(&self) -> BoxFuture<'_, Result<(), Failure>> {
        Box::pin(std::future::ready(Ok(())))
    }

    fn submit(&self, call: Call) {
        let answer = locked(&self.records).answer(&call.request());
        call.answer(answer);
    }

    fn listen(&self, _client: ClientId, _node: usize, _inbox: Weak<dyn Inbox>) {}
}
