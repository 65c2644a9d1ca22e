//! The simulated server and a real one give the same answers to the same requests, and keep the same.
//!
//! The clock of the real one stands still but for what the test moves it, and the simulated one's moves
//! alike. So everything is compared to the microsecond, and the moments at which a record, a queue or a
//! time without votes ends can be met exactly.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use quorlock::node::{
    Answer, Call, ClientId, ClosedFor, Failure, FailureKind, Grant, Holder, Inbox, Mark, Marker,
    Members, Node, ParticipantId, Proposal, Request, Restore, Round, Secret, Seen, Ticket,
    TicketNumber, Verb, Writes, open,
};
use quorlock::runtime::{BoxFuture, Moment, Runtime, TokioRuntime};
use quorlock::{Name, RedisOptions, Settings, Token};
use quorlock_testkit::{RedisServer, Reply, test};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use super::strict::MOST_AHEAD_US;
use super::verbs::Records as _;
use super::{Asked, AskedVerb, Data, Loses, Served, Server};
use crate::clock::Clock;
use crate::random::Random;
use crate::setup::{Dialect, Setup};

const MAX_TTL: Duration = Duration::from_secs(20);
const STEPS: u64 = 1_500;
const NAMES: [&str; 2] = ["a", "b"];
/// The first of the kinds of requests that are about what one has already.
const WANTING: u64 = 10;
/// What the server is marked with, in the strict dialect.
const MARKER: &str = ":quorlock:set";

/// A request to the real server.
pub(super) struct Question {
    pub(super) name: Name,
    pub(super) asked: Asked,
    pub(super) answers: UnboundedSender<Answer>,
}

impl Round for Question {
    fn request(&self, _node: usize) -> Request<'_> {
        let verb = match &self.asked.verb {
            AskedVerb::Acquire { token, ttl, proposal } => {
                Verb::Acquire { token, ttl: *ttl, proposal: *proposal }
            }
            AskedVerb::Confirm { token, fence } => Verb::Confirm { token, fence: *fence },
            AskedVerb::Extend { token, ttl, restore, participant } => {
                let (ttl, restore, participant) = (*ttl, *restore, *participant);
                Verb::Extend { token, ttl, restore, participant }
            }
            AskedVerb::Wait { token, ttl, ticket, yielding, proposal } => Verb::Wait {
                token,
                ttl: *ttl,
                ticket: *ticket,
                yielding: *yielding,
                proposal: *proposal,
            },
            AskedVerb::Release { token, next, queued, participant } => {
                let (next, queued, participant) = (*next, *queued, *participant);
                Verb::Release { token, until: None, next, queued, participant }
            }
            AskedVerb::Inspect => Verb::Inspect,
            AskedVerb::SetNote { token, note, keep } => Verb::SetNote { token, note, keep: *keep },
            AskedVerb::ForceRelease { holder } => Verb::ForceRelease { holder: *holder },
            AskedVerb::List => Verb::List { from: b"" },
            AskedVerb::Mark(None) => Verb::Look,
            AskedVerb::Mark(Some(mark)) => Verb::Mark(mark),
        };
        let Asked { sent, wall_us, .. } = self.asked;
        Request { name: &self.name, sent, wall_us, verb }
    }

    fn cast(self: Arc<Self>, _node: usize, answer: Answer) {
        let _ = self.answers.send(answer);
    }

    fn overdue(self: Arc<Self>, _node: usize, _why: Failure) {}
}

/// Takes in what the real server says of grants.
pub(super) struct Post(pub(super) UnboundedSender<Grant>);

impl Inbox for Post {
    fn granted(&self, _node: usize, grant: Grant) {
        let _ = self.0.send(grant);
    }

    fn interrupted(&self, _node: usize) {}

    fn unsettled(&self, _node: usize) {}

    fn session_ended(&self, _node: usize) {}
}

/// The time of the real server's client: its time of day is set by hand.
#[derive(Debug)]
pub(super) struct HandSet {
    pub(super) real: TokioRuntime,
    pub(super) wall_us: AtomicU64,
}

impl Runtime for HandSet {
    fn now(&self) -> Moment {
        self.real.now()
    }

    fn wall(&self) -> SystemTime {
        UNIX_EPOCH + Duration::from_micros(self.wall_us.load(Ordering::SeqCst))
    }

    fn sleep(&self, duration: Duration) -> BoxFuture<'static, ()> {
        self.real.sleep(duration)
    }

    fn spawn(&self, future: BoxFuture<'static, ()>) {
        self.real.spawn(future);
    }

    fn random(&self, bytes: &mut [u8]) {
        self.real.random(bytes);
    }
}

/// Who asks: a token, and whether it has ever waited.
#[derive(Debug, Clone, Copy)]
struct Asker {
    token: Token,
    waited: bool,
}

