//! Serves calls: those of one name one after another, as they were submitted, and names side by side.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::pin::pin;
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::future::{Either, select};
use futures_util::stream::FuturesUnordered;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::watch;

use super::step::{Around, Step, barrier, kept_longer, step, taken_back};
use super::{Change, Found, HoldChange, Store, Window, Written};
use crate::name::Name;
use crate::node::{
    Answer, Call, Capabilities, ClientId, Failure, FailureKind, Inbox, Node, NodeContext, Request,
    Verb,
};
use crate::runtime::{BoxFuture, Moment, Runtime};

/// So many locks are remembered, so that the next request can be written without reading first.
const REMEMBERED: usize = 8_192;
/// Between two attempts, at the least and at the most.
const PAUSE: Duration = Duration::from_millis(10);
const LONGEST_PAUSE: Duration = Duration::from_millis(500);

/// What is known of whether a node can be used; `None` until the first attempt to connect has ended.
pub(in crate::node) type Readiness = Option<Result<Capabilities, Failure>>;

/// A node on a store.
pub(in crate::node) struct CasNode<S> {
    label: String,
    store: Arc<S>,
    calls: UnboundedSender<Call>,
    readiness: watch::Receiver<Readiness>,
    /// Before it is ready.
    capabilities: Capabilities,
}

impl<S: Store> CasNode<S> {
    /// Serves calls from now on. Those that the store cannot do within `limit` are given up.
    pub(in crate::node) fn start(
        label: String,
        store: Arc<S>,
        readiness: watch::Receiver<Readiness>,
        capabilities: Capabilities,
        limit: Duration,
        context: &NodeContext,
    ) -> Self {
        let (calls, incoming) = unbounded_channel();
        let serving = Arc::new(Serving {
            store: Arc::clone(&store),
            runtime: Arc::clone(&context.runtime),
            limit,
        });
        let worker =
            Worker { serving, lanes: HashMap::new(), running: FuturesUnordered::new(), waiting: 0 };
        context.runtime.spawn(Box::pin(worker.run(incoming)));
        Self { label, store, calls, readiness, capabilities }
    }
}

impl<S> fmt::Debug for CasNode<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CasNode").field("label", &self.label).finish_non_exhaustive()
    }
}

impl<S: Store> Node for CasNode<S> {
    fn label(&self) -> &str {
        &self.label
    }

    fn capabilities(&self) -> Capabilities {
        match &*self.readiness.borrow() {
            Some(Ok(capabilities)) => *capabilities,
            _ => self.capabilities,
        }
    }

    fn ready(&self) -> BoxFuture<'_, Result<(), Failure>> {
        let mut readiness = self.readiness.clone();
        Box::pin(async move {
            match readiness.wait_for(Option::is_some).await {
                Ok(known) => known.clone().map_or(Ok(()), |known| known.map(|_| ())),
                Err(_) => Err(Failure::closed()),
            }
        })
    }

    fn submit(&self, call: Call) {
        // A call that is not taken is dropped, which tells its round.
        let _ = self.calls.send(call);
    }

    fn listen(&self, _client: ClientId, node: usize, inbox: Weak<dyn Inbox>) {
        self.store.listen(node, inbox);
    }
}

/// The task that serves the calls of one node. It ends when the node is gone and everything is answered.
struct Worker<S> {
    serving: Arc<Serving<S>>,
    lanes: HashMap<Name, Lane>,
    running: FuturesUnordered<BoxFuture<'static, (Name, Known)>>,
    /// How many calls wait for an earlier one of the same name.
    waiting: usize,
}

/// The calls of one name.
struct Lane {
    waiting: VecDeque<Waiting>,
    /// `None` while a call is served, which has it.
    known: Option<Known>,
}

/// A call that waits for an earlier one.
struct Waiting {
    call: Call,
    /// When it is given up; `None` if its round knows already that it is late.
    deadline: Option<Moment>,
}

/// What is known of a lock from the calls before.
#[derive(Debug, Default)]
struct Known {
    found: Option<Found>,
    /// A write was sent whose fate is not known.
    is_unsure: bool,
}

/// What the attempts to serve one call have come to.
#[derive(Debug, Default)]
struct Attempts {
    /// Why the latest failed.
    why: Option<Failure>,
    /// What is true if a write has run that was not answered.
    released: Option<Answer>,
}

