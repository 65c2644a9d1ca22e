//! What is held of a name.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::Notify;

use super::doubt::Doubt;
use super::nature::Nature;
use super::{ExtendRound, ReleaseRound, SetNoteRound};
use crate::core::{Core, Stamp};
use crate::error::{Error, Loss, NodeAnswers};
use crate::lease_clock::Deadline;
use crate::line::{LocalTurn, Passed};
use crate::lock_options::LockOptions;
use crate::locked::locked;
use crate::name::Name;
use crate::node::ParticipantId;
use crate::note::Note;
use crate::token::Token;
use crate::watchdog::{Alarm, WheelSlot};
use quorlock_protocol::{
    Caps, Duty, ExtendOutcome, HolderFence, Lease, LeaseState, Moment, NodeSet, Turns, Vote,
};

/// One token's claim on one name, from the majority that granted it to its release.
///
/// It may change hands inside of the process. While it is held, the watchdog extends it.
#[derive(Debug)]
pub(crate) struct Claim {
    pub(crate) core: Arc<Core>,
    pub(crate) name: Name,
    pub(crate) token: Token,
    ttl_ns: u64,
    /// How many TTLs its records and tickets last without a word from us.
    expires_after_ttls: u8,
    nature: Nature,
    /// Whether it keeps others of this process waiting.
    in_line: AtomicBool,
    /// Whether somebody has it in hands. Until then it is not extended: whoever asked for it may never come.
    taken: AtomicBool,
    /// The guards of the present turn.
    guards: AtomicU32,
    slot: WheelSlot,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    lease: Lease,
    /// The nodes on which a record or a ticket of it can be, now or later.
    on: NodeSet,
    /// The nodes that the present end of the lease stands on: they have given their word. None if nothing is known of it.
    backing: NodeSet,
    /// Their word was given to the extension that was sent then; at the beginning of the clock there was none.
    backed: Moment,
    /// The fence of the present holder.
    fence: u64,
    turns: Turns,
    /// When the last extension was sent; at the beginning of the clock if none was.
    tried: Moment,
    /// The watchdog is asking the nodes to extend it: a release now would overtake the requests to
    /// the rest.
    renewing: bool,
    /// By how much its extensions come earlier, so that those of many are not all made at once.
    lot: u8,
    rare: Option<Box<Rare>>,
}

/// What few claims need.
#[derive(Debug, Default)]
struct Rare {
    /// Told of a loss, once somebody wants to know.
    loss: Option<Arc<Notify>>,
    /// The release that waits until all nodes have been asked to extend it.
    release: Option<Arc<ReleaseRound>>,
    /// What the holder says of itself, as it lies on the nodes.
    note: Option<Arc<str>>,
    /// Who this is beside the maker, if another process is that.
    participant: Option<ParticipantId>,
    /// What people were last told of it not being extended.
    doubt: Option<Doubt>,
}

impl State {
    fn loss(&self) -> Option<&Arc<Notify>> {
        self.rare.as_ref()?.loss.as_ref()
    }
}

/// What an extension begins with.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Extending {
    /// When it is sent, for the nodes.
    pub(crate) stamp: Stamp,
    /// What a lease that comes of it counts from.
    pub(crate) since: Moment,
    /// When the present lease ends, and what that stands on.
    pub(crate) deadline: Moment,
    pub(crate) backing: NodeSet,
    /// Since the extension that was sent then; the beginning of the clock if there was none.
    pub(crate) backed: Moment,
}

/// How a claim came about.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Origin {
    /// By one question to the nodes.
    Asked {
        /// A record of it can be on these.
        on: NodeSet,
        /// It stands on these.
        backing: NodeSet,
    },
    /// In the queues of the nodes.
    Queued {
        /// Whether others were left there.
        others: bool,
        /// For how many TTLs tickets of it may be left.
        expires_after_ttls: u8,
        /// It stands on these.
        backing: NodeSet,
    },
    /// By another process, for the same owner.
    Borrowed,
    /// By another process, which has handed it over.
    Resumed,
}

