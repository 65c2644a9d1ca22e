//! The client's end: a node, as the lock meets it.
//!
//! It does what the link to a Redis server does: one ordered connection, calls that are answered with
//! a failure when it breaks, releases that are owed and sent again, a notice of interruption after each
//! reconnection, a time limit after which a round does not wait for a call any longer, and a line for what the server
//! cannot take yet.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::future::poll_fn;
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::task::{Poll, Waker};
use std::time::Duration;

use quorlock::node::memory::MemoryNode;
use quorlock::node::{
    Answer, Call, Capabilities, ClientId, Failure, FailureKind, Inbox, Members, Node, Restore,
    Secret, Verb,
};
use quorlock::runtime::{BoxFuture, Moment};
use quorlock::{Carries, Drift, Settings, Untimely};
use quorlock_protocol::{Patience, Window, pause_to_connect};

use super::{ConnId, Down, LinkId, Up};
use crate::Dialect;
use crate::nodes::{Asked, AskedVerb, Served};
use crate::planted::Planted;
use crate::setup::node_name;
use crate::world::{Event, World};

/// The connection of one locker to one node, while it lasts and when it is gone.
pub(crate) struct Link {
    world: Arc<World>,
    id: LinkId,
    process: usize,
    incarnation: u32,
    node: usize,
    label: String,
    /// The set of nodes that its client was given.
    members: Members,
    set: Arc<str>,
    state: Mutex<LinkState>,
}

struct LinkState {
    phase: Phase,
    conn: Option<ConnId>,
    /// The connection before, and the start of the server that it was to.
    before: Option<(ConnId, u64)>,
    run_id: u64,
    /// When it was last greeted by the server.
    greeted: Moment,
    failures: u32,
    /// When to give up connecting, or to try again.
    alarm: Moment,
    /// What the server cannot take yet, and whether it was sent once before.
    backlog: VecDeque<(Call, bool)>,
    waiting: VecDeque<Waiting>,
    overdue: usize,
    /// So many of `waiting` went out in the command of another.
    together: usize,
    window: Window,
    /// When the last reply came.
    replied: Moment,
    patience: Patience,
    parked: VecDeque<(Call, bool)>,
    closing: bool,
    listener: Option<(ClientId, usize, Weak<dyn Inbox>)>,
    wakers: Vec<Waker>,
    /// The latest request of each waiter, if the secrets of messages are not compared.
    tickets: BTreeMap<u64, (Moment, Secret)>,
    /// When the world will look at this again, at the latest.
    looks_at: u64,
}

enum Phase {
    New,
    Connecting,
    Up,
    Down(Failure),
}

struct Waiting {
    call: Call,
    request: u32,
    since: Moment,
    /// The time of day that was sent to the server.
    wall_us: u64,
    again: bool,
    /// In the command of another.
    together: bool,
}

/// The handle that a locker has. With it the connection ends.
pub(crate) struct SimulatedNode(pub(crate) Arc<Link>);

impl Link {
    pub(crate) fn new(
        world: &Arc<World>,
        process: usize,
        node: usize,
        members: Members,
        limit: Duration,
    ) -> Arc<Self> {
        let (id, incarnation) = world.state().new_link(process);
        let link = Arc::new(Self {
            world: Arc::clone(world),
            id,
            process,
            incarnation,
            node,
            label: node_name(node),
            set: members.digest().into(),
            members,
            state: Mutex::new(LinkState {
                phase: Phase::New,
                conn: None,
                before: None,
                run_id: 0,
                greeted: Moment::default(),
                failures: 0,
                alarm: Moment::MAX,
                backlog: VecDeque::new(),
                waiting: VecDeque::new(),
                overdue: 0,
                together: 0,
                window: Window::of_clock(Duration::from_micros(Dialect::WINDOW_US.1)),
                replied: Moment::default(),
                patience: Patience::within(world.setup.ttl, limit),
                parked: VecDeque::new(),
                closing: false,
                listener: None,
                wakers: Vec::new(),
                tickets: BTreeMap::new(),
                looks_at: u64::MAX,
            }),
        });
        world.state().links.insert(id, Arc::clone(&link));
        link
    }

