//! One connection while it lasts.

use std::collections::VecDeque;
use std::future::Future;
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::task::yield_now;

use super::connect::Connected;
use super::framing::Framing;
use super::inbox;
use super::link::{self, Link, State};
use super::replies::{self, Outcome, Sending};
use super::resp::{MAX_REPLY, Refused, Value};
use super::sending::{Now, Released, Waiting};
use super::stream::{ReadHalf, WriteHalf};
use super::tending::Tended;
use super::verbs::{By, Sent};
use crate::node::tls::Tls;
use crate::node::{Answer, Call, Failure, FailureKind, Grant};
use crate::runtime::{BoxFuture, Moment, Runtime, wall_us};

const READ_BYTES: usize = 64 * 1_024;
/// So often it reads before others of the same thread have their turn, however much there is to read.
const READS_AT_ONCE: usize = 4;

/// Reads replies, writes what has gathered, and watches the clock, until the connection ends.
pub(super) struct Session {
    link: Arc<Link>,
    runtime: Arc<dyn Runtime>,
    read: ReadHalf,
    write: Arc<WriteHalf>,
    tls: Option<Tls>,
    framing: Framing,
    /// Read and not yet parsed: the bytes up to `filled`. It grows for a long reply.
    input: Vec<u8>,
    filled: usize,
    /// What TLS has opened of the input.
    opened: Vec<u8>,
    /// Taken out of the link, and not yet written from `written` on.
    output: Vec<u8>,
    written: usize,
    /// Whether what was read beyond the greeting is still to be looked at.
    fresh: bool,
    timer: Option<BoxFuture<'static, ()>>,
    /// Whether the timer is set for giving the server up, and too late for a call that comes now.
    all_late: bool,
    /// Whether the node is gone, and only the last answers are waited for.
    closing: bool,
    /// What has come, in order. It is handed out once the link is unlocked, since its receivers
    /// may submit new calls.
    news: Vec<News>,
    tended: Tended,
}

enum News {
    Answer(Call, Answer),
    Grant(Grant),
    /// The server casts no vote, and nobody sees to it yet.
    Unsettled,
}

impl Session {
    pub(super) fn new(link: Arc<Link>, runtime: Arc<dyn Runtime>, connected: Connected) -> Self {
        // What was read beyond the greeting, such as the beginning of a message.
        let (mut input, mut opened, mut filled) = (Vec::new(), Vec::new(), 0);
        if connected.tls.is_some() {
            opened = connected.rest;
        } else {
            filled = connected.rest.len();
            input = connected.rest;
        }
        input.resize(READ_BYTES.max(filled + 1), 0);
        Self {
            link,
            runtime,
            read: connected.read,
            write: connected.write,
            tls: connected.tls,
            framing: connected.framing,
            input,
            filled,
            opened,
            output: Vec::new(),
            written: 0,
            fresh: true,
            timer: None,
            all_late: false,
            closing: false,
            news: Vec::new(),
            tended: connected.tended,
        }
    }

    /// What is known of how the server is set up.
    pub(super) fn tended(&self) -> &Tended {
        &self.tended
    }