/// What was won.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Won {
    pub(crate) origin: Origin,
    pub(crate) valid_until: Moment,
    pub(crate) fence: HolderFence,
    /// How many holders of this process may have it in a row: so many fences are reserved.
    pub(crate) turns: u16,
}

/// Records and tickets of a claim that was handed over may last for so many TTLs at least.
const RESUMED_EXPIRES_AFTER_TTLS: u8 = 4;

impl Won {
    /// A claim of another process, of which nothing is known yet.
    fn elsewhere(core: &Core, origin: Origin, ttl: Duration) -> Self {
        let valid_until = core.terms(ttl).valid_until(core.now());
        // Of those from elsewhere it is not known how many fences are theirs.
        Self { origin, valid_until, fence: HolderFence::default(), turns: 1 }
    }
}

impl Claim {
    /// A claim that was won. Its fence may still have to be confirmed.
    pub(crate) fn new(
        core: &Arc<Core>,
        name: Name,
        token: Token,
        options: LockOptions,
        won: Won,
    ) -> Arc<Self> {
        let LockOptions { ttl, keep, noted, .. } = options;
        let Won { origin, valid_until, fence, turns } = won;
        let all = NodeSet::first(core.nodes.len());
        let (on, expires_after_ttls, others, backing) = match origin {
            Origin::Asked { on, backing } => (on, 1, false, backing),
            Origin::Queued { others, expires_after_ttls, backing } => {
                (all, expires_after_ttls, others, backing)
            }
            Origin::Borrowed => (all, 1, false, NodeSet::EMPTY),
            // Who took it may have used another TTL.
            Origin::Resumed => {
                let ttls = core.settings.max_ttl.as_nanos().div_ceil(ttl.as_nanos().max(1));
                let expires_after_ttls =
                    u8::try_from(ttls).unwrap_or(u8::MAX).max(RESUMED_EXPIRES_AFTER_TTLS);
                (all, expires_after_ttls, false, NodeSet::EMPTY)
            }
        };
        let borrowed = matches!(origin, Origin::Borrowed);
        let elsewhere = matches!(origin, Origin::Borrowed | Origin::Resumed);
        core.note_fence(fence.last);
        let now = core.now();
        let caps = Caps::new(keep.max_extensions, keep.max_hold, now);
        let lease = Lease::capped_by(caps, valid_until);
        let first = core.upkeep(ttl, keep.renew).first_look(&lease);
        let claim = Arc::new(Self {
            core: Arc::clone(core),
            name,
            token,
            ttl_ns: u64::try_from(ttl.as_nanos()).unwrap_or(u64::MAX),
            expires_after_ttls,
            nature: Nature::of([
                (Nature::AGREED, fence.agreed),
                (Nature::BORROWED, borrowed),
                (Nature::RENEWED, keep.renew),
                (Nature::WANTED, others),
                (Nature::PASSABLE, options.is_plain() && !elsewhere),
                (Nature::NOTED, noted && !borrowed),
            ]),
            in_line: AtomicBool::new(false),
            taken: AtomicBool::new(false),
            guards: AtomicU32::new(1),
            slot: WheelSlot::default(),
            state: Mutex::new(State {
                lease,
                on,
                backing,
                backed: Moment::default(),
                fence: fence.last.saturating_sub(u64::from(turns.saturating_sub(1))),
                turns: Turns::first_of(turns),
                tried: Moment::default(),
                renewing: false,
                lot: core.next_lot(),
                rare: None,
            }),
        });
        core.watchdog.set(first, now, Arc::clone(&claim) as Arc<dyn Alarm>);
        claim
    }

    /// A part in a claim that another process has taken for the same owner. It is worth something only
    /// once it was extended: from then on the nodes count this process as well.
    pub(crate) fn borrowed(
        core: &Arc<Core>,
        name: Name,
        token: Token,
        options: LockOptions,
    ) -> Arc<Self> {
        let won = Won::elsewhere(core, Origin::Borrowed, options.ttl);
        let claim = Self::new(core, name, token, options, won);
        let participant = Some(ParticipantId::random(&*core.runtime));
        locked(&claim.state).rare.get_or_insert_default().participant = participant;
        claim
    }

