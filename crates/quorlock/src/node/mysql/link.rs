//! What callers meet of a connection: a place to put calls, whether or not the server is there.
//!
//! All calls go into one queue. The session's task hands them to its connections, those of one name to the same one. A
//! connection that is silent for too long is *overdue*: from then on nothing but releases of what the server may hold is sent
//! over it, until it has answered what it owes. What cannot be sent yet waits here, and is stamped when it is sent.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex, Weak};
use std::task::{Context, Waker};

use tokio::sync::Notify;

use super::address::Address;
use super::connect::Connected;
use super::verbs::Caller;
use crate::locked::locked;
use crate::name::Name;
use crate::node::incoming::Incoming;
use crate::node::{Answer, Call, ClientId, Failure, FailureKind, Inbox, NodeContext};
use crate::runtime::{Moment, Runtime};
use quorlock_protocol::Patience;

/// So many connections have calls sent over them. The protocol has no room for a second call before the answer to the first.
pub(super) const LANES: usize = 8;

/// More calls than this do not wait for one server. New locks wait before they make a call.
const BACKLOG: usize = 1 << 20;

pub(super) struct Link {
    label: String,
    pub(super) runtime: Arc<dyn Runtime>,
    state: Mutex<State>,
    /// Notified whenever the phase changes.
    changed: Notify,
    /// Notified when a grant message may come from now on.
    waits: Notify,
    pub(super) inbox: Incoming,
}

pub(super) struct State {
    phase: Phase,
    /// Whether it is known that the server can be asked, and whether it votes.
    announced: bool,
    /// When it was last greeted by the server.
    greeted: Moment,
    pub(super) caller: Caller,
    /// Calls that wait until the server can take them, in order.
    pub(super) backlog: VecDeque<Unsent>,
    /// The connections that owe an answer which has passed its time limit.
    pub(super) overdue: [bool; LANES],
    pub(super) patience: Patience,
    /// Until when a grant message may come.
    pub(super) listens_until: Moment,
    /// Releases for when the server is back.
    parked: VecDeque<Unsent>,
    session: Option<Waker>,
    /// Whether the session has been woken and not run since.
    woken: bool,
    pub(super) closing: bool,
}

#[derive(Debug)]
enum Phase {
    /// The first attempt to connect has not ended yet.
    New {
        /// Whether calls wait for it. Not for long.
        awaited: bool,
    },
    Up,
    Down(Failure),
}

/// A call that waits to be sent.
#[derive(Debug)]
pub(super) struct Unsent {
    pub(super) call: Call,
    /// When its round began.
    pub(super) begun: Moment,
    /// It was sent once before, over a connection that broke before the answer came.
    pub(super) again: bool,
}

impl Link {
    pub(super) fn new(address: &Address, context: &NodeContext) -> Self {
        let settings = &context.settings;
        let options = &context.options.mysql;
        Self {
            label: address.label.clone(),
            runtime: Arc::clone(&context.runtime),
            state: Mutex::new(State {
                phase: Phase::New { awaited: true },
                announced: false,
                greeted: Moment::default(),
                caller: Caller::new(options, settings.max_ttl, &context.members),
                backlog: VecDeque::new(),
                overdue: [false; LANES],
                patience: Patience::within(settings.ttl, settings.node_limit),
                listens_until: Moment::default(),
                parked: VecDeque::new(),
                session: None,
                woken: false,
                closing: false,
            }),
            changed: Notify::new(),
            waits: Notify::new(),
            inbox: Incoming::new(context.client),
        }
    }

    pub(super) fn label(&self) -> &str {
        &self.label
    }

    pub(super) fn now(&self) -> Moment {
        self.runtime.now()
    }

