//! Serves calls: those of one name one after another, as they were submitted, and names side by side.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::future::Future;
use std::pin::pin;
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::future::{Either, select};
use futures_util::stream::FuturesUnordered;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::watch;

use super::{
    Answer, Call, Capabilities, ClientId, Failure, FailureKind, Inbox, Node, NodeContext, Verb,
};
use crate::name::Name;
use crate::runtime::{BoxFuture, Moment, Runtime};

/// So many locks are remembered, so that the next request can be written without reading first.
const REMEMBERED: usize = 8_192;
/// A write that was sent this long ago, and whose fate is not known, is not reckoned with any more. Should it be done
/// all the same, it names the lock as it was then: at worst a lock that nobody had since is recorded for one who has
/// long given up, and that record ends by itself.
const RECKONED_WITH: Duration = Duration::from_secs(3_600);
/// Between two attempts, at the least and at the most.
const PAUSE: Duration = Duration::from_millis(10);
const LONGEST_PAUSE: Duration = Duration::from_millis(500);

/// What is known of whether a node can be used; `None` until the first attempt to connect has ended.
pub(super) type Readiness = Option<Result<Capabilities, Failure>>;

/// What serves calls, one of each name at a time.
pub(super) trait Serve: Send + Sync + 'static {
    /// What is remembered of a name from call to call.
    type Known: Remember;

    /// Tries to do what is asked. After a failure that may pass it is asked again, as long as there is time.
    fn attempt(
        &self,
        call: &Call,
        known: &mut Self::Known,
        attempts: &mut Attempts,
    ) -> impl Future<Output = Result<Answer, Failure>> + Send;

    /// Where grant messages for this client go.
    fn listen(&self, node: usize, inbox: Weak<dyn Inbox>);

    /// The client wants nothing more.
    fn close(&self) -> impl Future<Output = ()> + Send;
}

/// What is known of a lock from the calls before.
pub(super) trait Remember: Default + Send + 'static {
    /// Whether a write was sent whose fate is not known.
    fn is_unsure(&self) -> bool;

    /// What was read may not be so any more.
    fn stale(&mut self);
}

/// A node that serves its calls in lanes.
pub(super) struct LaneNode<V> {
    label: String,
    serve: Arc<V>,
    calls: UnboundedSender<Call>,
    readiness: watch::Receiver<Readiness>,
    /// Before it is ready.
    capabilities: Capabilities,
}

impl<V: Serve> LaneNode<V> {
    /// Serves calls from now on. Those that cannot be done within `limit` are given up.
    pub(super) fn serve(
        label: String,
        serve: V,
        readiness: watch::Receiver<Readiness>,
        capabilities: Capabilities,
        limit: Duration,
        context: &NodeContext,
    ) -> Self {
        let serve = Arc::new(serve);
        let (calls, incoming) = unbounded_channel();
        let serving = Arc::new(Serving {
            serve: Arc::clone(&serve),
            runtime: Arc::clone(&context.runtime),
            limit,
        });
        let worker = Worker {
            serving,
            lanes: Lanes::default(),
            running: FuturesUnordered::new(),
            waiting: 0,
        };
        context.runtime.spawn(Box::pin(worker.run(incoming)));
        Self { label, serve, calls, readiness, capabilities }
    }
}

impl<V> fmt::Debug for LaneNode<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LaneNode").field("label", &self.label).finish_non_exhaustive()
    }
}

impl<V: Serve> Node for LaneNode<V> {
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
        self.serve.listen(node, inbox);
    }
}

/// The task that serves the calls of one node. It ends when the node is gone and everything is answered.
struct Worker<V: Serve> {
    serving: Arc<Serving<V>>,
    lanes: Lanes<V::Known>,
    running: FuturesUnordered<BoxFuture<'static, (Name, V::Known)>>,
    /// How many calls wait for an earlier one of the same name.
    waiting: usize,
}

/// What is remembered of all names.
struct Lanes<K> {
    all: HashMap<Name, Lane<K>>,
    /// With so many, some are forgotten.
    most: usize,
}

/// The calls of one name.
struct Lane<K> {
    waiting: VecDeque<Waiting>,
    /// `None` while a call is served, which has it.
    known: Option<K>,
    /// When a call was last served.
    used: Moment,
}

/// A call that waits for an earlier one.
struct Waiting {
    call: Call,
    /// When it is given up; `None` if its round knows already that it is late.
    deadline: Option<Moment>,
}

/// What the attempts to serve one call have come to.
#[derive(Debug, Default)]
pub(super) struct Attempts {
    /// Why the latest failed.
    why: Option<Failure>,
    /// What is true if a write has run that was not answered.
    pub(super) released: Option<Answer>,
}