    /// Who this is on the nodes beside the maker; `None` for the maker itself.
    pub(crate) fn participant(&self) -> Option<ParticipantId> {
        if !self.nature.is(Nature::BORROWED) {
            return None;
        }
        locked(&self.state).rare.as_ref().and_then(|rare| rare.participant)
    }

    /// A claim that another process has taken and handed over, with the note that it has. It is
    /// worth something only once it was extended. It stands in no line.
    pub(crate) fn resumed(
        core: &Arc<Core>,
        name: Name,
        token: Token,
        note: Option<&Note>,
    ) -> Arc<Self> {
        let (ttl, keep) = (core.settings.ttl, core.settings.keep());
        let owner = token.owner();
        let options =
            LockOptions { ttl, least: Duration::ZERO, owner, keep, noted: note.is_some() };
        let won = Won::elsewhere(core, Origin::Resumed, ttl);
        let claim = Self::new(core, name, token, options, won);
        if let Some(note) = note {
            claim.set_note(note);
        }
        claim
    }

    pub(crate) fn set_note(&self, note: &Note) {
        if self.nature.is(Nature::NOTED) {
            locked(&self.state).rare.get_or_insert_default().note = Some(note.stored().into());
        }
    }

    /// Tells the nodes what the holder says of itself, if it does.
    pub(crate) fn send_note(&self) {
        if !self.nature.is(Nature::NOTED) {
            return;
        }
        // Nodes must not be asked under this mutex: they have their own.
        let note = locked(&self.state).rare.as_ref().and_then(|rare| rare.note.clone());
        if let Some(note) = note {
            SetNoteRound::send(self, note);
        }
    }

    /// Leaves it to whoever is told the token: the nodes keep it for the rest of its time.
    pub(crate) fn into_token(self: Arc<Self>) -> Result<Token, Error> {
        if let LeaseState::Lost(reason) = self.with_lease(Lease::state) {
            return Err(Error::Lost { name: self.name.clone(), reason: reason.into() });
        }
        let shared = |problem: &str, remedy: &str| {
            Err(Error::misuse(format!("the lock {} {problem}", self.name), remedy))
        };
        if self.nature.is(Nature::BORROWED) {
            return shared("belongs to another process", "keep it there");
        }
        if self.guards.compare_exchange(1, 0, Ordering::AcqRel, Ordering::Acquire).is_err() {
            return shared("is held by other guards of its owner", "release those first");
        }
        self.forget();
        Ok(self.token)
    }

    /// Ends it for this process without a word to the nodes: nothing is extended from now on.
    pub(crate) fn forget(&self) {
        let loss_signal = {
            let mut state = locked(&self.state);
            state.lease.released();
            state.loss().cloned()
        };
        self.core.watchdog.clear(self);
        self.tell_loss(loss_signal);
    }

    pub(crate) fn ttl(&self) -> Duration {
        Duration::from_nanos(self.ttl_ns)
    }

    /// Counts another guard of its owner; `false` if there is none left to share it with.
    pub(crate) fn enter_again(&self) -> bool {
        let more = |guards: u32| (guards > 0).then(|| guards + 1);
        !self.is_lost()
            && self.guards.fetch_update(Ordering::AcqRel, Ordering::Acquire, more).is_ok()
    }

    /// One guard has gone. With the last one the claim goes to the next in line, or back to the
    /// nodes. `None` if there are others.
    pub(crate) fn let_go(self: &Arc<Self>) -> Option<Passed> {
        if self.guards.fetch_sub(1, Ordering::AcqRel) > 1 {
            return None;
        }
        Some(if self.in_line.swap(false, Ordering::AcqRel) {
            self.core.pass_on(&self.name, LocalTurn::Held(Arc::clone(self)))
        } else {
            self.give_back()
        })
    }

