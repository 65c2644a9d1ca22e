//! A lock is tried out on one node, as two clients would use it.
//!
//! ```text
//!   a   acquire ── extend ── inspect ─────────────── release
//!   b                                 wait (queued)     └──▶ told ── release
//! ```

use std::future::poll_fn;
use std::sync::{Arc, Mutex};
use std::task::{Poll, Waker};
use std::time::Duration;

use super::{Examination, shown};
use crate::locked::locked;
use crate::name::Name;
use crate::node::{
    Answer, Call, ClientId, Failure, FailureKind, Grant, Inbox, Node, NodeContext, Proposal,
    Request, Restore, Round, Secret, Ticket, TicketNumber, Verb,
};
use crate::runtime::{Moment, random_u64, wall_us};
use crate::token::Token;

/// What it means if a node does not notify waiters of their turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unnotified {
    /// Nodes of this kind cannot.
    Expected,
    /// It could, and this is what to look at.
    Wrong(&'static str),
}

/// Tries a lock out, and adds what came of it. Returns its name, if any node was asked for it.
pub(super) async fn run(
    examination: &mut Examination,
    node: &Arc<dyn Node>,
    context: &NodeContext,
    name: &[u8],
    unnotified: Unnotified,
) -> Option<Name> {
    let name = [name, format!(":{:016x}", random_u64(&*context.runtime)).as_bytes()].concat();
    let name = match Name::new(name) {
        Ok(name) => name,
        Err(error) => {
            examination.fail(&Failure::new(FailureKind::Unfit, error.to_string()));
            return None;
        }
    };
    let listener = Arc::new(GrantListener::new(Secret::random(&*context.runtime)));
    let inbox = Arc::downgrade(&listener);
    node.listen(context.client, 0, inbox);
    let ready = within(context, context.settings.connect_limit, node.ready()).await;
    let unready = match ready {
        Some(Ok(())) => None,
        Some(Err(failure)) => Some(failure),
        None => {
            let limit = context.settings.connect_limit;
            let text =
                format!("not connected after {limit:?}; is it up, and is the address right?");
            Some(Failure::new(FailureKind::Unreachable, text))
        }
    };
    if let Some(failure) = unready {
        examination.fail(&failure);
        return None;
    }
    examination.capabilities = Some(node.capabilities());
    if context.trusting {
        context.set(std::slice::from_ref(node)).settle().await;
    }
    let a = Token::random(&*context.runtime);
    let b = Token::random(&*context.runtime);
    let trial = Trial { node: &**node, context, name: &name, secret: listener.secret };
    trial.steps(examination, &a, &b, &listener, unnotified).await;
    // Whatever went wrong: nothing is to be left.
    for token in [&b, &a] {
        trial.ask(token, TrialStep::Release).await;
    }
    Some(name)
}

struct Trial<'a> {
    node: &'a dyn Node,
    context: &'a NodeContext,
    name: &'a Name,
    /// Of the ticket.
    secret: Secret,
}

impl Trial<'_> {
    async fn steps(
        &self,
        examination: &mut Examination,
        a: &Token,
        b: &Token,
        listener: &GrantListener,
        unnotified: Unnotified,
    ) {
        for (what, step) in [("taken", TrialStep::Acquire), ("extended", TrialStep::Extend)] {
            if let Err(why) = done(self.ask(a, step).await) {
                return examination.fail(&why.about(&format!("a lock cannot be {what}")));
            }
        }
        let looked = self.ask(a, TrialStep::Inspect).await;
        let queued = self.ask(b, TrialStep::Wait).await;
        let released = self.context.runtime.now();
        if let Err(why) = done(self.ask(a, TrialStep::Release).await) {
            return examination.fail(&why.about("a lock cannot be released"));
        }
        examination.ok("rights", "a lock can be taken, extended and released");
        if let Answer::Failed(why) = looked {
            examination.warn("inspect", format!("a lock cannot be looked at: {why}"), "");
        }
        let will_notify = match queued {
            Answer::Queued(queued) => queued.will_notify,
            Answer::Failed(why) => {
                let text = format!("waiters cannot queue up, and ask again and again: {why}");
                return examination.warn("queue", text, "");
            }
            _ => {
                let remedy = "see whether something else deletes keys on this node";
                return examination.warn("queue", "a lock that is held is given away", remedy);
            }
        };
        let limit = self.context.settings.connect_limit;
        let heard =
            if will_notify { within(self.context, limit, listener.heard()).await } else { None };
        match (heard, unnotified) {
            (Some(()), _) => {
                let took = self.context.runtime.now().since(released);
                examination.number("wake_up_us", took.as_micros());
                examination
                    .ok("wake-up", format!("waiters are told of their turn ({})", shown(took)));
            }
            (None, Unnotified::Expected) => {
                examination
                    .ok("wake-up", "waiters ask again and again, as they must on such a node");
            }
            (None, Unnotified::Wrong(remedy)) => examination.warn(
                "wake-up",
                "waiters are not told of their turn, and have to ask again and again",
                remedy,
            ),
        }
    }

    async fn ask(&self, token: &Token, step: TrialStep) -> Answer {
        let (context, runtime) = (self.context, &self.context.runtime);
        let least = wall_us(&**runtime);
        let proposal = context.settings.fences.then_some(Proposal { least, block: 1 });
        let question = Arc::new(Question {
            name: self.name.clone(),
            sent: runtime.now(),
            wall_us: wall_us(&**runtime),
            proposal,
            token: *token,
            step,
            ttl: context.settings.ttl,
            client: context.client,
            secret: self.secret,
            answer: Slot::default(),
        });
        let round = Arc::clone(&question) as Arc<dyn Round>;
        self.node.submit(Call::new(round, 0));
        question.answer.taken().await
    }
}

