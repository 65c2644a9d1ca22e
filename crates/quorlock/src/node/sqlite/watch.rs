//! Looks after calls while they wait for the worker.
//!
//! The worker answers in time by itself, however long other processes keep the file busy: it never
//! waits for them inside of SQLite. But it can be stuck in the kernel, when the disk takes seconds
//! to write something out. Then the watch, a task of its own, tells the rounds not to wait, and
//! lets nothing but releases of what may be held join the queue until the worker goes on.

use std::collections::VecDeque;
use std::fmt;
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::Notify;

use crate::locked::locked;
use crate::node::{Answer, Call, Failure, FailureKind, Lateness, NodeContext};
use crate::runtime::{Moment, Runtime};

/// The worker gets so much longer than the limit of a call, since it knows better what is wrong.
const GRACE: Duration = Duration::from_millis(5);

#[derive(Debug)]
pub(super) struct Watch {
    runtime: Arc<dyn Runtime>,
    patience: Duration,
    state: Mutex<State>,
    /// Notified when there is something to watch, and when there will be nothing ever again.
    changed: Notify,
}

#[derive(Debug, Default)]
struct State {
    /// One for each call that the worker is not done with, in the order of the channel.
    waiting: VecDeque<Waiting>,
    /// Whether the task will look at `waiting` by itself. Waking it for each call would cost more
    /// than the call.
    timed: bool,
    /// How many calls the worker keeps though it has told their rounds not to wait.
    kept: usize,
    closed: bool,
}

struct Waiting {
    since: Moment,
    /// `None` once the round was informed.
    lateness: Option<Lateness>,
}

impl Watch {
    pub(super) fn new(context: &NodeContext) -> Self {
        Self {
            runtime: Arc::clone(&context.runtime),
            patience: context.settings.node_limit + GRACE,
            state: Mutex::default(),
            changed: Notify::new(),
        }
    }

    /// Hands a call to the worker, and watches it from now on.
    pub(super) fn submit(&self, call: Call, worker: &Sender<Call>) {
        let since = call.request().sent;
        let mut state = locked(&self.state);
        if let Some(stuck) = state.waiting.front().filter(|stuck| stuck.lateness.is_none())
            && !call.request().is_owed(since)
        {
            let why = self.not_answering(stuck.since, FailureKind::Unreachable);
            drop(state);
            call.answer(Answer::Failed(why));
            return;
        }
        state.waiting.push_back(Waiting { since, lateness: Some(call.lateness()) });
        // Within the lock, so that both queues have one order.
        let sent = worker.send(call);
        let lost = if sent.is_err() { state.waiting.pop_back() } else { None };
        let wake = !std::mem::replace(&mut state.timed, true);
        drop(state);
        if wake {
            self.changed.notify_one();
        }
        // A worker that is gone takes no calls: dropped outside of the lock, they tell their rounds.
        drop((sent, lost));
    }

    /// The worker has answered, or reported as late, so many of the oldest calls.
    pub(super) fn done(&self, count: usize) {
        let done: Vec<Waiting> = locked(&self.state).waiting.drain(..count).collect();
        // Not within the lock: with its last round goes the node, which closes the watch.
        drop(done);
    }

    /// The worker is done with so many of the oldest calls, but keeps so many to try them again.
    pub(super) fn kept(&self, count: usize) {
        locked(&self.state).kept = count;
    }

    /// Whether the worker has run every call that it was given.
    pub(super) fn is_idle(&self) -> bool {
        let state = locked(&self.state);
        state.waiting.is_empty() && state.kept == 0
    }

    /// No calls will come any more.
    pub(super) fn close(&self) {
        locked(&self.state).closed = true;
        self.changed.notify_one();
    }

    /// Tells rounds that their calls are late, until the watch is closed.
    pub(super) async fn run(self: Arc<Self>) {
        loop {
            self.changed.notified().await;
            while let Some(next) = self.look() {
                self.runtime.sleep(next).await;
            }
            if locked(&self.state).closed {
                return;
            }
        }
    }

    /// Tells those that are late now. Returns in which time the next one will be.
    fn look(&self) -> Option<Duration> {
        let now = self.runtime.now();
        let (late, next) = {
            let mut state = locked(&self.state);
            let due = |waiting: &Waiting| waiting.since.after(self.patience);
            let late = state.waiting.iter_mut().take_while(|waiting| due(waiting) <= now);
            let late = late.filter_map(|waiting| Some((waiting.since, waiting.lateness.take()?)));
            let late: Vec<(Moment, Lateness)> = late.collect();
            let next = state.waiting.iter().find(|waiting| waiting.lateness.is_some());
            let next = next.map(|waiting| due(waiting).since(now));
            state.timed = next.is_some();
            (late, next)
        };
        for (since, lateness) in late {
            lateness.tell(self.not_answering(since, FailureKind::Silent));
        }
        next
    }

