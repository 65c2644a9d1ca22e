//! Clients that want one lock on modelled nodes, over connections that delay, break and lose.
//!
//! ```text
//!   client: Acquire ─ refused ─▶ Queueing ─ Won ─▶ Lease, Extend ─▶ release
//!     │  ▲                                                             
//!     ▼  │   requests and answers in order, each as late as the dice say; from some moment all
//!   node     are lost, until a new connection is there
//! ```
//!
//! What a client does around the rules is what the library does: see its `drive` module.

use std::collections::{BTreeMap, VecDeque};
use std::num::NonZero;
use std::time::Duration;

use quorlock_protocol::{
    Acquire, AcquireOutcome, Drift, Extend, ExtendOutcome, Lease, LeaseState, Moment, NodeSet,
    QueuePlace, Queueing, Quorum, Step, Terms, Vote,
};

use crate::node::{Answer, GrantMessage, Node, Place, TicketNumber, Token, Verb};
use crate::time::{Clock, Dice, ms};

const TTL: u64 = ms(1_000);
const TERMS: Terms = Terms {
    ttl: Duration::from_nanos(TTL),
    drift: Drift { base: Duration::from_millis(2), per_mille: 100 },
    margin: Duration::ZERO,
};
const LIMIT: Duration = Duration::from_millis(25);
const SHORTEST_REST: Duration = Duration::from_millis(1);
/// Faults end here.
const CALM: u64 = ms(8_000);
/// What they have left behind is over.
const SETTLED: u64 = CALM + 3 * TTL;
/// Until then there are some who want the lock.
const LAST: u64 = SETTLED + 3 * TTL;
/// A waiter then has had it by so much later.
const PATIENCE: u64 = ms(8_000);
/// Three leases for the tickets, or three seconds, and one for the record.
const GONE: u64 = LAST + PATIENCE + ms(6_000);

/// What somebody has got wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mistake {
    Nothing,
    /// The lease counts from when the grant message came.
    FromReceipt,
    /// Grant messages count though the record was offered to others since.
    FromBeforeYield,
    /// What a node has kept counts though an offer to it is open.
    OpenOffer,
    /// The lease counts from the latest request, whether or not the node has seen it.
    FromLatestRequest,
    /// A release drops whatever record is there.
    ReleaseOfAny,
}

/// What was found, and when.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Violation {
    pub(crate) at: u64,
    pub(crate) what: &'static str,
}

/// What happened, for a test that wants to know whether anything did.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Tale {
    pub(crate) turns: usize,
    pub(crate) by_queue: usize,
    pub(crate) yields: usize,
    /// How often somebody gave back what a holder might need.
    pub(crate) given_back: usize,
    pub(crate) asked: usize,
    /// The longest that somebody had to wait after the last fault.
    pub(crate) longest_wait: u64,
    /// The longest after it that nobody had the lock though somebody wanted it.
    pub(crate) longest_gap: u64,
}

impl Tale {
    pub(crate) fn add(&mut self, other: &Self) {
        self.turns += other.turns;
        self.by_queue += other.by_queue;
        self.yields += other.yields;
        self.given_back += other.given_back;
        self.asked += other.asked;
        self.longest_wait = self.longest_wait.max(other.longest_wait);
        self.longest_gap = self.longest_gap.max(other.longest_gap);
    }
}

#[derive(Debug, Clone, Copy)]
enum Event {
    Arrive { client: usize, node: usize, connection: u32 },
    Deliver { client: usize, node: usize, connection: u32 },
    Overdue { client: usize, call: usize },
    Alarm { client: usize, alarm: u32 },
    Start { client: usize },
    Come { client: usize, token: Token },
    Renew { client: usize, token: Token },
    Finish { client: usize, token: Token },
    Cancel { client: usize },
    Mute { client: usize, node: usize },
    Break { client: usize, node: usize },
    Back { client: usize, node: usize },
    Pause { client: usize },
}