/// Two servers side by side, a real one and a simulated one.
struct Pair {
    server: RedisServer,
    real: Arc<dyn Node>,
    simulated: Server,
    /// Which start of the simulated server the connection is to.
    run_id: u64,
    /// The set of the real server alone, and that of the simulated one.
    members: [Members; 2],
    /// What both clocks show.
    now_us: u64,
    clients: [ClientId; 2],
    askers: Vec<Asker>,
    /// Who takes part in what others have made, in the strict dialect.
    participants: Vec<ParticipantId>,
    random: Random,
    _post: Arc<Post>,
    grants: UnboundedReceiver<Grant>,
    time: Arc<HandSet>,
    /// How many grants of the real server came by the shortest way of the strict dialect.
    short_grants: u32,
}

impl Pair {
    async fn new(dialect: Dialect, seed: u64) -> Self {
        let server = RedisServer::builder().own_clock().arg("--enable-debug-command", "yes");
        let server = server.start();
        server.clock().rate(0.0);
        // Keys go when a request looks at them, and not at some time after.
        let still = server.command(&["DEBUG", "SET-ACTIVE-EXPIRE", "0"]);
        assert_eq!(still, Reply::Simple("OK".into()));
        let now_us = shown_us(&server);
        let real = TokioRuntime::current();
        let time = Arc::new(HandSet { real, wall_us: AtomicU64::new(now_us) });
        // Only the first listens.
        let clients = [ClientId::random(&*time), ClientId::random(&*time)];
        let setup = Setup { max_ttl: MAX_TTL, ..Setup::new(seed, dialect) };
        let mut settings = Settings::default();
        settings.max_ttl = MAX_TTL;
        settings.node_limit = Duration::from_secs(10);
        let (behind, ahead) = Dialect::WINDOW_US;
        let dialect_of_node = match dialect {
            Dialect::Redlock => quorlock::Dialect::Redlock,
            Dialect::Strict => quorlock::Dialect::Strict,
        };
        let options = RedisOptions::default()
            .dialect(dialect_of_node)
            .clock_window(Duration::from_micros(behind), Duration::from_micros(ahead))
            .into();
        let runtime = Arc::clone(&time) as Arc<dyn Runtime>;
        let opened = open([server.url()], &settings, &options, &runtime, clients[0]);
        let real = opened.expect("a node").pop().expect("one");
        real.ready().await.expect("it connects");
        let (sender, grants) = unbounded_channel();
        let post = Arc::new(Post(sender));
        let inbox: Weak<dyn Inbox> = Arc::<Post>::downgrade(&post);
        real.listen(clients[0], 0, inbox);
        let run_id = 7;
        let mut simulated =
            Server::new(Clock::new(0, 0), run_id, false, &setup, Some(setup.members()));
        simulated.forget(Loses::Everything, 0);
        let asker = || Asker { token: Token::random(&*time), waited: false };
        let askers = (0..4).map(|_| asker()).collect();
        let participants = match dialect {
            Dialect::Redlock => Vec::new(),
            Dialect::Strict => (0..2).map(|_| ParticipantId::random(&*time)).collect(),
        };
        let random = Random::new(seed, 99);
        let own = quorlock::node::members([server.url()], &settings, &options).expect("a good URL");
        Self {
            server,
            real,
            simulated,
            run_id,
            members: [own, setup.members()],
            now_us,
            clients,
            askers,
            participants,
            random,
            _post: post,
            grants,
            time,
            short_grants: 0,
        }
    }

    /// One thing after another: requests, clocks that move, servers that forget.
    async fn steps(&mut self) {
        for step in 0..STEPS {
            let silent = !self.votes();
            match self.random.below(200) {
                _ if silent && self.random.percent(15) => self.mark_any(step).await,
                0 => self.empty(),
                1 => self.start_again(),
                2..10 => self.replace_asker(),
                10..50 => self.move_clocks(step).await,
                50..58 => self.extend_together(step).await,
                _ => {
                    let asked = self.any();
                    self.compare(asked, step).await;
                }
            }
            self.compare_stored(step);
        }
    }

    /// Whether the simulated server votes.
    fn votes(&self) -> bool {
        let Data::Strict(keys) = &self.simulated.data else { return true };
        let from_us = keys.records.quarantine().unwrap_or_default() / 1_000;
        let set = self.members[1].digest();
        keys.records.votes_for(set, self.run_id) && from_us <= self.now_us
    }

    /// Writes some marker, most of the time one by which the servers vote again.
    async fn mark_any(&mut self, step: u64) {
        let others = ["another:1", "third:1"].map(str::to_owned);
        let other = || Members::new(others.clone(), MAX_TTL, Duration::from_millis(300));
        let kind = self.random.below(10);
        let writes = |own: &Members| match kind {
            0 => Writes::Blank,
            1 => Writes::Forming(own.clone()),
            2 => Writes::Formed(other()),
            3 => Writes::Closed {
                closed_for: ClosedFor { digest: own.digest().to_owned(), members: 1 },
                successor: other(),
            },
            4..7 => Writes::Formed(own.clone()),
            _ => Writes::TakenBack(own.clone()),
        };
        self.mark(writes, step).await;
    }

