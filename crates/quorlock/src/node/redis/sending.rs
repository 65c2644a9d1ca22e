//! What goes to a server, and when.
//!
//! ```text
//!   submit ──▶ backlog ── as many as the server can take soon ──▶ out ──▶ the socket
//!                 │                  stamped here                  │
//!                 │                                              waiting ──▶ reply
//!                 └── the server is silent: answered, nothing was sent
//! ```
//!
//! A call that finds the connection idle is written at once. All others wait *unstamped*: the time of day that
//! is sent to the server is read when their command is made, so that however long the line is, each of them arrives
//! well inside of the clock window. The lease that comes of a call counts from when its round began, which is
//! earlier: a client never believes in more than the server has stored.
//!
//! Extensions that wait together go out in one command.

use std::collections::{HashSet, VecDeque};
use std::time::Duration;

use super::link::{Phase, State, Unsent, UnsentKind};
use super::verbs::{By, Sent};
use crate::name::Name;
use crate::node::{Call, Lateness, Request, Verb};
use crate::runtime::Moment;
use crate::token::Token;
use quorlock_protocol::Window;

/// A call whose reply has not come.
#[derive(Debug)]
pub(super) struct Waiting {
    pub(super) call: Call,
    pub(super) sent: Sent,
    pub(super) since: Moment,
    /// The time of day that was sent to the server.
    pub(super) wall_us: u64,
    /// Sent once before, over a connection that broke before the reply came.
    pub(super) again: bool,
    /// Sent with the source of its script.
    pub(super) with_source: bool,
}

/// The time by both clocks, read when a command is made.
#[derive(Debug, Clone, Copy)]
pub(super) struct Now {
    pub(super) boot: Moment,
    pub(super) wall_us: u64,
}

/// Calls that nobody waits for any longer, whose rounds are informed once the link is unlocked.
#[derive(Debug, Default)]
pub(super) struct Late {
    /// They were sent, and may yet be answered.
    pub(super) notices: Vec<Lateness>,
    /// They were not sent.
    pub(super) unsent: Vec<Call>,
}

impl Late {
    pub(super) fn is_empty(&self) -> bool {
        self.notices.is_empty() && self.unsent.is_empty()
    }
}

/// What is sent at that time of day. A mark rests on what was read at the time that it names.
fn stamped<'a>(call: &'a Call, wall_us: u64) -> Request<'a> {
    let request = call.request();
    if request.is_mark() { request } else { Request { wall_us, ..request } }
}

impl State {
    /// Whether a call can be written without waiting for a turn of the session.
    pub(super) fn is_idle(&self) -> bool {
        self.write_through
            && self.waiting.is_empty()
            && self.out.is_empty()
            && self.backlog.is_empty()
    }

    /// Makes the command of a call. It is written at once if that is possible.
    pub(super) fn send(&mut self, call: Call, now: Now, again: bool) {
        let idle = self.is_idle();
        self.make(call, now, again);
        if idle
            && let Phase::Up(Some(write)) = &self.phase
            && let Ok(count) = write.try_write(&self.out)
        {
            self.out.drain(..count);
        }
    }

    fn make(&mut self, call: Call, now: Now, again: bool) {
        let request = stamped(&call, now.wall_us);
        let wall_us = request.wall_us;
        let sent = self.encoder.encode(&request, By::Shortest, &mut self.out);
        let since = now.boot;
        self.waiting.push_back(Waiting { call, sent, since, wall_us, again, with_source: false });
    }

    /// Whether the server can take one more soon.
    pub(super) fn has_room(&self) -> bool {
        self.window.has_room(self.waiting.len(), self.together)
    }

    /// Makes the commands of calls that wait, as many as the server can take soon. Returns those that nobody
    /// needs any more.
    pub(super) fn fill(&mut self, now: impl FnOnce() -> Now) -> Vec<Call> {
        let mut moot = Vec::new();
        if self.backlog.is_empty() || !self.has_room() {
            return moot;
        }
        let now = now();
        // One that is behind the others by a time limit is not asked for what they have decided.
        let behind = self.patience.limit();
        let is_moot =
            |unsent: &Unsent| now.boot.since(unsent.begun) > behind && unsent.call.is_moot();
        while self.has_room()
            && let Some(next) = self.backlog.pop_front()
        {
            if is_moot(&next) {
                moot.push(next.call);
            } else if next.kind == UnsentKind::Extension && self.encoder.together {
                moot.extend(self.make_together(next.call, now, is_moot));
            } else {
                self.make(next.call, now, next.again);
            }
        }
        moot
    }

