//! The core on a store that loses answers, runs requests late, stands still, and ends leases: seeds of it, in virtual
//! time. What is checked: nobody believes to hold a lock that another believes to hold; fences grow; what was released
//! never comes back; everybody gets a turn in the end.

use std::collections::{HashMap, HashSet};
use std::future::Future;
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, SystemTime};

use tokio::sync::{Notify, mpsc, oneshot, watch};
use tokio::time::Instant;

use super::{CasNode, Change, Found, Store, Window, Written};
use crate::locked::locked;
use crate::name::Name;
use crate::node::{
    Answer, Call, Capabilities, ClientId, Failure, FailureKind, Grant, Inbox, Listed, Node,
    NodeContext, NodeOptions, Proposal, Request, Restore, Round, Secret, Ticket, TicketNumber,
    Verb,
};
use crate::runtime::{BoxFuture, Moment, Runtime, wall_us};
use crate::settings::Settings;
use crate::token::Token;

const TTL: Duration = Duration::from_secs(5);
const LIMIT: Duration = Duration::from_secs(1);
const CLIENTS: usize = 4;
const TURNS: usize = 6;
/// A lease may have been asked for so long before it is used.
const SLACK: Duration = Duration::from_secs(2);

/// A mistake of the store that the checks have to find.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Planted {
    Nothing,
    /// A request that runs late does not compare versions.
    UncomparedLateWrite,
    /// A lease ends before the time that was promised, as one that a stopped leader has kept alive.
    LeaseKeptAlive,
    /// A member answers reads that has not heard of the latest writes, and what it says is written upon.
    VersionsIgnored,
}

/// Chance that a seed gives again.
#[derive(Debug)]
struct Chance(Mutex<u64>);

impl Chance {
    fn next(&self) -> u64 {
        let mut state = locked(&self.0);
        *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = *state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&self, end: u64) -> u64 {
        self.next() % end
    }

    fn millis(&self, end: u64) -> Duration {
        Duration::from_millis(self.below(end))
    }
}

/// Virtual time, on a wall clock of its own.
#[derive(Debug)]
struct VirtualRuntime {
    start: Instant,
    wall_ahead: Duration,
    chance: Arc<Chance>,
}

impl Runtime for VirtualRuntime {
    fn now(&self) -> Moment {
        let nanos = self.start.elapsed().as_nanos();
        Moment::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }

    fn wall(&self) -> SystemTime {
        let of_day = Duration::from_secs(1_800_000_000) + self.wall_ahead + self.start.elapsed();
        SystemTime::UNIX_EPOCH + of_day
    }

    fn sleep(&self, duration: Duration) -> BoxFuture<'static, ()> {
        Box::pin(tokio::time::sleep(duration))
    }

    fn spawn(&self, future: BoxFuture<'static, ()>) {
        drop(tokio::spawn(future));
    }

    fn random(&self, bytes: &mut [u8]) {
        for byte in bytes {
            *byte = self.chance.next().to_le_bytes()[0];
        }
    }
}

/// What the cluster has, and what is known of all clients.
#[derive(Debug)]
struct World {
    chance: Arc<Chance>,
    planted: Planted,
    start: Instant,
    kept: Mutex<Kept>,
    inboxes: Mutex<HashMap<ClientId, mpsc::UnboundedSender<Grant>>>,
    /// No faults any more.
    is_calm: Mutex<bool>,
}

#[derive(Debug, Default)]
struct Kept {
    found: HashMap<Name, Found>,
    revision: i64,
    /// When nobody can write, until then.
    still_until: Option<Instant>,
    /// Tokens whose release was confirmed.
    released: HashSet<Token>,
    /// Who believes to hold which lock, until when.
    believers: HashMap<Name, (Token, Moment)>,
    last_fence: HashMap<Name, u64>,
    broken: Vec<String>,
}