    /// Writes a marker in the place of the one that is there.
    async fn mark(&mut self, writes: impl Fn(&Members) -> Writes, step: u64) {
        self.time.wall_us.store(self.now_us, Ordering::SeqCst);
        let nonce = self.random.next().max(1);
        let [real, simulated] = self.members.clone();
        let look = self.asked("-", AskedVerb::Mark(None), 0);
        let seen = match self.ask_real(look.clone()).await {
            Answer::Marker(Some(marker)) => marker.instance,
            other => panic!("{other:?}"),
        };
        let asked = |pair: &Self, seen, own: &Members| {
            let mark = Mark { seen, writes: writes(own), nonce };
            pair.asked("-", AskedVerb::Mark(Some(mark)), 0)
        };
        let real = self.ask_real(asked(self, seen, &real)).await;
        let (now, nobody) = (self.now_us * 1_000, |_| false);
        let there = self.simulated.execute(&look, self.run_id, now, &nobody).served;
        let Served::Answer(Answer::Marker(Some(there))) = there else { panic!("{there:?}") };
        let asked = asked(self, there.instance, &simulated);
        let did = self.simulated.execute(&asked, self.run_id, now, &nobody).served;
        let (Answer::Marker(Some(a)), Served::Answer(Answer::Marker(Some(b)))) = (&real, &did)
        else {
            panic!("step {step}: {real:?} and {did:?}");
        };
        let all = |it: &Marker| (it.state, it.restarted, it.left, it.members.is_some());
        assert_eq!(all(a), all(b), "step {step}");
    }

    async fn ask_real(&self, asked: Asked) -> Answer {
        self.submit(asked).recv().await.expect("an answer")
    }

    fn submit(&self, asked: Asked) -> UnboundedReceiver<Answer> {
        let (answers, answer) = unbounded_channel();
        let name = Name::new(&asked.name).expect("a name");
        self.real.submit(Call::new(Arc::new(Question { name, asked, answers }), 0));
        answer
    }

    /// Until both servers vote.
    async fn begin(&mut self) {
        self.mark(|own| Writes::TakenBack(own.clone()), 0).await;
        let from_us = self.simulated.quarantine().expect("it has begun") / 1_000;
        self.jump_ms((from_us.div_ceil(1_000) - self.now_us / 1_000).cast_signed(), 0).await;
    }

    /// One fence above those that were given out, or so many more.
    fn acquire(&self, who: usize, above: u64) -> AskedVerb {
        let known = self.simulated.kept(NAMES[0].as_bytes(), 0).fence;
        let proposal = Some(Proposal { least: known.max(self.now_us) + 1 + above, block: 1 });
        AskedVerb::Acquire { token: self.askers[who].token, ttl: MAX_TTL, proposal }
    }

    fn replace_asker(&mut self) {
        let which = self.random.below(self.askers.len() as u64) as usize;
        self.askers[which] = Asker { token: Token::random(&*self.time), waited: false };
    }

    fn empty(&mut self) {
        assert_eq!(self.server.command(&["FLUSHALL"]), Reply::Simple("OK".into()));
        self.simulated.forget(Loses::Everything, 0);
    }

    /// The marker that is there is from another start of the server: it may have forgotten something.
    fn start_again(&mut self) {
        let Reply::Bulk(Some(marker)) = self.server.command(&["GET", MARKER]) else { return };
        let marker = String::from_utf8(marker).expect("a text");
        let other = marker.replace(&self.server.run_id(), &"f".repeat(40));
        assert_eq!(self.server.command(&["SET", MARKER, &other]), Reply::Simple("OK".into()));
        self.run_id += 1;
    }

    /// Moves both clocks, often to where something ends, or next to it.
    async fn move_clocks(&mut self, step: u64) {
        let ends_us = self.ends_us();
        let random = &mut self.random;
        let by_us = match (random.below(8), random.pick(&ends_us)) {
            // Much of what can happen does so only while it votes.
            (0..2, _) => (self.simulated.quarantine().unwrap_or_default() / 1_000)
                .saturating_sub(self.now_us)
                .cast_signed(),
            (2..6, Some(end_us)) => {
                end_us.cast_signed() - self.now_us.cast_signed() + random.around_zero(1) * 1_000
            }
            (6, _) => random.around_zero(30_000) * 1_000,
            _ => random.around_zero(1_500) * 1_000,
        };
        // What ends a day later is another matter.
        let by_ms = (by_us / 1_000).clamp(-100_000, 100_000);
        self.jump_ms(by_ms, step).await;
    }

    async fn jump_ms(&mut self, by_ms: i64, step: u64) {
        self.server.clock().jump_ms(by_ms);
        self.now_us = self.now_us.saturating_add_signed(by_ms * 1_000);
        assert_eq!(shown_us(&self.server), self.now_us, "its clock stands still otherwise");
        // A look at a key that has expired drops it: on both sides.
        for name in NAMES {
            self.compare(self.asked(name, AskedVerb::Inspect, 0), step).await;
        }
    }

    /// When records, queues and the time without votes end.
    fn ends_us(&self) -> Vec<u64> {
        let mut ends = Vec::new();
        ends.extend(self.simulated.quarantine().map(|ns| ns / 1_000));
        for name in NAMES {
            let kept = self.simulated.kept(name.as_bytes(), 0);
            ends.push(kept.until / 1_000);
            if let Data::Strict(keys) = &self.simulated.data {
                ends.extend(keys.records.shares(name.as_bytes()).iter().map(|(_, end_us)| end_us));
            }
            ends.extend(self.queue(name).1.map(|ms| ms * 1_000 + self.now_us % 1_000));
        }
        ends.retain(|end_us| *end_us > 0);
        ends
    }

