//! A waiter in the queues of all nodes.

use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use super::{Claim, Defeated, LocalTurn, Origin, ReleaseRound, Won, refusals::Refusals};
use crate::core::{Core, Stamp};
use crate::lock_options::LockOptions;
use crate::name::Name;
use crate::node::{
    Answer, Failure, FailureKind, Grant, Proposal, Queued, Request, Round, Ticket, TicketNumber,
    Verb,
};
use crate::runtime::random_u64;
use crate::token::Token;
use crate::waitable::{StoredWaker, Waitable, WaitableGuard};
use crate::waiters::Gone;
use crate::watchdog::{Alarm, WheelSlot};
use quorlock_protocol::{
    Defeat, HolderFence, Moment, NodeSet, QueuePlace, Queueing, Step, Terms, rest_in_quarantine,
    ticket_kept,
};

/// When nothing is left on a node of a ticket that outlives its client: neither the ticket, nor the record that it may
/// have been granted in its last moment.
pub(super) fn ticket_gone_after(ttl: Duration) -> Duration {
    ticket_kept(ttl).saturating_add(ttl)
}

/// A ticket waits no longer than this for the release before it.
const LATEST_TICKET: Duration = Duration::from_millis(2);
/// How long to ask nothing while some nodes cast no vote, and others that are missing would be enough.
const REST_FOR_OTHERS: Duration = Duration::from_secs(1);
/// Nodes that agree send a grant message well within this, unless one of them hangs.
const LOOK_SOON: Duration = Duration::from_millis(50);
/// The shortest time between two looks at a record that is about to end.
const SHORTEST_REST: Duration = Duration::from_millis(1);

/// Stands in the queue of each node until a majority has granted it, for as long as somebody wants
/// it. Then it is polled for the claim, or asked to [`leave`](Self::leave).
#[derive(Debug)]
pub(crate) struct WaitRound {
    core: Arc<Core>,
    name: Name,
    ttl_ns: u64,
    least_ns: u64,
    slot: WheelSlot,
    state: Waitable<State>,
}

/// What nodes know a waiter by. Another one once it is given back: a release may run late, or twice, and must
/// then find nothing that counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Identity {
    token: Token,
    /// What a grant message names it by.
    waiter: u64,
}

#[derive(Debug)]
struct State {
    identity: Identity,
    queueing: Queueing,
    phase: Phase,
    /// Some nodes have not been asked yet: what they will answer has to be waited for, and a
    /// release now would overtake the requests to them.
    asking: bool,
    /// It has left, and is to be released once all of them were asked.
    left: bool,
    /// Whether a grant left others waiting.
    others: bool,
    /// How often it was asked again without need. The pauses grow no longer well before the end of it.
    retries: u8,
    /// How many of this process may have it one after another, and for how many there are fences. Here, where
    /// they take no room.
    turns: u16,
    /// The lowest fence that it has asked for: no node grants it with a lower one.
    proposed: u64,
    block: u16,
    refusals: Refusals,
}

#[derive(Debug, PartialEq, Eq)]
enum Phase {
    Waiting {
        /// When to look again, at the latest, after grant messages of some nodes and not of others.
        soon: Moment,
    },
    /// Until when, and its fence. Boxed, since this is soon over, and standing is not.
    Won(Box<(Moment, HolderFence)>),
    /// The name is in use for something else.
    Hopeless,
    /// It has become a claim, or has left.
    Over,
    /// It was won, and nobody came for it before its time was over: it has left, and its place in front of the line
    /// went to the next.
    Missed,
}

impl Phase {
    /// With no reason to look again.
    const WAITING: Self = Self::Waiting { soon: Moment::MAX };

    const fn is_waiting(&self) -> bool {
        matches!(self, Self::Waiting { .. })
    }
}

impl WaitRound {
    /// Takes a ticket on every node.
    pub(crate) fn start(core: &Arc<Core>, name: Name, options: LockOptions) -> Arc<Self> {
        let wait = Self::new(core, name, options);
        wait.look();
        wait
    }

