//! A kind of node that is not part of Quorlock: what another crate needs to bring an engine of its own.
//!
//! The engine is a [`Registry`] in memory, as simple as engines with sessions get. A record belongs to the session of
//! the client that took it and ends with it; there are no leases, no queues and no clocks. [`RegistryNode`] is one
//! client's session. `tests/conformance.rs` runs the suite that every kind of node has to pass, and
//! `tests/sessions.rs` what a locker makes of an engine whose records cannot outlive their client.

mod verbs;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use quorlock::node::{Call, Capabilities, ClientId, Failure, Inbox, Node, RecordEnd};
use quorlock::runtime::BoxFuture;
use quorlock::{Name, Token};

/// The engine: all records, and the sessions that they belong to.
#[derive(Default)]
pub struct Registry(Mutex<State>);

#[derive(Default)]
struct State {
    records: BTreeMap<Name, Stored>,
    /// The last fence of each name. It outlives the record.
    fences: BTreeMap<Name, u64>,
    sessions: u64,
}

struct Stored {
    token: Token,
    session: u64,
    note: Option<String>,
}

impl Registry {
    /// An empty one.
    #[must_use]
    pub fn new() -> Arc<Self> {
        Arc::default()
    }

    /// How many records and notes it keeps.
    #[must_use]
    pub fn kept(&self) -> usize {
        let state = self.state();
        state.records.len() + state.records.values().filter(|stored| stored.note.is_some()).count()
    }

    /// A session of one client.
    #[must_use]
    pub fn connect(self: &Arc<Self>) -> Arc<RegistryNode> {
        let session = self.state().next_session();
        let (registry, session) = (Arc::clone(self), Mutex::new(session));
        Arc::new(RegistryNode { registry, session, listener: Mutex::new(None) })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn next_session(&mut self) -> u64 {
        self.sessions += 1;
        self.sessions
    }

    fn end(&mut self, session: u64) {
        self.records.retain(|_, stored| stored.session != session);
    }
}

/// One client's session with a [`Registry`], as a node of a locker.
pub struct RegistryNode {
    registry: Arc<Registry>,
    session: Mutex<u64>,
    listener: Mutex<Option<(usize, Weak<dyn Inbox>)>>,
}

impl RegistryNode {
    /// Ends the session as the engine does with a client that it has not heard of for too long, and begins another.
    pub fn expire(&self) {
        {
            let mut session = self.session();
            let mut state = self.registry.state();
            state.end(*session);
            *session = state.next_session();
        }
        // Nothing is locked while the locker is notified: it may submit calls.
        let listener = self.listener().clone();
        if let Some((node, inbox)) = listener
            && let Some(inbox) = inbox.upgrade()
        {
            inbox.session_ended(node);
        }
    }

    fn session(&self) -> MutexGuard<'_, u64> {
        self.session.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn listener(&self) -> MutexGuard<'_, Option<(usize, Weak<dyn Inbox>)>> {
        self.listener.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Node for RegistryNode {
    fn label(&self) -> &str {
        "registry"
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities::new().records_end(RecordEnd::Session).stands_alone()
    }

    fn ready(&self) -> BoxFuture<'_, Result<(), Failure>> {
        Box::pin(std::future::ready(Ok(())))
    }

    /// Everything is answered at once, and so in the order in which it came.
    fn submit(&self, call: Call) {
        let session = *self.session();
        let answer = self.registry.state().serve(session, &call.request());
        call.answer(answer);
    }

    fn listen(&self, _client: ClientId, node: usize, inbox: Weak<dyn Inbox>) {
        *self.listener() = Some((node, inbox));
    }
}

impl Drop for RegistryNode {
    fn drop(&mut self) {
        let session = *self.session();
        self.registry.state().end(session);
    }
}

impl fmt::Debug for Registry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Not what it keeps: tokens are secret.
        f.debug_struct("Registry").field("kept", &self.kept()).finish_non_exhaustive()
    }
}

impl fmt::Debug for RegistryNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RegistryNode").field("registry", &self.registry).finish_non_exhaustive()
    }
}