impl World {
    fn new(seed: u64, planted: Planted) -> Arc<Self> {
        Arc::new(Self {
            chance: Arc::new(Chance(Mutex::new(seed))),
            planted,
            start: Instant::now(),
            kept: Mutex::default(),
            inboxes: Mutex::default(),
            is_calm: Mutex::default(),
        })
    }

    fn now(&self) -> Moment {
        Moment::from_nanos(u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }

    fn break_promise(&self, what: &str) {
        locked(&self.kept).broken.push(format!("{:?}: {what}", self.start.elapsed()));
    }

    /// What is there at present: holds whose leases have ended are gone.
    fn found(&self, name: &Name) -> Found {
        let now = self.now();
        let mut kept = locked(&self.kept);
        let found = kept.found.entry(name.clone()).or_default();
        found.holds.retain(|hold| hold.until > now);
        found.clone()
    }

    /// Runs a write. `ends` is when the lease ends that it names.
    fn run(
        &self,
        name: &Name,
        version: i64,
        change: &Change,
        ends: Moment,
        is_late: bool,
    ) -> Written {
        let there = self.found(name);
        let compares = match self.planted {
            Planted::UncomparedLateWrite => !is_late,
            Planted::VersionsIgnored => false,
            Planted::Nothing | Planted::LeaseKeptAlive => true,
        };
        if compares && there.version != version
            || change.only_if_held && there.holds.is_empty()
            || ends <= self.now()
        {
            return Written::Conflict(there);
        }
        if let Some(message) = &change.message {
            let inboxes = locked(&self.inboxes);
            let Some(inbox) = inboxes.get(&message.client).filter(|inbox| !inbox.is_closed())
            else {
                return Written::Gone;
            };
            // One in eight is lost.
            if self.is_calm() || self.chance.below(8) > 0 {
                let _ = inbox.send(message.grant);
            }
        }
        let before = there.holds.clone();
        let mut holds = change.holds.apply(&there.holds, 0, self.now());
        for hold in &mut holds {
            let was = before.iter().any(|old| (old.who, old.until) == (hold.who, hold.until));
            if !was {
                hold.until = ends;
            }
        }
        let mut kept = locked(&self.kept);
        kept.revision += 1;
        let found = Found { version: kept.revision, state: change.state.clone(), holds };
        if let Some(token) = found.state.holder()
            && !found.holds.is_empty()
            && kept.released.contains(&token)
        {
            let text =
                format!("{:?}: {name} is held again by a token that has released it", self.now());
            kept.broken.push(text);
        }
        kept.found.insert(name.clone(), found.clone());
        Written::Done(found)
    }

    fn is_calm(&self) -> bool {
        *locked(&self.is_calm)
    }

    /// A client believes to hold a lock until then.
    fn believe(&self, name: &Name, token: Token, until: Moment, fence: u64) {
        let now = self.now();
        if until <= now {
            return;
        }
        let mut broken = None;
        {
            let mut kept = locked(&self.kept);
            match kept.believers.get(name) {
                Some((other, end)) if *other != token && *end > now => {
                    broken = Some(format!("two hold {name} until {end:?} and {until:?}"));
                }
                Some((other, _)) if *other == token => {}
                _ => {
                    let last = kept.last_fence.insert(name.clone(), fence);
                    if last.is_some_and(|last| last >= fence) {
                        broken = Some(format!("the fence {fence} of {name} follows {last:?}"));
                    }
                }
            }
            kept.believers.insert(name.clone(), (token, until));
        }
        broken.into_iter().for_each(|what| self.break_promise(&what));
    }

    fn believe_no_more(&self, name: &Name, token: Token) {
        let mut kept = locked(&self.kept);
        if kept.believers.get(name).is_some_and(|(other, _)| *other == token) {
            kept.believers.remove(name);
        }
    }
}

/// The cluster, as one client reaches it.
struct SimStore {
    world: Arc<World>,
    runtime: Arc<dyn Runtime>,
}

impl SimStore {
    async fn trip(&self) -> Result<(), Failure> {
        tokio::time::sleep(Duration::from_micros(200 + self.world.chance.below(2_000))).await;
        let until = locked(&self.world.kept).still_until.filter(|until| *until > Instant::now());
        match until {
            None => Ok(()),
            Some(until) if self.world.chance.below(2) == 0 => {
                tokio::time::sleep_until(until).await;
                Ok(())
            }
            Some(_) => Err(Failure::new(FailureKind::Unreachable, "no leader")),
        }
    }
}

impl Store for SimStore {
    async fn read(&self, name: &Name) -> Result<Found, Failure> {
        self.trip().await?;
        let found = self.world.found(name);
        self.trip().await?;
        Ok(found)
    }