    /// Gives it back to the nodes: nothing is extended from now on.
    pub(crate) fn give_back(&self) -> Passed {
        let (name, expires_after) =
            (self.name.clone(), self.ttl() * u32::from(self.expires_after_ttls));
        // Only tickets outlive a record.
        let queued = self.expires_after_ttls > 1;
        let who = (self.token, self.participant());
        let (round, loss_signal, send) = {
            let mut state = locked(&self.state);
            // No extension begins after this, so that none stores a record where nobody releases it.
            state.lease.released();
            let round = ReleaseRound::new(&self.core, name, who, state.on, queued, expires_after);
            if state.renewing {
                state.rare.get_or_insert_default().release = Some(Arc::clone(&round));
            }
            (round, state.loss().cloned(), !state.renewing)
        };
        self.in_line.store(false, Ordering::Release);
        self.core.watchdog.clear(self);
        if send {
            self.send_release(&round);
        }
        if let Some(loss_signal) = loss_signal {
            loss_signal.notify_waiters();
        }
        Passed::Freed(round)
    }

    /// Prepares it for the next holder of this process, unless it is of no use to that one.
    pub(crate) fn next_turn(&self, options: &LockOptions) -> bool {
        let LockOptions { ttl, least, .. } = *options;
        if !self.nature.is(Nature::PASSABLE) || !options.is_plain() || ttl != self.ttl() {
            return false;
        }
        let enough = least.max(self.core.terms(ttl).validity() / 2);
        let now = self.core.now();
        let loss_signal = {
            let mut state = locked(&self.state);
            let Some(next) = state.turns.next() else { return false };
            if state.lease.remaining(now) <= enough {
                return false;
            }
            state.turns = next;
            if state.fence > 0 {
                state.fence += 1;
            }
            self.guards.store(1, Ordering::Release);
            self.taken.store(false, Ordering::Release);
            self.join_line();
            // Those who waited for the loss of it have released it.
            state.rare.as_mut().and_then(|rare| rare.loss.take())
        };
        if let Some(loss_signal) = loss_signal {
            loss_signal.notify_waiters();
        }
        true
    }

    /// Somebody has come for it.
    pub(crate) fn take(&self) {
        self.taken.store(true, Ordering::Release);
    }

    /// The fence of the present holder; zero if holders have none.
    pub(crate) fn fence(&self) -> u64 {
        locked(&self.state).fence
    }

    /// The last fence that is reserved for holders of this claim.
    pub(crate) fn last_fence(&self) -> u64 {
        let state = locked(&self.state);
        if state.fence == 0 { 0 } else { state.fence + u64::from(state.turns.left()) }
    }

    /// The nodes whose word the present end of the lease stands on.
    pub(crate) fn backing(&self) -> NodeSet {
        locked(&self.state).backing
    }

    /// The fence that a majority of the nodes has to confirm before it may be used.
    pub(crate) fn to_confirm(&self) -> Option<u64> {
        (!self.nature.is(Nature::AGREED)).then(|| self.last_fence())
    }

    /// A claim from elsewhere has this fence.
    pub(crate) fn set_fence(&self, fence: u64) {
        self.core.note_fence(fence);
        locked(&self.state).fence = fence;
    }

    /// The present turn, counted from zero.
    pub(crate) fn turn(&self) -> u16 {
        locked(&self.state).turns.current()
    }

    /// It begins, with so many of this process waiting for it. If others wait too, those who come
    /// later wait behind them.
    pub(crate) fn begin(&self, seats: usize) {
        self.join_line();
        if self.nature.is(Nature::WANTED) {
            let most = u16::try_from(seats + 1).unwrap_or(u16::MAX);
            locked(&self.state).turns.limit(most);
        }
    }

    pub(crate) fn is_in_line(&self) -> bool {
        self.in_line.load(Ordering::Acquire)
    }

    pub(crate) fn join_line(&self) {
        self.in_line.store(true, Ordering::Release);
    }

    /// It is lost, and keeps nobody waiting any longer.
    pub(crate) fn leave_line(&self) {
        if self.in_line.swap(false, Ordering::AcqRel) {
            self.core.pass_on(&self.name, LocalTurn::Front(None));
        }
    }