#[derive(Debug, Clone, Copy)]
struct Call {
    client: usize,
    node: usize,
    token: Token,
    verb: Verb,
    /// On the client's clock.
    sent: Moment,
    answered: bool,
    late: bool,
}

#[derive(Debug, Clone, Copy)]
enum Message {
    Answer(usize, Answer),
    /// The server has forgotten its scripts, and has not run it.
    Forgot(usize),
    Grant(GrantMessage),
}

/// The way between one client and one node.
#[derive(Debug, Default)]
struct Way {
    connection: u32,
    down: bool,
    /// Whatever comes from the node is lost.
    mute: bool,
    /// The node knows that nobody listens.
    deaf: bool,
    requests: VecDeque<usize>,
    messages: VecDeque<Message>,
    last_arrival: u64,
    last_delivery: u64,
    /// Not answered yet.
    waiting: VecDeque<usize>,
    /// Releases for when it is back.
    parked: Vec<Token>,
}

#[derive(Debug)]
enum Stage {
    Idle,
    Asking { round: Acquire, asking: bool },
    Standing(Box<Standing>),
    Holding { lease: Lease, rounds: Vec<(Moment, Extend)> },
}

#[derive(Debug)]
struct Standing {
    rules: Queueing,
    won: Option<Moment>,
    asking: bool,
    soon: Option<Moment>,
    /// When each node's record was last offered to others, and when it was last asked for anything.
    yielded_at: Vec<Moment>,
    /// What was offered, and not answered yet.
    offers: Vec<(usize, Moment)>,
    asked_at: Vec<Moment>,
    since: u64,
}

#[derive(Debug)]
struct Client {
    clock: Clock,
    paused_until: u64,
    token: Token,
    stage: Stage,
    alarm: u32,
}

/// Somebody believes to have the lock until then.
#[derive(Debug)]
struct Window {
    token: Token,
    until: u64,
}

#[derive(Debug)]
pub(crate) struct World {
    now: u64,
    dice: Dice,
    mistake: Mistake,
    quorum: Quorum,
    nodes: Vec<Node>,
    clients: Vec<Client>,
    ways: Vec<Vec<Way>>,
    calls: Vec<Call>,
    events: BTreeMap<(u64, u64), Event>,
    scheduled: u64,
    tokens: Token,
    windows: Vec<Window>,
    /// Since when nobody has had the lock, if somebody wanted it.
    free_since: Option<u64>,
    /// How often in a hundred a message is late.
    lateness: u64,
    violation: Option<Violation>,
    pub(crate) tale: Tale,
}

/// Lives through one seed.
pub(crate) fn live(seed: u64, mistake: Mistake) -> (Tale, Option<Violation>) {
    let mut world = World::new(seed, mistake);
    world.run();
    (world.tale, world.violation)
}

impl World {
    fn new(seed: u64, mistake: Mistake) -> Self {
        let mut dice = Dice::new(seed);
        let nodes = [1, 2, 3, 3, 3, 4, 5, 5][dice.within(8)];
        let clients = 2 + dice.within(3);
        let client = |dice: &mut Dice| Client {
            clock: Clock::random(dice),
            paused_until: 0,
            token: 0,
            stage: Stage::Idle,
            alarm: 0,
        };
        let mut world = Self {
            now: 0,
            mistake,
            quorum: Quorum::of(nodes).expect("a few nodes"),
            nodes: (0..nodes).map(|_| Node::new(Clock::random(&mut dice))).collect(),
            clients: (0..clients).map(|_| client(&mut dice)).collect(),
            ways: (0..clients).map(|_| (0..nodes).map(|_| Way::default()).collect()).collect(),
            calls: Vec::new(),
            events: BTreeMap::new(),
            scheduled: 0,
            tokens: 0,
            windows: Vec::new(),
            free_since: None,
            lateness: [0, 5, 20, 50][dice.within(4)],
            dice,
            violation: None,
            tale: Tale::default(),
        };
        world.plan();
        world
    }

