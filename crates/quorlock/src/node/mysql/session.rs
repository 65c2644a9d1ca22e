//! The connections while they last.
//!
//! ```text
//!             ┌ lane 0: calls of some names, one after the other ┐
//!   backlog ──┼ lane 1                                           ┼──▶ answers
//!             └ …                                                ┘
//!             listener: grant messages
//! ```
//!
//! A lane sends its next call, stamped at that moment, once it has the answer to the one before. If one connection ends, all are
//! made anew.

use std::collections::VecDeque;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use mysql_async::prelude::Queryable as _;
use mysql_async::{Conn, Error, Row};

use super::connect::{Connected, LOCK_WAIT};
use super::error::{broken, may_pass, rejected, unreachable};
use super::link::{LANES, Link, Unsent, lane_of, not_answering};
use super::listener::listen;
use super::replies::{self, Read, Sending};
use super::verbs::Procedure;
use crate::node::{Answer, Failure, FailureKind, Lateness, Request, Verb};
use crate::runtime::{BoxFuture, Moment, wall_us};

/// Before a release is sent again that found somebody else in its way.
const RELEASE_PAUSE: Duration = Duration::from_millis(100);
/// So much longer than it waits for a row, a call may take before the connections are given up.
const LOCK_WAIT_SLACK: Duration = Duration::from_millis(500);
/// So long after its place has ended by the client's clock, a waiter may still be notified.
const PLACE_SLACK: Duration = Duration::from_secs(2);

/// Sends calls, reads answers, and watches the clock, until a connection ends.
pub(super) struct Session {
    link: Arc<Link>,
    lanes: Vec<Lane>,
    listener: BoxFuture<'static, Failure>,
    /// Releases that found somebody else in their way, and when they are sent again.
    again: VecDeque<Unsent>,
    again_at: Moment,
    timer: Option<BoxFuture<'static, ()>>,
    /// The database is to be looked after.
    tends: bool,
    /// There is much to clear away.
    pub(super) more: bool,
}

struct Lane {
    /// `None` while an answer is waited for.
    conn: Option<Conn>,
    asked: Option<Asked>,
    /// What waits for its turn.
    queue: VecDeque<Unsent>,
}

/// What was sent.
struct Asked {
    what: What,
    since: Moment,
    answer: BoxFuture<'static, (Conn, Result<Vec<Row>, Error>)>,
}

enum What {
    Call {
        unsent: Unsent,
        procedure: Procedure,
        /// The time of day that was sent along.
        wall_us: u64,
        /// When it was sent for the first time: it is sent again if others were in its way.
        first: Moment,
    },
    /// A look after the database, which nobody asked for.
    Tend,
    /// Another client is told that a message is there.
    Wake,
}

impl Session {
    pub(super) fn new(link: Arc<Link>, connected: Connected) -> Self {
        let Connected { lanes, listener, .. } = connected;
        let lane = |conn| Lane { conn: Some(conn), asked: None, queue: VecDeque::new() };
        Self {
            listener: Box::pin(listen(Arc::clone(&link), listener)),
            link,
            lanes: lanes.into_iter().map(lane).collect(),
            again: VecDeque::new(),
            again_at: Moment::default(),
            timer: None,
            // At once: many processes are there for a single lock, and what is old is to go also if no client stays for
            // long.
            tends: true,
            more: false,
        }
    }

    /// Has the database looked after, unless it owes answers.
    pub(super) fn tend(&mut self) {
        self.tends = true;
    }

    /// What was sent and not answered, and what was not sent, once a connection has ended.
    pub(super) fn left(self) -> (Vec<Unsent>, Vec<Unsent>) {
        let (mut sent, mut unsent) = (Vec::new(), Vec::new());
        for lane in self.lanes {
            if let Some(Asked { what: What::Call { unsent, .. }, .. }) = lane.asked {
                sent.push(Unsent { again: true, ..unsent });
            }
            unsent.extend(lane.queue);
        }
        sent.extend(self.again);
        (sent, unsent)
    }