    /// Ready with the reason when the connection is of no more use.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Failure> {
        if std::mem::take(&mut self.fresh)
            && let Err(failure) = self.take_in()
        {
            return Poll::Ready(failure);
        }
        let mut reads = 0;
        loop {
            // A server that sends without end keeps neither the clock from being looked at nor others
            // from running: this goes on after timers, sockets and signals have been looked at.
            if reads == READS_AT_ONCE {
                let _ = pin!(yield_now()).poll(cx);
                break;
            }
            reads += 1;
            match self.read.poll_read(cx, &mut self.input[self.filled..]) {
                Poll::Pending => break,
                Poll::Ready(Ok(0)) => return Poll::Ready(broken("the server closed it")),
                Poll::Ready(Ok(count)) => {
                    self.filled += count;
                    if let Err(failure) = self.take_in() {
                        return Poll::Ready(failure);
                    }
                }
                Poll::Ready(Err(error)) => return Poll::Ready(broken(error)),
            }
        }
        if let Err(failure) = self.write_out(cx) {
            return Poll::Ready(failure);
        }
        self.watch_the_clock(cx)
    }

    /// Matches replies to the calls they answer.
    fn take_in(&mut self) -> Result<(), Failure> {
        if let Some(tls) = &mut self.tls {
            tls.open(&self.input[..self.filled], &mut self.opened, &mut self.output)?;
            self.filled = 0;
        }
        let link = Arc::clone(&self.link);
        let mut state = link.state();
        let result = if self.tls.is_some() {
            let opened = std::mem::take(&mut self.opened);
            let used = self.match_replies(&opened, &mut state);
            self.opened = opened;
            used.map(|used| drop(self.opened.drain(..used)))
        } else {
            let input = std::mem::take(&mut self.input);
            let used = self.match_replies(&input[..self.filled], &mut state);
            self.input = input;
            used.map(|used| self.make_room(used))
        };
        state.write_through = self.news.len() <= 1;
        drop(state);
        for news in self.news.drain(..) {
            match news {
                News::Answer(call, answer) => {
                    let unsettled = matches!(
                        &answer,
                        Answer::Failed(why)
                            if why.kind().quarantine().is_some() && !why.has_begun()
                    );
                    call.answer(answer);
                    if unsettled {
                        link.inbox.unsettled();
                    }
                }
                News::Grant(grant) => link.inbox.granted(grant),
                News::Unsettled => link.inbox.unsettled(),
            }
        }
        result
    }

    /// Moves what was not used to the front. There is always some room behind it: what has to be
    /// kept is shorter than the longest reply.
    fn make_room(&mut self, used: usize) {
        self.input.copy_within(used..self.filled, 0);
        self.filled -= used;
        if self.filled == self.input.len() {
            self.input.resize(MAX_REPLY.max(self.filled + 1), 0);
        }
    }

    /// Returns how many bytes were used.
    fn match_replies(&mut self, input: &[u8], state: &mut State) -> Result<usize, Failure> {
        let mut rest = input;
        // What was sent first of all that is answered here.
        let mut first: Option<Moment> = None;
        let mut released: Option<Released> = None;
        loop {
            let value = match self.framing.next(&mut rest) {
                Ok(Some(value)) => value,
                Ok(None) => {
                    if let Some(first) = first {
                        state.replied(first, self.runtime.now());
                    }
                    return Ok(input.len() - rest.len());
                }
                Err(Refused::TooLong) => return Err(broken("its reply is too long")),
                Err(Refused::Malformed) => return Err(broken("what it sent is no reply")),
            };
            if let Value::Push(parts) = &value {
                match inbox::read(parts) {
                    Ok(grant) => self.news.extend(grant.map(News::Grant)),
                    // Not its text: nobody knows whose it is.
                    Err(inbox::Malformed) => {
                        tracing::debug!(node = self.link.label(), "a grant message makes no sense");
                    }
                }
                continue;
            }
            let Some(waiting) = state.waiting.pop_front() else {
                return Err(broken("it sent a reply that nobody asked for"));
            };
            state.overdue = state.overdue.saturating_sub(1);
            first.get_or_insert(waiting.since);
            match waiting.sent {
                Sent::Tend => {
                    let voter = state.encoder.dialect.voter();
                    if !self.tended.take_in(self.link.label(), voter, &value)? {
                        self.news.push(News::Unsettled);
                    }
                }
                Sent::Together(count) => {
                    self.match_together(waiting, count, &value, state, &mut released);
                }
                _ => self.match_reply(waiting, &value, state, &mut released),
            }
        }
    }

    /// Matches the reply to one command.
    fn match_reply(
        &mut self,
        waiting: Waiting,
        value: &Value<'_>,
        state: &mut State,
        released: &mut Option<Released>,
    ) {
        let now_us = || wall_us(&*self.runtime);
        let Waiting { sent, again, with_source, .. } = waiting;
        let State { encoder, waiting: others, .. } = state;
        let taken_back = || is_released(&waiting, others, released);
        let sending = Sending { sent, again, with_source };
        let outcome =
            replies::read(sending, encoder, || waiting.wall_us, now_us, taken_back, value);
        self.carry_out([(waiting, outcome)], state);
    }

    /// Does what a reply leads to, for the calls that went out in its command.
    fn carry_out(
        &mut self,
        outcomes: impl IntoIterator<Item = (Waiting, Outcome)>,
        state: &mut State,
    ) {
        let mut by_source = Vec::new();
        for (waiting, outcome) in outcomes {
            let answer = match outcome {
                Outcome::Answered(answer) => answer,
                Outcome::SendScript => {
                    state.send_by(By::Script, waiting, self.now());
                    continue;
                }
                Outcome::SendSource => {
                    by_source.push(waiting);
                    continue;
                }
                Outcome::NotNeeded => not_needed(),
                Outcome::NotKnown => not_known(),
            };
            self.news.push(News::Answer(waiting.call, answer));
        }
        if !by_source.is_empty() {
            state.send_source(by_source, self.now());
        }
    }

    /// Matches the reply to extensions that went out in one command, of which `first` is the first.
    fn match_together(
        &mut self,
        first: Waiting,
        count: u16,
        value: &Value<'_>,
        state: &mut State,
        released: &mut Option<Released>,
    ) {
        let rest = usize::from(count).saturating_sub(1).min(state.waiting.len());
        state.overdue = state.overdue.saturating_sub(rest);
        state.together = state.together.saturating_sub(rest);
        let mut batch = vec![first];
        batch.extend(state.waiting.drain(..rest));
        for waiting in &mut batch {
            waiting.sent = Sent::Ours;
        }
        match value {
            Value::Array(parts) if parts.len() == batch.len() && !replies::is_refusal(parts) => {
                for (waiting, part) in batch.into_iter().zip(parts) {
                    self.match_reply(waiting, part, state, released);
                }
            }
            Value::Error(text) if !(text.starts_with(b"NOSCRIPT") && batch[0].with_source) => {
                let unknown = text.starts_with(b"NOSCRIPT");
                // A server that may not touch them all at once, such as a part of a cluster, may do so one by one. An
                // extension that has run before does no harm.
                let never = [&b"CROSSSLOT"[..], b"NOPERM"];
                state.encoder.together &= !never.iter().any(|code| text.starts_with(code));
                let outcomes: Vec<_> = batch
                    .into_iter()
                    .map(|waiting| {
                        // It comes behind what was sent since: one that is released meanwhile must not take its lock
                        // anew.
                        let outcome = if is_released(&waiting, &state.waiting, released) {
                            Outcome::NotNeeded
                        } else if unknown {
                            Outcome::SendSource
                        } else {
                            Outcome::SendScript
                        };
                        (waiting, outcome)
                    })
                    .collect();
                self.carry_out(outcomes, state);
            }
            // All of them were refused for the same reason, or it makes no sense.
            value => {
                for waiting in batch {
                    self.match_reply(waiting, value, state, released);
                }
            }
        }
    }

    fn now(&self) -> Now {
        self.link.both()
    }

    /// Writes what callers have left here, in one go.
    fn write_out(&mut self, cx: &mut Context<'_>) -> Result<(), Failure> {
        loop {
            if self.written == self.output.len() {
                self.output.clear();
                self.written = 0;
                let mut state = self.link.state();
                self.closing = state.attend(cx);
                let moot = state.fill(|| self.link.both());
                std::mem::swap(&mut self.output, &mut state.out);
                drop(state);
                for call in moot {
                    let text = "is so far behind that it was not asked any more";
                    let failure = Failure::new(FailureKind::Unreachable, text);
                    call.answer(Answer::Failed(failure));
                }
                if let Some(tls) = &mut self.tls {
                    let plain = std::mem::take(&mut self.output);
                    tls.seal(&plain, &mut self.output)?;
                }
                if self.output.is_empty() {
                    return Ok(());
                }
            }
            match self.write.try_write(&self.output[self.written..]) {
                Ok(count) => self.written += count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    match self.write.poll_writable(cx) {
                        Poll::Pending => return Ok(()),
                        Poll::Ready(result) => result.map_err(broken)?,
                    }
                }
                Err(error) => return Err(broken(error)),
            }
        }
    }

    /// Tells rounds of calls that have passed their limit, and gives a silent server up.
    fn watch_the_clock(&mut self, cx: &mut Context<'_>) -> Poll<Failure> {
        // An idle connection lets its timer run out: setting it anew for each call would cost more
        // than the call. A closing or late one looks every time.
        if let Some(timer) = &mut self.timer
            && timer.as_mut().poll(cx).is_pending()
            && !self.closing
            && !self.all_late
        {
            return Poll::Pending;
        }
        loop {
            self.timer = None;
            let both = self.link.both();
            let now = both.boot;
            let mut state = self.link.state();
            let late = state.mark_overdue(both);
            if !late.is_empty() {
                let why = self.link.not_answering(&state, FailureKind::Silent);
                let unsent = self.link.not_answering(&state, FailureKind::Unreachable);
                if !state.out.is_empty() {
                    // Releases that waited.
                    cx.waker().wake_by_ref();
                }
                drop(state);
                late.notices.into_iter().for_each(|lateness| lateness.tell(why.clone()));
                for call in late.unsent {
                    call.answer(Answer::Failed(unsent.clone()));
                }
                continue;
            }
            let limit = state.patience.limit();
            let patience = state.patience.until_reconnect();
            let Some(oldest) = state.waiting.front() else {
                state.timed = false;
                state.shrink();
                self.output.shrink_to(link::KEPT_BYTES);
                self.news.shrink_to(link::KEPT_CALLS);
                if self.filled < READ_BYTES {
                    self.input.truncate(READ_BYTES);
                    self.input.shrink_to_fit();
                }
                self.opened.shrink_to(link::KEPT_BYTES);
                self.all_late = false;
                return if self.closing { Poll::Ready(Failure::closed()) } else { Poll::Pending };
            };
            let silent = now.since(state.silent_since(oldest));
            if silent >= patience {
                return Poll::Ready(broken(format!("no answer for {silent:.0?}")));
            }
            self.all_late = state.overdue == state.waiting.len();
            if self.closing && self.all_late {
                return Poll::Ready(Failure::closed());
            }
            let next = match state.waiting.get(state.overdue) {
                Some(next) => state.silent_since(next).after(limit),
                None => state.silent_since(oldest).after(patience),
            };
            state.timed = true;
            drop(state);
            let mut timer = self.runtime.sleep(next.since(now));
            let pending = timer.as_mut().poll(cx).is_pending();
            self.timer = Some(timer);
            if pending {
                return Poll::Pending;
            }
        }
    }
}

/// Whether a release that waits for its reply takes back what a call asks for.
fn is_released(
    waiting: &Waiting,
    others: &VecDeque<Waiting>,
    released: &mut Option<Released>,
) -> bool {
    // Those that are sent while replies are looked at are behind all calls that they could take back.
    released.get_or_insert_with(|| Released::among(others)).takes_back(&waiting.call)
}

fn not_known() -> Answer {
    let text = "does not know the script that it was just sent";
    Answer::Failed(Failure::new(FailureKind::Rejected, text))
}

fn not_needed() -> Answer {
    let text = "could not run the script, and what it was for is not needed any more";
    Answer::Failed(Failure::new(FailureKind::Rejected, text))
}

fn broken(why: impl std::fmt::Display) -> Failure {
    Failure::new(FailureKind::Unreachable, why.to_string())
}