    fn plan(&mut self) {
        for client in 0..self.clients.len() {
            let at = self.dice.below(ms(50));
            self.at(at, Event::Start { client });
            for _ in 0..self.dice.below(4) {
                let at = self.dice.below(CALM);
                self.at(at, Event::Pause { client });
            }
            for _ in 0..self.dice.below(4) {
                let at = self.dice.below(CALM);
                self.at(at, Event::Cancel { client });
            }
            for node in 0..self.nodes.len() {
                for _ in 0..self.dice.below(6) {
                    let at = self.dice.below(CALM);
                    self.at(at, Event::Break { client, node });
                }
                for _ in 0..self.dice.below(3) {
                    let at = self.dice.below(CALM);
                    self.at(at, Event::Mute { client, node });
                }
            }
        }
    }

    fn at(&mut self, at: u64, event: Event) {
        self.scheduled += 1;
        self.events.insert((at.max(self.now), self.scheduled), event);
    }

    fn after(&mut self, time: u64, event: Event) {
        self.at(self.now + time, event);
    }

    fn violated(&mut self, what: &'static str) {
        self.violation.get_or_insert(Violation { at: self.now, what });
    }

    fn run(&mut self) {
        while let Some(((at, _), event)) = self.events.pop_first() {
            if at > LAST + PATIENCE || self.violation.is_some() {
                break;
            }
            self.now = at;
            self.happens(event);
        }
        if self.violation.is_some() {
            return;
        }
        self.now = LAST + PATIENCE;
        if self.clients.iter().any(|client| !matches!(client.stage, Stage::Idle)) {
            self.violated("somebody waits for ever");
        }
        if !self.nodes.iter_mut().all(|node| node.is_empty(GONE)) {
            self.violated("something is left");
        }
    }

    fn happens(&mut self, event: Event) {
        let of = match event {
            Event::Deliver { client, .. }
            | Event::Overdue { client, .. }
            | Event::Alarm { client, .. }
            | Event::Start { client }
            | Event::Come { client, .. }
            | Event::Renew { client, .. }
            | Event::Finish { client, .. }
            | Event::Cancel { client }
            | Event::Break { client, .. }
            | Event::Back { client, .. } => Some(client),
            Event::Arrive { .. } | Event::Mute { .. } | Event::Pause { .. } => None,
        };
        if let Some(client) = of
            && self.clients[client].paused_until > self.now
        {
            return self.at(self.clients[client].paused_until, event);
        }
        match event {
            Event::Arrive { client, node, connection } => {
                if self.ways[client][node].connection == connection {
                    self.arrive(client, node);
                }
            }
            Event::Deliver { client, node, connection } => {
                if self.ways[client][node].connection == connection {
                    self.deliver(client, node);
                }
            }
            Event::Overdue { client, call } => self.overdue(client, call),
            Event::Alarm { client, alarm } => {
                if self.clients[client].alarm == alarm {
                    self.look(client);
                }
            }
            Event::Start { client } => self.start(client),
            Event::Come { client, token } => self.come(client, token),
            Event::Renew { client, token } => self.renew(client, token),
            Event::Finish { client, token } => self.finish(client, token),
            Event::Cancel { client } => self.cancel(client),
            Event::Mute { client, node } => {
                self.ways[client][node].mute = true;
                let noticed = self.dice.below(ms(600));
                self.after(noticed, Event::Break { client, node });
            }
            Event::Break { client, node } => self.break_off(client, node),
            Event::Back { client, node } => self.back(client, node),
            Event::Pause { client } => {
                let pause = self.dice.below(TTL * 5 / 2);
                self.clients[client].paused_until = self.now + pause;
            }
        }
    }

    fn local(&self, client: usize) -> Moment {
        self.clients[client].clock.moment(self.now)
    }

    // --- The ways ---