    fn asked(&self, name: &str, verb: AskedVerb, off_us: i64) -> Asked {
        let wall_us = self.now_us.saturating_add_signed(off_us);
        let name = name.as_bytes().to_vec();
        // As the grant message repeats it.
        let sent = match &verb {
            AskedVerb::Wait { ticket, .. } => ticket.sent,
            _ => self.time.now(),
        };
        Asked { name, sent, wall_us, set: self.members[1].digest().into(), verb }
    }

    /// A fence near those that were given out, or by the time of day; now and then a short one.
    fn any_fence(&mut self, name: &str) -> u64 {
        let known = self.simulated.kept(name.as_bytes(), self.now_us * 1_000).fence;
        match self.random.below(10) {
            0 => self.random.between(1, 1_000),
            1 => known.max(1),
            2..5 => known.saturating_add_signed(self.random.around_zero(20)).max(1),
            5..7 => self.now_us + self.random.below(100),
            _ => known.max(self.now_us) + self.random.below(100),
        }
    }

    /// Which of those who ask has the record of a lock, though its time may be over.
    fn holder(&self, name: &str) -> Option<u64> {
        let token = match &self.simulated.data {
            Data::Redlock(keys) => keys.records.read(name.as_bytes()),
            Data::Strict(keys) => keys.records.read(name.as_bytes()),
        }?;
        self.askers.iter().position(|asker| *asker.token.text() == *token).map(|who| who as u64)
    }

    /// A request that makes some sense.
    fn any(&mut self) -> Asked {
        let name = NAMES[usize::from(self.random.percent(30))];
        let kind = self.random.below(24);
        // Those who have nothing ask for it, and those who have it do something with it, most of the time.
        let anybody = self.random.below(self.askers.len() as u64);
        let holder = self.holder(name).filter(|_| kind >= WANTING && self.random.percent(70));
        let who = holder.unwrap_or(anybody);
        let Asker { token, waited } = self.askers[who as usize];
        let least = self.any_fence(name);
        let random = &mut self.random;
        let proposal =
            random.percent(90).then(|| Proposal { least, block: random.between(1, 16) as u16 });
        let ttl = match random.below(3) {
            0 => Duration::from_millis(random.between(1, 2_000)),
            _ => MAX_TTL - Duration::from_millis(random.below(5_000)),
        };
        // The last of them has no listener.
        let client = self.clients[usize::from(who + 1 == self.askers.len() as u64)];
        let ticket_no = match random.below(3) {
            0 => TicketNumber::Agreed(random.between(1, 50)),
            _ => TicketNumber::New(random.between(1, 50)),
        };
        let participant = match self.participants.as_slice() {
            [] => None,
            some => random.pick(some).filter(|_| random.percent(40)),
        };
        let verb = match kind {
            0..5 => AskedVerb::Acquire { token, ttl, proposal },
            5..WANTING => {
                let (secret, sent) = (Secret::random(&*self.time), self.time.now());
                let ticket =
                    Ticket { client, waiter: who, secret, ticket_no, sent, keep: Duration::MAX };
                AskedVerb::Wait { token, ttl, ticket, yielding: random.percent(30), proposal }
            }
            WANTING..12 => AskedVerb::Confirm { token, fence: least },
            12..15 => {
                let kinds = [Restore::Never, Restore::Heal(least), Restore::WinBack(least)];
                let restore = random.pick(&kinds).unwrap_or(Restore::Never);
                AskedVerb::Extend { token, ttl, restore, participant }
            }
            15..20 => AskedVerb::Release { token, next: least, queued: waited, participant },
            20 => AskedVerb::ForceRelease { holder: Holder::of(&token.text()) },
            21 => {
                let note = if random.percent(30) { "" } else { "somebody" };
                AskedVerb::SetNote { token, note: note.to_owned(), keep: ttl }
            }
            22 => AskedVerb::List,
            _ => AskedVerb::Inspect,
        };
        // As far off as a clock may be, and a microsecond further.
        let (behind, ahead) = Dialect::WINDOW_US;
        let off_us = match random.below(20) {
            0 => behind.cast_signed(),
            1 => behind.cast_signed() + 1,
            2 => -ahead.cast_signed(),
            3 => -ahead.cast_signed() - 1,
            4 => 9_000_000,
            5 => -9_000_000,
            _ => 0,
        };
        self.asked(name, verb, off_us)
    }