    pub(super) fn state(&self) -> std::sync::MutexGuard<'_, State> {
        locked(&self.state)
    }

    pub(super) fn listen(&self, client: ClientId, node: usize, inbox: Weak<dyn Inbox>) {
        self.inbox.listen(client, node, inbox);
    }

    /// Takes a call in: sends it, keeps it for later, or answers it with why not.
    pub(super) fn submit(&self, call: Call) {
        let request = call.request();
        let since = request.sent;
        let (owed, is_mark) = (request.is_owed(since), request.is_mark());
        let lane = lane_of(request.name);
        let unsent = |call| Unsent { call, begun: since, again: false };
        let mut state = self.state();
        let why = match &state.phase {
            // Its caller stood still before this. The server may have been started since, and must not reckon by a time
            // of day from before: what it has forgotten may be later than that.
            Phase::Up if since < state.greeted && !owed => {
                let text = "was connected to anew while this was about to be sent";
                Some(Failure::new(FailureKind::Unreachable, text))
            }
            Phase::Up if owed || !state.overdue[lane] && state.backlog.len() < BACKLOG => None,
            Phase::Up => Some(not_answering(FailureKind::Unreachable)),
            Phase::New { awaited: true } if !is_mark => {
                let lateness = owed.then(|| call.lateness());
                state.backlog.push_back(unsent(call));
                drop(state);
                if let Some(lateness) = lateness {
                    lateness.tell(not_connected());
                }
                return;
            }
            Phase::New { .. } => Some(not_connected()),
            Phase::Down(why) => Some(why.clone()),
        };
        match why {
            None => {
                state.backlog.push_back(unsent(call));
                if let Some(session) = state.wake_session() {
                    drop(state);
                    session.wake();
                }
            }
            Some(why) if owed && !state.closing => {
                let lateness = call.lateness();
                state.parked.push_back(unsent(call));
                drop(state);
                lateness.tell(why);
            }
            Some(why) => {
                drop(state);
                call.answer(Answer::Failed(why));
            }
        }
    }

    /// The first connection takes long: nobody waits for it any longer, until it is there.
    pub(super) fn is_late(&self) {
        let now = self.now();
        let mut unsent = Vec::new();
        {
            let mut state = self.state();
            if !matches!(state.phase, Phase::New { .. }) {
                return;
            }
            state.phase = Phase::New { awaited: false };
            for waiting in std::mem::take(&mut state.backlog) {
                if waiting.call.request().is_owed(now) {
                    state.parked.push_back(waiting);
                } else {
                    unsent.push(waiting.call);
                }
            }
        }
        for call in unsent {
            call.answer(Answer::Failed(not_connected()));
        }
    }

    /// Ends when the server can be asked, or the latest attempt to reach it has failed.
    pub(super) async fn ready(&self) -> Result<(), Failure> {
        loop {
            // Made before the look, so that no change can slip in between.
            let changed = self.changed.notified();
            {
                let state = self.state();
                match &state.phase {
                    Phase::Up if state.announced => return Ok(()),
                    Phase::New { .. } | Phase::Up => {}
                    Phase::Down(why) => return Err(why.clone()),
                }
            }
            changed.await;
        }
    }

    /// A connection is there: what was kept for it is sent. Returns whether the server votes, as far as its marker
    /// tells.
    pub(super) fn up(&self, connected: &Connected) -> bool {
        let mut state = self.state();
        state.caller.connected(&connected.name, &connected.start);
        let votes = connected.marker.starts_with(state.caller.voter.as_bytes());
        state.phase = Phase::Up;
        let now = self.now();
        state.greeted = now;
        state.patience.answered(connected.took, now);
        let parked = std::mem::take(&mut state.parked);
        let (mut owed, moot): (VecDeque<_>, VecDeque<_>) =
            parked.into_iter().partition(|parked| parked.call.request().is_owed(now));
        // Before what has waited for the first connection.
        owed.append(&mut state.backlog);
        state.backlog = owed;
        drop(state);
        for Unsent { call, .. } in moot {
            let text = "was away until the record had expired there by itself";
            call.answer(Answer::Failed(Failure::new(FailureKind::Unreachable, text)));
        }
        votes
    }

    /// Notifies those that wait for the connection, once everybody knows whether the server votes.
    pub(super) fn announce(&self) {
        self.state().announced = true;
        self.changed.notify_waiters();
    }

    /// There is no connection: calls that wait for one are answered, releases are kept. `sent` are those that were sent
    /// over the last one, and not answered; `unsent` those that came before the backlog.
    pub(super) fn down(&self, why: &Failure, sent: Vec<Unsent>, unsent: Vec<Unsent>) {
        let now = self.now();
        let (parked, backlog) = {
            let mut state = self.state();
            state.phase = Phase::Down(why.clone());
            state.announced = false;
            state.overdue = [false; LANES];
            state.session = None;
            (std::mem::take(&mut state.parked), std::mem::take(&mut state.backlog))
        };
        self.changed.notify_waiters();
        let text = format!("the connection broke before the answer came: {why}");
        let lost = Failure::new(FailureKind::Broken, text);
        let sent = sent.into_iter().map(|unsent| (unsent, &lost));
        let others = parked.into_iter().chain(unsent).chain(backlog).map(|unsent| (unsent, why));
        let mut keep = VecDeque::new();
        for (unsent, why) in sent.chain(others) {
            if unsent.call.request().is_owed(now) {
                unsent.call.lateness().tell(why.clone());
                keep.push_back(unsent);
            } else {
                unsent.call.answer(Answer::Failed(why.clone()));
            }
        }
        let mut state = self.state();
        if state.closing {
            // Nobody will connect again: dropped outside of the lock, they tell their rounds.
            drop(state);
            return;
        }
        keep.append(&mut state.parked);
        state.parked = keep;
    }

    /// The node is not needed any more: the session ends once its calls are answered.
    pub(super) fn close(&self) {
        let session = {
            let mut state = self.state();
            state.closing = true;
            state.session.take()
        };
        self.changed.notify_waiters();
        if let Some(session) = session {
            session.wake();
        }
    }

    /// A grant message may come until then.
    pub(super) fn listens_until(&self, until: Moment) {
        let mut state = self.state();
        state.listens_until = state.listens_until.max(until);
        drop(state);
        self.waits.notify_one();
    }

    /// Ends when a grant message may come.
    pub(super) async fn awaits_messages(&self) {
        while self.state().listens_until <= self.now() {
            self.waits.notified().await;
        }
    }

    /// Ends when the node is not needed any more.
    pub(super) async fn closed(&self) {
        loop {
            // Made before the look, so that no change can slip in between.
            let changed = self.changed.notified();
            if self.state().closing {
                return;
            }
            changed.await;
        }
    }
}

