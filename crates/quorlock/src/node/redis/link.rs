//! What callers meet of a connection: a place to put calls, whether or not the server is there.
//!
//! All callers' commands go into one buffer, and their calls into one queue in the same order. A
//! call that finds the connection idle is written at once by its caller; any other wakes the
//! session's task, which writes everything that has gathered by then with one system call (`sending`).
//!
//! A server that is silent for too long is *overdue*. From then on nothing but releases of what it
//! may hold is sent to it, so that it costs nothing, until it has answered what it owes. One that answers
//! steadily is not silent: what it cannot take yet waits here.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex, Weak};
use std::task::{Context, Waker};

use tokio::sync::Notify;

use super::address::Address;
use super::connect::{Connected, Demands};
use super::dialect::DialectState;
use super::inbox::channel;
use super::sending::{Now, Waiting};
use super::stream::WriteHalf;
use super::tending;
use super::verbs::{Encoder, Sent};
use crate::locked::locked;
use crate::node::incoming::Incoming;
use crate::node::{
    Answer, Call, ClientId, Failure, FailureKind, Inbox, NodeContext, Request, Verb,
};
use crate::runtime::{Moment, Runtime, wall_us};
use quorlock_protocol::{Patience, Window};

/// More calls than this do not wait for one server. New locks wait before they make a call.
const BACKLOG: usize = 1 << 20;

/// An idle connection keeps room for so much, whatever has gone over it.
pub(super) const KEPT_BYTES: usize = 16 * 1_024;
pub(super) const KEPT_CALLS: usize = 128;

pub(super) struct Link {
    label: String,
    runtime: Arc<dyn Runtime>,
    state: Mutex<State>,
    /// Notified whenever the phase changes.
    changed: Notify,
    pub(super) inbox: Incoming,
}

pub(super) struct State {
    pub(super) phase: Phase,
    /// Whether it is known that the server can be asked, and whether it votes.
    announced: bool,
    /// When it was last greeted by the server.
    greeted: Moment,
    pub(super) encoder: Encoder,
    /// Bytes that are still to be written.
    pub(super) out: Vec<u8>,
    /// Calls that wait until the server can take them, in order.
    pub(super) backlog: VecDeque<Unsent>,
    /// Calls that were written, or are about to be, in order.
    pub(super) waiting: VecDeque<Waiting>,
    /// So many at the front of `waiting` have passed their time limit.
    pub(super) overdue: usize,
    /// So many of `waiting` went out in the command of another.
    pub(super) together: usize,
    /// When the last reply came.
    pub(super) replied: Moment,
    pub(super) patience: Patience,
    pub(super) window: Window,
    /// Releases for when the server is back.
    parked: VecDeque<Unsent>,
    session: Option<Waker>,
    /// Whether the session has been woken and not run since.
    woken: bool,
    /// Whether replies have lately come one by one: then a call on an idle connection is written
    /// at once. Where many callers run, the first of a burst would otherwise be sent alone.
    pub(super) write_through: bool,
    /// Whether the session's timer is set to look at the oldest call.
    pub(super) timed: bool,
    pub(super) closing: bool,
}

#[derive(Debug)]
pub(super) enum Phase {
    /// The first attempt to connect has not ended yet.
    New {
        /// Whether calls wait for it. Not for long.
        awaited: bool,
    },
    /// Callers may write to it by themselves, unless it is `None`.
    Up(Option<Arc<WriteHalf>>),
    Down(Failure),
}

/// A call that waits to be sent.
#[derive(Debug)]
pub(super) struct Unsent {
    pub(super) call: Call,
    /// When its round began.
    pub(super) begun: Moment,
    /// It was sent once before, over a connection that broke before the reply came.
    pub(super) again: bool,
    pub(super) kind: UnsentKind,
}

/// How it goes out. Kept beside the call: each look at a request costs as much as some of its command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum UnsentKind {
    /// Together with others of its kind.
    Extension,
    /// A note, which may stand between extensions.
    Note,
    Other,
}

impl UnsentKind {
    const fn of(request: &Request<'_>) -> Self {
        match request.verb {
            Verb::Extend { .. } => Self::Extension,
            Verb::SetNote { .. } => Self::Note,
            _ => Self::Other,
        }
    }
}