    fn delay(&mut self) -> u64 {
        let late = self.now < CALM && self.dice.in_a_hundred(self.lateness);
        match (late, self.dice.below(8)) {
            (true, 0) => self.dice.below(ms(600)),
            (true, _) => self.dice.below(ms(40)),
            (false, 0) => 0,
            (false, _) => self.dice.below(ms(3)),
        }
    }

    fn submit(&mut self, client: usize, node: usize, token: Token, verb: Verb, sent: Moment) {
        let id = self.calls.len();
        let call = Call { client, node, token, verb, sent, answered: false, late: false };
        self.calls.push(call);
        let way = &mut self.ways[client][node];
        if way.down {
            match verb {
                Verb::Release => way.parked.push(token),
                _ => self.answered(id, Answer::Failed),
            }
            return;
        }
        self.set_out(id);
        let clock = self.clients[client].clock;
        let limit = clock.when(sent.after(LIMIT).as_nanos());
        self.at(limit, Event::Overdue { client, call: id });
    }

    fn set_out(&mut self, id: usize) {
        let Call { client, node, .. } = self.calls[id];
        let arrival = self.now + self.delay();
        let way = &mut self.ways[client][node];
        way.requests.push_back(id);
        way.waiting.push_back(id);
        way.last_arrival = way.last_arrival.max(arrival);
        let (arrival, connection) = (way.last_arrival, way.connection);
        self.at(arrival, Event::Arrive { client, node, connection });
    }

    /// Sends a request again, behind those that were sent since, unless one of them takes back what it asks for.
    fn set_out_again(&mut self, id: usize) {
        let Call { client, node, token, .. } = self.calls[id];
        let way = &mut self.ways[client][node];
        way.waiting.retain(|other| *other != id);
        let releases = |other: &usize| {
            let Call { token: of, verb, .. } = self.calls[*other];
            of == token && matches!(verb, Verb::Release)
        };
        if way.waiting.iter().any(releases) {
            return self.answered(id, Answer::Failed);
        }
        self.set_out(id);
    }

    fn arrive(&mut self, client: usize, node: usize) {
        let Some(id) = self.ways[client][node].requests.pop_front() else { return };
        let call = self.calls[id];
        if self.now < CALM && matches!(call.verb, Verb::Wait { .. }) && self.dice.in_a_hundred(3) {
            return self.send(client, node, Message::Forgot(id));
        }
        let mut messages = Vec::new();
        let ways = &self.ways;
        let hears = |client: usize| !ways[client][node].deaf;
        let any = self.mistake == Mistake::ReleaseOfAny;
        let asked = (call.token, call.verb);
        let answer = self.nodes[node].answer(self.now, asked, hears, &mut messages, any);
        for message in messages {
            self.send(message.client, node, Message::Grant(message));
        }
        self.send(client, node, Message::Answer(id, answer));
    }

    fn send(&mut self, client: usize, node: usize, message: Message) {
        let delivery = self.now + self.delay();
        let way = &mut self.ways[client][node];
        if way.mute || way.down {
            return;
        }
        way.messages.push_back(message);
        way.last_delivery = way.last_delivery.max(delivery);
        let (delivery, connection) = (way.last_delivery, way.connection);
        self.at(delivery, Event::Deliver { client, node, connection });
    }

    fn deliver(&mut self, client: usize, node: usize) {
        match self.ways[client][node].messages.pop_front() {
            None => {}
            Some(Message::Answer(id, answer)) => {
                self.ways[client][node].waiting.retain(|other| *other != id);
                self.answered(id, answer);
            }
            Some(Message::Forgot(id)) => self.set_out_again(id),
            Some(Message::Grant(message)) => self.notified(client, node, message),
        }
    }

