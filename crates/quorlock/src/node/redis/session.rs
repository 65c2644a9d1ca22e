//! One connection while it lasts.

use std::future::Future;
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::task::yield_now;

use super::connect::Connected;
use super::framing::Framing;
use super::inbox;
use super::link::{self, Link, State};
use super::replies::{self, Reading};
use super::resp::{MAX_REPLY, Refused, Value};
use super::stream::{ReadHalf, WriteHalf};
use super::tending::Tended;
use super::tls::Tls;
use super::verbs::{By, Sent};
use crate::node::{Answer, Call, Failure, FailureKind, Grant};
use crate::runtime::{BoxFuture, Runtime, wall_us};

const READ_BYTES: usize = 64 * 1_024;
/// So often it reads before others of the same thread have their turn, however much there is to read.
const READS_AT_ONCE: usize = 4;
/// A server that owes an answer for so many time limits is connected to anew.
const LIMITS_UNTIL_RECONNECT: u32 = 10;
const LEAST_UNTIL_RECONNECT: Duration = Duration::from_millis(500);

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
    /// What has come, in order. It is handed out once the link is unlocked, since whoever learns of
    /// it may submit new calls.
    news: Vec<News>,
    tended: Tended,
}

enum News {
    Answer(Call, Answer),
    Word(Grant),
}

impl Session {
    pub(super) fn new(link: Arc<Link>, runtime: Arc<dyn Runtime>, connected: Connected) -> Self {
        // What was read beyond the greeting, such as the beginning of some word.
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
        state.lone = self.news.len() <= 1;
        drop(state);
        for news in self.news.drain(..) {
            match news {
                News::Answer(call, answer) => {
                    let unsettled = matches!(
                        &answer,
                        Answer::Failed(why) if matches!(why.kind(), FailureKind::Quarantined(_))
                    );
                    call.answer(answer);
                    if unsettled {
                        link.inbox.unsettled();
                    }
                }
                News::Word(grant) => link.inbox.granted(grant),
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
        loop {
            let value = match self.framing.next(&mut rest) {
                Ok(Some(value)) => value,
                Ok(None) => return Ok(input.len() - rest.len()),
                Err(Refused::TooLong) => return Err(broken("its reply is too long")),
                Err(Refused::Malformed) => return Err(broken("what it sent is no reply")),
            };
            if let Value::Push(parts) = &value {
                match inbox::read(parts) {
                    Ok(word) => self.news.extend(word.map(News::Word)),
                    // Not its text: nobody knows whose it is.
                    Err(inbox::Malformed) => {
                        tracing::debug!(node = self.link.label(), "word of a grant makes no sense");
                    }
                }
                continue;
            }
            let Some(waiting) = state.waiting.pop_front() else {
                return Err(broken("it sent a reply that nobody asked for"));
            };
            state.overdue = state.overdue.saturating_sub(1);
            if waiting.sent == Sent::Tend {
                let strict = state.dialect.strict.is_some();
                self.tended.take_in(self.link.label(), strict, &value)?;
                continue;
            }
            let now_us = || wall_us(&*self.runtime);
            match replies::read(
                waiting.sent,
                &mut state.dialect,
                || waiting.call.request().wall_us,
                now_us,
                &value,
            ) {
                // The first sending of a release may have run before its connection broke: that
                // nothing is there any more is what it was for.
                Reading::Answer(Answer::Refused) if waiting.again => {
                    self.news.push(News::Answer(waiting.call, Answer::Done));
                }
                Reading::Answer(answer) => self.news.push(News::Answer(waiting.call, answer)),
                Reading::SendSource if waiting.with_source => {
                    let text = "does not know the script that it was just sent";
                    let failure = Failure::new(FailureKind::Rejected, text);
                    self.news.push(News::Answer(waiting.call, Answer::Failed(failure)));
                }
                Reading::SendSource if state.takes_back(&waiting.call) => {
                    let text = "had forgotten the script, and the ticket is not needed any more";
                    let failure = Failure::new(FailureKind::Rejected, text);
                    self.news.push(News::Answer(waiting.call, Answer::Failed(failure)));
                }
                Reading::SendSource => state.send_by(By::Source, waiting, self.runtime.now()),
                Reading::SendScript => state.send_by(By::Script, waiting, self.runtime.now()),
            }
        }
    }

    /// Writes what callers have left here, in one go.
    fn write_out(&mut self, cx: &mut Context<'_>) -> Result<(), Failure> {
        loop {
            if self.written == self.output.len() {
                self.output.clear();
                self.written = 0;
                let mut state = self.link.state();
                self.closing = state.attend(cx);
                std::mem::swap(&mut self.output, &mut state.out);
                drop(state);
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
        let limit = self.link.limit;
        let patience = (limit * LIMITS_UNTIL_RECONNECT).max(LEAST_UNTIL_RECONNECT);
        loop {
            self.timer = None;
            let now = self.runtime.now();
            let mut state = self.link.state();
            let late = state.mark_overdue(now, limit);
            if !late.is_empty() {
                let why = self.link.not_answering(&state, FailureKind::Silent);
                drop(state);
                late.into_iter().for_each(|lateness| lateness.tell(why.clone()));
                continue;
            }
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
            let silent = now.since(oldest.since);
            if silent >= patience {
                return Poll::Ready(broken(format!("no answer for {silent:.0?}")));
            }
            self.all_late = state.overdue == state.waiting.len();
            if self.closing && self.all_late {
                return Poll::Ready(Failure::closed());
            }
            let next = match state.waiting.get(state.overdue) {
                Some(next) => next.since.after(limit),
                None => oldest.since.after(patience),
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

fn broken(why: impl std::fmt::Display) -> Failure {
    Failure::new(FailureKind::Unreachable, why.to_string())
}