impl Unsent {
    /// One that was sent over a connection that broke before the reply came.
    fn again(call: Call) -> Self {
        let request = call.request();
        let (begun, kind) = (request.sent, UnsentKind::of(&request));
        Self { call, begun, again: true, kind }
    }
}

impl Link {
    pub(super) fn new(address: &Address, context: &NodeContext) -> Self {
        let settings = &context.settings;
        let options = &context.options.redis;
        let dialect = DialectState::new(options, settings.max_ttl, &context.members);
        Self {
            label: address.label.clone(),
            runtime: Arc::clone(&context.runtime),
            state: Mutex::new(State {
                phase: Phase::New { awaited: true },
                announced: false,
                greeted: Moment::default(),
                encoder: Encoder::new(&options.prefix, dialect),
                out: Vec::new(),
                backlog: VecDeque::new(),
                waiting: VecDeque::new(),
                overdue: 0,
                together: 0,
                replied: Moment::default(),
                patience: Patience::within(settings.ttl, settings.node_limit),
                window: Window::of_clock(options.clock_ahead),
                parked: VecDeque::new(),
                session: None,
                woken: false,
                write_through: true,
                timed: false,
                closing: false,
            }),
            changed: Notify::new(),
            inbox: Incoming::new(context.client),
        }
    }

    pub(super) fn label(&self) -> &str {
        &self.label
    }

    /// What a new connection needs.
    pub(super) fn demands(&self) -> Demands {
        let state = self.state();
        let Encoder { prefix, dialect, .. } = &state.encoder;
        let marker = dialect.marker_key().map(<[u8]>::to_vec);
        let channel = channel(prefix, self.inbox.client);
        Demands { scripts: dialect.scripts().loaded_at_greeting(), marker, channel }
    }

    pub(super) fn now(&self) -> Moment {
        self.runtime.now()
    }

    /// The time by both clocks.
    pub(super) fn both(&self) -> Now {
        Now { boot: self.runtime.now(), wall_us: wall_us(&*self.runtime) }
    }