    /// Takes a ticket on every node once a release of the same name is decided.
    ///
    /// If they came to a node together, it would see to the ticket before its grant message goes out to who has
    /// the lock now. A round trip later the ticket is in time: nobody can have done with the lock before.
    /// But who is far away does not wait for its answers, while others go round.
    pub(crate) fn start_behind(release: &ReleaseRound, options: LockOptions) -> Arc<Self> {
        let core = &release.core;
        let wait = Self::new(core, release.name.clone(), options);
        wait.look_within(LATEST_TICKET, &mut wait.state.lock().phase);
        if let Some(wait) = release.follow(Arc::clone(&wait)) {
            wait.follows();
        }
        wait
    }

    /// The release before it is decided.
    pub(super) fn follows(self: &Arc<Self>) {
        let waits = {
            let state = self.state.lock();
            let waits = !state.queueing.has_asked() && state.phase.is_waiting();
            if waits {
                self.core.watchdog.clear(&**self);
            }
            waits
        };
        if waits {
            self.look();
        }
    }

    fn new(core: &Arc<Core>, name: Name, options: LockOptions) -> Arc<Self> {
        let turns = options.turns(core.settings.local_turns);
        // The same for all nodes and requests: they may grant it by any of them.
        let block = core.proposal(core.wall_us(), turns).map_or(turns, |proposal| proposal.block);
        core.waiters.admit(|waiter| Self {
            core: Arc::clone(core),
            name,
            ttl_ns: nanos(options.ttl),
            least_ns: nanos(options.least),
            slot: WheelSlot::default(),
            state: Waitable::new(State {
                identity: Identity { token: Token::owned(&*core.runtime, options.owner), waiter },
                queueing: Queueing::new(core.quorum),
                phase: Phase::WAITING,
                asking: false,
                left: false,
                others: false,
                retries: 0,
                turns,
                block,
                proposed: u64::MAX,
                refusals: Refusals::default(),
            }),
        })
    }

