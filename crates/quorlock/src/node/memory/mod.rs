//! A node in this process, for tests and examples.

mod queue;
mod verbs;

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, Weak};

use super::participants::Participants;
use super::{Call, Capabilities, ClientId, Failure, Grant, Inbox, Node};
use crate::locked::locked;
use crate::runtime::{BoxFuture, Moment};
use queue::Queue;

/// A node that keeps its records in this process and answers at once.
///
/// Its time is that of the requests: each says when it was sent. Grant messages go to listeners
/// that are still there.
#[derive(Default)]
pub struct MemoryNode {
    records: Mutex<Records>,
}

#[derive(Default)]
struct Records {
    by_name: HashMap<Vec<u8>, Kept>,
    /// None of them is empty.
    queues: HashMap<Vec<u8>, Queue>,
    notes: HashMap<Vec<u8>, Noted>,
    /// They outlive the records.
    fences: HashMap<Vec<u8>, KeptFence>,
    listeners: HashMap<ClientId, Listener>,
    /// Expired records are swept out when the map has grown to this size, so that names that are
    /// never used again do not pile up.
    sweep_at: usize,
}

struct Kept {
    token: Vec<u8>,
    expires: Moment,
    participants: Participants,
}

/// The last fence that was given out for a name.
struct KeptFence {
    last: u64,
    /// When it was used last.
    used: Moment,
}

struct Noted {
    text: String,
    expires: Moment,
}

struct Listener {
    /// The index by which it knows this node.
    node: usize,
    inbox: Weak<dyn Inbox>,
}

/// A grant message that is still to be sent, to a client that is still there.
struct GrantMessage {
    node: usize,
    inbox: Arc<dyn Inbox>,
    grant: Grant,
}

impl MemoryNode {
    /// A node that holds nothing.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// How many records, queues and notes it keeps. Records and notes that have run out are among
    /// them until they are found to be in the way. The fences of past holders are not.
    #[must_use]
    pub fn len(&self) -> usize {
        let records = locked(&self.records);
        records.len()
    }

    /// Whether it keeps nothing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl Node for MemoryNode {
    fn label(&self) -> &'static str {
        "memory:"
    }

    fn capabilities(&self) -> Capabilities {
        // One process, one clock: nothing drifts.
        Capabilities::new().queues()
    }

    fn ready(&self) -> BoxFuture<'_, Result<(), Failure>> {
        Box::pin(std::future::ready(Ok(())))
    }

    fn submit(&self, call: Call) {
        let (answer, message) = locked(&self.records).answer(&call.request());
        // Nothing is locked any more: the listener may submit calls.
        if let Some(GrantMessage { node, inbox, grant }) = message {
            inbox.granted(node, grant);
        }
        call.answer(answer);
    }

    fn listen(&self, client: ClientId, node: usize, inbox: Weak<dyn Inbox>) {
        locked(&self.records).listeners.insert(client, Listener { node, inbox });
    }
}

impl fmt::Debug for MemoryNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Not what it keeps: tokens are secret.
        f.debug_struct("MemoryNode").field("len", &self.len()).finish_non_exhaustive()
    }
}