    async fn write(&self, name: &Name, found: &Found, change: &Change) -> Result<Written, Failure> {
        use super::HoldChange::{Extend, Replace};
        let ttl = match change.holds {
            Extend { ttl, .. } | Replace { ttl, .. } => ttl,
            _ => TTL,
        };
        let world = &self.world;
        // Long enough from now on, and no longer than by the slack.
        let early = world.planted == Planted::LeaseKeptAlive && world.chance.below(4) == 0;
        let lasts =
            if early { ttl / 2 } else { ttl + world.chance.millis(SLACK.as_millis() as u64) };
        let ends = self.runtime.now().after(lasts);
        self.trip().await?;
        let fate = if world.is_calm() { 9 } else { world.chance.below(12) };
        match fate {
            // It runs, and the answer is lost.
            0 => {
                world.run(name, found.version, change, ends, false);
                Err(Failure::new(FailureKind::Broken, "the connection broke"))
            }
            // It runs later, or never.
            1 | 2 => {
                let (world, name, change) = (Arc::clone(world), name.clone(), change.clone());
                let (version, late) = (found.version, world.chance.millis(4_000));
                tokio::spawn(async move {
                    tokio::time::sleep(late).await;
                    world.run(&name, version, &change, ends, true);
                });
                if fate == 1 {
                    std::future::pending::<()>().await;
                }
                Err(Failure::new(FailureKind::Silent, "no answer"))
            }
            _ => {
                let written = world.run(name, found.version, change, ends, false);
                self.trip().await.map_err(|_| Failure::new(FailureKind::Broken, "no leader"))?;
                Ok(written)
            }
        }
    }

    async fn list(&self, _from: &[u8]) -> Result<Listed, Failure> {
        Ok(Listed::default())
    }

    fn window(&self) -> Option<Window> {
        None
    }

    fn is_listening(&self) -> bool {
        true
    }

    fn listen(&self, _node: usize, _inbox: Weak<dyn Inbox>) {}

    async fn close(&self) {}
}

/// What is asked of a node, once.
struct Asked {
    name: Name,
    token: Token,
    sent: Moment,
    wall_us: u64,
    what: What,
    answer: Mutex<Option<oneshot::Sender<Answer>>>,
}

#[derive(Debug, Clone, Copy)]
enum What {
    Acquire(Proposal),
    Wait(Ticket, Proposal),
    Extend,
    Release(Moment, u64),
}

impl Round for Asked {
    fn request(&self, _node: usize) -> Request<'_> {
        let token = &self.token;
        let verb = match self.what {
            What::Acquire(proposal) => Verb::Acquire { token, ttl: TTL, proposal: Some(proposal) },
            What::Wait(ticket, proposal) => {
                Verb::Wait { token, ttl: TTL, ticket, yielding: false, proposal: Some(proposal) }
            }
            What::Extend => {
                Verb::Extend { token, ttl: TTL, restore: Restore::Never, participant: None }
            }
            What::Release(until, next) => {
                Verb::Release { token, until: Some(until), next, queued: true, participant: None }
            }
        };
        Request { name: &self.name, sent: self.sent, wall_us: self.wall_us, verb }
    }

    fn cast(self: Arc<Self>, _node: usize, answer: Answer) {
        if let Some(to) = locked(&self.answer).take() {
            let _ = to.send(answer);
        }
    }

    fn overdue(self: Arc<Self>, _node: usize, _why: Failure) {}
}

