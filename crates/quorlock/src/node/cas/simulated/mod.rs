//! The core on stores that lose answers, run requests late and stand still: seeds of them, in virtual time. One ends
//! leases (`leases`), the other notes when something was written, by a clock that jumps (`clock`). What is checked: nobody
//! believes to hold a lock that another believes to hold; fences grow; what was released never comes back; everybody
//! gets a turn in the end.

#[cfg(feature = "zookeeper")]
mod clock;
mod leases;

use std::collections::{HashMap, HashSet};
use std::future::Future;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use tokio::sync::{Notify, mpsc, oneshot, watch};
use tokio::time::Instant;

use super::{CasNode, Found, Store};
use crate::locked::locked;
use crate::name::Name;
use crate::node::{
    Answer, Call, Capabilities, ClientId, Failure, Grant, Node, NodeContext, NodeOptions, Proposal,
    Request, Restore, Round, Secret, Ticket, TicketNumber, Verb,
};
use crate::runtime::{BoxFuture, Moment, Runtime, wall_us};
use crate::settings::Settings;
use crate::token::Token;

const TTL: Duration = Duration::from_secs(5);
const LIMIT: Duration = Duration::from_secs(1);
const CLIENTS: usize = 4;
const TURNS: usize = 6;
/// Which of the clients may have a clock that is far off.
const WRONG_CLIENT: u64 = 3;

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
    /// The version is not raised after a write that was not answered.
    NoBarrier,
    /// A release does not wait for the calls of its name before it.
    ReleaseOvertakes,
    /// A hold is over once a reader thinks so, by what the clock of the store says to it.
    EndJudgedByRead,
    /// A hold is over once a reader thinks so, by its own clock.
    EndJudgedLocally,
    /// A holder does not look at the time of its write.
    HolderDoesNotLook,
    /// A member is believed that has not heard of the latest writes.
    FollowerTrusted,
    /// An extension has a hold count from the time of that write alone, and not to where it lasted before.
    EndNotCarried,
    /// The time of a write shows that a hold is over, however far the clock is from ours.
    AheadNotLookedAt,
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
    /// The clock of one client is far off.
    has_wrong_client: bool,
}

