//! The thread that opens the file, and serves the calls that cannot be served at once.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread;
use std::time::Duration;

use tokio::sync::watch;

use super::address::Address;
use super::connect::OpenFile;
use super::error::{Trouble, busy};
use super::executor::Executor;
use super::watch::Watch;
use crate::node::{Answer, Call, Failure, NodeContext};
use crate::runtime::Moment;

/// How the latest attempt to open the file ended; `None` if the first one goes on.
pub(super) type Readiness = Option<Result<(), Failure>>;

/// So many calls make up one transaction at the most, so that the first is not kept waiting for
/// the last, nor other processes for all of them.
const BATCH: usize = 1_024;

/// The pause after the file was found busy; it doubles with each further time. The second is about
/// what a transaction takes.
const FIRST_PAUSE: Duration = Duration::from_micros(10);
const LONGEST_PAUSE: Duration = Duration::from_millis(1);
/// The pause when nobody waits for the outcome any more.
const LATE_PAUSE: Duration = Duration::from_millis(50);

#[derive(Debug)]
pub(super) struct Worker {
    address: Address,
    context: NodeContext,
    calls: Receiver<Call>,
    executor: Arc<Executor>,
    watch: Arc<Watch>,
    readiness: watch::Sender<Readiness>,
    /// Calls that are not answered, in order. They all go into the next transaction.
    pending: VecDeque<Call>,
    /// So many at the front of `pending` are releases whose rounds were told not to wait.
    late: usize,
    pause: Duration,
    /// Whether the node is gone: no calls will come any more.
    closed: bool,
}

impl Worker {
    /// A worker, with where to put calls and where to see whether the file can be used.
    pub(super) fn new(
        address: Address,
        context: &NodeContext,
        executor: &Arc<Executor>,
        watch: &Arc<Watch>,
    ) -> (Sender<Call>, Self, watch::Receiver<Readiness>) {
        let (sender, calls) = mpsc::channel();
        let (readiness, receiver) = watch::channel(None);
        let worker = Self {
            address,
            context: context.clone(),
            calls,
            executor: Arc::clone(executor),
            watch: Arc::clone(watch),
            readiness,
            pending: VecDeque::new(),
            late: 0,
            pause: FIRST_PAUSE,
            closed: false,
        };
        (sender, worker, receiver)
    }

    /// Opens the file and answers calls, until the node is gone and all are answered.
    ///
    /// A file that cannot be opened is tried again with the next call.
    pub(super) fn run(mut self) {
        let patience = self.now().after(self.context.settings.connect_limit / 2);
        loop {
            match self.serve() {
                Ok(answers) => self.answer(answers),
                Err(Trouble::Closed) => {
                    tracing::warn!(
                        node = self.address.label,
                        "the file, its -wal or its -shm was removed, replaced or cut short"
                    );
                    continue;
                }
                Err(Trouble::Busy) => {
                    self.wait_longer();
                    if self.readiness.borrow().is_none() && self.now() > patience {
                        self.report(Err(busy(self.context.settings.connect_limit / 2)));
                    }
                }
                Err(Trouble::Failed(why)) => {
                    self.report(Err(why.clone()));
                    self.give_up(self.pending.len(), &why);
                    self.pause = LATE_PAUSE;
                }
            }
            if !self.take_in() {
                break;
            }
        }
        self.executor.close();
    }

    fn serve(&mut self) -> Result<Vec<Answer>, Trouble> {
        if !self.executor.is_open() {
            Executor::close_all_moved();
            self.executor.open(OpenFile::open(&self.address, &self.context)?);
            self.report(Ok(()));
        }
        if self.pending.is_empty() { Ok(Vec::new()) } else { self.executor.serve(&self.pending) }
    }

    /// Waits for calls if none are pending, else for the end of the pause, or calls if they come
    /// earlier. Returns whether there is anything left to do, now or later.
    fn take_in(&mut self) -> bool {
        let next = if self.pending.is_empty() && self.readiness.borrow().is_some() {
            self.calls.recv().map_err(|_| RecvTimeoutError::Disconnected)
        } else if self.late > 0 && self.late == self.pending.len() {
            self.calls.recv_timeout(LATE_PAUSE)
        } else {
            self.calls.recv_timeout(self.pause)
        };
        match next {
            Ok(call) => self.pending.push_back(call),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) if self.pending.is_empty() => return false,
            Err(RecvTimeoutError::Disconnected) => {
                self.closed = true;
                thread::sleep(self.pause);
            }
        }
        let room = BATCH.saturating_sub(self.pending.len());
        self.pending.extend(self.calls.try_iter().take(room));
        true
    }

    /// The transaction is in the file.
    fn answer(&mut self, answers: Vec<Answer>) {
        self.watch.done(self.pending.len() - self.late);
        self.watch.kept(0);
        self.late = 0;
        self.pause = FIRST_PAUSE;
        for (call, answer) in self.pending.drain(..).zip(answers) {
            call.answer(answer);
        }
    }

    /// The file was busy: gives up on the calls that have waited as long as they may.
    fn wait_longer(&mut self) {
        self.pause = (2 * self.pause).min(LONGEST_PAUSE);
        let (now, limit) = (self.now(), self.context.settings.node_limit);
        let fresh = self.pending.iter().skip(self.late);
        let expired = fresh.take_while(|call| call.request().sent.after(limit) <= now).count();
        self.give_up(self.late + expired, &busy(limit));
    }

    /// Answers the first `count` calls with a failure. Releases of what the file may hold are kept
    /// for later tries instead, and their rounds told not to wait for them.
    fn give_up(&mut self, count: usize, why: &Failure) {
        let now = self.now();
        // Before any round is informed, so that none can put a call past those that are kept.
        self.watch.kept(count);
        self.watch.done(count - self.late);
        let rest = self.pending.split_off(count);
        let given_up = std::mem::take(&mut self.pending);
        for (index, call) in given_up.into_iter().enumerate() {
            if self.closed || !call.request().is_owed(now) {
                call.answer(Answer::Failed(why.clone()));
                continue;
            }
            if index >= self.late {
                call.lateness().tell(why.clone());
            }
            self.pending.push_back(call);
        }
        self.late = self.pending.len();
        self.watch.kept(self.late);
        self.pending.extend(rest);
    }

    fn report(&self, readiness: Result<(), Failure>) {
        let before = self.readiness.send_replace(Some(readiness.clone()));
        match (before, readiness) {
            (Some(Err(_)), Ok(())) => {
                let node = &self.address.label;
                tracing::warn!(node, all_clear = true, "can be used again");
            }
            (None | Some(Ok(())), Err(why)) => {
                tracing::warn!(node = self.address.label, "cannot be used: {why}");
            }
            _ => {}
        }
    }

    fn now(&self) -> Moment {
        self.context.runtime.now()
    }
}