/// One client, and its turns.
struct Client {
    world: Arc<World>,
    node: CasNode<SimStore>,
    runtime: Arc<dyn Runtime>,
    id: ClientId,
    grants: mpsc::UnboundedReceiver<Grant>,
    waiters: u64,
}

impl Client {
    fn new(world: &Arc<World>, index: u64) -> Self {
        let runtime: Arc<dyn Runtime> = Arc::new(VirtualRuntime {
            start: world.start,
            // Clocks of clients differ, and nothing rests on them but the fences' start.
            wall_ahead: Duration::from_millis(300 * index),
            chance: Arc::clone(&world.chance),
        });
        let id = ClientId(index + 1);
        let urls: [&str; 0] = [];
        let context = NodeContext::new(
            &urls,
            &[],
            &Settings::default(),
            &NodeOptions::default(),
            &runtime,
            id,
        )
        .expect("good settings");
        let store = Arc::new(SimStore { world: Arc::clone(world), runtime: Arc::clone(&runtime) });
        let (known, readiness) = watch::channel(Some(Ok(Capabilities::new())));
        std::mem::forget(known);
        let node =
            CasNode::start("sim".into(), store, readiness, Capabilities::new(), LIMIT, &context);
        let (inbox, grants) = mpsc::unbounded_channel();
        locked(&world.inboxes).insert(id, inbox);
        Self { world: Arc::clone(world), node, runtime, id, grants, waiters: 0 }
    }

    fn ask(
        &self,
        name: &Name,
        token: Token,
        what: What,
    ) -> (Moment, impl Future<Output = Answer> + use<>) {
        let (to, answer) = oneshot::channel();
        let sent = self.runtime.now();
        let asked = Asked {
            name: name.clone(),
            token,
            sent,
            wall_us: wall_us(&*self.runtime),
            what,
            answer: Mutex::new(Some(to)),
        };
        self.node.submit(Call::new(Arc::new(asked), 0));
        (sent, async { answer.await.expect("an answer") })
    }

    fn proposal(&self) -> Proposal {
        Proposal { least: wall_us(&*self.runtime), block: 1 }
    }

    /// Tries once to have a lock, or waits for it, holds it for a while, and releases it. Returns whether it had it.
    async fn turn(&mut self, name: &Name, wait: bool) -> bool {
        let token = Token::random(&*self.runtime);
        let until =
            if wait { self.wait(name, token).await } else { self.try_once(name, token).await };
        if let Some(mut until) = until {
            for _ in 0..self.world.chance.below(3) {
                tokio::time::sleep(self.world.chance.millis(2_500)).await;
                let (sent, answer) = self.ask(name, token, What::Extend);
                if let Answer::Granted { fence } = answer.await {
                    until = until.max(sent.after(TTL));
                    self.world.believe(name, token, until, fence);
                }
            }
        }
        self.world.believe_no_more(name, token);
        let now = self.runtime.now();
        let release = What::Release(now.after(TTL * 2), self.proposal().least);
        let (_, answer) = self.ask(name, token, release);
        if matches!(answer.await, Answer::Done | Answer::Refused) {
            locked(&self.world.kept).released.insert(token);
        }
        until.is_some()
    }

    async fn try_once(&self, name: &Name, token: Token) -> Option<Moment> {
        let (sent, answer) = self.ask(name, token, What::Acquire(self.proposal()));
        match answer.await {
            Answer::Granted { fence } => {
                self.world.believe(name, token, sent.after(TTL), fence);
                Some(sent.after(TTL))
            }
            _ => None,
        }
    }