    async fn compare(&mut self, asked: Asked, step: u64) {
        self.time.wall_us.store(asked.wall_us, Ordering::SeqCst);
        if let AskedVerb::Wait { token, .. } = &asked.verb {
            for asker in self.askers.iter_mut().filter(|asker| asker.token == *token) {
                asker.waited = true;
            }
        }
        let (short, looks) = (self.is_short(&asked), self.looks());
        let real = self.ask_real(asked.clone()).await;
        let (listens, now) = (|client| client == self.clients[0], self.now_us * 1_000);
        let did = self.simulated.execute(&asked, self.run_id, now, &listens);
        let context = format!("step {step}, {asked:?}: {real:?} and {:?}", did.served);
        assert!(same(&real, &did.served), "{context}");
        for (_, expected) in did.said {
            let received = tokio::time::timeout(Duration::from_secs(10), self.grants.recv()).await;
            assert_eq!(received.ok().flatten(), Some(expected), "{context}");
        }
        assert!(self.grants.try_recv().is_err(), "more grant messages than expected; {context}");
        if let Some(short) = short {
            // Whatever stands behind it looks at the clock once more.
            assert_eq!(self.looks() - looks == 1, short, "the shortest way; {context}");
            self.short_grants += u32::from(short && matches!(real, Answer::Granted { .. }));
        }
    }

    /// Several extensions at once. They go out in one script, and each ends as it would alone.
    async fn extend_together(&mut self, step: u64) {
        // What is under way keeps those that follow in the line.
        let mut asked = vec![self.asked(NAMES[0], AskedVerb::Inspect, 0)];
        let count = self.random.between(2, 6);
        for _ in 0..count {
            let name = NAMES[usize::from(self.random.percent(50))];
            let anybody = self.random.below(self.askers.len() as u64);
            let holder = self.holder(name).filter(|_| self.random.percent(80));
            let Asker { token, .. } = self.askers[holder.unwrap_or(anybody) as usize];
            let ttl = Duration::from_millis(self.random.between(1, 20_000));
            let last = self.any_fence(name);
            let kinds = [Restore::Never, Restore::Heal(last), Restore::WinBack(last)];
            let restore = self.random.pick(&kinds).unwrap_or(Restore::Never);
            let verb = AskedVerb::Extend { token, ttl, restore, participant: None };
            asked.push(self.asked(name, verb, 0));
        }
        self.time.wall_us.store(self.now_us, Ordering::SeqCst);
        let before = self.calls("evalsha");
        let real: Vec<_> = asked.iter().map(|asked| self.submit(asked.clone())).collect();
        let now = self.now_us * 1_000;
        for (asked, mut real) in asked.iter().zip(real) {
            let real = real.recv().await.expect("an answer");
            let did = self.simulated.execute(asked, self.run_id, now, &|_| false);
            let context = format!("step {step}, {asked:?}: {real:?} and {:?}", did.served);
            assert!(same(&real, &did.served), "{context}");
        }
        assert_eq!(self.calls("evalsha") - before, 2, "step {step}: one script for all of them");
    }

    /// How often scripts have looked at the clock of the real server.
    fn looks(&self) -> u64 {
        self.calls("time")
    }

    fn calls(&self, command: &str) -> u64 {
        let Reply::Bulk(Some(info)) = self.server.command(&["INFO", "commandstats"]) else {
            panic!("no statistics");
        };
        let info = String::from_utf8(info).expect("a text");
        let calls = info.lines().find_map(|line| {
            line.strip_prefix("cmdstat_")?.strip_prefix(command)?.strip_prefix(":calls=")
        });
        calls.map_or(0, |calls| {
            calls.split(',').next().and_then(|digits| digits.parse().ok()).expect("a number")
        })
    }

    /// Whether an acquisition in the strict dialect is answered by what stands before all functions: a
    /// server that votes refuses what is held, and grants what is free and has no waiter, if the
    /// fences that are proposed lie above those that were given out.
    fn is_short(&self, asked: &Asked) -> Option<bool> {
        let Data::Strict(keys) = &self.simulated.data else { return None };
        let AskedVerb::Acquire { proposal, .. } = &asked.verb else { return None };
        let (behind, ahead) = Dialect::WINDOW_US;
        let window = asked.wall_us - behind..=asked.wall_us + ahead;
        let lock = keys.records.locks.get(&asked.name).cloned().unwrap_or_default();
        let answered = if lock.owner.is_empty() {
            let above = |wanted: &Proposal| {
                let last = wanted.last();
                lock.fence + u64::from(wanted.block) <= last && last.to_string().len() == 16
            };
            !lock.waited && proposal.as_ref().is_some_and(above)
        } else {
            lock.shares.is_empty() && lock.expiry_us > self.now_us
        };
        Some(window.contains(&self.now_us) && self.votes() && answered)
    }

    /// What lies on both servers is the same.
    fn compare_stored(&self, step: u64) {
        let now_ms = self.now_us / 1_000;
        for name in NAMES {
            let mut stored = self.stored(name);
            let last_ms = stored.pop().expect("how long the queue lasts");
            let last_ms = last_ms.parse::<i64>().expect("a number");
            let last_ms = (last_ms >= 0).then(|| now_ms + last_ms.unsigned_abs());
            let waiters = stored.pop().expect("how many have told what they want");
            let record = stored.remove(0);
            let (places, until) = self.queue(name);
            assert_eq!((&stored, last_ms), (&places, until), "step {step}: the queue of {name}");
            assert_eq!(waiters, (places.len() / 2).to_string(), "step {step}: of {name}");
            if let Data::Strict(keys) = &self.simulated.data {
                let lock = keys.records.locks.get(name.as_bytes()).cloned().unwrap_or_default();
                let owner = String::from_utf8(lock.owner).expect("a token");
                let expiry_us = if owner.is_empty() { 0 } else { lock.expiry_us };
                let shares = lock.shares.iter().map(|(who, end_us)| match who {
                    Some(who) => format!(" {who} {end_us}"),
                    None => format!(" maker {end_us}"),
                });
                let owner = owner + &shares.collect::<String>();
                let real = StrictRecord::read(&record);
                let simulated = (lock.fence, owner.as_str(), expiry_us, lock.waited);
                let real = (real.fence, real.owner, real.expiry_us, real.waited);
                assert_eq!(real, simulated, "step {step}: the record of {name}");
            }
        }
    }