    pub(super) fn state(&self) -> std::sync::MutexGuard<'_, State> {
        locked(&self.state)
    }

    pub(super) fn listen(&self, client: ClientId, node: usize, inbox: Weak<dyn Inbox>) {
        self.inbox.listen(client, node, inbox);
    }

    /// Has the server clear old locks away; and report how it is set up, if `evicted` says how many keys it had
    /// thrown away before. Not while it owes answers.
    pub(super) fn tend(&self, evicted: Option<u64>) {
        let now = self.now();
        let wall_us = wall_us(&*self.runtime);
        let Some(call) = tending::call(now) else { return };
        let mut state = self.state();
        if evicted.is_none() && !state.encoder.dialect.sweeps() {
            return;
        }
        let idle = matches!(state.phase, Phase::Up(_)) && state.overdue == 0;
        if !idle || state.closing {
            return;
        }
        let State { encoder, out, .. } = &mut *state;
        encoder.tend(wall_us, evicted, out);
        let (sent, since) = (Sent::Tend, now);
        let (again, with_source) = (false, true);
        state.waiting.push_back(Waiting { call, sent, since, wall_us, again, with_source });
        if let Some(session) = state.wake_session() {
            drop(state);
            session.wake();
        }
    }

    /// Takes a call in: sends it, keeps it for later, or answers it with why not.
    pub(super) fn submit(&self, call: Call) {
        let request = call.request();
        let (since, wall_us) = (request.sent, request.wall_us);
        let owed = request.is_owed(since);
        let kind = UnsentKind::of(&request);
        let unsent = |call| Unsent { call, begun: since, again: false, kind };
        let mut state = self.state();
        let why = match &state.phase {
            // Its caller stood still before this. The server may have been started since, and must not
            // reckon by a time of day from before: what it has forgotten may be later than that.
            Phase::Up(_) if since < state.greeted && !owed => {
                let text = "was connected to anew while this was about to be sent";
                Some(Failure::new(FailureKind::Unreachable, text))
            }
            Phase::Up(_) if owed || state.overdue == 0 && state.backlog.len() < BACKLOG => None,
            Phase::Up(_) => Some(self.not_answering(&state, FailureKind::Unreachable)),
            Phase::New { awaited: true } if !request.is_mark() => {
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
                if state.overdue > 0 || state.is_idle() {
                    state.send(call, Now { boot: since, wall_us }, false);
                } else {
                    state.backlog.push_back(unsent(call));
                }
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
        let unsent = {
            let mut state = self.state();
            if !matches!(state.phase, Phase::New { .. }) {
                return;
            }
            state.phase = Phase::New { awaited: false };
            state.park_backlog(now)
        };
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
                    Phase::Up(_) if state.announced => return Ok(()),
                    Phase::New { .. } | Phase::Up(_) => {}
                    Phase::Down(why) => return Err(why.clone()),
                }
            }
            changed.await;
        }
    }

    /// A connection is there: sends what was kept for it. Returns whether the server votes, as far as its
    /// marker tells.
    pub(super) fn up(&self, connected: &Connected) -> bool {
        let mut state = self.state();
        let encoder = &mut state.encoder;
        let votes = encoder.dialect.connected(connected);
        encoder.subscriber = connected.subscribed.is_ok().then_some(self.inbox.client);
        encoder.together = true;
        // Only the session can seal what goes over TLS.
        state.phase = Phase::Up(connected.tls.is_none().then(|| Arc::clone(&connected.write)));
        let now = self.both();
        state.greeted = now.boot;
        state.patience.answered(connected.took, now.boot);
        state.window = state.window.anew();
        let parked = std::mem::take(&mut state.parked);
        let (mut owed, moot): (VecDeque<_>, VecDeque<_>) =
            parked.into_iter().partition(|parked| parked.call.request().is_owed(now.boot));
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

    /// There is no connection: calls that wait for one are answered, releases are kept.
    pub(super) fn down(&self, why: &Failure) {
        let now = self.now();
        let (waiting, parked, backlog) = {
            let mut state = self.state();
            state.phase = Phase::Down(why.clone());
            state.announced = false;
            state.out.clear();
            state.overdue = 0;
            state.together = 0;
            state.timed = false;
            let backlog = std::mem::take(&mut state.backlog);
            (std::mem::take(&mut state.waiting), std::mem::take(&mut state.parked), backlog)
        };
        self.changed.notify_waiters();
        let text = format!("the connection broke before the answer came: {why}");
        let lost = Failure::new(FailureKind::Broken, text);
        let waiting = waiting.into_iter().map(|waiting| Unsent::again(waiting.call));
        let mut keep = VecDeque::new();
        for parked in parked.into_iter().chain(waiting) {
            if parked.call.request().is_owed(now) {
                parked.call.lateness().tell(lost.clone());
                keep.push_back(parked);
            } else {
                parked.call.answer(Answer::Failed(lost.clone()));
            }
        }
        // Those were not sent over this one.
        for unsent in backlog {
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

    pub(super) fn not_answering(&self, state: &State, kind: FailureKind) -> Failure {
        let text = if state.overdue > 0 {
            format!("has not answered for {:.0?}", state.silence(self.now()))
        } else {
            format!("{BACKLOG} calls wait for it already")
        };
        Failure::new(kind, text)
    }
}

fn not_connected() -> Failure {
    Failure::new(FailureKind::Unreachable, "not connected yet")
}

impl State {
    /// Keeps releases that were not sent for when the server is there. Returns the others.
    fn park_backlog(&mut self, now: Moment) -> Vec<Call> {
        let mut unsent = Vec::new();
        for waiting in std::mem::take(&mut self.backlog) {
            if waiting.call.request().is_owed(now) {
                self.parked.push_back(waiting);
            } else {
                unsent.push(waiting.call);
            }
        }
        unsent
    }

    /// The session's waker, if it has something to do and does not know it yet.
    fn wake_session(&mut self) -> Option<Waker> {
        let more = !self.backlog.is_empty() && self.has_room();
        let needed = more || !self.out.is_empty() || !self.timed;
        if needed && !self.woken {
            self.woken = true;
            return self.session.clone();
        }
        None
    }

    /// Does not keep the room that a crowd has needed.
    pub(super) fn shrink(&mut self) {
        self.out.shrink_to(KEPT_BYTES);
        self.waiting.shrink_to(KEPT_CALLS);
        self.backlog.shrink_to(KEPT_CALLS);
    }

    /// The session runs: it will see everything that was put here before. Returns whether it is to
    /// end once that is done.
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
        // Not the state: tokens are among the bytes that wait to be written.
        f.debug_struct("Link").field("label", &self.label).finish_non_exhaustive()
    }
}