    async fn wait(&mut self, name: &Name, token: Token) -> Option<Moment> {
        self.waiters += 1;
        let (waiter, tries) = (self.waiters, if self.world.is_calm() { 60 } else { 6 });
        for _ in 0..tries {
            let sent = self.runtime.now();
            let ticket = Ticket {
                client: self.id,
                waiter,
                secret: Secret::random(&*self.runtime),
                ticket_no: TicketNumber::New(wall_us(&*self.runtime)),
                sent,
                keep: TTL * 3,
            };
            let (_, answer) = self.ask(name, token, What::Wait(ticket, self.proposal()));
            if let Answer::Granted { fence } = answer.await {
                self.world.believe(name, token, sent.after(TTL), fence);
                return Some(sent.after(TTL));
            }
            let granted = tokio::time::timeout(Duration::from_secs(1), async {
                loop {
                    let grant = self.grants.recv().await?;
                    if grant.waiter == waiter && grant.secret == ticket.secret {
                        return Some(grant);
                    }
                }
            });
            if let Ok(Some(grant)) = granted.await {
                self.world.believe(name, token, grant.sent.after(TTL), grant.fence);
                return Some(grant.sent.after(TTL));
            }
        }
        None
    }
}

/// Has the cluster stand still now and then.
async fn stand_still(world: Arc<World>, done: Arc<Notify>) {
    loop {
        let pause = world.chance.millis(6_000);
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            () = done.notified() => return,
        }
        let until = Instant::now() + world.chance.millis(1_500);
        locked(&world.kept).still_until = Some(until);
    }
}

/// Runs a seed, and returns what was promised and not kept, and how many turns there were.
async fn run(seed: u64, planted: Planted) -> (Vec<String>, usize) {
    let world = World::new(seed, planted);
    let done = Arc::new(Notify::new());
    let nemesis = tokio::spawn(stand_still(Arc::clone(&world), Arc::clone(&done)));
    let names = [Name::new("a").expect("a name"), Name::new("b").expect("a name")];
    let clients = (0..CLIENTS as u64).map(|index| {
        let (mut client, names) = (Client::new(&world, index), names.clone());
        tokio::spawn(async move {
            let mut turns = 0;
            for _ in 0..TURNS {
                let world = Arc::clone(&client.world);
                tokio::time::sleep(world.chance.millis(1_500)).await;
                let name = &names[usize::from(world.chance.below(3) == 0)];
                turns += usize::from(client.turn(name, world.chance.below(2) == 0).await);
            }
            turns
        })
    });
    let clients: Vec<_> = clients.collect();
    let mut turns = 0;
    for client in clients {
        turns += client.await.expect("no panic");
    }
    *locked(&world.is_calm) = true;
    locked(&world.kept).still_until = None;
    done.notify_one();
    nemesis.await.expect("no panic");
    let mut last = Client::new(&world, 99);
    for name in &names {
        // What is left of the others ends by itself.
        if !last.turn(name, true).await {
            world.break_promise(&format!("{name} cannot be had though nobody is in the way"));
        }
    }
    let broken = std::mem::take(&mut locked(&world.kept).broken);
    (broken, turns)
}

fn seeds(count: u64, planted: Planted) -> (Vec<String>, usize) {
    let (mut broken, mut turns) = (Vec::new(), 0);
    for seed in 0..count {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .expect("a runtime");
        let (what, had) = runtime.block_on(run(seed, planted));
        broken.extend(what.into_iter().map(|what| format!("seed {seed}: {what}")));
        turns += had;
    }
    (broken, turns)
}

/// How many: 20,000 take some minutes.
fn count() -> u64 {
    std::env::var("QUORLOCK_CAS_SEEDS").ok().and_then(|count| count.parse().ok()).unwrap_or(150)
}

#[test]
fn promises_are_kept_whatever_becomes_of_requests() {
    let count = count();
    let (broken, turns) = seeds(count, Planted::Nothing);
    assert!(broken.is_empty(), "{broken:#?}");
    assert!(turns as u64 > 4 * count, "only {turns} turns in {count} seeds");
    println!("{count} seeds, {turns} turns");
}

#[test]
fn mistakes_are_found() {
    let planted = [Planted::UncomparedLateWrite, Planted::LeaseKeptAlive, Planted::VersionsIgnored];
    for planted in planted {
        let (broken, _) = seeds(60, planted);
        assert!(!broken.is_empty(), "{planted:?} was not found");
    }
}
