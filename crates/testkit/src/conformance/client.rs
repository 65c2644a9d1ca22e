//! A process that waits for locks, as nodes see it.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use quorlock::node::{ClientId, Grant, Inbox, Node, Record, Secret, Ticket, TicketNumber};
use quorlock::runtime::{Moment, TokioRuntime};

use super::probe::{Owner, Probe, owner};
use super::{Backend, LONG};

/// What the clients call the node: not a number that anything starts at.
const NODE: usize = 3;

/// A client with a handle of its own, and all messages that it got.
pub struct Client {
    id: ClientId,
    node: Arc<dyn Node>,
    heard: Arc<Heard>,
}

/// A grant message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GrantMessage {
    /// Which of the client's tickets was served.
    pub waiter: u64,
    /// What is said of when it was asked for.
    pub sent: Moment,
    /// What is to prove that it is the node who says so.
    pub secret: Secret,
}

#[derive(Default)]
struct Heard {
    messages: Mutex<Vec<GrantMessage>>,
    others: Mutex<Vec<bool>>,
    fences: Mutex<Vec<u64>>,
    interruptions: Mutex<usize>,
    then: Mutex<Option<Box<dyn FnOnce() + Send>>>,
}

/// One of a client's tickets.
#[derive(Debug)]
pub struct Waiter<'a> {
    client: &'a Client,
    owner: Owner,
    waiter: u64,
}

/// A handle for a client that listens to no messages.
pub(super) async fn open(backend: &impl Backend) -> Arc<dyn Node> {
    backend.open(ClientId::random(&TokioRuntime::current())).await
}

impl Client {
    /// A client of that authority.
    pub async fn of(backend: &impl Backend) -> Self {
        let id = ClientId::random(&TokioRuntime::current());
        Self::with(id, backend.open(id).await)
    }

    /// A client with a handle that was opened for it.
    #[must_use]
    pub fn with(id: ClientId, node: Arc<dyn Node>) -> Self {
        let heard = Arc::new(Heard::default());
        let inbox = Arc::downgrade(&heard);
        node.listen(id, NODE, inbox);
        Self { id, node, heard }
    }

    /// A ticket for `name` that is not in any queue yet. No two of one client have the same
    /// `waiter`.
    #[must_use]
    pub fn waiter(&self, name: &str, waiter: u64) -> Waiter<'_> {
        Waiter { client: self, owner: owner(name), waiter }
    }

    /// The grant messages since the last time. What the node had sent before this was called
    /// has come when this returns: it answers in between.
    pub async fn grant_messages(&self) -> Vec<GrantMessage> {
        owner("looked at").seen(&self.node).await;
        self.heard()
    }

    /// Of each grant message so far, whether it left others waiting.
    #[must_use]
    pub fn left_others(&self) -> Vec<bool> {
        locked(&self.heard.others).clone()
    }

    /// The fence that came with each grant message so far.
    #[must_use]
    pub fn fences(&self) -> Vec<u64> {
        locked(&self.heard.fences).clone()
    }

    /// The grant messages since the last time, without waiting for what is on its way.
    #[must_use]
    pub fn heard(&self) -> Vec<GrantMessage> {
        std::mem::take(&mut *locked(&self.heard.messages))
    }

    /// Does something as soon as the next grant message comes, while that is being delivered.
    pub fn on_next_message(&self, then: impl FnOnce() + Send + 'static) {
        *locked(&self.heard.then) = Some(Box::new(then));
    }

    /// How often it was notified that grant messages may have got lost.
    #[must_use]
    pub fn interruptions(&self) -> usize {
        *locked(&self.heard.interruptions)
    }

    /// Its handle.
    #[must_use]
    pub fn node(&self) -> &Arc<dyn Node> {
        &self.node
    }

    /// Ends the client, as the end of its process would, and waits until the authority knows.
    pub async fn leave(self, backend: &impl Backend) {
        let id = self.id;
        drop(self);
        backend.gone(id).await;
    }
}

impl Waiter<'_> {
    /// Asks for the lock, or for a place in its queue.
    #[must_use = "only the answer tells that it was done"]
    pub fn wait(&self, ticket_no: TicketNumber, ttl: Duration) -> Arc<Probe> {
        self.owner.wait(&self.client.node, ttl, self.ticket(ticket_no), false)
    }

    /// The same, but lets others have the lock who stand before us.
    #[must_use = "only the answer tells that it was done"]
    pub fn yielding(&self, ticket_no: TicketNumber, ttl: Duration) -> Arc<Probe> {
        self.owner.wait(&self.client.node, ttl, self.ticket(ticket_no), true)
    }

    /// Gives the lock or the place back, and returns whether it was the lock.
    pub async fn release(&self) -> bool {
        self.owner.release(&self.client.node).is_done().await
    }

    /// Who holds the lock.
    pub async fn seen(&self) -> Option<Record> {
        self.owner.seen(&self.client.node).await
    }

    /// Whether this ticket has the lock.
    pub async fn holds(&self) -> bool {
        self.seen().await.is_some_and(|record| record.token == Some(self.owner.token()))
    }

    /// The owner behind it.
    #[must_use]
    pub fn owner(&self) -> &Owner {
        &self.owner
    }

    /// The message that the grant of what `probe` asked for would give.
    ///
    /// # Panics
    /// If it asked for no place in a queue.
    #[must_use]
    pub fn message_for(&self, probe: &Probe) -> GrantMessage {
        let Ticket { waiter, secret, .. } = probe.ticket().expect("a ticket");
        GrantMessage { waiter, sent: probe.sent(), secret }
    }

    /// A place in the queue with that ticket number and a secret of its own. The caller says when it asks for it.
    #[must_use]
    pub fn ticket(&self, ticket_no: TicketNumber) -> Ticket {
        let (secret, sent) = (Secret::random(&TokioRuntime::current()), Moment::default());
        Ticket {
            client: self.client.id,
            waiter: self.waiter,
            secret,
            ticket_no,
            sent,
            keep: 3 * LONG,
        }
    }
}

impl Inbox for Heard {
    fn granted(&self, node: usize, grant: Grant) {
        assert_eq!(node, NODE, "another node's index");
        let Grant { waiter, sent, secret, .. } = grant;
        locked(&self.messages).push(GrantMessage { waiter, sent, secret });
        locked(&self.others).push(grant.others);
        locked(&self.fences).push(grant.fence);
        let then = locked(&self.then).take();
        if let Some(then) = then {
            then();
        }
    }

    fn interrupted(&self, node: usize) {
        assert_eq!(node, NODE, "another node's index");
        *locked(&self.interruptions) += 1;
    }

    fn unsettled(&self, node: usize) {
        assert_eq!(node, NODE, "another node's index");
    }

    fn session_ended(&self, node: usize) {
        assert_eq!(node, NODE, "another node's index");
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client")
            .field("id", &self.id)
            .field("node", &self.node)
            .finish_non_exhaustive()
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