/// Why a step did not work.
struct Why(Failure);

impl Why {
    fn about(self, what: &str) -> Failure {
        Failure::new(self.0.kind(), format!("{what}: {}", self.0))
    }
}

fn done(answer: Answer) -> Result<(), Why> {
    match answer {
        Answer::Granted { .. } | Answer::Done | Answer::LeftToOthers => Ok(()),
        Answer::Failed(failure) => Err(Why(failure)),
        _ => {
            let text = "somebody else has its name; is something else at work on this node?";
            Err(Why(Failure::new(FailureKind::Rejected, text)))
        }
    }
}

/// Ends with `None` if the time is up first.
async fn within<T>(
    context: &NodeContext,
    limit: Duration,
    future: impl Future<Output = T>,
) -> Option<T> {
    let mut end = context.runtime.sleep(limit);
    let mut future = std::pin::pin!(future);
    poll_fn(|cx| match future.as_mut().poll(cx) {
        Poll::Ready(value) => Poll::Ready(Some(value)),
        Poll::Pending => end.as_mut().poll(cx).map(|()| None),
    })
    .await
}

/// A value that one side waits for.
#[derive(Debug)]
struct Slot<T>(Mutex<(Option<T>, Option<Waker>)>);

impl<T> Default for Slot<T> {
    fn default() -> Self {
        Self(Mutex::new((None, None)))
    }
}

impl<T> Slot<T> {
    /// The first value counts.
    fn put(&self, value: T) {
        let mut slot = locked(&self.0);
        slot.0.get_or_insert(value);
        let waker = slot.1.take();
        drop(slot);
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    async fn taken(&self) -> T {
        poll_fn(|cx| {
            let mut slot = locked(&self.0);
            match slot.0.take() {
                Some(value) => Poll::Ready(value),
                None => {
                    slot.1 = Some(cx.waker().clone());
                    Poll::Pending
                }
            }
        })
        .await
    }
}

#[derive(Debug, Clone, Copy)]
enum TrialStep {
    Acquire,
    Extend,
    Inspect,
    Wait,
    Release,
}

#[derive(Debug)]
struct Question {
    name: Name,
    sent: Moment,
    wall_us: u64,
    proposal: Option<Proposal>,
    token: Token,
    step: TrialStep,
    ttl: Duration,
    client: ClientId,
    secret: Secret,
    answer: Slot<Answer>,
}

impl Round for Question {
    fn request(&self, _node: usize) -> Request<'_> {
        let (token, ttl) = (&self.token, self.ttl);
        let verb = match self.step {
            TrialStep::Acquire => Verb::Acquire { token, ttl, proposal: self.proposal },
            TrialStep::Extend => {
                Verb::Extend { token, ttl, restore: Restore::Never, participant: None }
            }
            TrialStep::Inspect => Verb::Inspect,
            TrialStep::Wait => {
                let (client, secret, ticket_no) = (self.client, self.secret, TicketNumber::New(1));
                let ticket = Ticket {
                    client,
                    waiter: 1,
                    secret,
                    ticket_no,
                    sent: self.sent,
                    keep: quorlock_protocol::ticket_kept(ttl),
                };
                Verb::Wait { token, ttl, ticket, yielding: false, proposal: self.proposal }
            }
            TrialStep::Release => {
                let until = Some(self.sent.after(ttl));
                Verb::Release { token, until, next: 0, queued: false, participant: None }
            }
        };
        Request { name: &self.name, sent: self.sent, wall_us: self.wall_us, verb }
    }

    fn cast(self: Arc<Self>, _node: usize, answer: Answer) {
        self.answer.put(answer);
    }

    fn overdue(self: Arc<Self>, _node: usize, why: Failure) {
        self.answer.put(Answer::Failed(why));
    }
}

/// Hears of the grant.
#[derive(Debug)]
struct GrantListener {
    secret: Secret,
    granted: Slot<()>,
}

impl GrantListener {
    fn new(secret: Secret) -> Self {
        Self { secret, granted: Slot::default() }
    }

    async fn heard(&self) {
        self.granted.taken().await;
    }
}

impl Inbox for GrantListener {
    fn granted(&self, _node: usize, grant: Grant) {
        if grant.secret == self.secret {
            self.granted.put(());
        }
    }

    fn interrupted(&self, _node: usize) {}

    fn unsettled(&self, _node: usize) {}

    fn session_ended(&self, _node: usize) {}
}