    /// Makes one command of an extension and of those behind it. A note that stands between them is about
    /// another lock, or comes behind the extension of its own. Returns those that nobody needs any more.
    fn make_together(
        &mut self,
        first: Call,
        now: Now,
        is_moot: impl Fn(&Unsent) -> bool,
    ) -> Vec<Call> {
        let (mut together, mut notes, mut moot) = (vec![first], Vec::new(), Vec::new());
        while together.len() + notes.len() < Window::TOGETHER {
            let to = match self.backlog.front().map(|next| (next.kind, next)) {
                Some((UnsentKind::Extension, next)) if is_moot(next) => &mut moot,
                Some((UnsentKind::Extension, _)) => &mut together,
                Some((UnsentKind::Note, _)) => &mut notes,
                _ => break,
            };
            to.extend(self.backlog.pop_front().map(|next| next.call));
        }
        self.extend(together, now, By::Script, false);
        for note in notes {
            self.make(note, now, false);
        }
        moot
    }

    fn extend(&mut self, calls: Vec<Call>, now: Now, by: By, again: bool) {
        let (since, wall_us, with_source) = (now.boot, now.wall_us, by == By::Source);
        let requests: Vec<_> = calls.iter().map(|call| stamped(call, wall_us)).collect();
        let mut sent = self.encoder.extend(&requests, by, &mut self.out);
        self.together += calls.len().saturating_sub(1);
        for call in calls {
            self.waiting.push_back(Waiting { call, sent, since, wall_us, again, with_source });
            sent = Sent::Ours;
        }
    }

    /// Sends a call whose command has done nothing by its script, or by the script's source if it is that
    /// which the server did not know.
    pub(super) fn send_by(&mut self, by: By, mut waiting: Waiting, now: Now) {
        let request = stamped(&waiting.call, now.wall_us);
        waiting.wall_us = request.wall_us;
        waiting.sent = self.encoder.encode(&request, by, &mut self.out);
        waiting.since = now.boot;
        waiting.with_source = by == By::Source;
        self.waiting.push_back(waiting);
    }

    /// Sends calls again that went out in one command, with the source of their script.
    pub(super) fn send_source(&mut self, mut batch: Vec<Waiting>, now: Now) {
        if batch.len() > 1 {
            let calls = batch.into_iter().map(|waiting| waiting.call).collect();
            self.extend(calls, now, By::Source, false);
        } else if let Some(alone) = batch.pop() {
            self.send_by(By::Source, alone, now);
        }
    }

    /// A reply has come to what was sent then: the server is not silent.
    pub(super) fn replied(&mut self, to: Moment, now: Moment) {
        self.replied = now;
        self.patience.answered(now.since(to), now);
        self.window.answered(to, now);
    }

    /// Since when the server has owed this answer without saying anything.
    pub(super) fn silent_since(&self, waiting: &Waiting) -> Moment {
        waiting.since.max(self.replied)
    }

    /// Marks the calls that the server has been silent about for too long. Those that wait to be sent are not
    /// sent then, except releases.
    pub(super) fn mark_overdue(&mut self, now: Now) -> Late {
        let (before, limit) = (self.overdue, self.patience.limit());
        while let Some(next) = self.waiting.get(self.overdue)
            && self.silent_since(next).after(limit) <= now.boot
        {
            self.overdue += 1;
        }
        let late = self.waiting.range(before..self.overdue).map(|late| late.call.lateness());
        let mut late = Late { notices: late.collect(), unsent: Vec::new() };
        if self.overdue > 0 {
            for Unsent { call, again, .. } in std::mem::take(&mut self.backlog) {
                if call.request().is_owed(now.boot) {
                    self.make(call, now, again);
                } else {
                    late.unsent.push(call);
                }
            }
        }
        late
    }

    /// How long the server has been silent, and still owes something.
    pub(super) fn silence(&self, now: Moment) -> Duration {
        self.waiting.front().map_or(Duration::ZERO, |oldest| now.since(self.silent_since(oldest)))
    }
}

/// Releases that are under way.
pub(super) struct Released(HashSet<(Name, Token)>);

impl Released {
    /// All releases among calls that wait for their reply.
    pub(super) fn among(waiting: &VecDeque<Waiting>) -> Self {
        let requests = waiting.iter().map(|waiting| waiting.call.request());
        let released = requests.filter_map(|request| match request.verb {
            Verb::Release { token, .. } => Some((request.name.clone(), *token)),
            _ => None,
        });
        Self(released.collect())
    }

    /// Whether one of them takes back what `call` asks for: if that came after it, nobody would release it any
    /// more. A client that has locks of several names by one token gives back one of them.
    pub(super) fn takes_back(&self, call: &Call) -> bool {
        let Request { name, verb, .. } = call.request();
        match verb {
            Verb::Acquire { token, .. } | Verb::Wait { token, .. } | Verb::Extend { token, .. } => {
                self.0.contains(&(name.clone(), *token))
            }
            _ => false,
        }
    }
}