    fn state(&self) -> MutexGuard<'_, LinkState> {
        self.state.lock().expect("no panic in between")
    }

    fn now(&self) -> Moment {
        self.world.boot(self.process)
    }

    fn is_dead(&self) -> bool {
        self.world.state().incarnation(self.process) != self.incarnation
    }

    pub(crate) fn is_of(&self, process: usize) -> bool {
        self.process == process
    }

    fn planted(&self, bug: Planted) -> bool {
        self.world.planted() == Some(bug)
    }

    fn connect(&self) {
        let now = self.now();
        let mut state = self.state();
        let Some((client, ..)) = state.listener else { return };
        let mut world = self.world.state();
        let at = world.now_of(self.process);
        let set = Arc::clone(&self.set);
        let hello = Up::Hello { client, before: state.before, set };
        state.conn = Some(world.open(self.process, self.node, self.id, at, hello));
        drop(world);
        if !matches!(state.phase, Phase::Down(_)) {
            state.phase = Phase::Connecting;
        }
        let limit = Settings::default().connect_limit;
        state.alarm = now.after(limit);
        self.look_by(&mut state, limit);
    }

    /// Has the world look at this after a while.
    fn look_by(&self, state: &mut LinkState, after: Duration) {
        let mut world = self.world.state();
        let at = world.true_after(self.process, after);
        if at < state.looks_at || state.looks_at <= world.now {
            state.looks_at = at;
            world.at(at, Event::Attend { process: self.process, link: self.id });
        }
    }

    fn submit(&self, call: Call) {
        if self.is_dead() {
            return;
        }
        self.world.instruction(self.process);
        let request = call.request();
        let since = request.sent;
        let owed = request.is_owed(since);
        let mut state = self.state();
        let why = match &state.phase {
            Phase::Up if since < state.greeted && !owed => {
                Some(failure(FailureKind::Unreachable, "connected to anew meanwhile"))
            }
            Phase::Up if owed || state.overdue == 0 => None,
            Phase::Up => Some(failure(FailureKind::Unreachable, "has not answered for a while")),
            Phase::New | Phase::Connecting => {
                Some(failure(FailureKind::Unreachable, "not connected yet"))
            }
            Phase::Down(why) => Some(why.clone()),
        };
        match why {
            None if state.overdue > 0 || state.backlog.is_empty() && state.has_room() => {
                self.send(&mut state, call, since, false);
            }
            None => state.backlog.push_back((call, false)),
            Some(why) if owed && !state.closing => {
                let lateness = call.lateness();
                state.parked.push_back((call, false));
                drop(state);
                lateness.tell(why);
            }
            Some(why) => {
                drop(state);
                call.answer(Answer::Failed(why));
            }
        }
    }

    fn send(&self, state: &mut LinkState, call: Call, since: Moment, again: bool) {
        let asked = Asked::of(&call.request(), &self.set);
        self.send_alone(state, call, asked, since, again);
    }

    fn send_alone(
        &self,
        state: &mut LinkState,
        call: Call,
        asked: Asked,
        since: Moment,
        again: bool,
    ) {
        let (request, wall_us, together) = (0, asked.wall_us, false);
        self.send_as(state, asked, Waiting { call, request, since, wall_us, again, together });
    }

    /// Sends what the server can take by now of what waits for that, with the time of day at which it is sent;
    /// extensions go out together.
    fn fill(&self) {
        let moot = {
            let mut state = self.state();
            if state.backlog.is_empty() || !state.has_room() {
                return;
            }
            let (since, wall_us) = (self.now(), self.world.wall_us(self.process));
            let behind = state.patience.limit();
            let (mut moot, mut extensions) = (Vec::new(), 0);
            while let Some((call, _)) = state.backlog.front() {
                let request = call.request();
                let extends = matches!(request.verb, Verb::Extend { .. });
                let together = extends && (1..Window::TOGETHER).contains(&extensions);
                let is_moot = since.since(request.sent) > behind && call.is_moot();
                if !together && !state.has_room() {
                    break;
                }
                let Some((call, again)) = state.backlog.pop_front() else { break };
                if is_moot {
                    moot.push(call);
                    continue;
                }
                extensions = if together { extensions + 1 } else { usize::from(extends) };
                state.together += usize::from(together);
                let mut asked = Asked::of(&call.request(), &self.set);
                if !self.planted(Planted::StampedInLine)
                    && !matches!(asked.verb, AskedVerb::Mark(_))
                {
                    asked.wall_us = wall_us;
                }
                let (request, wall_us) = (0, asked.wall_us);
                let waiting = Waiting { call, request, since, wall_us, again, together };
                self.send_as(&mut state, asked, waiting);
            }
            moot
        };
        let why = failure(FailureKind::Unreachable, "is so far behind that it was not asked");
        moot.into_iter().for_each(|call| call.answer(Answer::Failed(why.clone())));
    }

    fn send_as(&self, state: &mut LinkState, mut asked: Asked, mut waiting: Waiting) {
        let Some(conn) = state.conn else { return };
        if self.planted(Planted::HealUnguarded)
            && let AskedVerb::Extend { restore, .. } = &mut asked.verb
            && !matches!(restore, Restore::Heal(_))
        {
            *restore = Restore::Heal(asked.wall_us);
        }
        if self.planted(Planted::NeverWinsBack)
            && let AskedVerb::Extend { restore: restore @ Restore::WinBack(_), .. } =
                &mut asked.verb
        {
            *restore = Restore::Never;
        }
        if self.planted(Planted::SecretUnchecked)
            && let AskedVerb::Wait { ticket, .. } = asked.verb
        {
            state.tickets.insert(ticket.waiter, (ticket.sent, ticket.secret));
        }
        let mut world = self.world.state();
        let at = world.now_of(self.process);
        waiting.request = world.request(conn, at, asked, waiting.together);
        drop(world);
        let since = waiting.since;
        state.waiting.push_back(waiting);
        let left = since.after(state.patience.limit()).since(self.now());
        self.look_by(state, left);
    }

    /// Takes in what has come, then looks at the clock. The process runs it, as it does a task.
    pub(crate) fn attend(&self) {
        loop {
            let arrived = self.world.state().take_arrived(self.id);
            let Some((conn, message)) = arrived else { break };
            if self.state().conn == Some(conn) {
                self.take_in(message);
            }
        }
        self.fill();
        self.watch_the_clock();
    }

    fn take_in(&self, message: Down) {
        match message {
            Down::Welcome { run_id, votes } => self.up(run_id, votes),
            Down::Refused => self.down(&failure(FailureKind::Unreachable, "refused")),
            Down::Reset => self.down(&failure(FailureKind::Unreachable, "reset by peer")),
            Down::Grant(mut grant) => {
                if self.planted(Planted::MissedPush) {
                    return;
                }
                if self.planted(Planted::GrantFromArrival) {
                    // What it says is proven by its secret: the client's clock is set back instead.
                    let took = self.now().since(grant.sent);
                    self.world.state().set_back(self.process, took);
                }
                if let Some((sent, secret)) = self.state().tickets.get(&grant.waiter).copied() {
                    (grant.sent, grant.secret) = (sent, secret);
                }
                if let Some((node, inbox)) = self.listener() {
                    inbox.granted(node, grant);
                }
            }
            Down::Reply { request, served } => {
                let waiting = {
                    let mut state = self.state();
                    if state.waiting.front().is_none_or(|waiting| waiting.request != request) {
                        return;
                    }
                    state.overdue = state.overdue.saturating_sub(1);
                    let (now, waiting) = (self.now(), state.waiting.pop_front());
                    if let Some(waiting) = &waiting {
                        state.replied = now;
                        state.together -= usize::from(waiting.together);
                        state.patience.answered(now.since(waiting.since), now);
                        state.window.answered(waiting.since, now);
                    }
                    waiting
                };
                let Some(waiting) = waiting else { return };
                let unsettled = match &served {
                    Served::NoVote(marker) => {
                        !matches!(marker.carries(&self.members), Carries::Formed { .. })
                    }
                    _ => false,
                };
                let Waiting { call, again, wall_us, .. } = waiting;
                let answer = self.read(&call, wall_us, served);
                self.plant_before_answer(&call, &answer);
                // The first sending may have run before its connection broke: that nothing is there
                // any more is what it was for.
                let answer = match answer {
                    Answer::Refused if again => Answer::Done,
                    answer => answer,
                };
                call.answer(answer);
                if unsettled && let Some((node, inbox)) = self.listener() {
                    inbox.unsettled(node);
                }
            }
        }
    }

    /// What a reply means by the clock of this client.
    fn read(&self, call: &Call, sent_us: u64, served: Served) -> Answer {
        let server_us = match served {
            Served::Answer(Answer::Seen(seen)) if self.planted(Planted::TakenInQuarantine) => {
                return Answer::Seen(Box::new(seen.quarantined(None)));
            }
            Served::Answer(answer) => return answer,
            Served::NoVote(_)
                if self.planted(Planted::TakenInQuarantine)
                    && matches!(call.request().verb, Verb::Acquire { .. }) =>
            {
                return Answer::Refused;
            }
            Served::NoVote(marker) => {
                let kind = match marker.carries(&self.members) {
                    Carries::Another => FailureKind::OtherSet,
                    _ => {
                        let quiet = self.world.setup.quarantine();
                        FailureKind::Quarantined(marker.quiet(&self.members, quiet))
                    }
                };
                return Answer::Failed(failure(kind, "casts no vote"));
            }
            Served::Clock(server_us) | Served::Unchecked(server_us) => server_us,
        };
        let now_us = self.world.wall_us(self.process);
        let late = if self.planted(Planted::LateTakenForClock) {
            (sent_us..=now_us).contains(&server_us)
        } else {
            let ahead = Duration::from_micros(Dialect::WINDOW_US.1);
            matches!(Untimely::of(server_us, sent_us, now_us, ahead), Untimely::Late(_))
        };
        let kind = if late { FailureKind::Late } else { FailureKind::Clock };
        Answer::Failed(failure(kind, "its clock and ours are too far apart"))
    }

    /// A deadline that counts from the reply: the client's clock is set back by the time that the
    /// request was under way.
    fn plant_before_answer(&self, call: &Call, answer: &Answer) {
        let request = call.request();
        if self.planted(Planted::DeadlineFromReply)
            && matches!(request.verb, Verb::Acquire { .. })
            && matches!(answer, Answer::Granted { .. })
        {
            let took = self.now().since(request.sent);
            self.world.state().set_back(self.process, took);
        }
    }

    fn listener(&self) -> Option<(usize, Arc<dyn Inbox>)> {
        let listener = self.state().listener.clone();
        listener.and_then(|(_, node, inbox)| Some((node, inbox.upgrade()?)))
    }

    fn up(&self, run_id: u64, votes: bool) {
        let now = self.now();
        let (moot, wakers) = {
            let mut state = self.state();
            state.phase = Phase::Up;
            state.run_id = run_id;
            state.greeted = now;
            state.alarm = Moment::MAX;
            state.failures = 0;
            state.window = state.window.anew();
            let parked = std::mem::take(&mut state.parked);
            let (owed, moot): (Vec<_>, Vec<_>) =
                parked.into_iter().partition(|(call, _)| call.request().is_owed(now));
            for (call, again) in owed {
                self.send(&mut state, call, now, again);
            }
            (moot, std::mem::take(&mut state.wakers))
        };
        for (call, _) in moot {
            let text = "was away until the record had expired there by itself";
            call.answer(Answer::Failed(failure(FailureKind::Unreachable, text)));
        }
        wakers.into_iter().for_each(Waker::wake);
        if !self.planted(Planted::MissedPush)
            && let Some((node, inbox)) = self.listener()
        {
            inbox.interrupted(node);
        }
        if !votes && let Some((node, inbox)) = self.listener() {
            inbox.unsettled(node);
        }
    }

    fn down(&self, why: &Failure) {
        let now = self.now();
        let (waiting, parked, backlog, wakers) = {
            let mut state = self.state();
            if let Some(conn) = state.conn.take() {
                let mut world = self.world.state();
                let at = world.now_of(self.process);
                world.give_up(conn, at, true);
                drop(world);
                if matches!(state.phase, Phase::Up) {
                    state.before = Some((conn, state.run_id));
                }
            }
            state.phase = Phase::Down(why.clone());
            (state.overdue, state.together) = (0, 0);
            let pause = self.pause(state.failures);
            state.failures += 1;
            state.alarm = now.after(pause);
            self.look_by(&mut state, pause);
            let waiting = std::mem::take(&mut state.waiting);
            let LinkState { parked, backlog, wakers, .. } = &mut *state;
            let (parked, backlog) = (std::mem::take(parked), std::mem::take(backlog));
            (waiting, parked, backlog, std::mem::take(wakers))
        };
        wakers.into_iter().for_each(Waker::wake);
        let lost = failure(FailureKind::Broken, "the connection broke before the answer came");
        let waiting = waiting.into_iter().map(|waiting| (waiting.call, true));
        let mut keep = VecDeque::new();
        for (call, again) in parked.into_iter().chain(waiting) {
            if call.request().is_owed(now) {
                call.lateness().tell(lost.clone());
                keep.push_back((call, again));
            } else {
                call.answer(Answer::Failed(lost.clone()));
            }
        }
        // Those were not sent over this one.
        for (call, again) in backlog {
            if call.request().is_owed(now) {
                call.lateness().tell(why.clone());
                keep.push_back((call, again));
            } else {
                call.answer(Answer::Failed(why.clone()));
            }
        }
        let mut state = self.state();
        if state.closing {
            drop(state);
            return;
        }
        keep.append(&mut state.parked);
        state.parked = keep;
    }

    fn pause(&self, failures: u32) -> Duration {
        if failures == 0 {
            return Duration::from_micros(1);
        }
        let longest = pause_to_connect(failures);
        let half = longest.as_nanos() as u64 / 2;
        Duration::from_nanos(half + self.world.state().chance(half))
    }

    fn watch_the_clock(&self) {
        loop {
            let now = self.now();
            let mut state = self.state();
            match &state.phase {
                Phase::Connecting if state.alarm <= now => {
                    drop(state);
                    self.down(&failure(FailureKind::Unreachable, "no greeting in time"));
                    continue;
                }
                Phase::Down(_) if state.alarm <= now && !state.closing => {
                    let greeting = state.conn.is_some();
                    drop(state);
                    if greeting {
                        self.down(&failure(FailureKind::Unreachable, "no greeting in time"));
                    } else {
                        self.connect();
                    }
                    continue;
                }
                _ => {}
            }
            let (limit, replied) = (state.patience.limit(), state.replied);
            let patience = state.patience.until_reconnect();
            // A node that answers steadily is not silent.
            let in_line = self.planted(Planted::LineIsSilence);
            let silent_since = |waiting: &Waiting| {
                if in_line { waiting.call.request().sent } else { waiting.since.max(replied) }
            };
            let before = state.overdue;
            while state
                .waiting
                .get(state.overdue)
                .is_some_and(|w| silent_since(w).after(limit) <= now)
            {
                state.overdue += 1;
            }
            let late: Vec<_> =
                state.waiting.range(before..state.overdue).map(|w| w.call.lateness()).collect();
            if !late.is_empty() {
                drop(state);
                let why = failure(FailureKind::Silent, "has not answered in time");
                late.into_iter().for_each(|lateness| lateness.tell(why.clone()));
                self.clear_backlog(now);
                continue;
            }
            let mut next = state.alarm;
            if let Some(oldest) = state.waiting.front() {
                if now.since(silent_since(oldest)) >= patience {
                    drop(state);
                    self.down(&failure(FailureKind::Unreachable, "no answer for a while"));
                    continue;
                }
                let call = state.waiting.get(state.overdue);
                let due = call.map_or(silent_since(oldest).after(patience), |next| {
                    silent_since(next).after(limit)
                });
                next = next.min(due);
            } else if state.closing {
                self.end(&mut state);
                return;
            }
            if next < Moment::MAX {
                self.look_by(&mut state, next.since(now));
            }
            return;
        }
    }

    /// The server is silent: nothing but releases is sent to it.
    fn clear_backlog(&self, now: Moment) {
        let unsent: Vec<_> = {
            let mut state = self.state();
            let backlog = std::mem::take(&mut state.backlog).into_iter();
            let (owed, unsent): (Vec<_>, Vec<_>) =
                backlog.partition(|(call, _)| call.request().is_owed(now));
            let wall_us = self.world.wall_us(self.process);
            for (call, again) in owed {
                let asked = Asked { wall_us, ..Asked::of(&call.request(), &self.set) };
                self.send_alone(&mut state, call, asked, now, again);
            }
            unsent
        };
        let why = failure(FailureKind::Unreachable, "has not answered for a while");
        unsent.into_iter().for_each(|(call, _)| call.answer(Answer::Failed(why.clone())));
    }

    fn end(&self, state: &mut LinkState) {
        let mut world = self.world.state();
        if let Some(conn) = state.conn.take() {
            let at = world.now_of(self.process);
            world.give_up(conn, at, false);
        }
        world.links.remove(&self.id);
    }

    /// The process is dead: nothing is sent any more, and no caller hears of it.
    pub(crate) fn die(&self) {
        let (waiting, parked, backlog) = {
            let mut state = self.state();
            state.closing = true;
            self.end(&mut state);
            let LinkState { waiting, parked, backlog, .. } = &mut *state;
            (std::mem::take(waiting), std::mem::take(parked), std::mem::take(backlog))
        };
        drop(waiting);
        drop(parked);
        drop(backlog);
    }
}