    fn not_answering(&self, since: Moment, kind: FailureKind) -> Failure {
        let since = self.runtime.now().since(since);
        let text = format!("has not answered for {since:.0?}; is the disk overloaded or failing?");
        Failure::new(kind, text)
    }
}

impl fmt::Debug for Waiting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Waiting").field("since", &self.since).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

    use super::*;
    use crate::name::Name;
    use crate::node::{ClientId, NodeOptions, Request, Round, Verb};
    use crate::runtime::TokioRuntime;
    use crate::settings::Settings;
    use crate::token::Token;

    /// Tells what it hears, with the index of the node to tell calls apart.
    struct Listener {
        name: Name,
        token: Token,
        sent: Moment,
        owed: bool,
        heard: UnboundedSender<(usize, &'static str)>,
    }

    impl Round for Listener {
        fn request(&self, _node: usize) -> Request<'_> {
            let token = &self.token;
            let until = self.owed.then(|| self.sent.after(Duration::from_secs(60)));
            let verb = Verb::Release { token, until, next: 0, queued: true, participant: None };
            Request { name: &self.name, sent: self.sent, wall_us: 0, verb }
        }

        fn cast(self: Arc<Self>, node: usize, answer: Answer) {
            let said = match answer {
                Answer::Failed(why) if why.kind() == FailureKind::Unreachable => "turned away",
                _ => "answered",
            };
            self.heard.send((node, said)).unwrap();
        }

        fn overdue(self: Arc<Self>, node: usize, why: Failure) {
            assert_eq!(why.kind(), FailureKind::Silent);
            self.heard.send((node, "late")).unwrap();
        }
    }

    struct Stuck {
        watch: Arc<Watch>,
        worker: Sender<Call>,
        queue: mpsc::Receiver<Call>,
        hear: UnboundedSender<(usize, &'static str)>,
        heard: UnboundedReceiver<(usize, &'static str)>,
    }

    impl Stuck {
        fn new() -> Self {
            let settings = Settings { node_limit: Duration::from_millis(1), ..Settings::default() };
            let runtime: Arc<dyn Runtime> = Arc::new(TokioRuntime::current());
            let client = ClientId::random(&*runtime);
            let context = NodeContext::new(
                &[""; 0],
                &[],
                &settings,
                &NodeOptions::default(),
                &runtime,
                client,
            )
            .unwrap();
            let watch = Arc::new(Watch::new(&context));
            tokio::spawn(Arc::clone(&watch).run());
            let (worker, queue) = mpsc::channel();
            let (hear, heard) = unbounded_channel();
            Self { watch, worker, queue, hear, heard }
        }

        fn submit(&self, node_index: usize, owed: bool) {
            let runtime = TokioRuntime::current();
            let round = Arc::new(Listener {
                name: Name::new("a").unwrap(),
                token: Token::random(&runtime),
                sent: runtime.now(),
                owed,
                heard: self.hear.clone(),
            });
            self.watch.submit(Call::new(round, node_index), &self.worker);
        }
    }

    #[tokio::test]
    async fn a_call_that_the_worker_does_not_answer_is_reported_once() {
        let mut stuck = Stuck::new();
        stuck.submit(0, false);
        stuck.submit(1, false);
        stuck.watch.done(1);
        stuck.queue.recv().unwrap().answer(Answer::Done);
        assert_eq!(stuck.heard.recv().await, Some((0, "answered")));
        assert_eq!(stuck.heard.recv().await, Some((1, "late")));
        // The answer is delivered all the same.
        stuck.watch.done(1);
        stuck.queue.recv().unwrap().answer(Answer::Done);
        assert_eq!(stuck.heard.recv().await, Some((1, "answered")));
        stuck.submit(2, false);
        assert_eq!(stuck.heard.recv().await, Some((2, "late")));
    }

    #[tokio::test]
    async fn only_releases_of_what_may_be_held_join_a_stuck_queue() {
        let mut stuck = Stuck::new();
        stuck.submit(0, false);
        assert_eq!(stuck.heard.recv().await, Some((0, "late")));
        stuck.submit(1, false);
        assert_eq!(stuck.heard.recv().await, Some((1, "turned away")));
        stuck.submit(2, true);
        assert_eq!(stuck.heard.recv().await, Some((2, "late")));
        assert_eq!(stuck.queue.try_iter().count(), 2);
    }

    #[tokio::test]
    async fn a_worker_that_is_gone_leaves_nobody_waiting() {
        let mut stuck = Stuck::new();
        stuck.queue = mpsc::channel().1;
        stuck.submit(0, false);
        assert_eq!(stuck.heard.recv().await, Some((0, "answered")));
    }
}