    /// Ready with the claim once a majority has granted it, or with nothing if none ever will,
    /// since the name is in use for something else. Not to be asked again after that.
    ///
    /// `options` is what the caller wants it for, and must be one that it [serves](Self::serves).
    pub(crate) fn poll(
        self: &Arc<Self>,
        options: &LockOptions,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Arc<Claim>>> {
        let mut state = self.state.lock();
        match &state.phase {
            Phase::Won(won) if self.core.now() < won.0.before(self.least()) => {
                let ((valid_until, fence), turns) = (**won, state.block);
                let token = state.identity.token;
                state.phase = Phase::Over;
                let non_voting = self.core.non_voting(state.refusals.failures());
                let origin =
                    Origin::Queued { others: state.others, backing: state.queueing.backing() };
                drop(state);
                non_voting.log(&self.core);
                self.end();
                let won = Won { origin, valid_until, fence, turns };
                let name = self.name.clone();
                Poll::Ready(Some(Claim::new(&self.core, name, token, *options, won)))
            }
            Phase::Won(_) => {
                // Nobody came for it in time.
                state.phase = Phase::WAITING;
                let pending = state.pending(cx);
                drop(state);
                self.look();
                pending
            }
            Phase::Hopeless => Poll::Ready(None),
            Phase::Missed => {
                // This moment: the next look finds it.
                cx.waker().wake_by_ref();
                Poll::Pending
            }
            Phase::Waiting { .. } | Phase::Over => state.pending(cx),
        }
    }

    /// Nobody wants it any more: leaves every queue, and gives back what was granted.
    pub(crate) fn leave(&self) {
        let release = {
            let mut state = self.state.lock();
            if matches!(state.phase, Phase::Over | Phase::Missed) {
                return;
            }
            state.phase = Phase::Over;
            state.left = true;
            // What was never asked for is not to be given back.
            state.queueing.has_asked() && !state.asking
        };
        self.end();
        if release {
            self.release(self.identity());
        }
    }

    fn identity(&self) -> Identity {
        self.state.lock().identity
    }

    /// Gives everything back that nodes know by this, for good.
    fn release(&self, Identity { token, waiter }: Identity) {
        let (now, expires_after) = (self.core.now(), ticket_gone_after(self.ttl()));
        let gone = Gone { waiter, name: self.name.clone(), token, expires_after };
        self.core.waiters.left(gone, now);
        let (name, all) = (self.name.clone(), NodeSet::first(self.core.nodes.len()));
        ReleaseRound::new(&self.core, name, (token, None), all, true, expires_after).send();
    }

    /// Goes on as somebody else, at the same place in the queues. Returns what is to be given back, and which nodes to
    /// ask.
    fn start_over(&self, state: &mut State) -> (Identity, NodeSet) {
        let Identity { token, waiter } = state.identity;
        let others = state.queueing.start_over();
        state.refusals = Refusals::default();
        let token = Token::owned(&*self.core.runtime, token.owner());
        let waiter = self.core.waiters.new_id(waiter);
        (std::mem::replace(&mut state.identity, Identity { token, waiter }), others)
    }

    /// How it stands, for a caller that gives up.
    pub(crate) fn defeated(&self) -> Defeated {
        self.defeated_by(&self.state.lock())
    }

    fn defeated_by(&self, state: &State) -> Defeated {
        let (granted, refused) = (state.queueing.votes(), state.queueing.refusals());
        let taken = refused >= self.core.quorum.too_many()
            || granted + refused >= self.core.quorum.enough()
            || state.phase == Phase::Hopeless;
        Defeated {
            defeat: if taken { Defeat::Taken } else { Defeat::Unreachable },
            granted,
            answers: state.refusals.answers(&self.core),
        }
    }

    /// `node` has sent a grant message, with the secret of the request that it names.
    pub(crate) fn notified(self: &Arc<Self>, node: usize, grant: Grant) {
        {
            let mut state = self.state.lock();
            if !state.phase.is_waiting() {
                return;
            }
            let wall_us = self.core.wall_us();
            if !self.core.believes(node, wall_us, grant.fence) {
                state.refusals.timed_out(node, Failure::fence(grant.fence, wall_us));
                self.look_soon(&mut state.phase);
                return;
            }
            if grant.fence < state.proposed
                || !state.queueing.notified(node, grant.sent, grant.fence)
            {
                // It is the node's own, and the record there may be ours by a request from before.
                self.look_soon(&mut state.phase);
                let node = self.core.label(node);
                tracing::debug!(node, "a message of a grant that cannot be, or counts already");
                return;
            }
            state.others |= grant.others;
            state.refusals.forget(node);
            let taken = state.queueing.is_taken(self.core.now());
            if state.queueing.votes() < self.core.quorum.enough() && !taken {
                // The other nodes should send theirs at any moment. If they do not, others have got
                // there first.
                self.look_soon(&mut state.phase);
                return;
            }
        }
        self.proceed();
    }

    /// A grant message from `node` may have got lost.
    pub(crate) fn interrupted(self: &Arc<Self>, node: usize) {
        let mut nodes = NodeSet::EMPTY;
        nodes.insert(node);
        if self.ask(nodes, false) {
            self.proceed();
        } else {
            self.look_soon(&mut self.state.lock().phase);
        }
    }

    /// Looks when the nodes have had the time to answer, unless it is to look before that anyway.
    ///
    /// Alarms are set and cleared under the mutex of the state that they follow from: of two, the one
    /// that knows more comes last, and none comes after the end.
    fn look_soon(self: &Arc<Self>, phase: &mut Phase) {
        self.look_within(LOOK_SOON.min(self.core.settings.node_limit), phase);
    }

    fn look_within(self: &Arc<Self>, time: Duration, phase: &mut Phase) {
        let Phase::Waiting { soon } = phase else { return };
        let now = self.core.now();
        *soon = now.after(time).min(*soon);
        self.core.watchdog.set(*soon, now, Arc::clone(self) as Arc<dyn Alarm>);
    }

    /// Asks all nodes how it stands.
    fn look(self: &Arc<Self>) {
        if self.ask(NodeSet::first(self.core.nodes.len()), false) {
            self.proceed();
        }
    }

    /// Returns whether it was the time to ask: `false` if it is over, or being done.
    fn ask(self: &Arc<Self>, nodes: NodeSet, yielding: bool) -> bool {
        let ask = {
            let mut state = self.state.lock();
            if state.asking || !state.phase.is_waiting() {
                return false;
            }
            state.asking = true;
            if !yielding && nodes.len() == self.core.nodes.len() {
                state.phase = Phase::WAITING;
            }
            let ticket_no = state.queueing.ticket_no();
            let (stamp, now) = self.core.clock.stamp();
            let wall_us = stamp.wall_us;
            let sent = state.queueing.ask(nodes, yielding, now);
            // By the time of day, so that all nodes sort alike. Each of them puts a new one behind
            // those that are there, whatever the time of day is thought to be.
            let ticket_no = ticket_no.map_or(TicketNumber::New(wall_us), TicketNumber::Agreed);
            let least = self.core.next_fence(wall_us);
            let proposal = (least > 0).then_some(Proposal { least, block: state.block });
            state.proposed = state.proposed.min(proposal.map_or(0, Proposal::last));
            let (wait, identity) = (Arc::clone(self), state.identity);
            Arc::new(Ask { wait, identity, stamp, sent, ticket_no, yielding, proposal })
        };
        self.core.ask(&ask, nodes);
        let left = {
            let mut state = self.state.lock();
            state.asking = false;
            state.left
        };
        if left {
            self.release(ask.identity);
        }
        true
    }

    /// Does what is to be done by the rules, until there is nothing to do but wait.
    fn proceed(self: &Arc<Self>) {
        loop {
            let now = self.core.now();
            let mut state = self.state.lock();
            let Phase::Waiting { soon } = state.phase else { return };
            if state.asking {
                return;
            }
            let step = state.queueing.step(&self.terms(), self.least(), now);
            let at = match step {
                Step::Won { valid_until, fence } => {
                    return self.decided(state, Phase::Won(Box::new((valid_until, fence))));
                }
                _ if state.refusals.is_hopeless(&self.core) => {
                    return self.decided(state, Phase::Hopeless);
                }
                Step::GiveBack => {
                    let (before, others) = self.start_over(&mut state);
                    drop(state);
                    self.release(before);
                    if !self.ask(others, false) {
                        return;
                    }
                    continue;
                }
                Step::Ask { nodes, yielding } => {
                    drop(state);
                    if !self.ask(nodes, yielding) {
                        return;
                    }
                    continue;
                }
                Step::Pending => return,
                Step::Until(at) => at,
                Step::Poll => now.after(self.retry_delay(&mut state, Defeat::Taken)),
                Step::Unreachable => now.after(self.rest_without_votes(&mut state, now)),
            };
            let at = soon.min(at).max(now.after(SHORTEST_REST));
            self.core.watchdog.set(at, now, Arc::clone(self) as Arc<dyn Alarm>);
            if matches!(step, Step::Unreachable) {
                let non_voting = self.core.non_voting(state.refusals.failures());
                let defeated = self.defeated_by(&state);
                // A caller that has less time than that need not wait.
                let late = state.refusals.votes_from() > now;
                let waker = if late { state.take_waker() } else { StoredWaker::default() };
                drop(state);
                non_voting.log_wait(|| defeated.without_votes(&self.core, &self.name));
                waker.wake();
            }
            return;
        }
    }

    /// Nothing is to be done any more but to come for it.
    fn decided(self: &Arc<Self>, mut state: WaitableGuard<'_, State>, phase: Phase) {
        if let Phase::Won(won) = &phase {
            let alarm = Arc::clone(self) as Arc<dyn Alarm>;
            self.core.watchdog.set(won.0, self.core.now(), alarm);
        } else {
            self.core.watchdog.clear(&**self);
        }
        state.phase = phase;
        state.unlock_and_wake();
    }

    /// How long to ask nothing while too few nodes vote: for as long as they have said, if it is that.
    fn rest_without_votes(&self, state: &mut State, now: Moment) -> Duration {
        let Some(left) = state.refusals.votes_in(self.core.quorum) else {
            return self.retry_delay(state, Defeat::Unreachable);
        };
        state.refusals.expect_votes(now.after(left));
        let mut failures = state.refusals.failures().map(|(_, failure)| failure.kind());
        if left.is_zero() && failures.any(|kind| kind.quarantine().is_none()) {
            // Those that cannot be reached say so when they can. One that is silent does not.
            return REST_FOR_OTHERS;
        }
        rest_in_quarantine(left)
    }

    /// For how long no majority votes, by what the nodes have said.
    pub(crate) fn votes_in(&self) -> Duration {
        self.state.lock().refusals.votes_from().since(self.core.now())
    }

    /// Something was done for the nodes to vote: asks those again that did not.
    pub(crate) fn votes_may_be_had(self: &Arc<Self>) {
        if self.state.lock().refusals.votes_in(self.core.quorum).is_some() {
            self.look();
        }
    }

    fn retry_delay(&self, state: &mut State, defeat: Defeat) -> Duration {
        state.retries = state.retries.saturating_add(1);
        let random = random_u64(&*self.core.runtime);
        self.core.settings.retry.delay(state.retries.into(), Duration::ZERO, defeat, random)
    }

    fn heard(self: &Arc<Self>, node: usize, ask: &Ask, answer: Answer) {
        {
            let (now, sent) = (self.core.now(), ask.sent);
            let mut state = self.state.lock();
            if state.identity != ask.identity {
                return;
            }
            state.queueing.answered(node);
            let is_lost =
                matches!(&answer, Answer::Failed(why) if why.kind() == FailureKind::Broken);
            if ask.yielding && !is_lost {
                state.queueing.offer_answered(node);
            }
            match answer {
                Answer::Granted { fence } => {
                    self.core.warned.votes(node);
                    state.refusals.forget(node);
                    state.queueing.granted(node, sent, fence);
                }
                Answer::Queued(queued) => {
                    let Queued { ticket_no, record, will_notify } = *queued;
                    // One that was passed on this moment lasts as long as ours would.
                    let remaining = record.map_or(Some(self.ttl()), |record| record.remaining);
                    let free_at = remaining.map(|remaining| now.after(remaining));
                    // A holder that another library serves sends no message of its release: only an engine whose own
                    // order it keeps to tells of that.
                    let will_notify = will_notify
                        && (self.core.settings.own_order
                            || record.is_none_or(|record| record.token.is_some()));
                    // Not kept as an answer: there may be many waiters, and this is what they expect.
                    state.refusals.forget(node);
                    let holder = record.and_then(|record| record.holder.digest());
                    state.queueing.queued(
                        node,
                        sent,
                        QueuePlace { ticket_no, free_at, will_notify, holder },
                    );
                }
                Answer::Done
                | Answer::LeftToOthers
                | Answer::Refused
                | Answer::Seen(_)
                | Answer::Listed(_)
                | Answer::Marker(_) => {
                    state.queueing.missed(node);
                }
                Answer::Failed(why) => {
                    state.refusals.timed_out(node, why);
                    state.queueing.missed(node);
                }
            }
        }
        self.proceed();
    }

    fn missed(self: &Arc<Self>, node: usize, ask: &Ask, why: Failure) {
        {
            let mut state = self.state.lock();
            if state.identity != ask.identity {
                return;
            }
            state.refusals.timed_out(node, why);
            state.queueing.missed(node);
        }
        self.proceed();
    }

    /// Whether it was won, and nobody has come for it in time. Then nobody gets it any more.
    fn is_overdue(&self, now: Moment) -> bool {
        let mut state = self.state.lock();
        let overdue = matches!(&state.phase, Phase::Won(won) if now >= won.0);
        if overdue {
            state.phase = Phase::Missed;
        }
        overdue
    }

    /// Whether nobody came for it in time, so that it has left.
    pub(crate) fn is_missed(&self) -> bool {
        self.state.lock().phase == Phase::Missed
    }

    /// It stands in no queue any longer, or nobody cares.
    fn end(&self) {
        self.core.watchdog.clear(self);
        self.core.waiters.dismiss(self.waiter());
    }

    pub(crate) fn is_for(&self, name: &Name) -> bool {
        self.name == *name
    }

    pub(crate) fn waiter(&self) -> u64 {
        self.identity().waiter
    }

    #[cfg(test)]
    pub(crate) fn token(&self) -> Token {
        self.identity().token
    }

    /// Whether it is the right one for somebody else of this process.
    pub(crate) fn serves(&self, options: &LockOptions) -> bool {
        let LockOptions { ttl, least, owner, .. } = *options;
        let turns = options.turns(self.core.settings.local_turns);
        let state = self.state.lock();
        ttl == self.ttl()
            && least == self.least()
            && owner == state.identity.token.owner()
            && turns == state.turns
    }

    fn ttl(&self) -> Duration {
        Duration::from_nanos(self.ttl_ns)
    }

    fn least(&self) -> Duration {
        Duration::from_nanos(self.least_ns)
    }

    fn terms(&self) -> Terms {
        self.core.terms(self.ttl())
    }
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

impl Alarm for WaitRound {
    fn slot(&self) -> &WheelSlot {
        &self.slot
    }

    /// It asks again for what it had there, as after any interruption.
    fn session_ended(&self, _node: usize) {}

    fn ring(self: Arc<Self>, now: Moment) -> Option<Moment> {
        if self.is_overdue(now) {
            self.end();
            self.release(self.identity());
            // A waiter behind does not wait for one that never comes.
            self.core.pass_on(&self.name, LocalTurn::Front(None));
        } else {
            self.look();
        }
        None
    }
}

/// One asking of some nodes.
#[derive(Debug)]
struct Ask {
    wait: Arc<WaitRound>,
    identity: Identity,
    stamp: Stamp,
    /// What a lease that comes of it counts from.
    sent: Moment,
    ticket_no: TicketNumber,
    yielding: bool,
    proposal: Option<Proposal>,
}

impl Round for Ask {
    fn request(&self, node: usize) -> Request<'_> {
        let WaitRound { core, name, .. } = &*self.wait;
        let Self { stamp: Stamp { sent, wall_us }, ticket_no, yielding, proposal, .. } = *self;
        let Identity { token, waiter } = &self.identity;
        let secret = core.secrets.of(node, *waiter, self.sent);
        let (client, waiter) = (core.client, *waiter);
        let ticket = Ticket {
            client,
            waiter,
            secret,
            ticket_no,
            sent: self.sent,
            keep: ticket_kept(self.wait.ttl()),
        };
        let ttl = self.wait.ttl();
        let verb = Verb::Wait { token, ttl, ticket, yielding, proposal };
        Request { name, sent, wall_us, verb }
    }

    fn cast(self: Arc<Self>, node: usize, answer: Answer) {
        let answer = self.wait.core.heard(node, self.stamp.wall_us, answer);
        self.wait.heard(node, &self, answer);
    }

    fn overdue(self: Arc<Self>, node: usize, why: Failure) {
        self.wait.missed(node, &self, why);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// There may be many of them.
    #[test]
    fn a_waiter_is_small() {
        assert!(size_of::<WaitRound>() <= 216, "{}", size_of::<WaitRound>());
    }
}