    /// The client notices that its connection is of no use. What it has asked for runs by now, or when
    /// the new connection ends the old one, or never.
    fn break_off(&mut self, client: usize, node: usize) {
        if self.ways[client][node].down {
            return;
        }
        let run = self.dice.within(self.ways[client][node].requests.len() + 1);
        let heard = self.dice.within(self.ways[client][node].messages.len() + 1);
        for _ in 0..heard {
            self.deliver(client, node);
        }
        let deaf = self.dice.in_a_hundred(50);
        let way = &mut self.ways[client][node];
        way.connection += 1;
        (way.down, way.mute, way.deaf) = (true, false, deaf);
        way.messages.clear();
        (way.last_arrival, way.last_delivery) = (0, 0);
        for _ in 0..run {
            self.arrive(client, node);
        }
        let away = self.dice.below(ms(300));
        self.after(away, Event::Back { client, node });
        for id in std::mem::take(&mut self.ways[client][node].waiting) {
            match self.calls[id].verb {
                Verb::Release => {
                    let token = self.calls[id].token;
                    self.ways[client][node].parked.push(token);
                }
                _ => self.answered(id, Answer::Failed),
            }
        }
    }

    fn back(&mut self, client: usize, node: usize) {
        let run = self.dice.within(self.ways[client][node].requests.len() + 1);
        for _ in 0..run {
            self.arrive(client, node);
        }
        let way = &mut self.ways[client][node];
        way.requests.clear();
        (way.down, way.mute, way.deaf) = (false, false, false);
        let sent = self.local(client);
        for token in std::mem::take(&mut self.ways[client][node].parked) {
            self.submit(client, node, token, Verb::Release, sent);
        }
        self.interrupted(client, node);
    }

    // --- The clients ---

    fn overdue(&mut self, client: usize, id: usize) {
        let Call { node, token, verb, sent, answered, .. } = self.calls[id];
        if answered {
            return;
        }
        self.calls[id].late = true;
        if self.clients[client].token != token {
            return;
        }
        match verb {
            Verb::Acquire { .. } => self.vote(client, node, Vote::Silent),
            Verb::Extend { .. } => self.extended(client, node, sent, Vote::Silent),
            Verb::Wait { .. } => {
                if let Some(standing) = self.standing(client) {
                    standing.rules.missed(node);
                    self.proceed(client);
                }
            }
            Verb::Release => {}
        }
    }

    fn answered(&mut self, id: usize, answer: Answer) {
        let Call { client, node, token, verb, sent, answered, .. } = self.calls[id];
        if answered {
            return;
        }
        self.calls[id].answered = true;
        if self.clients[client].token != token {
            return;
        }
        let vote = match answer {
            Answer::Done => Vote::Yes,
            Answer::Refused | Answer::Queued(..) => Vote::No,
            Answer::Failed => Vote::Unknown,
        };
        match verb {
            Verb::Acquire { .. } => self.vote(client, node, vote),
            Verb::Extend { .. } => self.extended(client, node, sent, vote),
            Verb::Wait { .. } => self.heard(client, node, sent, answer),
            Verb::Release => {}
        }
    }

    fn new_token(&mut self, client: usize) -> Token {
        self.tokens += 1;
        self.clients[client].token = self.tokens;
        self.tokens
    }

    fn start(&mut self, client: usize) {
        if self.now >= LAST {
            return;
        }
        let token = self.new_token(client);
        let sent = self.local(client);
        let round = Acquire::new(self.quorum, &TERMS, sent, Duration::ZERO);
        self.clients[client].stage = Stage::Asking { round, asking: true };
        for node in 0..self.nodes.len() {
            self.submit(client, node, token, Verb::Acquire { ttl: TTL }, sent);
        }
        if let Stage::Asking { round, asking } = &mut self.clients[client].stage {
            *asking = false;
            if let Some(outcome) = round.outcome() {
                self.tried(client, outcome);
            }
        }
    }

    fn vote(&mut self, client: usize, node: usize, vote: Vote) {
        let now = self.local(client);
        if let Stage::Asking { round, asking } = &mut self.clients[client].stage
            && let Some(outcome) = round.vote(node, vote, || now)
            && !*asking
        {
            self.tried(client, outcome);
        }
    }