    pub(crate) fn is_lost(&self) -> bool {
        matches!(self.with_lease(Lease::state), LeaseState::Lost(_))
    }

    /// Reads or changes the lease.
    pub(crate) fn with_lease<T>(&self, change: impl FnOnce(&mut Lease, Moment) -> T) -> T {
        let now = self.core.now();
        change(&mut locked(&self.state).lease, now)
    }

    /// When it ends, unless it is extended.
    pub(crate) fn deadline(&self) -> Deadline {
        self.core.clock.deadline(|now| locked(&self.state).lease.remaining(now))
    }

    /// An extension is about to be sent. Returns what it begins with, or why there cannot be one.
    pub(crate) fn extending(&self) -> Result<Extending, Error> {
        let (stamp, now) = self.core.clock.stamp();
        let mut state = locked(&self.state);
        let lease = &mut state.lease;
        if let LeaseState::Lost(reason) = lease.state(now) {
            return Err(Error::Lost { name: self.name.clone(), reason: reason.into() });
        }
        if let Some(cap) = lease.capped() {
            let remaining = lease.remaining(now);
            return Err(Error::Capped { name: self.name.clone(), cap, remaining });
        }
        let deadline = lease.valid_until();
        state.tried = now;
        // Those that it does not stand on may be won back by this.
        state.on = NodeSet::first(self.core.nodes.len());
        Ok(Extending { stamp, since: now, deadline, backing: state.backing, backed: state.backed })
    }

    /// When it ends, and which nodes are known by now to have it since the extension that was sent then.
    pub(crate) fn stands(&self, backed: Moment) -> (Moment, NodeSet) {
        let state = locked(&self.state);
        let sure = if state.backed == backed { state.backing } else { NodeSet::EMPTY };
        (state.lease.valid_until(), sure)
    }

    /// Takes in how an extension ended that was sent then, and tells whoever waits for it if that
    /// was the end. Returns whether it became doubtful by this one that the lock can be kept.
    pub(crate) fn extended(&self, outcome: ExtendOutcome, sent: Moment, backing: NodeSet) -> bool {
        let now = self.core.now();
        let loss_signal = {
            let mut state = locked(&self.state);
            if outcome == ExtendOutcome::Unknown && state.tried > sent {
                return false;
            }
            let before = state.lease.state(now);
            let ended = state.lease.valid_until();
            state.lease.extended(outcome, now);
            // Of one from elsewhere nothing was known before, and a coarse clock may not have gone on since.
            let first =
                matches!(outcome, ExtendOutcome::Renewed { .. }) && state.backing.is_empty();
            if state.lease.valid_until() > ended || first {
                (state.backing, state.backed) = (backing, sent);
            }
            match state.lease.state(now) {
                LeaseState::Lost(_) => state.loss().cloned(),
                after => return after == LeaseState::Unknown && before != after,
            }
        };
        self.core.watchdog.clear(self);
        self.tell_loss(loss_signal);
        false
    }

    /// Whether people are to be told that it is not extended, and why: not if they were a moment ago, nor if
    /// `may_say` has something against it.
    pub(crate) fn say_doubt(
        &self,
        why: &NodeAnswers,
        now: Moment,
        may_say: impl FnOnce() -> bool,
    ) -> bool {
        let said = locked(&self.state).rare.as_ref().and_then(|rare| rare.doubt);
        let say = !said.is_some_and(|doubt| doubt.was_said(why, now)) && may_say();
        if say {
            locked(&self.state).rare.get_or_insert_default().doubt = Some(Doubt::new(why, now));
        }
        say
    }

    /// It is extended. Returns whether people were told that it is not, and do not know better yet.
    pub(crate) fn end_doubt(&self) -> bool {
        let mut state = locked(&self.state);
        state.rare.as_mut().and_then(|rare| rare.doubt.as_mut()).is_some_and(Doubt::end)
    }

    /// One more node has extended it, after it was decided: `backing` are all that have.
    pub(crate) fn backed(&self, sent: Moment, backing: NodeSet) {
        let mut state = locked(&self.state);
        if state.backed == sent {
            state.backing = state.backing.union(backing);
        }
    }

