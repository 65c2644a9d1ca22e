//! One connection while it lasts.
//!
//! ```text
//!   backlog ── as many as the server can take soon, stamped here ──▶ waiting ── in order ──▶ answers
//! ```
//!
//! The server answers in the order in which it was asked, so that only the oldest call is looked after. All that is sent at
//! one time goes out together.

use std::collections::VecDeque;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio_postgres::{AsyncMessage, Client, Error, Row};

use super::connect::{Connected, Wire};
use super::error::{broken, may_pass, rejected};
use super::link::{Link, Unsent, not_answering};
use super::replies::{self, Sending};
use super::verbs::{Argument, Function, Statements};
use crate::node::incoming::{Malformed, grant};
use crate::node::{Answer, Failure, FailureKind, Lateness, Request};
use crate::runtime::{BoxFuture, Moment, wall_us};

/// Before a release is sent again that found somebody else in its way.
const RELEASE_PAUSE: Duration = Duration::from_millis(100);

/// Sends calls, reads answers and grant messages, and watches the clock, until the connection ends.
pub(super) struct Session {
    link: Arc<Link>,
    client: Arc<Client>,
    wire: Wire,
    statements: Arc<Statements>,
    /// What was sent and is not answered, in order.
    waiting: VecDeque<Waiting>,
    /// When the last answer came.
    answered: Moment,
    /// Releases that found somebody else in their way, and when they are sent again.
    again: VecDeque<Unsent>,
    again_at: Moment,
    timer: Option<BoxFuture<'static, ()>>,
    /// The database is to be looked after.
    tends: bool,
    /// There is much to clear away.
    pub(super) more: bool,
}

/// What was sent.
struct Waiting {
    /// `None` if nobody asked for it.
    unsent: Option<Unsent>,
    function: Function,
    since: Moment,
    /// The time of day that was sent along.
    wall_us: u64,
    answer: BoxFuture<'static, Result<Row, Error>>,
}