    fn tried(&mut self, client: usize, outcome: AcquireOutcome) {
        match outcome {
            AcquireOutcome::Won { valid_until, .. } => self.hold(client, valid_until),
            AcquireOutcome::Lost(_) => {
                self.release(client);
                self.new_token(client);
                self.clients[client].stage = Stage::Standing(Box::new(Standing {
                    rules: Queueing::new(self.quorum),
                    won: None,
                    asking: false,
                    soon: None,
                    yielded_at: vec![Moment::default(); self.nodes.len()],
                    offers: Vec::new(),
                    asked_at: vec![Moment::default(); self.nodes.len()],
                    since: self.now,
                }));
                self.look(client);
            }
        }
    }

    fn release(&mut self, client: usize) {
        let (token, sent) = (self.clients[client].token, self.local(client));
        for node in 0..self.nodes.len() {
            self.submit(client, node, token, Verb::Release, sent);
        }
    }

    /// Lets go of whatever it has or wants, and perhaps comes again.
    fn leave(&mut self, client: usize) {
        self.release(client);
        self.forget(client);
    }

    fn forget(&mut self, client: usize) {
        self.clients[client].stage = Stage::Idle;
        self.clients[client].token = 0;
        self.clients[client].alarm += 1;
        let pause = self.dice.below(ms(400));
        self.after(pause, Event::Start { client });
    }

    fn cancel(&mut self, client: usize) {
        if matches!(self.clients[client].stage, Stage::Asking { .. } | Stage::Standing(_)) {
            self.leave(client);
        }
    }

    fn check_alone(&mut self, token: Token) {
        let now = self.now;
        self.windows.retain(|window| window.until > now);
        if self.windows.iter().any(|window| window.token != token) {
            self.violated("two have the lock");
        }
    }

    fn hold(&mut self, client: usize, valid_until: Moment) {
        let Client { clock, token, .. } = self.clients[client];
        self.check_alone(token);
        self.windows.push(Window { token, until: clock.when(valid_until.as_nanos()) });
        self.tale.turns += 1;
        if let Some(since) = self.free_since.take().filter(|since| *since > SETTLED) {
            self.tale.longest_gap = self.tale.longest_gap.max(self.now - since);
        }
        let lease = Lease::new(valid_until);
        self.clients[client].stage = Stage::Holding { lease, rounds: Vec::new() };
        self.clients[client].alarm += 1;
        let hold = match self.dice.below(3) {
            0 => self.dice.below(ms(20)),
            _ => self.dice.below(TTL * 3 / 2),
        };
        self.after(hold, Event::Finish { client, token });
        self.after(TTL / 3, Event::Renew { client, token });
    }

    fn renew(&mut self, client: usize, token: Token) {
        let now = self.local(client);
        let Client { stage: Stage::Holding { lease, rounds }, token: mine, .. } =
            &mut self.clients[client]
        else {
            return;
        };
        if *mine != token || matches!(lease.state(now), LeaseState::Lost(_)) {
            return;
        }
        rounds.push((
            now,
            Extend::new(self.quorum, &TERMS, now, lease.valid_until(), NodeSet::EMPTY),
        ));
        for node in 0..self.nodes.len() {
            self.submit(client, node, token, Verb::Extend { ttl: TTL }, now);
        }
        self.after(TTL / 3, Event::Renew { client, token });
    }

    fn extended(&mut self, client: usize, node: usize, sent: Moment, vote: Vote) {
        let now = self.local(client);
        let Client { clock, stage: Stage::Holding { lease, rounds }, token, .. } =
            &mut self.clients[client]
        else {
            return;
        };
        let (clock, token) = (*clock, *token);
        let Some((_, round)) = rounds.iter_mut().find(|(of, _)| *of == sent) else { return };
        round.outlived(lease.valid_until());
        let Some(outcome) = round.vote(node, vote, now) else { return };
        lease.extended(outcome, now);
        let held = !matches!(lease.state(now), LeaseState::Lost(_));
        let until = if held { clock.when(lease.valid_until().as_nanos()) } else { self.now };
        if let Some(window) = self.windows.iter_mut().find(|window| window.token == token) {
            window.until = until;
        }
        if held && matches!(outcome, ExtendOutcome::Renewed { .. }) {
            self.check_alone(token);
        }
    }