#[derive(Debug, Default)]
struct Kept {
    found: HashMap<Name, Found>,
    /// What a store with a clock has, with what it had before.
    #[cfg(feature = "zookeeper")]
    written: HashMap<Name, Vec<clock::Version>>,
    /// So far is its clock ahead, in microseconds, and the latest that it has ever said.
    #[cfg(feature = "zookeeper")]
    ahead_us: i64,
    #[cfg(feature = "zookeeper")]
    latest_us: u64,
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
            has_wrong_client: seed % 4 == 3,
        })
    }

    fn now(&self) -> Moment {
        Moment::from_nanos(u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }

    fn break_promise(&self, what: &str) {
        locked(&self.kept).broken.push(format!("{:?}: {what}", self.start.elapsed()));
    }

    fn is_calm(&self) -> bool {
        *locked(&self.is_calm)
    }

    fn absent(&self, clients: &[ClientId]) -> Vec<ClientId> {
        let inboxes = locked(&self.inboxes);
        let is_there = |client| inboxes.get(client).is_some_and(|inbox| !inbox.is_closed());
        clients.iter().filter(|client| !is_there(client)).copied().collect()
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

/// A kind of store.
trait Simulated: Store + Sized {
    /// How long a holder believes in its lock after it has asked for it.
    const BELIEVED: Duration;
    /// How far the clocks of two clients are apart.
    const APART: Duration;
    /// Turns for each seed, at the least.
    const TURNS: u64;
    /// How far the clock of one client may be off in some seeds, in which that of the store is right.
    const WRONG: Duration;

    fn new(world: &Arc<World>, runtime: &Arc<dyn Runtime>) -> Self;

    /// Something happens to the cluster.
    fn disturb(world: &World);

    /// Everything is as it should be.
    fn calm(world: &World);

    /// Who is there as the holder of a lock that has not ended.
    fn holder(world: &World, name: &Name) -> Option<Token>;
}

/// One client, and its turns.
struct Client<S> {
    world: Arc<World>,
    node: CasNode<S>,
    /// Knows nothing of the calls of the other.
    unordered: CasNode<S>,
    runtime: Arc<dyn Runtime>,
    id: ClientId,
    grants: mpsc::UnboundedReceiver<Grant>,
    waiters: u64,
}

impl<S: Simulated> Client<S> {
    fn new(world: &Arc<World>, index: u64) -> Self {
        let runtime: Arc<dyn Runtime> = Arc::new(VirtualRuntime {
            start: world.start,
            wall_ahead: match index {
                WRONG_CLIENT if world.has_wrong_client => S::WRONG,
                _ => S::APART * u32::try_from(index % 4).unwrap_or(0) / 3,
            },
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
        let (known, readiness) = watch::channel(Some(Ok(Capabilities::new())));
        std::mem::forget(known);
        let [node, unordered] = [(); 2].map(|()| {
            let (store, readiness) = (Arc::new(S::new(world, &runtime)), readiness.clone());
            CasNode::start("sim".into(), store, readiness, Capabilities::new(), LIMIT, &context)
        });
        let (inbox, grants) = mpsc::unbounded_channel();
        locked(&world.inboxes).insert(id, inbox);
        Self { world: Arc::clone(world), node, unordered, runtime, id, grants, waiters: 0 }
    }

    fn ask(
        &self,
        name: &Name,
        token: Token,
        what: What,
    ) -> (Moment, impl Future<Output = Answer> + use<S>) {
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
        let node = match what {
            What::Release(..) if self.world.planted == Planted::ReleaseOvertakes => &self.unordered,
            _ => &self.node,
        };
        node.submit(Call::new(Arc::new(asked), 0));
        (sent, async { answer.await.expect("an answer") })
    }

    fn proposal(&self) -> Proposal {
        Proposal { least: wall_us(&*self.runtime), block: 1 }
    }

    /// Tries once to have a lock, or waits for it, holds it for a while, and releases it. Returns whether it had it.
    async fn turn(&mut self, name: &Name, wait: bool) -> bool {
        let token = Token::random(&*self.runtime);
        if !self.world.is_calm() && self.world.chance.below(6) == 0 {
            self.give_up_at_once(name, token).await;
            return false;
        }
        let until =
            if wait { self.wait(name, token).await } else { self.try_once(name, token).await };
        if let Some(mut until) = until {
            for _ in 0..self.world.chance.below(3) {
                tokio::time::sleep(self.world.chance.millis(2_500)).await;
                let (sent, answer) = self.ask(name, token, What::Extend);
                if let Answer::Granted { fence } = answer.await {
                    until = until.max(sent.after(S::BELIEVED));
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
            if S::holder(&self.world, name) == Some(token) {
                self.world.break_promise(&format!("{name} is held by a token that was released"));
            }
        }
        until.is_some()
    }

    /// The caller goes away before there is an answer.
    async fn give_up_at_once(&self, name: &Name, token: Token) {
        let (_, acquired) = self.ask(name, token, What::Acquire(self.proposal()));
        let now = self.runtime.now();
        let release = What::Release(now.after(TTL * 2), self.proposal().least);
        let (_, released) = self.ask(name, token, release);
        // Both are answered, in whatever order.
        acquired.await;
        if matches!(released.await, Answer::Done | Answer::Refused) {
            locked(&self.world.kept).released.insert(token);
        }
    }

    async fn try_once(&self, name: &Name, token: Token) -> Option<Moment> {
        let (sent, answer) = self.ask(name, token, What::Acquire(self.proposal()));
        match answer.await {
            Answer::Granted { fence } => {
                self.world.believe(name, token, sent.after(S::BELIEVED), fence);
                Some(sent.after(S::BELIEVED))
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
                self.world.believe(name, token, sent.after(S::BELIEVED), fence);
                return Some(sent.after(S::BELIEVED));
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
                self.world.believe(name, token, grant.sent.after(S::BELIEVED), grant.fence);
                return Some(grant.sent.after(S::BELIEVED));
            }
        }
        None
    }
}

/// Disturbs the cluster now and then.
async fn disturb<S: Simulated>(world: Arc<World>, done: Arc<Notify>) {
    loop {
        let pause = world.chance.millis(6_000);
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            () = done.notified() => return,
        }
        S::disturb(&world);
    }
}

/// Runs a seed, and returns what was promised and not kept, and how many turns there were.
async fn run<S: Simulated>(seed: u64, planted: Planted) -> (Vec<String>, usize) {
    let world = World::new(seed, planted);
    let done = Arc::new(Notify::new());
    let nemesis = tokio::spawn(disturb::<S>(Arc::clone(&world), Arc::clone(&done)));
    let names = [Name::new("a").expect("a name"), Name::new("b").expect("a name")];
    let clients = (0..CLIENTS as u64).map(|index| {
        let (mut client, names) = (Client::<S>::new(&world, index), names.clone());
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
    S::calm(&world);
    done.notify_one();
    nemesis.await.expect("no panic");
    let mut last = Client::<S>::new(&world, 99);
    for name in &names {
        // What is left of the others ends by itself.
        if !last.turn(name, true).await {
            world.break_promise(&format!("{name} cannot be had though nobody is in the way"));
        }
    }
    let broken = std::mem::take(&mut locked(&world.kept).broken);
    (broken, turns)
}

fn one_seed<S: Simulated>(seed: u64, planted: Planted) -> (Vec<String>, usize) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a runtime");
    let (what, turns) = runtime.block_on(run::<S>(seed, planted));
    (what.into_iter().map(|what| format!("seed {seed}: {what}")).collect(), turns)
}

/// How many: 20,000 take some minutes.
fn count() -> u64 {
    std::env::var("QUORLOCK_CAS_SEEDS").ok().and_then(|count| count.parse().ok()).unwrap_or(150)
}

fn keeps_promises<S: Simulated>() {
    let (count, mut broken, mut turns) = (count(), Vec::new(), 0);
    for seed in 0..count {
        let (what, had) = one_seed::<S>(seed, Planted::Nothing);
        broken.extend(what);
        turns += had;
    }
    assert!(broken.is_empty(), "{broken:#?}");
    assert!(turns as u64 > S::TURNS * count, "only {turns} turns in {count} seeds");
    println!("{count} seeds, {turns} turns");
}

/// Some mistakes take more seeds than others to do harm.
fn finds<S: Simulated>(planted: &[Planted]) {
    for planted in planted {
        let found = (0..3_000).find(|seed| !one_seed::<S>(*seed, *planted).0.is_empty());
        assert!(found.is_some(), "{planted:?} was not found");
        println!("{planted:?}: found by seed {found:?}");
    }
}