impl LinkState {
    /// Whether the server can take one more soon.
    fn has_room(&self) -> bool {
        self.window.has_room(self.waiting.len(), self.together)
    }
}

impl Node for SimulatedNode {
    fn label(&self) -> &str {
        &self.0.label
    }

    fn capabilities(&self) -> Capabilities {
        let dialect = self.0.world.setup.dialect;
        let mut capabilities = MemoryNode::new().capabilities();
        let per_mille = dialect.drift_per_mille();
        capabilities.fences_by_clock = !self.0.planted(Planted::PoisonAdopted);
        capabilities.drift = Drift { base: Duration::from_millis(2), per_mille };
        capabilities.margin = if self.0.planted(Planted::MarginTwoBehind) {
            dialect.margin().saturating_sub(Planted::AHEAD_OVER_BEHIND)
        } else {
            dialect.margin()
        };
        capabilities.by_wall_clock =
            dialect.is_by_wall_clock() && !self.0.planted(Planted::LeaseByBootTime);
        capabilities
    }

    fn ready(&self) -> BoxFuture<'_, Result<(), Failure>> {
        Box::pin(poll_fn(|cx| {
            let mut state = self.0.state();
            match &state.phase {
                Phase::Up => Poll::Ready(Ok(())),
                Phase::Down(why) => Poll::Ready(Err(why.clone())),
                Phase::New | Phase::Connecting => {
                    state.wakers.push(cx.waker().clone());
                    Poll::Pending
                }
            }
        }))
    }

    fn submit(&self, call: Call) {
        self.0.submit(call);
    }

    fn listen(&self, client: ClientId, node: usize, inbox: Weak<dyn Inbox>) {
        let before = self.0.state().listener.replace((client, node, inbox));
        if before.is_none() {
            self.0.connect();
        }
    }
}

impl Drop for SimulatedNode {
    fn drop(&mut self) {
        self.0.state().closing = true;
        if !self.0.is_dead() {
            let (process, link) = (self.0.process, self.0.id);
            let mut world = self.0.world.state();
            let now = world.now;
            world.at(now, Event::Attend { process, link });
        }
    }
}

impl fmt::Debug for SimulatedNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("SimulatedNode").field(&self.0.label).finish()
    }
}

fn failure(kind: FailureKind, text: &str) -> Failure {
    Failure::new(kind, text)
}