    /// One more node has answered the request by which it was won.
    pub(crate) fn heard_late(&self, node: usize, vote: Vote) {
        let mut state = locked(&self.state);
        if vote == Vote::Yes && state.backed == Moment::default() {
            state.backing.insert(node);
        }
    }

    /// Extends it for the watchdog, and sends the release that came in between after it.
    fn renew(self: &Arc<Self>) {
        // One that is refused was lost or released just now. If somebody's waker panics, a release must not
        // wait for ever.
        let renewed = catch_unwind(AssertUnwindSafe(|| drop(ExtendRound::renew(self))));
        let release = {
            let mut state = locked(&self.state);
            state.renewing = false;
            state.rare.as_mut().and_then(|rare| rare.release.take())
        };
        if let Some(release) = release {
            self.send_release(&release);
        }
        if let Err(panicked) = renewed {
            resume_unwind(panicked);
        }
    }

    /// Behind the note, which nobody could take away after it.
    fn send_release(&self, round: &Arc<ReleaseRound>) {
        if self.nature.is(Nature::NOTED) {
            SetNoteRound::send(self, "".into());
        }
        round.send();
    }

    fn tell_loss(&self, loss_signal: Option<Arc<Notify>>) {
        if let Some(loss_signal) = loss_signal {
            loss_signal.notify_waiters();
        }
        self.leave_line();
    }

    /// What is left until its holder has to be told of the loss, or why that is now.
    pub(crate) fn notice(&self) -> Result<Duration, Loss> {
        let lead = self.core.settings.loss_lead;
        match self.with_lease(|lease, now| (lease.notice(lead, now), lease.state(now))) {
            (Some(left), _) => Ok(left),
            (None, LeaseState::Lost(reason)) => Err(reason.into()),
            (None, _) => Err(Loss::Gone),
        }
    }

    /// What is told of the loss.
    pub(crate) fn loss_signal(&self) -> Arc<Notify> {
        let mut state = locked(&self.state);
        Arc::clone(state.rare.get_or_insert_default().loss.get_or_insert_default())
    }
}

impl Alarm for Claim {
    fn slot(&self) -> &WheelSlot {
        &self.slot
    }

    /// The lease stands on the other nodes alone, if those are enough.
    fn session_ended(&self, node: usize) {
        let now = self.core.now();
        let loss_signal = {
            let mut state = locked(&self.state);
            state.backing.remove(node);
            if state.backing.len() >= self.core.quorum.enough() {
                return;
            }
            state.lease.extended(ExtendOutcome::Lost, now);
            state.loss().cloned()
        };
        self.core.watchdog.clear(self);
        self.tell_loss(loss_signal);
    }

    fn ring(self: Arc<Self>, now: Moment) -> Option<Moment> {
        let upkeep = self.core.upkeep(self.ttl(), self.nature.is(Nature::RENEWED));
        let (duty, loss_signal) = {
            let mut state = locked(&self.state);
            let upkeep = upkeep.spread(state.lot);
            // Whoever has the signal in hand holds another reference to it.
            let has_listener = state.loss().is_some_and(|loss| Arc::strong_count(loss) > 1);
            let tried = state.tried;
            let duty = match upkeep.duty(&mut state.lease, tried, has_listener, now) {
                Duty::Renew { again } if !self.taken.load(Ordering::Acquire) => {
                    Duty::Wait { until: again }
                }
                duty => duty,
            };
            state.renewing = matches!(duty, Duty::Renew { .. });
            (duty, state.loss().cloned())
        };
        match duty {
            Duty::Renew { again } => {
                self.renew();
                Some(again)
            }
            Duty::Wait { until } => Some(until),
            Duty::Over(_) => {
                self.tell_loss(loss_signal);
                None
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every lock that is held has one.
    #[test]
    fn a_claim_is_small() {
        assert!(size_of::<Claim>() <= 184, "{}", size_of::<Claim>());
    }
}
