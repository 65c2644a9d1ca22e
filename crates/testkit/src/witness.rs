//! A node that remembers what it was asked.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::time::Duration;

use quorlock::node::memory::MemoryNode;
use quorlock::node::{Call, Capabilities, ClientId, Failure, FailureKind, Inbox, Node, Verb};
use quorlock::runtime::{BoxFuture, Moment, Runtime};

/// A node in this process that notes what it is asked and when, and that can be made to hang, as a
/// server does that was stopped with its sockets open.
pub struct Witness {
    node: MemoryNode,
    runtime: Arc<dyn Runtime>,
    limit: Duration,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    asked: Vec<(Asked, Moment)>,
    hanging: bool,
    held: Vec<Call>,
    meanwhile: Option<(Asked, Box<dyn FnOnce() + Send>)>,
}

/// What a node was asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Asked {
    /// To store a record.
    Acquire,
    /// To confirm a fence.
    Confirm,
    /// To keep it longer.
    Extend,
    /// To queue for it.
    Wait,
    /// To drop it.
    Release,
    /// To say who holds it.
    Inspect,
    /// To keep a note about the holder, or to drop it.
    SetNote,
    /// To drop it, whichever owner it has.
    ForceRelease,
    /// To say what it holds.
    List,
    /// A look at the set that it belongs to.
    Look,
    /// To belong to a set.
    Mark,
}

impl Witness {
    /// A node that holds nothing, and whose answers are late after `limit`.
    #[must_use]
    pub fn new(runtime: Arc<dyn Runtime>, limit: Duration) -> Arc<Self> {
        let (node, state) = (MemoryNode::new(), Mutex::default());
        Arc::new(Self { node, runtime, limit, state })
    }

    /// Stops answering; or goes on, with what it was asked in the meantime first.
    pub fn hang(&self, on: bool) {
        let held = {
            let mut state = self.state();
            state.hanging = on;
            if on { Vec::new() } else { std::mem::take(&mut state.held) }
        };
        for call in held {
            self.node.submit(call);
        }
    }

    /// Loses what it was asked while it hung, as when its connection breaks.
    pub fn lose_held(&self) {
        let held = std::mem::take(&mut self.state().held);
        drop(held);
    }

    /// Does something in the middle of the next round of that kind: when this node has been asked,
    /// and before it answers.
    pub fn at_next(&self, asked: Asked, act: impl FnOnce() + Send + 'static) {
        self.state().meanwhile = Some((asked, Box::new(act)));
    }

    /// Whether it keeps nothing: no record, queue or note.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.node.is_empty()
    }

    /// What it was asked so far.
    #[must_use]
    pub fn asked(&self) -> Vec<Asked> {
        self.state().asked.iter().map(|(what, _)| *what).collect()
    }

    /// When it was asked for an extension.
    #[must_use]
    pub fn extensions(&self) -> Vec<Moment> {
        let asked = &self.state().asked;
        asked.iter().filter(|(what, _)| *what == Asked::Extend).map(|(_, at)| *at).collect()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no panic in between")
    }
}

impl Node for Witness {
    fn label(&self) -> &'static str {
        "witness:"
    }

    fn capabilities(&self) -> Capabilities {
        self.node.capabilities()
    }

    fn ready(&self) -> BoxFuture<'_, Result<(), Failure>> {
        self.node.ready()
    }

    fn submit(&self, call: Call) {
        let asked = match call.request().verb {
            Verb::Acquire { .. } => Asked::Acquire,
            Verb::Confirm { .. } => Asked::Confirm,
            Verb::Extend { .. } => Asked::Extend,
            Verb::Wait { .. } => Asked::Wait,
            Verb::Release { .. } => Asked::Release,
            Verb::Inspect => Asked::Inspect,
            Verb::SetNote { .. } => Asked::SetNote,
            Verb::ForceRelease { .. } => Asked::ForceRelease,
            Verb::List { .. } => Asked::List,
            Verb::Look => Asked::Look,
            Verb::Mark(_) => Asked::Mark,
        };
        let (call, meanwhile) = {
            let mut state = self.state();
            state.asked.push((asked, call.request().sent));
            let meanwhile = state.meanwhile.take_if(|(next, _)| *next == asked);
            if state.hanging {
                let (late, limit) = (call.lateness(), self.runtime.sleep(self.limit));
                self.runtime.spawn(Box::pin(async move {
                    limit.await;
                    late.tell(Failure::new(FailureKind::Silent, "hangs"));
                }));
                state.held.push(call);
                (None, meanwhile)
            } else {
                (Some(call), meanwhile)
            }
        };
        if let Some((_, act)) = meanwhile {
            act();
        }
        if let Some(call) = call {
            self.node.submit(call);
        }
    }

    fn listen(&self, client: ClientId, node: usize, inbox: Weak<dyn Inbox>) {
        self.node.listen(client, node, inbox);
    }
}

impl fmt::Debug for Witness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Witness").finish_non_exhaustive()
    }
}