    fn finish(&mut self, client: usize, token: Token) {
        if self.clients[client].token != token {
            return;
        }
        // Now and then a holder is killed instead.
        if self.now < CALM && self.dice.in_a_hundred(10) {
            return self.forget(client);
        }
        self.windows.retain(|window| window.token != token);
        self.leave(client);
        let wanted = self.clients.iter().any(|client| matches!(client.stage, Stage::Standing(_)));
        self.free_since = wanted.then_some(self.now);
    }

    // --- The waiters ---

    fn standing(&mut self, client: usize) -> Option<&mut Standing> {
        match &mut self.clients[client].stage {
            Stage::Standing(standing) => Some(standing),
            _ => None,
        }
    }

    fn notified(&mut self, client: usize, node: usize, message: GrantMessage) {
        let (now, mistake, enough) = (self.local(client), self.mistake, self.quorum.enough());
        if self.clients[client].token != message.token {
            return;
        }
        let Some(standing) = self.standing(client).filter(|standing| standing.won.is_none()) else {
            return;
        };
        let sent = Moment::from_nanos(message.sent);
        let sent = match mistake {
            Mistake::Nothing | Mistake::ReleaseOfAny | Mistake::OpenOffer => sent,
            Mistake::FromReceipt => now,
            Mistake::FromBeforeYield => sent.max(standing.yielded_at[node]),
            Mistake::FromLatestRequest => sent.max(standing.asked_at[node]),
        };
        if !standing.rules.notified(node, sent, 1) {
            return;
        }
        if standing.rules.votes() < enough {
            self.look_soon(client);
        } else {
            self.proceed(client);
        }
    }

    fn interrupted(&mut self, client: usize, node: usize) {
        let mut nodes = NodeSet::EMPTY;
        nodes.insert(node);
        if self.ask(client, nodes, false) {
            self.proceed(client);
        }
    }

    fn look_soon(&mut self, client: usize) {
        let soon = self.local(client).after(LIMIT);
        if let Some(standing) = self.standing(client) {
            let soon = standing.soon.map_or(soon, |sooner| sooner.min(soon));
            standing.soon = Some(soon);
            self.set_alarm(client, soon);
        }
    }

    fn set_alarm(&mut self, client: usize, at: Moment) {
        let Client { alarm, clock, .. } = &mut self.clients[client];
        *alarm += 1;
        let (alarm, at) = (*alarm, clock.when(at.as_nanos()));
        self.at(at, Event::Alarm { client, alarm });
    }

    fn look(&mut self, client: usize) {
        if self.ask(client, NodeSet::first(self.nodes.len()), false) {
            self.proceed(client);
        }
    }

    fn ask(&mut self, client: usize, nodes: NodeSet, yielding: bool) -> bool {
        let (now, count, token) =
            (self.local(client), self.nodes.len(), self.clients[client].token);
        let wall = self.now / 1_000;
        let Some(standing) = self.standing(client) else { return false };
        if standing.asking || standing.won.is_some() {
            return false;
        }
        standing.asking = true;
        if !yielding && nodes.len() == count {
            standing.soon = None;
        }
        let ticket_no =
            standing.rules.ticket_no().map_or(TicketNumber::New(wall), TicketNumber::Agreed);
        let sent = standing.rules.ask(nodes, yielding, now);
        let place = Place { client, ttl: TTL, sent: sent.as_nanos() };
        for node in (0..count).filter(|node| nodes.contains(*node)) {
            if let Some(standing) = self.standing(client) {
                standing.asked_at[node] = sent;
                if yielding {
                    standing.yielded_at[node] = sent;
                    standing.offers.push((node, sent));
                }
            }
            self.submit(client, node, token, Verb::Wait { place, ticket_no, yielding }, sent);
        }
        if matches!(self.mistake, Mistake::OpenOffer | Mistake::FromBeforeYield)
            && let Some(standing) = self.standing(client)
        {
            standing.offers.drain(..).for_each(|(node, _)| standing.rules.offer_answered(node));
        }
        self.tale.asked += nodes.len();
        self.tale.yields += usize::from(yielding);
        if let Some(standing) = self.standing(client) {
            standing.asking = false;
        }
        true
    }