    /// The record, the queue with its ticket numbers, how many waiters it has stored, and how long that lasts.
    fn stored(&self, name: &str) -> Vec<String> {
        let look = "local lock, queue = KEYS[1], KEYS[1] .. ':quorlock:queue'
            local stored = redis.call('ZRANGE', queue, 0, -1, 'WITHSCORES')
            table.insert(stored, 1, redis.call('GET', lock) or '')
            redis.call('GET', lock .. ':quorlock:holder')
            local waiters = lock .. ':quorlock:waiters'
            stored[#stored + 1] = tostring(redis.call('HLEN', waiters))
            local last = redis.call('PTTL', queue)
            assert(last == redis.call('PTTL', waiters))
            stored[#stored + 1] = tostring(last)
            return stored";
        let Reply::Array(parts) = self.server.command(&["EVAL", look, "1", name]) else {
            panic!("the server does not tell");
        };
        let text = |part| match part {
            Reply::Bulk(Some(text)) => String::from_utf8(text).expect("a text"),
            other => panic!("{other:?}"),
        };
        parts.into_iter().map(text).collect()
    }

    /// The queue of the simulated server, as a real one tells it, and its last millisecond.
    fn queue(&self, name: &str) -> (Vec<String>, Option<u64>) {
        let queue = match &self.simulated.data {
            Data::Redlock(keys) => keys.queues.get(name.as_bytes()),
            Data::Strict(keys) => keys.queues.get(name.as_bytes()),
        };
        let places = queue.into_iter().flat_map(|queue| queue.places.keys());
        let texts = places.flat_map(|(ticket_no, token)| {
            [String::from_utf8(token.clone()).expect("a token"), ticket_no.to_string()]
        });
        (texts.collect(), queue.map(|queue| queue.until))
    }
}

/// A record of the strict dialect, as it lies on a real server.
#[derive(Default)]
struct StrictRecord<'a> {
    fence: u64,
    /// Empty if it is free. Behind the token stands who holds it, if it is not the maker alone.
    owner: &'a str,
    expiry_us: u64,
    /// Whether it says that a client waits.
    waited: bool,
}

impl<'a> StrictRecord<'a> {
    fn read(text: &'a str) -> Self {
        let Some(rest) = text.strip_prefix("quorlock ") else {
            assert_eq!(text, "", "no record");
            return Self::default();
        };
        let (fence, rest) = rest.split_at(16);
        let fence = fence.parse().expect("a number of 16 digits");
        let (state, rest) = rest.split_at(1);
        let waited = state == "+" || state == "=" || state == "*";
        if state == "-" || state == "=" {
            return Self { fence, waited, ..Self::default() };
        }
        let mut parts = rest.rsplitn(4, ' ');
        let mut part = || parts.next().expect("four parts");
        let [ttl_ms, micros, seconds] =
            [part(), part(), part()].map(|part| part.parse::<u64>().expect("a number"));
        let expiry_us = seconds * 1_000_000 + micros + ttl_ms * 1_000;
        Self { fence, owner: part(), expiry_us, waited }
    }
}

/// What a server's clock shows.
fn shown_us(server: &RedisServer) -> u64 {
    let Reply::Array(parts) = server.command(&["TIME"]) else { panic!("no time") };
    let number = |part: &Reply| match part {
        Reply::Bulk(Some(digits)) => {
            String::from_utf8_lossy(digits).parse::<u64>().expect("a number")
        }
        other => panic!("{other:?}"),
    };
    number(&parts[0]) * 1_000_000 + number(&parts[1])
}

fn kind(answer: &Answer) -> Option<FailureKind> {
    match answer {
        Answer::Failed(failure) => Some(failure.kind()),
        _ => None,
    }
}

fn same(real: &Answer, simulated: &Served) -> bool {
    let simulated = match simulated {
        Served::Answer(answer) => answer,
        Served::NoVote(_) => {
            return matches!(kind(real), Some(FailureKind::Quarantined(_) | FailureKind::OtherSet));
        }
        Served::Clock(_) | Served::Unchecked(_) => {
            return matches!(kind(real), Some(FailureKind::Clock | FailureKind::Late));
        }
    };
    match (real, simulated) {
        (Answer::Granted { fence: a }, Answer::Granted { fence: b }) => a == b,
        (Answer::Done, Answer::Done)
        | (Answer::LeftToOthers, Answer::LeftToOthers)
        | (Answer::Refused, Answer::Refused) => true,
        (Answer::Queued(a), Answer::Queued(b)) => {
            // Whether a grant message will come is a matter of the connection, not of the server.
            (a.ticket_no, a.record) == (b.ticket_no, b.record)
        }
        (Answer::Seen(a), Answer::Seen(b)) => {
            let all = |seen: &Seen| (seen.record, seen.note.clone(), seen.waiters, seen.quarantine);
            all(a) == all(b)
        }
        (Answer::Listed(a), Answer::Listed(b)) => {
            let sorted = |names: &[Name]| {
                let mut names = names.to_vec();
                names.sort();
                names
            };
            sorted(&a.names) == sorted(&b.names)
        }
        (Answer::Failed(a), Answer::Failed(b)) => a.kind() == b.kind(),
        _ => false,
    }
}

/// Returns how many grants came by the shortest way of the strict dialect.
async fn side_by_side(dialect: Dialect) -> u32 {
    let mut short_grants = 0;
    for seed in 1..4 {
        let mut pair = Pair::new(dialect, seed).await;
        pair.steps().await;
        short_grants += pair.short_grants;
    }
    short_grants
}

#[test]
async fn redlock() {
    side_by_side(Dialect::Redlock).await;
}

#[test]
async fn strict() {
    let short_grants = side_by_side(Dialect::Strict).await;
    assert!(short_grants > 15, "the shortest way was hardly taken: {short_grants} times");
}

/// By the record as the shortest way writes it, and as the others do.
#[test]
async fn strict_to_the_end_of_a_lease() {
    let mut pair = Pair::new(Dialect::Strict, 1).await;
    pair.begin().await;
    let length_ms = MAX_TTL.as_millis() as i64;
    for turn in 0..4 {
        let (holder, next) = (turn % 2, (turn + 1) % 2);
        let taken = pair.asked(NAMES[0], pair.acquire(holder, 0), 0);
        pair.compare(taken, 1).await;
        if turn >= 2 {
            let token = pair.askers[holder].token;
            let extended = AskedVerb::Extend {
                token,
                ttl: MAX_TTL,
                restore: Restore::Never,
                participant: None,
            };
            pair.compare(pair.asked(NAMES[0], extended, 0), 2).await;
        }
        pair.compare_stored(3);
        for (by_ms, holds) in [(length_ms - 1, true), (1, false)] {
            pair.jump_ms(by_ms, 4).await;
            assert_eq!(
                pair.simulated.kept(NAMES[0].as_bytes(), pair.now_us * 1_000).token > 0,
                holds
            );
            pair.compare(pair.asked(NAMES[0], pair.acquire(next, 9), 0), 5).await;
            pair.compare_stored(6);
        }
        let release = AskedVerb::Release {
            token: pair.askers[next].token,
            next: 0,
            queued: false,
            participant: None,
        };
        pair.compare(pair.asked(NAMES[0], release, 0), 7).await;
    }
}

/// What a server holds counts for the set that it belongs to, and for no other.
#[test]
async fn strict_of_another_set() {
    let mut pair = Pair::new(Dialect::Strict, 1).await;
    let others = ["another:1", "third:1"].map(str::to_owned);
    let other = Members::new(others, MAX_TTL, Duration::from_millis(300));
    for kind in 0..4 {
        pair.begin().await;
        pair.compare(pair.asked(NAMES[0], pair.acquire(0, 0), 0), kind).await;
        let writes = |own: &Members| match kind {
            0 => Writes::Formed(other.clone()),
            1 => Writes::Forming(other.clone()),
            2 => Writes::Forming(own.clone()),
            _ => Writes::Closed {
                closed_for: ClosedFor { digest: own.digest().to_owned(), members: 1 },
                successor: other.clone(),
            },
        };
        pair.mark(writes, kind).await;
        let fence = pair.simulated.kept(NAMES[0].as_bytes(), 0).fence;
        for who in [0, 1] {
            let token = pair.askers[who].token;
            for name in NAMES {
                for restore in [Restore::Never, Restore::Heal(fence), Restore::WinBack(fence)] {
                    let extend =
                        AskedVerb::Extend { token, ttl: MAX_TTL, restore, participant: None };
                    pair.compare(pair.asked(name, extend, 0), kind).await;
                    pair.compare_stored(kind);
                }
            }
            let release = AskedVerb::Release { token, next: 0, queued: false, participant: None };
            pair.compare(pair.asked(NAMES[0], pair.acquire(who, 0), 0), kind).await;
            pair.compare(pair.asked(NAMES[0], AskedVerb::Inspect, 0), kind).await;
            pair.compare(pair.asked(NAMES[0], release, 0), kind).await;
            pair.compare_stored(kind);
        }
        pair.empty();
    }
}

/// A waiter that stands in the queue and does not hear of its turn is passed over, and uses up the last fence that
/// can be given out. The client that asks gets none then, and the lock is free.
#[test]
async fn strict_where_the_fences_end() {
    let mut pair = Pair::new(Dialect::Strict, 1).await;
    pair.begin().await;
    let (name, short, length_ms) = (NAMES[0], Duration::from_millis(50), 51i64);
    let (behind, _) = Dialect::WINDOW_US;
    // The last but one at the moment of the last request, by a client that is as far ahead as it may be.
    let ends_us = pair.now_us + length_ms.unsigned_abs() * 1_000;
    let least = ends_us + MOST_AHEAD_US - 1;
    let proposal = Some(Proposal { least, block: 1 });
    let take = AskedVerb::Acquire { token: pair.askers[0].token, ttl: short, proposal };
    pair.compare(pair.asked(name, take, behind.cast_signed()), 1).await;
    assert_eq!(pair.simulated.kept(name.as_bytes(), 0).fence, least);
    let wait = |pair: &Pair, who: usize, client: ClientId| {
        let (secret, sent) = (Secret::random(&*pair.time), pair.time.now());
        let ticket_no = TicketNumber::New(who as u64);
        let ticket =
            Ticket { client, waiter: who as u64, secret, ticket_no, sent, keep: Duration::MAX };
        let (token, proposal) = (pair.askers[who].token, Some(Proposal { least: 1, block: 1 }));
        let verb = AskedVerb::Wait { token, ttl: MAX_TTL, ticket, yielding: false, proposal };
        pair.asked(name, verb, 0)
    };
    pair.compare(Asked { wall_us: pair.now_us + behind, ..wait(&pair, 1, pair.clients[1]) }, 2)
        .await;
    pair.jump_ms(length_ms, 3).await;
    pair.compare(wait(&pair, 2, pair.clients[0]), 4).await;
    pair.compare_stored(5);
    assert_eq!(pair.simulated.kept(name.as_bytes(), 0).token, 0, "nobody has it");
    assert!(pair.queue(name).0.is_empty());
}

/// So many take part in a lock, and no more.
#[test]
async fn strict_until_the_list_is_full() {
    let mut pair = Pair::new(Dialect::Strict, 1).await;
    pair.begin().await;
    let (name, token) = (NAMES[0], pair.askers[0].token);
    let short = Duration::from_secs(1);
    let known = pair.now_us + 1;
    let taken = AskedVerb::Acquire {
        token,
        ttl: short,
        proposal: Some(Proposal { least: known, block: 1 }),
    };
    pair.compare(pair.asked(name, taken, 0), 0).await;
    let all: Vec<_> = (0..258).map(|_| ParticipantId::random(&*pair.time)).collect();
    let extend = |pair: &Pair, participant: Option<ParticipantId>| {
        let verb = AskedVerb::Extend { token, ttl: MAX_TTL, restore: Restore::Never, participant };
        pair.asked(name, verb, 0)
    };
    let listed = |pair: &Pair| match &pair.simulated.data {
        Data::Strict(keys) => keys.records.shares(name.as_bytes()).len(),
        Data::Redlock(_) => 0,
    };
    for (step, participant) in (1..).zip(&all[..257]) {
        pair.compare(extend(&pair, Some(*participant)), step).await;
    }
    assert_eq!(listed(&pair), 256, "with the maker");
    pair.compare_stored(257);
    // The time of the maker is over: there is room for another.
    pair.jump_ms(short.as_millis() as i64, 258).await;
    for participant in &all[256..] {
        pair.compare(extend(&pair, Some(*participant)), 259).await;
    }
    assert_eq!(listed(&pair), 256);
    // The maker always has room, and a participant that is listed stays so.
    for who in [None, Some(all[0]), Some(all[256])] {
        pair.compare(extend(&pair, who), 260).await;
        pair.compare_stored(260);
    }
    assert_eq!(listed(&pair), 257);
}

/// A marker is written in the place of the one that was seen, by a request that is in time, and otherwise not.
#[test]
async fn strict_marks_in_the_place_of_what_was_seen() {
    let mut pair = Pair::new(Dialect::Strict, 1).await;
    pair.begin().await;
    let there = pair.server.command(&["GET", MARKER]);
    let blank = |pair: &Pair, seen: &[u8], off_us| {
        let mark = Mark { seen: seen.to_vec(), writes: Writes::Blank, nonce: 1 };
        pair.asked("-", AskedVerb::Mark(Some(mark)), off_us)
    };
    let Answer::Marker(Some(marker)) =
        pair.ask_real(pair.asked("-", AskedVerb::Mark(None), 0)).await
    else {
        panic!("no marker");
    };
    let (behind, ahead) = Dialect::WINDOW_US;
    for off_us in [behind.cast_signed() + 1, -ahead.cast_signed() - 1] {
        pair.time.wall_us.store(pair.now_us.saturating_add_signed(off_us), Ordering::SeqCst);
        let late = pair.ask_real(blank(&pair, &marker.instance, off_us)).await;
        assert!(matches!(kind(&late), Some(FailureKind::Clock | FailureKind::Late)), "{late:?}");
        assert_eq!(pair.server.command(&["GET", MARKER]), there);
    }
    pair.time.wall_us.store(pair.now_us, Ordering::SeqCst);
    for seen in [&b"another"[..], b""] {
        pair.ask_real(blank(&pair, seen, 0)).await;
        assert_eq!(pair.server.command(&["GET", MARKER]), there);
    }
    pair.ask_real(blank(&pair, &marker.instance, 0)).await;
    assert_ne!(pair.server.command(&["GET", MARKER]), there);
}