impl<V: Serve> Worker<V> {
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
        self.serving.serve.close().await;
    }

    /// Takes a call in. It is served at once, or after those of the same name before it.
    fn take(&mut self, call: Call) {
        let now = self.serving.runtime.now();
        let deadline = now.after(self.serving.limit);
        if matches!(call.request().verb, Verb::Look | Verb::Mark(_)) {
            return call.answer(Answer::Marker(None));
        }
        let name = call.request().name.clone();
        let lane = self.lanes.of(&name, now);
        match lane.known.take() {
            Some(known) => self.start(name, known, call, deadline),
            None => {
                lane.waiting.push_back(Waiting { call, deadline: Some(deadline) });
                self.waiting += 1;
            }
        }
    }

    fn start(&self, name: Name, known: V::Known, call: Call, deadline: Moment) {
        let serving = Arc::clone(&self.serving);
        self.running.push(Box::pin(async move {
            let mut known = known;
            serving.serve(call, &mut known, deadline).await;
            (name, known)
        }));
    }

    /// A call has been answered: the next of that name is served.
    fn go_on(&mut self, name: Name, known: V::Known) {
        let Some(lane) = self.lanes.all.get_mut(&name) else { return };
        match lane.waiting.pop_front() {
            Some(Waiting { call, deadline }) => {
                self.waiting -= 1;
                let soon = || self.serving.runtime.now().after(self.serving.limit);
                let deadline = deadline.unwrap_or_else(soon);
                self.start(name, known, call, deadline);
            }
            None => {
                lane.known = Some(known);
                lane.used = self.serving.runtime.now();
            }
        }
    }

    /// Calls that had to wait too long are not sent any more, except releases of what may be held.
    fn give_up_late(&mut self) {
        if self.waiting == 0 {
            return;
        }
        let now = self.serving.runtime.now();
        for lane in self.lanes.all.values_mut() {
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
}

impl<K: Remember> Lanes<K> {
    fn of(&mut self, name: &Name, now: Moment) -> &mut Lane<K> {
        self.make_room(now);
        self.all.entry(name.clone()).or_insert_with(|| Lane {
            waiting: VecDeque::new(),
            known: Some(K::default()),
            used: now,
        })
    }

    /// A lock that is not known has to be read again.
    fn make_room(&mut self, now: Moment) {
        if self.all.len() < self.most {
            return;
        }
        self.all.retain(|_, lane| {
            let is_reckoned_with = now.since(lane.used) < RECKONED_WITH;
            lane.known.as_ref().is_none_or(|known| known.is_unsure() && is_reckoned_with)
        });
        // All are looked at again once there are twice as many, and not for each call.
        self.most = REMEMBERED.max(2 * self.all.len());
    }
}

impl<K> Default for Lanes<K> {
    fn default() -> Self {
        Self { all: HashMap::new(), most: REMEMBERED }
    }
}

fn behind_another(limit: Duration) -> Failure {
    let text = format!("an earlier request for this lock was not answered within {limit:?}");
    Failure::new(FailureKind::Unreachable, text)
}

/// What serves one call.
struct Serving<V> {
    serve: Arc<V>,
    runtime: Arc<dyn Runtime>,
    limit: Duration,
}

impl<V: Serve> Serving<V> {
    /// Does what is asked, and answers. A release of what may be held is tried until it is done or owed no more.
    async fn serve(&self, call: Call, known: &mut V::Known, deadline: Moment) {
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
        known: &mut V::Known,
        attempts: &mut Attempts,
    ) -> Option<Answer> {
        let answered = pin!(self.answer(call, known, attempts));
        match select(answered, self.runtime.sleep(limit)).await {
            Either::Left((answer, _)) => Some(answer),
            Either::Right(_) => None,
        }
    }

    /// Why there was no answer in time.
    fn failure(&self, attempts: &Attempts, known: &V::Known) -> Failure {
        let limit = self.limit;
        let kind = if known.is_unsure() { FailureKind::Silent } else { FailureKind::Unreachable };
        match &attempts.why {
            Some(why) => Failure::new(kind, format!("not done within {limit:?}: {why}")),
            None => Failure::new(kind, format!("no answer within {limit:?}")),
        }
    }

    /// Tries until there is an answer.
    async fn answer(&self, call: &Call, known: &mut V::Known, attempts: &mut Attempts) -> Answer {
        let mut pause = PAUSE;
        loop {
            match self.serve.attempt(call, known, attempts).await {
                Ok(answer) => return answer,
                Err(failure) if is_passing(&failure) => attempts.why = Some(failure),
                Err(failure) if known.is_unsure() => return Answer::Failed(may_run(&failure)),
                Err(failure) => return Answer::Failed(failure),
            }
            known.stale();
            self.runtime.sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }
}

/// The same failure, after a write whose fate is not known: whoever hears of it has to release.
fn may_run(failure: &Failure) -> Failure {
    let text = format!("{failure}; an attempt before this was not answered, and may yet be done");
    Failure::new(FailureKind::Silent, text)
}

/// For how long a failure to connect that may pass is kept to itself. Who connects hears of it before giving up.
pub(in crate::node) fn kept_back(limit: Duration, context: &NodeContext) -> Duration {
    limit.min(context.settings.connect_limit * 9 / 10)
}

/// Whether it may be over soon.
fn is_passing(failure: &Failure) -> bool {
    use FailureKind::{Broken, Silent, Unreachable};
    matches!(failure.kind(), Unreachable | Silent | Broken)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::NodeOptions;
    use crate::node::Request;
    use crate::node::Round;
    use crate::runtime::TokioRuntime;
    use crate::settings::Settings;
    use crate::token::Token;
    use std::sync::Mutex;
    use tokio::sync::oneshot;

    #[derive(Default)]
    struct Unsure(bool);

    impl Remember for Unsure {
        fn is_unsure(&self) -> bool {
            self.0
        }

        fn stale(&mut self) {}
    }

    /// The first write is not answered, and the next is refused.
    struct SilentThenRefusing;

    impl Serve for SilentThenRefusing {
        type Known = Unsure;

        async fn attempt(
            &self,
            _call: &Call,
            known: &mut Unsure,
            _attempts: &mut Attempts,
        ) -> Result<Answer, Failure> {
            let was_unsure = std::mem::replace(&mut known.0, true);
            Err(match was_unsure {
                false => Failure::new(FailureKind::Silent, "no answer"),
                true => Failure::new(FailureKind::Rejected, "no room"),
            })
        }

        fn listen(&self, _node: usize, _inbox: Weak<dyn Inbox>) {}

        async fn close(&self) {}
    }

    struct Asked(Name, Token, Mutex<Option<oneshot::Sender<Answer>>>);

    impl Round for Asked {
        fn request(&self, _node: usize) -> Request<'_> {
            let verb =
                Verb::Acquire { token: &self.1, ttl: Duration::from_secs(5), proposal: None };
            Request { name: &self.0, sent: Moment::default(), wall_us: 0, verb }
        }

        fn cast(self: Arc<Self>, _node: usize, answer: Answer) {
            if let Some(to) = self.2.lock().unwrap().take() {
                let _ = to.send(answer);
            }
        }

        fn overdue(self: Arc<Self>, _node: usize, _why: Failure) {}
    }

    #[tokio::test(start_paused = true)]
    async fn a_refusal_after_a_write_that_was_not_answered_leaves_open_whether_it_ran() {
        let runtime: Arc<dyn Runtime> = Arc::new(TokioRuntime::current());
        let token = Token::random(&*runtime);
        let context = NodeContext::new(
            &[""; 0],
            &[],
            &Settings::default(),
            &NodeOptions::default(),
            &runtime,
            ClientId(1),
        )
        .unwrap();
        let (known, readiness) = watch::channel(Some(Ok(Capabilities::new())));
        let limit = Duration::from_secs(1);
        let node = LaneNode::serve(
            "test".into(),
            SilentThenRefusing,
            readiness,
            Capabilities::new(),
            limit,
            &context,
        );
        let (to, answer) = oneshot::channel();
        let asked = Asked(Name::new("a").unwrap(), token, Mutex::new(Some(to)));
        node.submit(Call::new(Arc::new(asked), 0));
        let Ok(Answer::Failed(failure)) = answer.await else { panic!("it fails") };
        assert_eq!(failure.kind(), FailureKind::Silent);
        assert!(failure.to_string().contains("no room"), "{failure}");
        drop(known);
    }

    /// Of every lock it has a write whose fate is not known.
    #[derive(Default)]
    struct AlwaysUnsure;

    impl Remember for AlwaysUnsure {
        fn is_unsure(&self) -> bool {
            true
        }

        fn stale(&mut self) {}
    }

    #[test]
    fn writes_whose_fate_is_not_known_are_not_reckoned_with_for_ever() {
        let (mut lanes, begin) = (Lanes::<AlwaysUnsure>::default(), Moment::default());
        let name = |number: usize| Name::new(format!("{number}")).unwrap();
        for number in 0..2 * REMEMBERED {
            lanes.of(&name(number), begin);
        }
        assert_eq!(lanes.all.len(), 2 * REMEMBERED, "they may still be done");
        assert_eq!(lanes.most, 2 * REMEMBERED, "not all are looked at for each call");
        // One of them is being served.
        lanes.all.get_mut(&name(7)).unwrap().known = None;
        lanes.of(&name(0), begin.after(RECKONED_WITH));
        assert!(lanes.all.len() == 2 && lanes.all.contains_key(&name(7)));
        assert_eq!(lanes.most, REMEMBERED);
    }
}