impl<S: Store> Worker<S> {
    async fn run(mut self, mut incoming: UnboundedReceiver<Call>) {
        let mut tick = self.serving.runtime.sleep(self.serving.limit / 4);
        let mut is_open = true;
        while is_open || !self.running.is_empty() {
            tokio::select! {
                call = incoming.recv(), if is_open => match call {
                    Some(call) => self.take(call),
                    None => is_open = false,
                },
                Some((name, known)) = self.running.next() => self.go_on(name, known),
                () = &mut tick, if self.waiting > 0 => {
                    self.give_up_late();
                    tick = self.serving.runtime.sleep(self.serving.limit / 4);
                }
            }
        }
        self.serving.store.close().await;
    }

    /// Takes a call in. It is served at once, or after those of the same name before it.
    fn take(&mut self, call: Call) {
        let deadline = self.serving.runtime.now().after(self.serving.limit);
        if matches!(call.request().verb, Verb::Look | Verb::Mark(_)) {
            return call.answer(Answer::Marker(None));
        }
        let name = call.request().name.clone();
        self.forget_some();
        let lane = self.lanes.entry(name.clone()).or_default();
        match lane.known.take() {
            Some(known) => self.start(name, known, call, deadline),
            None => {
                lane.waiting.push_back(Waiting { call, deadline: Some(deadline) });
                self.waiting += 1;
            }
        }
    }

    fn start(&self, name: Name, known: Known, call: Call, deadline: Moment) {
        let serving = Arc::clone(&self.serving);
        self.running.push(Box::pin(async move {
            let mut known = known;
            serving.serve(call, &mut known, deadline).await;
            (name, known)
        }));
    }

    /// A call has been answered: the next of that name is served.
    fn go_on(&mut self, name: Name, known: Known) {
        let Some(lane) = self.lanes.get_mut(&name) else { return };
        match lane.waiting.pop_front() {
            Some(Waiting { call, deadline }) => {
                self.waiting -= 1;
                let soon = || self.serving.runtime.now().after(self.serving.limit);
                let deadline = deadline.unwrap_or_else(soon);
                self.start(name, known, call, deadline);
            }
            None => lane.known = Some(known),
        }
    }

    /// Calls that had to wait too long are not sent any more, except releases of what may be held.
    fn give_up_late(&mut self) {
        if self.waiting == 0 {
            return;
        }
        let now = self.serving.runtime.now();
        for lane in self.lanes.values_mut() {
            let all = std::mem::take(&mut lane.waiting);
            for Waiting { call, deadline } in all {
                let is_late = deadline.is_none_or(|deadline| deadline <= now);
                if is_late && !call.request().is_owed(now) {
                    self.waiting -= 1;
                    call.answer(Answer::Failed(behind_another(self.serving.limit)));
                    continue;
                }
                if is_late && deadline.is_some() {
                    call.lateness().tell(behind_another(self.serving.limit));
                }
                lane.waiting.push_back(Waiting { call, deadline: deadline.filter(|_| !is_late) });
            }
        }
    }

    /// Makes room: a lock that is not known has to be read again.
    fn forget_some(&mut self) {
        if self.lanes.len() >= REMEMBERED {
            self.lanes.retain(|_, lane| lane.known.as_ref().is_none_or(|known| known.is_unsure));
        }
    }
}

impl Default for Lane {
    fn default() -> Self {
        Self { waiting: VecDeque::new(), known: Some(Known::default()) }
    }
}

fn behind_another(limit: Duration) -> Failure {
    let text = format!("an earlier request for this lock was not answered within {limit:?}");
    Failure::new(FailureKind::Unreachable, text)
}

/// What serves one call.
struct Serving<S> {
    store: Arc<S>,
    runtime: Arc<dyn Runtime>,
    limit: Duration,
}

impl<S: Store> Serving<S> {
    /// Does what is asked, and answers. A release of what may be held is tried until it is done or owed no more.
    async fn serve(&self, call: Call, known: &mut Known, deadline: Moment) {
        let mut attempts = Attempts::default();
        let left = deadline.since(self.runtime.now());
        let mut served = self.within(left, &call, known, &mut attempts).await;
        if served.is_none() && call.request().is_owed(self.runtime.now()) {
            call.lateness().tell(self.failure(&attempts, known));
            while served.is_none() && call.request().is_owed(self.runtime.now()) {
                served = self.within(self.limit, &call, known, &mut attempts).await;
            }
        }
        let answer = served.unwrap_or_else(|| Answer::Failed(self.failure(&attempts, known)));
        call.answer(answer);
    }