    fn heard(&mut self, client: usize, node: usize, sent: Moment, answer: Answer) {
        let (now, mistake) = (self.local(client), self.mistake);
        let Some(standing) = self.standing(client) else { return };
        standing.rules.answered(node);
        let offer = standing.offers.iter().position(|offer| *offer == (node, sent));
        if let Some(offer) = offer.filter(|_| answer != Answer::Failed) {
            standing.offers.remove(offer);
            standing.rules.offer_answered(node);
        }
        match answer {
            Answer::Done if mistake == Mistake::FromBeforeYield => {
                standing.rules.granted(node, sent.max(standing.yielded_at[node]), 1);
            }
            Answer::Done => standing.rules.granted(node, sent, 1),
            Answer::Queued(ticket_no, record) => {
                let left = record.map_or(TTL, |(left, _)| left);
                let free_at = Some(now.after(Duration::from_nanos(left)));
                let holder = record.and_then(|(_, token)| NonZero::new(token as u32));
                let place = QueuePlace { ticket_no, free_at, will_notify: true, holder };
                standing.rules.queued(node, sent, place);
            }
            Answer::Refused | Answer::Failed => standing.rules.missed(node),
        }
        self.proceed(client);
    }

    fn proceed(&mut self, client: usize) {
        for _ in 0..8 {
            let now = self.local(client);
            let token = self.clients[client].token;
            let retry = now.after(Duration::from_nanos(ms(1) + self.dice.below(ms(200))));
            let Some(standing) = self.standing(client) else { return };
            if standing.asking || standing.won.is_some() {
                return;
            }
            let at = match standing.rules.step(&TERMS, Duration::ZERO, now) {
                Step::Won { valid_until, .. } => {
                    standing.won = Some(valid_until);
                    self.clients[client].alarm += 1;
                    // Now and then nobody comes for it in time.
                    let dawdle = match self.dice.below(16) {
                        0 if self.now < CALM => self.dice.below(TTL * 2),
                        _ => 0,
                    };
                    return self.after(dawdle, Event::Come { client, token });
                }
                Step::GiveBack => {
                    let others = standing.rules.start_over();
                    standing.offers.clear();
                    let sent = self.local(client);
                    self.new_token(client);
                    for node in 0..self.nodes.len() {
                        self.submit(client, node, token, Verb::Release, sent);
                    }
                    self.tale.given_back += 1;
                    if !self.ask(client, others, false) {
                        return;
                    }
                    continue;
                }
                Step::Ask { nodes, yielding } => {
                    if !self.ask(client, nodes, yielding) {
                        return;
                    }
                    continue;
                }
                Step::Pending => return,
                Step::Until(at) => at,
                Step::Poll | Step::Unreachable => retry,
            };
            let at = standing.soon.map_or(at, |soon| soon.min(at)).max(now.after(SHORTEST_REST));
            return self.set_alarm(client, at);
        }
        self.violated("asked without end");
    }

    fn come(&mut self, client: usize, token: Token) {
        let now = self.local(client);
        if self.clients[client].token != token {
            return;
        }
        let Some(standing) = self.standing(client) else { return };
        let since = standing.since;
        match standing.won.take() {
            Some(valid_until) if now < valid_until => {
                let waited = self.now.saturating_sub(since.max(CALM));
                self.tale.longest_wait = self.tale.longest_wait.max(waited);
                self.tale.by_queue += 1;
                self.hold(client, valid_until);
            }
            _ => self.look(client),
        }
    }
}