impl Session {
    pub(super) fn new(link: Arc<Link>, connected: Connected) -> Self {
        let Connected { session, statements, .. } = connected;
        Self {
            link,
            client: session.client,
            wire: session.wire,
            statements,
            waiting: VecDeque::new(),
            answered: Moment::default(),
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

    /// What was sent and not answered, once the connection has ended.
    pub(super) fn left(self) -> Vec<Unsent> {
        let sent = self.waiting.into_iter().filter_map(|waiting| waiting.unsent);
        sent.map(|unsent| Unsent { again: true, ..unsent }).chain(self.again).collect()
    }

    /// Ready with the reason when the connection is of no more use.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Failure> {
        loop {
            let ended = self.read(cx);
            // What was answered before the end was answered.
            let answered = match self.take_answers(cx) {
                Ok(answered) => answered,
                Err(why) => return Poll::Ready(why),
            };
            if let Some(why) = ended {
                return Poll::Ready(why);
            }
            let closing = self.link.state().attend(cx);
            // What was sent moves once the connection is looked after again.
            if !self.fill(cx) && !answered {
                return self.watch_the_clock(cx, closing);
            }
        }
    }

    /// Lets the connection read and write. Returns why it has ended, if it has.
    fn read(&mut self, cx: &mut Context<'_>) -> Option<Failure> {
        loop {
            match (self.wire)(cx) {
                Poll::Pending => return None,
                Poll::Ready(Some(Ok(AsyncMessage::Notification(message)))) => {
                    match grant(message.payload().as_bytes()) {
                        Ok(grant) => self.link.inbox.granted(grant),
                        // Not its text: nobody knows whose it is.
                        Err(Malformed) => {
                            tracing::debug!(
                                node = self.link.label(),
                                "a grant message makes no sense"
                            );
                        }
                    }
                }
                Poll::Ready(Some(Ok(_))) => {}
                Poll::Ready(Some(Err(error))) => {
                    let why = broken(&error);
                    return Some(why.unwrap_or_else(|| unreachable(error)));
                }
                Poll::Ready(None) => return Some(unreachable("the server closed it")),
            }
        }
    }

    /// Hands out what has been answered. Returns whether there was anything.
    fn take_answers(&mut self, cx: &mut Context<'_>) -> Result<bool, Failure> {
        let mut any = false;
        while let Some(oldest) = self.waiting.front_mut() {
            let Poll::Ready(result) = oldest.answer.as_mut().poll(cx) else { break };
            if let Err(error) = &result
                && let Some(why) = broken(error)
            {
                // Nobody polls it again.
                return Err(why);
            }
            any = true;
            let Some(waiting) = self.waiting.pop_front() else { break };
            self.answered = self.link.now();
            {
                let mut state = self.link.state();
                state.overdue = state.overdue.saturating_sub(1);
                state.patience.answered(self.answered.since(waiting.since), self.answered);
                state.window.answered(waiting.since, self.answered);
            }
            self.answer(waiting, result);
        }
        Ok(any)
    }

    fn answer(&mut self, waiting: Waiting, result: Result<Row, Error>) {
        let Waiting { unsent, function, wall_us: sent_us, .. } = waiting;
        let now_us = wall_us(&*self.link.runtime);
        let Some(Unsent { call, begun, again }) = unsent else {
            let tended = {
                let state = self.link.state();
                result.ok().and_then(|row| replies::tended(&state.caller, &row))
            };
            // A role that may not do so leaves it to others.
            let Some(tended) = tended else { return };
            self.more = tended.more;
            if !tended.votes {
                self.link.inbox.unsettled();
            }
            return;
        };
        let answer = match result {
            Ok(row) => {
                let sending = Sending { function, sent_us, now_us, again };
                replies::read(sending, &self.link.state().caller, &row)
            }
            Err(error) => {
                let failure = match error.as_db_error() {
                    Some(said) => rejected(said),
                    None => unreachable(&error),
                };
                let now = self.link.now();
                if may_pass(&error) && call.request().is_owed(now) {
                    let lateness = call.lateness();
                    self.again.push_back(Unsent { call, begun, again });
                    self.again_at = now.after(RELEASE_PAUSE);
                    self.timer = None;
                    return lateness.tell(failure);
                }
                Answer::Failed(failure)
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
    }

    /// Sends what waits, as much as the server can take soon. Returns whether there was anything.
    fn fill(&mut self, cx: &mut Context<'_>) -> bool {
        let (now, wall_us) = (self.link.now(), wall_us(&*self.link.runtime));
        let (mut calls, mut moot) = (Vec::new(), Vec::new());
        {
            let mut state = self.link.state();
            if now >= self.again_at {
                calls.extend(self.again.drain(..));
            }
            // One that is behind the others by a time limit is not asked for what they have decided.
            let behind = state.patience.limit();
            while state.window.has_room(self.waiting.len() + calls.len(), 0)
                && let Some(next) = state.backlog.pop_front()
            {
                if now.since(next.begun) > behind && next.call.is_moot() {
                    moot.push(next.call);
                } else {
                    calls.push(next);
                }
            }
        }
        let any = !calls.is_empty() || !moot.is_empty() || self.tends;
        for unsent in calls {
            let (function, arguments, wall_us) = {
                let request = unsent.call.request();
                // A mark rests on what was read at the time that it names.
                let wall_us = if request.is_mark() { request.wall_us } else { wall_us };
                let state = self.link.state();
                let (function, arguments) = state.caller.encode(&Request { wall_us, ..request });
                (function, arguments, wall_us)
            };
            self.send(cx, Some(unsent), function, arguments, (now, wall_us));
        }
        if std::mem::take(&mut self.tends) && self.link.state().overdue == 0 {
            let (function, arguments) = self.link.state().caller.tend(wall_us);
            self.send(cx, None, function, arguments, (now, wall_us));
        }
        for call in moot {
            let text = "is so far behind that it was not asked any more";
            call.answer(Answer::Failed(Failure::new(FailureKind::Unreachable, text)));
        }
        any
    }

    /// Puts a call into the buffer of the connection, behind those before.
    fn send(
        &mut self,
        cx: &mut Context<'_>,
        unsent: Option<Unsent>,
        function: Function,
        arguments: Vec<Argument>,
        (since, wall_us): (Moment, u64),
    ) {
        let (client, statements) = (Arc::clone(&self.client), Arc::clone(&self.statements));
        let answer = async move { statements.ask(&client, function, &arguments).await };
        let mut answer: BoxFuture<'static, _> = Box::pin(answer);
        // It is written by this. An answer cannot be there before the connection is looked after, but the news may be that
        // the connection has ended: that is kept for its turn.
        if let Poll::Ready(result) = answer.as_mut().poll(cx) {
            answer = Box::pin(std::future::ready(result));
        }
        self.waiting.push_back(Waiting { unsent, function, since, wall_us, answer });
    }

    /// Since when the server has owed this answer without saying anything.
    fn silent_since(&self, waiting: &Waiting) -> Moment {
        waiting.since.max(self.answered)
    }

    /// Tells rounds of calls that have passed their limit, and gives a silent server up.
    fn watch_the_clock(&mut self, cx: &mut Context<'_>, closing: bool) -> Poll<Failure> {
        loop {
            let now = self.link.now();
            let (limit, patience, before) = {
                let state = self.link.state();
                (state.patience.limit(), state.patience.until_reconnect(), state.overdue)
            };
            let late = self.waiting.iter().skip(before);
            let late = late.take_while(|late| self.silent_since(late).after(limit) <= now);
            let late: Vec<Option<Lateness>> = late
                .map(|late| late.unsent.as_ref().map(|unsent| unsent.call.lateness()))
                .collect();
            let overdue = before + late.len();
            if !late.is_empty() {
                self.give_up(late, overdue);
                continue;
            }
            let Some(oldest) = self.waiting.front() else {
                if closing && self.again.is_empty() {
                    return Poll::Ready(Failure::closed());
                }
                if self.again.is_empty() {
                    self.timer = None;
                    return Poll::Pending;
                }
                if self.rest(cx, self.again_at.since(now)).is_pending() {
                    return Poll::Pending;
                }
                cx.waker().wake_by_ref();
                return Poll::Pending;
            };
            let silent = now.since(self.silent_since(oldest));
            if silent >= patience {
                return Poll::Ready(unreachable(format!("no answer for {silent:.0?}")));
            }
            if closing && overdue == self.waiting.len() {
                return Poll::Ready(Failure::closed());
            }
            let next = match self.waiting.get(overdue) {
                Some(next) => self.silent_since(next).after(limit),
                None => self.silent_since(oldest).after(patience),
            };
            let again = (!self.again.is_empty()).then_some(self.again_at);
            let is_again = again.is_some_and(|again| again < next);
            let next = again.map_or(next, |again| again.min(next));
            if self.rest(cx, next.since(now)).is_pending() {
                return Poll::Pending;
            }
            if is_again {
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
        }
    }

    /// Nobody waits for these any longer. Calls that wait to be sent are not sent then, except releases.
    fn give_up(&mut self, late: Vec<Option<Lateness>>, overdue: usize) {
        let now = self.link.now();
        let unsent = {
            let mut state = self.link.state();
            state.overdue = overdue;
            let backlog = std::mem::take(&mut state.backlog);
            let (owed, unsent): (VecDeque<_>, VecDeque<_>) =
                backlog.into_iter().partition(|unsent| unsent.call.request().is_owed(now));
            state.backlog = owed;
            unsent
        };
        for lateness in late.into_iter().flatten() {
            lateness.tell(not_answering(FailureKind::Silent));
        }
        for Unsent { call, .. } in unsent {
            call.answer(Answer::Failed(not_answering(FailureKind::Unreachable)));
        }
    }

    fn rest(&mut self, cx: &mut Context<'_>, duration: Duration) -> Poll<()> {
        let mut timer = self.link.runtime.sleep(duration);
        let rested = timer.as_mut().poll(cx);
        self.timer = Some(timer);
        rested
    }
}

fn unreachable(why: impl std::fmt::Display) -> Failure {
    Failure::new(FailureKind::Unreachable, why.to_string())
}
