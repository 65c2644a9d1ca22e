//! What callers meet of a connection: a place to put calls, whether or not the server is there.
//!
//! All callers' commands go into one buffer, and their calls into one queue in the same order. A
//! call that finds the connection idle is written at once by its caller; any other wakes the
//! session's task, which writes everything that has gathered by then with one system call.
//!
//! A server that does not answer in time is *overdue*. From then on nothing but releases of what it
//! may hold is sent to it, so that it costs nothing and its backlog stays bounded, until it has
//! answered what it owes.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex, Weak};
use std::task::{Context, Waker};
use std::time::Duration;

use tokio::sync::Notify;

use super::address::Address;
use super::connect::{Connected, Demands};
use super::inbox::{Incoming, channel};
use super::stream::WriteHalf;
use super::tending;
use super::verbs::{By, Dialect, Sent, Strict};
use crate::locked::locked;
use crate::node::{Answer, Call, ClientId, Failure, FailureKind, Inbox, Lateness, Setting, Verb};
use crate::runtime::{Moment, Runtime, wall_us};

/// More calls than this do not wait for one server.
const BACKLOG: usize = 16_384;

/// An idle connection keeps room for so much, whatever has gone over it.
pub(super) const KEPT_BYTES: usize = 16 * 1_024;
pub(super) const KEPT_CALLS: usize = 128;

pub(super) struct Link {
    label: String,
    runtime: Arc<dyn Runtime>,
    /// How long a call may take before its round stops waiting for it.
    pub(super) limit: Duration,
    state: Mutex<State>,
    /// Told whenever the phase changes.
    changed: Notify,
    pub(super) inbox: Incoming,
}

pub(super) struct State {
    pub(super) phase: Phase,
    /// When it was last greeted by the server.
    greeted: Moment,
    pub(super) dialect: Dialect,
    /// Bytes that are still to be written.
    pub(super) out: Vec<u8>,
    /// Calls that were written, or are about to be, in order.
    pub(super) waiting: VecDeque<Waiting>,
    /// So many at the front of `waiting` have passed their time limit.
    pub(super) overdue: usize,
    /// Releases for when the server is back.
    parked: VecDeque<Parked>,
    session: Option<Waker>,
    /// Whether the session has been woken and not run since.
    woken: bool,
    /// Whether replies have lately come one by one: then a call on an idle connection is written
    /// at once. Where many callers run, the first of a burst would otherwise be sent alone.
    pub(super) lone: bool,
    /// Whether the session's timer is set to look at the oldest call.
    pub(super) timed: bool,
    pub(super) closing: bool,
}

#[derive(Debug)]
pub(super) enum Phase {
    /// The first attempt to connect has not ended yet.
    New,
    /// Callers may write to it by themselves, unless it is `None`.
    Up(Option<Arc<WriteHalf>>),
    Down(Failure),
}

/// A call whose reply has not come.
#[derive(Debug)]
pub(super) struct Waiting {
    pub(super) call: Call,
    pub(super) sent: Sent,
    pub(super) since: Moment,
    /// Sent once before, over a connection that broke before the reply came.
    pub(super) again: bool,
    /// Sent with the source of its script.
    pub(super) with_source: bool,
}

/// A release that waits for a connection.
#[derive(Debug)]
struct Parked {
    call: Call,
    /// Sent once before.
    again: bool,
}

impl Link {
    pub(super) fn new(address: &Address, setting: &Setting) -> Self {
        let settings = &setting.settings;
        let strict = (settings.dialect == crate::Dialect::Strict)
            .then(|| Strict::new(settings, &setting.members));
        let dialect = Dialect { prefix: settings.prefix.clone(), strict, ..Dialect::default() };
        Self {
            label: address.label.clone(),
            runtime: Arc::clone(&setting.runtime),
            limit: setting.settings.node_limit,
            state: Mutex::new(State {
                phase: Phase::New,
                greeted: Moment::default(),
                dialect,
                out: Vec::new(),
                waiting: VecDeque::new(),
                overdue: 0,
                parked: VecDeque::new(),
                session: None,
                woken: false,
                lone: true,
                timed: false,
                closing: false,
            }),
            changed: Notify::new(),
            inbox: Incoming::new(setting.client),
        }
    }