    /// The answer, if there is one in so long.
    async fn within(
        &self,
        limit: Duration,
        call: &Call,
        known: &mut Known,
        attempts: &mut Attempts,
    ) -> Option<Answer> {
        let answered = pin!(self.answer(call, known, attempts));
        match select(answered, self.runtime.sleep(limit)).await {
            Either::Left((answer, _)) => Some(answer),
            Either::Right(_) => None,
        }
    }

    /// Why there was no answer in time.
    fn failure(&self, attempts: &Attempts, known: &Known) -> Failure {
        let limit = self.limit;
        let kind = if known.is_unsure { FailureKind::Silent } else { FailureKind::Unreachable };
        match &attempts.why {
            Some(why) => Failure::new(kind, format!("not done within {limit:?}: {why}")),
            None => Failure::new(kind, format!("no answer within {limit:?}")),
        }
    }

    /// Tries until there is an answer.
    async fn answer(&self, call: &Call, known: &mut Known, attempts: &mut Attempts) -> Answer {
        let mut pause = PAUSE;
        loop {
            match self.attempt(call, known, attempts).await {
                Ok(answer) => return answer,
                Err(failure) if is_passing(&failure) => attempts.why = Some(failure),
                Err(failure) => return Answer::Failed(failure),
            }
            known.found = None;
            self.runtime.sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    async fn attempt(
        &self,
        call: &Call,
        known: &mut Known,
        attempts: &mut Attempts,
    ) -> Result<Answer, Failure> {
        let request = call.request();
        if let Verb::List { from } = request.verb {
            return self.store.list(from).await.map(|listed| Answer::Listed(Box::new(listed)));
        }
        let name = request.name;
        let is_release = matches!(request.verb, Verb::Release { .. } | Verb::ForceRelease { .. });
        let mut is_fresh = false;
        // Nothing may be there, which the write finds out as well as a read.
        let mut found = match known.found.take() {
            Some(found) => found,
            None if known.is_unsure => {
                is_fresh = true;
                self.store.read(name).await?
            }
            None => Found::default(),
        };
        let window = self.store.window();
        // Whether a write has shown that the time of the store cannot be had.
        let mut is_apart = false;
        loop {
            let now = self.runtime.now();
            let around = Around { now, will_notify: self.store.is_listening(), window };
            let may_be_over = window.is_some() && !is_apart && found.may_be_over(now);
            let next = match request.verb {
                // It is for people to read.
                Verb::Inspect if may_be_over => step(&found.as_it_seems(now), &request, around),
                // A write shows the time. What there is to be done depends on that.
                _ if may_be_over => {
                    let change = barrier(&found);
                    match self.write(name, &found, &change, known).await? {
                        Written::Done(now) | Written::Conflict(now) => found = now,
                        Written::Apart(now, failure) => {
                            if matches!(request.verb, Verb::Acquire { .. }) {
                                known.found = Some(now);
                                return Ok(Answer::Failed(failure));
                            }
                            // Whoever may be there is taken to be there.
                            (found, is_apart) = (now, true);
                        }
                        Written::Gone => {}
                    }
                    is_fresh = true;
                    continue;
                }
                _ => step(&found, &request, around),
            };
            let (answer, change) = match next {
                next if !is_fresh && next.needs_to_be_fresh() => {
                    found = self.store.read(name).await?;
                    is_fresh = true;
                    continue;
                }
                // By an earlier attempt, or long ago.
                Step::Answer(answer @ Answer::Granted { .. })
                    if !is_believable(&request, &found, window) =>
                {
                    (answer, Box::new(kept_longer(&found, &request)))
                }
                Step::Answer(answer) if !known.is_unsure => {
                    known.found = Some(found);
                    return Ok(answer);
                }
                Step::Answer(answer) => (answer, Box::new(barrier(&found))),
                Step::Write(answer, change) => (answer, change),
            };
            let answer = match answer {
                Answer::Refused if is_release => attempts.released.clone().unwrap_or(answer),
                answer => answer,
            };
            let released = is_release.then(|| answer.clone());
            let was_released = std::mem::replace(&mut attempts.released, released);
            match self.write(name, &found, &change, known).await {
                Ok(Written::Done(now)) => {
                    let is_good = match answer {
                        Answer::Granted { .. } => is_believable(&request, &now, window),
                        _ => true,
                    };
                    if is_good {
                        known.found = Some(now);
                        return Ok(answer);
                    }
                    self.untimely(&request, now, &change, known).await;
                    return Ok(Answer::Failed(was_behind()));
                }
                Ok(Written::Apart(now, failure)) => {
                    let rests_on_time = match answer {
                        Answer::Granted { .. } => !matches!(request.verb, Verb::Confirm { .. }),
                        Answer::Queued(_) => true,
                        _ => false,
                    };
                    if !rests_on_time {
                        known.found = Some(now);
                        return Ok(answer);
                    }
                    self.untimely(&request, now, &change, known).await;
                    return Ok(Answer::Failed(failure));
                }
                Ok(Written::Conflict(now)) => {
                    attempts.released = was_released;
                    (found, is_fresh) = (now, true);
                }
                Ok(Written::Gone) => {
                    attempts.released = was_released;
                    if let Some(message) = &change.message {
                        found.state.remove_client(message.client);
                    }
                }
                Err(failure) => {
                    if !may_run(&failure) {
                        attempts.released = was_released;
                    }
                    return Err(failure);
                }
            }
        }
    }

    /// Writes, and notes whether that may run later.
    async fn write(
        &self,
        name: &Name,
        found: &Found,
        change: &Change,
        known: &mut Known,
    ) -> Result<Written, Failure> {
        // Unless it is known not to run, it may run until it is answered.
        let was_unsure = std::mem::replace(&mut known.is_unsure, true);
        let written = self.store.write(name, found, change).await;
        known.is_unsure = match &written {
            Ok(Written::Done(_) | Written::Apart(..)) => false,
            Ok(Written::Conflict(_) | Written::Gone) => was_unsure,
            Err(failure) => was_unsure || may_run(failure),
        };
        written
    }

    /// What was written at a time that cannot be believed is taken back, if it gave the lock to this client. An
    /// extension is not: its holder may believe in what it had before, until it hears of this.
    async fn untimely(
        &self,
        request: &Request<'_>,
        now: Found,
        change: &Change,
        known: &mut Known,
    ) {
        let is_new = matches!(change.holds, HoldChange::Replace { .. }) && change.message.is_none();
        if is_new || matches!(request.verb, Verb::Acquire { .. }) {
            self.take_back(request.name, &now, known).await;
        } else {
            known.found = Some(now);
        }
    }

    /// Frees a lock that nobody believes to hold. If that fails, the record ends by itself.
    async fn take_back(&self, name: &Name, found: &Found, known: &mut Known) {
        let written = self.write(name, found, &taken_back(found), known).await;
        if let Ok(Written::Done(now) | Written::Apart(now, _) | Written::Conflict(now)) = written {
            known.found = Some(now);
        }
    }
}

/// Why a lock cannot be believed to be ours.
fn was_behind() -> Failure {
    let text = "its clock was behind this machine's when the lock was recorded; let a daemon such as chrony keep \
                the clocks of all machines";
    Failure::new(FailureKind::Clock, text)
}

/// Whether a lock that is ours lasts, by the clock of the store, for as long as its holder will believe in it.
fn is_believable(request: &Request<'_>, found: &Found, window: Option<Window>) -> bool {
    let Some(window) = window else { return true };
    let (who, ttl) = match request.verb {
        Verb::Acquire { ttl, .. } | Verb::Wait { ttl, .. } => (None, ttl),
        Verb::Extend { ttl, participant, .. } => (participant, ttl),
        _ => return true,
    };
    found.lasts_until(who, window.least_end_us(request.wall_us, ttl))
}

/// Whether a write that failed like this may run later.
fn may_run(failure: &Failure) -> bool {
    matches!(failure.kind(), FailureKind::Silent | FailureKind::Broken)
}

/// Whether it may be over soon.
fn is_passing(failure: &Failure) -> bool {
    use FailureKind::{Broken, Silent, Unreachable};
    matches!(failure.kind(), Unreachable | Silent | Broken)
}