/// The connection that calls of this name go over: one after the other.
pub(super) fn lane_of(name: &Name) -> usize {
    // Fowler-Noll-Vo, which spreads names that differ in their last bytes.
    let hash = name.as_bytes().iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    });
    usize::try_from((hash >> 32) % LANES as u64).unwrap_or_default()
}

fn not_connected() -> Failure {
    Failure::new(FailureKind::Unreachable, "not connected yet")
}

/// It owes answers for too long.
pub(super) fn not_answering(kind: FailureKind) -> Failure {
    Failure::new(kind, "does not answer what it was asked before")
}

impl State {
    /// The session's waker, if it does not know yet that it has something to do.
    fn wake_session(&mut self) -> Option<Waker> {
        if std::mem::replace(&mut self.woken, true) { None } else { self.session.clone() }
    }

    /// The session runs: it will see everything that was put here before. Returns whether it is to end once that is
    /// done.
    pub(super) fn attend(&mut self, cx: &Context<'_>) -> bool {
        self.woken = false;
        if !self.session.as_ref().is_some_and(|session| session.will_wake(cx.waker())) {
            self.session = Some(cx.waker().clone());
        }
        self.closing
    }
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Not the state: tokens are among the calls.
        f.debug_struct("Link").field("label", &self.label).finish_non_exhaustive()
    }
}