    pub(super) fn label(&self) -> &str {
        &self.label
    }

    /// What a new connection needs.
    pub(super) fn demands(&self) -> Demands {
        let state = self.state();
        let dialect = &state.dialect;
        let marker = dialect.strict.as_ref().map(|strict| strict.marker.clone());
        let channel = channel(&dialect.prefix, self.inbox.client);
        Demands { scripts: dialect.sources(), marker, channel }
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

    /// Has the server clear old locks away; and tell how it is set up, if it is said how many keys it had
    /// thrown away before. Not while it owes answers.
    pub(super) fn tend(&self, evicted: Option<u64>) {
        let now = self.now();
        let wall_us = wall_us(&*self.runtime);
        let Some(call) = tending::call(now) else { return };
        let mut state = self.state();
        if evicted.is_none() && state.dialect.strict.is_none() {
            // There the server's expiry clears everything away.
            return;
        }
        let idle = matches!(state.phase, Phase::Up(_)) && state.overdue == 0;
        if !idle || state.waiting.len() >= BACKLOG || state.closing {
            return;
        }
        let State { dialect, out, .. } = &mut *state;
        dialect.tend(wall_us, evicted, out);
        let (sent, since) = (Sent::Tend, now);
        let (again, with_source) = (false, true);
        state.waiting.push_back(Waiting { call, sent, since, again, with_source });
        if let Some(session) = state.wake_session() {
            drop(state);
            session.wake();
        }
    }

    /// Takes a call in: sends it, keeps it for later, or answers it with why not.
    pub(super) fn submit(&self, call: Call) {
        let request = call.request();
        let since = request.sent;
        let owed = request.is_owed(since);
        let mut state = self.state();
        let why = match &state.phase {
            // Its caller stood still before this. The server may have been started since, and must not
            // reckon by a time of day from before: what it has forgotten may be later than that.
            Phase::Up(_) if since < state.greeted && !owed => {
                let text = "was connected to anew while this was about to be sent";
                Some(Failure::new(FailureKind::Unreachable, text))
            }
            Phase::Up(_) if owed || state.overdue == 0 && state.waiting.len() < BACKLOG => None,
            Phase::Up(_) => Some(self.not_answering(&state, FailureKind::Unreachable)),
            Phase::New => Some(Failure::new(FailureKind::Unreachable, "not connected yet")),
            Phase::Down(why) => Some(why.clone()),
        };
        match why {
            None => {
                state.send(call, since, false);
                if let Some(session) = state.wake_session() {
                    drop(state);
                    session.wake();
                }
            }
            Some(why) if owed && !state.closing => {
                let lateness = call.lateness();
                state.parked.push_back(Parked { call, again: false });
                drop(state);
                lateness.tell(why);
            }
            Some(why) => {
                drop(state);
                call.answer(Answer::Failed(why));
            }
        }
    }

    /// Ends when the server can be asked, or the latest attempt to reach it has failed.
    pub(super) async fn ready(&self) -> Result<(), Failure> {
        loop {
            // Made before the look, so that no change can slip in between.
            let changed = self.changed.notified();
            match &self.state().phase {
                Phase::New => {}
                Phase::Up(_) => return Ok(()),
                Phase::Down(why) => return Err(why.clone()),
            }
            changed.await;
        }
    }

    /// A connection is there: sends what was kept for it. Returns whether the server votes, as far as its
    /// marker tells.
    pub(super) fn up(&self, connected: &Connected) -> bool {
        let mut state = self.state();
        if let Some(strict) = &mut state.dialect.strict {
            strict.connected_to(&connected.run_id);
        } else {
            state.dialect.shortcut.clone_from(&connected.shortcut);
        }
        let votes = state
            .dialect
            .strict
            .as_ref()
            .is_none_or(|strict| connected.marker.starts_with(&strict.id));
        state.dialect.told = connected.told.is_ok().then_some(self.inbox.client);
        // Only the session can seal what goes over TLS.
        state.phase = Phase::Up(connected.tls.is_none().then(|| Arc::clone(&connected.write)));
        let now = self.now();
        state.greeted = now;
        let parked = std::mem::take(&mut state.parked);
        let (owed, moot): (Vec<_>, Vec<_>) =
            parked.into_iter().partition(|parked| parked.call.request().is_owed(now));
        for Parked { call, again } in owed {
            state.send(call, now, again);
        }
        drop(state);
        for Parked { call, .. } in moot {
            let text = "was away until the record had expired there by itself";
            call.answer(Answer::Failed(Failure::new(FailureKind::Unreachable, text)));
        }
        self.changed.notify_waiters();
        votes
    }

    /// There is no connection: calls that wait for one are answered, releases are kept.
    pub(super) fn down(&self, why: &Failure) {
        let now = self.now();
        let (waiting, parked) = {
            let mut state = self.state();
            state.phase = Phase::Down(why.clone());
            state.out.clear();
            state.overdue = 0;
            state.timed = false;
            (std::mem::take(&mut state.waiting), std::mem::take(&mut state.parked))
        };
        self.changed.notify_waiters();
        let text = format!("the connection broke before the answer came: {why}");
        let lost = Failure::new(FailureKind::Broken, text);
        let waiting = waiting.into_iter().map(|waiting| Parked { call: waiting.call, again: true });
        let mut keep = VecDeque::new();
        for parked in parked.into_iter().chain(waiting) {
            if parked.call.request().is_owed(now) {
                parked.call.lateness().tell(lost.clone());
                keep.push_back(parked);
            } else {
                parked.call.answer(Answer::Failed(lost.clone()));
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
        let since = state.waiting.front().map(|waiting| self.now().since(waiting.since));
        let text = match since {
            Some(since) if state.overdue > 0 => format!("has not answered for {since:.0?}"),
            _ => format!("{BACKLOG} calls wait for its answer already"),
        };
        Failure::new(kind, text)
    }
}

impl State {
    /// Writes a call's command, or leaves it to the session if the connection is busy.
    fn send(&mut self, call: Call, since: Moment, again: bool) {
        let idle = self.lone && self.waiting.is_empty() && self.out.is_empty();
        let sent = self.encode(&call, By::Shortest);
        self.waiting.push_back(Waiting { call, sent, since, again, with_source: false });
        if idle
            && let Phase::Up(Some(write)) = &self.phase
            && let Ok(count) = write.try_write(&self.out)
        {
            self.out.drain(..count);
        }
    }

    /// Sends a call whose command has done nothing by its script, or by the script's source if it is that
    /// which the server did not know.
    pub(super) fn send_by(&mut self, by: By, mut waiting: Waiting, now: Moment) {
        waiting.sent = self.encode(&waiting.call, by);
        waiting.since = now;
        waiting.with_source = by == By::Source;
        self.waiting.push_back(waiting);
    }

    /// Whether a release that waits for its reply takes back what `call` asks for: if that came
    /// after it, nobody would release it any more.
    pub(super) fn takes_back(&self, call: &Call) -> bool {
        let (Verb::Acquire { token, .. } | Verb::Wait { token, .. } | Verb::Extend { token, .. }) =
            call.request().verb
        else {
            return false;
        };
        self.waiting.iter().any(|later| match later.call.request().verb {
            Verb::Release { token: released, .. } => released == token,
            _ => false,
        })
    }

    fn encode(&mut self, call: &Call, by: By) -> Sent {
        self.dialect.encode(&call.request(), by, &mut self.out)
    }

    /// The session's waker, if it has something to do and does not know it yet.
    fn wake_session(&mut self) -> Option<Waker> {
        let needed = !self.out.is_empty() || !self.timed;
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
    }

    /// Marks the calls that have passed their time limit.
    pub(super) fn mark_overdue(&mut self, now: Moment, limit: Duration) -> Vec<Lateness> {
        let before = self.overdue;
        while self.waiting.get(self.overdue).is_some_and(|next| next.since.after(limit) <= now) {
            self.overdue += 1;
        }
        self.waiting.range(before..self.overdue).map(|late| late.call.lateness()).collect()
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