    /// Ready with the reason when the connections are of no more use.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Failure> {
        loop {
            let mut any = false;
            for lane in 0..LANES {
                match self.take_answer(cx, lane) {
                    Ok(answered) => any |= answered,
                    Err(why) => return Poll::Ready(why),
                }
            }
            // After what was answered before the end.
            if let Poll::Ready(why) = self.listener.as_mut().poll(cx) {
                return Poll::Ready(why);
            }
            let closing = self.link.state().attend(cx);
            if !self.fill() && !any {
                return self.watch_the_clock(cx, closing);
            }
        }
    }

    /// Hands out the answer of a lane. Returns whether there was one.
    fn take_answer(&mut self, cx: &mut Context<'_>, lane: usize) -> Result<bool, Failure> {
        let Some(asked) = self.lanes[lane].asked.as_mut() else { return Ok(false) };
        let Poll::Ready((conn, result)) = asked.answer.as_mut().poll(cx) else { return Ok(false) };
        if let Err(error) = &result
            && let Some(why) = broken(error)
        {
            // Nobody polls it again.
            asked.answer = Box::pin(std::future::pending());
            return Err(why);
        }
        let Some(Asked { what, since, .. }) = self.lanes[lane].asked.take() else {
            return Ok(false);
        };
        self.lanes[lane].conn = Some(conn);
        let now = self.link.now();
        let limit = {
            let mut state = self.link.state();
            state.overdue[lane] = false;
            let limit = state.patience.limit();
            // What waited for a row in vain says nothing of the server.
            if result.is_ok() {
                state.patience.answered(now.since(since), now);
            }
            limit
        };
        match what {
            // Somebody else was in its way, and nothing was changed.
            What::Call { unsent, first, .. }
                if result.as_ref().err().is_some_and(may_pass) && now.since(first) < limit =>
            {
                self.send(lane, unsent, first);
            }
            What::Call { unsent, procedure, wall_us, .. } => {
                if let Some(listener) = self.answer(unsent, procedure, wall_us, result) {
                    self.ask(lane, What::Wake, |mut conn| {
                        Box::pin(async move {
                            // It may be gone, or of another user: it looks by itself soon.
                            let kill = format!("KILL QUERY {listener}");
                            let killed = conn.query_drop(kill).await;
                            (conn, killed.map(|()| Vec::new()))
                        })
                    });
                }
            }
            What::Tend => self.tended(result),
            What::Wake => {}
        }
        Ok(true)
    }

    fn tended(&mut self, result: Result<Vec<Row>, Error>) {
        let tended = {
            let state = self.link.state();
            result.ok().and_then(|rows| replies::tended(&state.caller, &rows))
        };
        // A user who may not do so leaves it to others.
        let Some(tended) = tended else { return };
        self.more = tended.more;
        if !tended.votes {
            self.link.inbox.unsettled();
        }
    }

    /// Answers a call. Returns the connection of another client that is to be told of a message.
    fn answer(
        &mut self,
        unsent: Unsent,
        procedure: Procedure,
        sent_us: u64,
        result: Result<Vec<Row>, Error>,
    ) -> Option<u64> {
        let Unsent { call, begun, again } = unsent;
        let now_us = wall_us(&*self.link.runtime);
        let Read { answer, listener } = match result {
            Ok(rows) => {
                let sending = Sending { procedure, sent_us, now_us, again };
                replies::read(sending, &self.link.state().caller, &rows)
            }
            Err(error) => {
                let failure = match &error {
                    Error::Server(said) => rejected(said),
                    error => unreachable(error),
                };
                let now = self.link.now();
                if may_pass(&error) && call.request().is_owed(now) {
                    let lateness = call.lateness();
                    self.again.push_back(Unsent { call, begun, again });
                    self.again_at = now.after(RELEASE_PAUSE);
                    self.timer = None;
                    lateness.tell(failure);
                    return None;
                }
                Read { answer: Answer::Failed(failure), listener: None }
            }
        };
        let unsettled = matches!(
            &answer,
            Answer::Failed(why) if why.kind().quarantine().is_some() && !why.has_begun()
        );
        call.answer(answer);
        if unsettled {
            self.link.inbox.unsettled();
        }
        listener
    }

    /// Hands calls to their lanes, and sends what can be sent. Returns whether there was anything.
    fn fill(&mut self) -> bool {
        let now = self.link.now();
        let backlog = {
            let mut state = self.link.state();
            let mut backlog = std::mem::take(&mut state.backlog);
            if now >= self.again_at {
                backlog.extend(self.again.drain(..));
            }
            backlog
        };
        for unsent in backlog {
            let lane = lane_of(unsent.call.request().name);
            self.lanes[lane].queue.push_back(unsent);
        }
        // One that is behind the others by a time limit is not asked for what they have decided.
        let behind = self.link.state().patience.limit();
        let (mut any, mut moot) = (false, Vec::new());
        for lane in 0..LANES {
            while self.lanes[lane].conn.is_some()
                && let Some(next) = self.lanes[lane].queue.pop_front()
            {
                any = true;
                if now.since(next.begun) > behind && next.call.is_moot() {
                    moot.push(next.call);
                } else {
                    self.send(lane, next, now);
                }
            }
        }
        if self.tends && self.lanes[0].conn.is_some() {
            self.tends = false;
            any = true;
            let wall_us = wall_us(&*self.link.runtime);
            let (procedure, arguments) = self.link.state().caller.tend(wall_us);
            self.ask(0, What::Tend, |mut conn| {
                Box::pin(async move {
                    let rows = procedure.call(&mut conn, arguments).await;
                    (conn, rows)
                })
            });
        }
        for call in moot {
            let text = "is so far behind that it was not asked any more";
            call.answer(Answer::Failed(Failure::new(FailureKind::Unreachable, text)));
        }
        any
    }

    /// Sends a call over a lane that is free.
    fn send(&mut self, lane: usize, unsent: Unsent, first: Moment) {
        let now = self.link.now();
        let wall_us = wall_us(&*self.link.runtime);
        let (procedure, arguments, wall_us) = {
            let request = unsent.call.request();
            if let Verb::Wait { ticket, .. } = request.verb {
                self.link.listens_until(now.after(ticket.keep.saturating_add(PLACE_SLACK)));
            }
            // A mark rests on what was read at the time that it names.
            let wall_us = if request.is_mark() { request.wall_us } else { wall_us };
            let state = self.link.state();
            let (procedure, arguments) = state.caller.encode(&Request { wall_us, ..request });
            (procedure, arguments, wall_us)
        };
        self.ask(lane, What::Call { unsent, procedure, wall_us, first }, |mut conn| {
            Box::pin(async move {
                let rows = procedure.call(&mut conn, arguments).await;
                (conn, rows)
            })
        });
    }

    fn ask(
        &mut self,
        lane: usize,
        what: What,
        asking: impl FnOnce(Conn) -> BoxFuture<'static, (Conn, Result<Vec<Row>, Error>)>,
    ) {
        let Some(conn) = self.lanes[lane].conn.take() else { return };
        self.lanes[lane].asked = Some(Asked { what, since: self.link.now(), answer: asking(conn) });
    }

    /// Tells rounds of calls that have passed their limit, and gives a silent server up.
    fn watch_the_clock(&mut self, cx: &mut Context<'_>, closing: bool) -> Poll<Failure> {
        loop {
            let now = self.link.now();
            let (limit, patience, overdue) = {
                let state = self.link.state();
                let patience = state.patience.until_reconnect().max(LOCK_WAIT + LOCK_WAIT_SLACK);
                (state.patience.limit(), patience, state.overdue)
            };
            let is_late = |lane: &usize| {
                let asked = self.lanes[*lane].asked.as_ref();
                !overdue[*lane] && asked.is_some_and(|asked| asked.since.after(limit) <= now)
            };
            let late: Vec<usize> = (0..LANES).filter(is_late).collect();
            if !late.is_empty() {
                for lane in late {
                    self.give_up(lane);
                }
                continue;
            }
            let mut next = (!self.again.is_empty()).then_some(self.again_at);
            let mut owes = false;
            for (lane, overdue) in self.lanes.iter().zip(overdue) {
                let Some(asked) = &lane.asked else { continue };
                let silent = now.since(asked.since);
                if silent >= patience {
                    let text = format!("no answer for {silent:.0?}");
                    return Poll::Ready(Failure::new(FailureKind::Unreachable, text));
                }
                owes |= !overdue;
                let at = asked.since.after(if overdue { patience } else { limit });
                next = Some(next.map_or(at, |next| next.min(at)));
            }
            if closing && !owes && self.again.is_empty() {
                return Poll::Ready(Failure::closed());
            }
            let Some(next) = next else {
                self.timer = None;
                return Poll::Pending;
            };
            let mut timer = self.link.runtime.sleep(next.since(now));
            let rested = timer.as_mut().poll(cx);
            self.timer = Some(timer);
            if rested.is_pending() {
                return Poll::Pending;
            }
            if self.again_at <= self.link.now() && !self.again.is_empty() {
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
        }
    }

    /// Nobody waits for a lane any longer. Its calls that wait to be sent are not sent then, except releases.
    fn give_up(&mut self, lane: usize) {
        let now = self.link.now();
        self.link.state().overdue[lane] = true;
        let late: Option<Lateness> = match &self.lanes[lane].asked {
            Some(Asked { what: What::Call { unsent, .. }, .. }) => Some(unsent.call.lateness()),
            _ => None,
        };
        let queue = std::mem::take(&mut self.lanes[lane].queue);
        let (owed, unsent): (VecDeque<_>, VecDeque<_>) =
            queue.into_iter().partition(|unsent| unsent.call.request().is_owed(now));
        self.lanes[lane].queue = owed;
        if let Some(late) = late {
            let text = "does not answer; if it does for other locks, another transaction may hold the row of this one: see \
                        information_schema.INNODB_TRX";
            late.tell(Failure::new(FailureKind::Silent, text));
        }
        for Unsent { call, .. } in unsent {
            call.answer(Answer::Failed(not_answering(FailureKind::Unreachable)));
        }
    }
}
