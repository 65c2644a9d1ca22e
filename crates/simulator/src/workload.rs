//! What the clients do with their locks.
//!
//! Each process has a locker and some users. A user takes a lock in one of many ways, writes to the
//! resource while it believes to hold it, and lets go of it in one of many ways. When the faults are
//! over, every process asks once more, and must get what it asks for.

use std::collections::BTreeMap;
use std::future::{Future, IntoFuture, poll_fn};
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::task::Poll;
use std::time::Duration;

use quorlock::admin::Progress;
use quorlock::node::{ClientId, Grant, Inbox, Members, Node, NodeOptions};
use quorlock::runtime::Runtime;
use quorlock::{Error, Guard, Lock, Locker, Loss, Owner, Settings};

use crate::board::Board;
use crate::holders::NewWindow;
use crate::nemesis::{Fault, FaultKind};
use crate::network::{Link, SimulatedNode};
use crate::planted::Planted;
use crate::process::SimulatedRuntime;
use crate::random::Random;
use crate::setup::Step;
use crate::store::Write;
use crate::trace::What;
use crate::world::{Event, World};

/// Users of each process.
const USERS: usize = 2;
/// The locks; the first is wanted most.
const NAMES: [&str; 2] = ["a", "b"];
/// The number of the first lock that is wanted by a crowd.
const CROWD: u16 = 1_000;
/// How often each process asks in the calm.
const CALM_ROUNDS: usize = 4;
/// How long after the end of the faults.
const QUIET: Duration = Duration::from_secs(4);
/// For how long it holds what it gets then.
const CALM_HOLD: Duration = Duration::from_millis(40);

/// Starts the program of a process.
pub(crate) fn start(world: &Arc<World>, process: usize) {
    let (incarnation, seed) = {
        let state = world.state();
        (state.incarnation(process), world.setup.seed)
    };
    let stream = 10_000 + process as u64 * 100 + u64::from(incarnation) * 10_000;
    let runtime = Arc::new(SimulatedRuntime { world: Arc::clone(world), process, incarnation });
    let client =
        Client { world: Arc::clone(world), process, runtime, stream, fences: Arc::default() };
    let random = Random::new(seed, stream);
    world.spawn(process, incarnation, Box::pin(client.run(random)));
}

#[derive(Clone)]
struct Client {
    world: Arc<World>,
    process: usize,
    runtime: Arc<SimulatedRuntime>,
    stream: u64,
    /// The last fence of each lock, for one of the bugs.
    fences: Arc<Mutex<BTreeMap<u16, u64>>>,
}

impl Client {
    async fn run(self, mut random: Random) {
        let locker = loop {
            match self.connect().await {
                Ok(locker) => break locker,
                Err(_) => self.sleep(random.between(10_000_000, 300_000_000)).await,
            }
        };
        if let Some(script) = self.world.setup.script {
            return self.play(&locker, script.get(self.process).copied().unwrap_or_default()).await;
        }
        let busy = Arc::new(AtomicUsize::new(USERS));
        for user in 0..USERS {
            let (client, locker, busy) = (self.clone(), locker.clone(), Arc::clone(&busy));
            let random = Random::new(self.world.setup.seed, self.stream + 1 + user as u64);
            self.runtime.spawn(Box::pin(async move {
                User { client, locker, random, renewed: true }.run().await;
                busy.fetch_sub(1, Ordering::Relaxed);
            }));
        }
        self.crowds(&locker, &busy);
        while busy.load(Ordering::Relaxed) > 0 || !self.is_quiet() {
            self.sleep(20_000_000).await;
        }
        for _ in 0..CALM_ROUNDS {
            self.ask_in_the_calm(&locker).await;
        }
    }

    async fn connect(&self) -> Result<Locker, Error> {
        let setup = &self.world.setup;
        let limit = setup.node_limit();
        let list = setup.list_of(self.process);
        let builder = Locker::builder()
            .with_nodes(self.nodes(&list, &setup.members_of(&list)))
            .ttl(setup.ttl)
            .max_ttl(setup.max_ttl)
            .node_limit(limit)
            .runtime(Arc::clone(&self.runtime) as Arc<dyn Runtime>);
        builder.connect().await
    }

    /// Connections to these nodes, as of a client of this set.
    fn nodes(&self, list: &[usize], members: &Members) -> Vec<Arc<dyn Node>> {
        let limit = self.world.setup.node_limit();
        let node = |node: &usize| {
            let link = Link::new(&self.world, self.process, *node, members.clone(), limit);
            Arc::new(SimulatedNode(link)) as Arc<dyn Node>
        };
        list.iter().map(node).collect()
    }

    /// Takes the lock, holds it and gives it back, again and again.
    async fn use_until(&self, locker: &Locker, until: u64) {
        let mut random = Random::new(self.world.setup.seed, self.stream + 1);
        while self.world.state().now_of(self.process) < until {
            let lock = locker.lock(NAMES[0]).wait(Duration::from_millis(500));
            match self.attempt(lock, 0).await {
                Ok(guard) => {
                    let guard = Arc::new(guard);
                    let (window, _) = self.opened(&guard, 0, None, true, true);
                    self.watch(&guard, window);
                    self.sleep(random.between(1_000_000, 300_000_000)).await;
                    self.release(guard, window).await;
                }
                Err(_) => self.sleep(random.between(1_000_000, 100_000_000)).await,
            }
        }
    }

    /// Those of this process that want many locks at the same moment.
    fn crowds(&self, locker: &Locker, busy: &Arc<AtomicUsize>) {
        let now = self.world.state().now_of(self.process);
        for Fault { at, lasts, kind } in self.world.plan.faults.iter().copied() {
            match kind {
                FaultKind::Crowd { process, first, locks }
                    if usize::from(process) == self.process && now <= at =>
                {
                    busy.fetch_add(usize::from(locks), Ordering::Relaxed);
                    for name in CROWD + first..CROWD + first + locks {
                        let (client, locker) = (self.clone(), locker.clone());
                        let busy = Arc::clone(busy);
                        self.runtime.spawn(Box::pin(async move {
                            client.one_of_a_crowd(&locker, name, at, at + lasts).await;
                            busy.fetch_sub(1, Ordering::Relaxed);
                        }));
                    }
                }
                _ => {}
            }
        }
    }

    /// Takes a lock at a time that is the same for many, and gives it back at another.
    async fn one_of_a_crowd(&self, locker: &Locker, name: u16, at: u64, until: u64) {
        self.sleep_until(at).await;
        let since = self.world.state().now_of(self.process);
        let process = self.process;
        match locker.try_lock(format!("c{name}")).await {
            Ok(guard) => {
                let guard = Arc::new(guard);
                let (holding, fence) = (None, Some(guard.fence()));
                let (heeds, renewed, crowd) = (true, true, true);
                let new = NewWindow { process, name, holding, heeds, renewed, fence, crowd };
                let (window, _) = self.world.opened(&guard, &new);
                self.watch(&guard, window);
                self.sleep_until(until).await;
                self.release(guard, window).await;
            }
            Err(error) if is_taken(&error) => {
                let taken = What::Taken { process: process as u8, name, since };
                self.world.note_by(process, taken);
            }
            Err(_) => {
                let failed = What::Failed { process: process as u8, name, since };
                self.world.note_by(process, failed);
            }
        }
    }

    fn sleep_until(&self, at: u64) -> impl Future<Output = ()> + Send + use<> {
        let now = self.world.state().now_of(self.process);
        self.sleep(at.saturating_sub(now))
    }

    /// Tries to take a lock, and notes it if that is said to be taken.
    async fn attempt(&self, lock: Lock, name: usize) -> Result<Guard, Error> {
        let since = self.world.state().now_of(self.process);
        let taken = lock.await;
        if taken.as_ref().is_err_and(is_taken) {
            let (process, name) = (self.process as u8, name as u16);
            self.world.note_by(self.process, What::Taken { process, name, since });
        }
        taken
    }

    /// Changes the set of nodes, again and again until that is done.
    async fn replace(&self, old: usize, new: usize) {
        let setup = &self.world.setup;
        let mut list: Vec<_> = (0..setup.nodes).filter(|node| *node != old).collect();
        list.push(new);
        let (new_count, members) = (list.len(), setup.members_of(&list));
        list.push(old);
        let mut settings = Settings::default();
        (settings.ttl, settings.max_ttl) = (setup.ttl, setup.max_ttl);
        let runtime = Arc::clone(&self.runtime) as Arc<dyn Runtime>;
        loop {
            let nodes = self.nodes(&list, &members);
            let (client, deaf) = (ClientId::random(&*runtime), Arc::new(Deaf));
            let inbox: Weak<dyn Inbox> = Arc::<Deaf>::downgrade(&deaf);
            for (index, node) in nodes.iter().enumerate() {
                node.listen(client, index, Weak::clone(&inbox));
            }
            for node in &nodes {
                // One that cannot be reached says so when it is asked.
                let _ = node.ready().await;
            }
            let changed = quorlock::admin::change_own_nodes(
                nodes,
                new_count,
                true,
                &settings,
                &NodeOptions::default(),
                &runtime,
            )
            .await;
            let pause = match changed {
                Ok(Progress::Done) => return,
                Ok(Progress::Forming(left)) => left.max(Duration::from_millis(50)),
                _ => Duration::from_millis(200),
            };
            self.runtime.sleep(pause).await;
        }
    }

    /// Does what the script says.
    async fn play(&self, locker: &Locker, script: &[Step]) {
        let mut held: Option<(Arc<Guard>, u32)> = None;
        for step in script {
            match step {
                Step::Until(ms) => {
                    self.sleep_until(ms * 1_000_000).await;
                }
                Step::For(ms) => self.sleep(ms * 1_000_000).await,
                Step::Take => {
                    self.wants(0);
                    if let Ok(guard) = locker.lock(NAMES[0]).await {
                        let guard = Arc::new(guard);
                        let (window, _) = self.opened(&guard, 0, None, true, true);
                        self.watch(&guard, window);
                        held = Some((guard, window));
                    }
                }
                Step::Share | Step::TakePart => {
                    let owner = match step {
                        Step::Share => locker.new_owner(),
                        _ => {
                            let shared = self.board().any_owner(0);
                            let Some(Ok(owner)) = shared.map(|(_, id)| Owner::from_id(&id)) else {
                                continue;
                            };
                            owner
                        }
                    };
                    if let Ok(guard) = locker.lock(NAMES[0]).owner(&owner).await {
                        self.board().share(0, owner.id());
                        held = Some(self.open_shared(guard, 0, true));
                    }
                }
                Step::Write => {
                    if let Some((guard, window)) = &held {
                        let mut delay = Random::new(self.stream, u64::from(*window));
                        self.write(*window, 0, Some(guard.fence()), &mut delay);
                    }
                }
                Step::Use(ms) => self.use_until(locker, ms * 1_000_000).await,
                Step::Replace { old, new } => self.replace(*old, *new).await,
                Step::Release => {
                    if let Some((guard, window)) = held.take() {
                        self.release(guard, window).await;
                    }
                }
            }
        }
        if let Some((guard, window)) = held {
            self.release(guard, window).await;
        }
    }

    fn board(&self) -> MutexGuard<'_, Board> {
        self.world.board.lock().expect("no panic in between")
    }

    /// Begins to hold a lock with others who have its token.
    fn open_shared(&self, guard: Guard, name: usize, heeds: bool) -> (Arc<Guard>, u32) {
        let guard = Arc::new(guard);
        let before = self.board().holding(&guard, |window| self.world.is_open(window));
        let (window, holding) = self.opened(&guard, name as u16, before, heeds, false);
        self.board().holds(&guard, (window, holding));
        if heeds {
            self.watch(&guard, window);
        }
        (guard, window)
    }

    /// Notes when the loss is signalled.
    fn watch(&self, guard: &Guard, window: u32) {
        let (lost, client) = (guard.lost(), self.clone());
        self.runtime.spawn(Box::pin(async move {
            if lost.await != Loss::Released {
                client.world.note_by(client.process, What::LossSignal { window });
            }
        }));
    }

    /// When the faults are over, every client gets the lock in its turn.
    async fn ask_in_the_calm(&self, locker: &Locker) {
        self.world.note_by(self.process, What::Asks(self.process as u8));
        let lock = locker.lock(NAMES[0]).await;
        if let Ok(guard) = lock {
            let guard = Arc::new(guard);
            let (window, _) = self.opened(&guard, 0, None, false, true);
            self.world.note_by(self.process, What::Got(self.process as u8));
            self.sleep(CALM_HOLD.as_nanos() as u64).await;
            self.release(guard, window).await;
        }
    }

    fn opened(
        &self,
        guard: &Arc<Guard>,
        name: u16,
        holding: Option<u32>,
        heeds: bool,
        renewed: bool,
    ) -> (u32, u32) {
        let fence = Some(self.fence(guard, name));
        let (process, crowd) = (self.process, false);
        let new = NewWindow { process, name, holding, heeds, renewed, fence, crowd };
        self.world.opened(guard, &new)
    }

    fn fence(&self, guard: &Guard, name: u16) -> u64 {
        let fence = guard.fence();
        if self.world.planted() != Some(Planted::FenceReused) {
            return fence;
        }
        let mut fences = self.fences.lock().expect("no panic in between");
        let before = fences.insert(name, fence);
        if before == fence.checked_sub(1) { fence - 1 } else { fence }
    }

    async fn release(&self, guard: Arc<Guard>, window: u32) {
        self.world.note_by(self.process, What::Closed { window });
        if let Some(guard) = Arc::into_inner(guard) {
            let _ = guard.release().await;
        }
    }

    fn sleep(&self, nanos: u64) -> impl Future<Output = ()> + Send + use<> {
        self.runtime.sleep(Duration::from_nanos(nanos))
    }

    /// Whether the faults are over for so long that connections are there again.
    fn is_quiet(&self) -> bool {
        let state = self.world.state();
        state.now_of(self.process) >= self.world.setup.horizon + QUIET.as_nanos() as u64
    }

    fn is_calm(&self) -> bool {
        let state = self.world.state();
        state.now_of(self.process) >= self.world.setup.horizon
    }
}

struct User {
    client: Client,
    locker: Locker,
    random: Random,
    /// Whether the lock that it wants is to be extended without end, for the TTL of all.
    renewed: bool,
}

impl User {
    async fn run(mut self) {
        while !self.client.is_calm() {
            let rest = self.random.below(self.ttl() / 4);
            self.client.sleep(rest).await;
            let name = usize::from(self.random.percent(20));
            match self.random.below(100) {
                50..95 if self.board().has_owners() => self.take_part().await,
                0..10 => self.take_both().await,
                10..22 => self.take_again(name).await,
                22..36 => self.change_mind(name).await,
                36..44 => self.share(name).await,
                44..47 => self.resume().await,
                47 => self.force().await,
                _ => {
                    let lock = self.refined(name);
                    self.client.wants(name);
                    if let Ok(guard) = self.client.attempt(lock, name).await {
                        let held = self.open(guard, name, None, self.renewed);
                        self.hold(held, name).await;
                    }
                }
            }
        }
    }

    fn ttl(&self) -> u64 {
        self.client.world.setup.ttl.as_nanos() as u64
    }

    /// A lock with some options.
    fn refined(&mut self, name: usize) -> Lock {
        let ttl = self.ttl();
        let lock = self.locker.lock(NAMES[name]);
        let random = &mut self.random;
        let lock = match random.below(4) {
            0 => lock.wait(Duration::ZERO),
            1 => lock.wait(Duration::from_nanos(random.between(1, ttl / 2))),
            _ => lock.wait(Duration::from_nanos(random.between(ttl / 2, 2 * ttl))),
        };
        let option = random.below(20);
        self.renewed = !matches!(option, 0 | 1 | 3 | 4 | 6);
        match option {
            0 | 1 => lock.fixed(),
            2 => lock.at_least(Duration::from_nanos(ttl / 4)),
            3 => lock.max_hold(Duration::from_nanos(random.between(ttl / 2, 2 * ttl))),
            4 => lock.max_extensions(1),
            5 => lock.note("of a simulated user"),
            6 => lock.ttl(Duration::from_nanos(ttl * 9 / 10)),
            _ => lock,
        }
    }

    /// Two locks, all or none.
    async fn take_both(&mut self) {
        let wait = Duration::from_nanos(self.random.between(1, 2 * self.ttl()));
        let Ok(guards) = self.locker.lock_many(NAMES).wait(wait).await else { return };
        let mut opened = Vec::new();
        for (name, guard) in guards.into_iter().enumerate() {
            opened.push((self.open(guard, name, None, true), name));
        }
        for (held, name) in opened {
            self.hold(held, name).await;
        }
    }

    /// The same lock for one owner, twice.
    async fn take_again(&mut self, name: usize) {
        let owner = self.locker.new_owner();
        let lock = self.refined(name).owner(&owner);
        let Ok(first) = self.client.attempt(lock, name).await else { return };
        let first = Arc::new(first);
        let (window, holding) = self.client.opened(&first, name as u16, None, false, false);
        if let Ok(second) = self.refined(name).owner(&owner).await {
            // It may have been lost in between, and taken anew.
            let same = (first.fence() == second.fence()).then_some(holding);
            let held = self.open(second, name, same, false);
            self.hold(held, name).await;
        }
        self.client.release(first, window).await;
    }

    fn board(&self) -> MutexGuard<'_, Board> {
        self.client.board()
    }

    /// A lock in which other processes may take part.
    async fn share(&mut self, name: usize) {
        let owner = self.locker.new_owner();
        let lock = self.refined(name).owner(&owner);
        let Ok(guard) = self.client.attempt(lock, name).await else { return };
        let id = owner.id();
        self.board().share(name, id.clone());
        self.hold_shared(guard, name).await;
        self.board().withdraw(&id);
    }

    /// The lock of another process, if its owner still holds it. Otherwise it is taken for that owner.
    async fn take_part(&mut self) {
        let chosen = self.random.next();
        let Some((name, id)) = self.board().any_owner(chosen) else { return };
        let Ok(owner) = Owner::from_id(&id) else { return };
        if let Ok(guard) = self.refined(name).owner(&owner).await {
            self.hold_shared(guard, name).await;
        }
    }

    /// A lock that another process has kept.
    async fn resume(&mut self) {
        let Some((name, token)) = self.board().take_kept() else { return };
        if let Ok(guard) = self.locker.resume(NAMES[name], token).await {
            self.hold_shared(guard, name).await;
        }
    }

    /// Holds a lock with others who have its token, or leaves it to another process.
    async fn hold_shared(&mut self, guard: Guard, name: usize) {
        // One of the bugs makes locks without fences.
        if !guard.is_held() || guard.try_fence().is_none() {
            return;
        }
        let heeds = self.random.percent(75);
        let (guard, window) = self.client.open_shared(guard, name, heeds);
        // Time for others to take part. Some let go of it the moment when they come.
        let rest = self.random.below(self.ttl());
        self.client.sleep(rest).await;
        if self.client.is_calm() || !self.random.percent(15) {
            return self.hold((guard, window), name).await;
        }
        self.client.world.note_by(self.client.process, What::Closed { window });
        if let Some(guard) = Arc::into_inner(guard)
            && let Ok(token) = guard.into_token()
        {
            self.board().keep(name, token.as_str().to_owned());
        }
    }

    /// Takes the lock that is wanted least away from its holder.
    async fn force(&mut self) {
        let name = NAMES.len() - 1;
        let (process, at) = (self.client.process, name as u16);
        let by = process as u8;
        self.client.world.note_by(process, What::Forcing { process: by, name: at });
        if let Ok(seen) = self.locker.inspect(NAMES[name]).await {
            let _ = self.locker.force_release(&seen).await;
        }
        self.client.world.note_by(process, What::Forced { process: by, name: at });
    }

    /// A lock that is not wanted any longer after a while.
    async fn change_mind(&mut self, name: usize) {
        let patience = self.random.below(self.ttl() / 2);
        let mut patience = pin!(self.client.sleep(patience));
        let mut locking = self.refined(name).into_future();
        let taken = poll_fn(|cx| {
            if let Poll::Ready(taken) = Pin::new(&mut locking).poll(cx) {
                return Poll::Ready(taken.ok());
            }
            patience.as_mut().poll(cx).map(|()| None)
        })
        .await;
        drop(locking);
        if let Some(guard) = taken {
            let held = self.open(guard, name, None, self.renewed);
            self.hold(held, name).await;
        }
    }

    /// Begins to hold a lock.
    fn open(
        &mut self,
        guard: Guard,
        name: usize,
        holding: Option<u32>,
        renewed: bool,
    ) -> (Arc<Guard>, u32) {
        let guard = Arc::new(guard);
        let heeds = self.random.percent(75);
        let (window, _) = self.client.opened(&guard, name as u16, holding, heeds, renewed);
        if heeds {
            self.client.watch(&guard, window);
        }
        (guard, window)
    }

    /// Holds a lock for a while, and writes to the resource.
    async fn hold(&mut self, (guard, window): (Arc<Guard>, u32), name: usize) {
        // Some do not look whether they still hold it: the resource has to.
        let careful = self.random.percent(80);
        let mut left = match self.random.below(10) {
            0..2 => 0,
            2..8 => self.random.below(self.ttl() / 2),
            _ => self.random.below(2 * self.ttl()),
        };
        while left > 0 && (!careful || guard.is_held()) {
            let piece = self.random.between(1, self.ttl() / 4).min(left);
            left -= piece;
            self.client.sleep(piece).await;
            if guard.is_held() || !careful {
                let fence = self.client.fence(&guard, name as u16);
                self.client.write(window, name as u16, Some(fence), &mut self.random);
            }
            if self.random.percent(10) {
                let _ = guard.extend().await;
            }
        }
        match self.random.below(3) {
            0 => self.client.release(guard, window).await,
            1 => {
                self.client.world.note_by(self.client.process, What::Closed { window });
                if let Some(guard) = Arc::into_inner(guard) {
                    drop(guard.release());
                }
            }
            _ => {
                self.client.world.note_by(self.client.process, What::Closed { window });
                drop(guard);
            }
        }
    }
}

impl Client {
    fn wants(&self, name: usize) {
        let what = What::Wanted { process: self.process as u8, name: name as u16 };
        self.world.note_by(self.process, what);
    }

    fn write(&self, window: u32, name: u16, fence: Option<u64>, random: &mut Random) {
        // Between the look at the guard and the first byte a process may stand still.
        self.world.instruction(self.process);
        let mut state = self.world.state();
        let sent = state.now_of(self.process);
        let write = Write { window, name, sent, fence };
        state.at(sent + random.between(100_000, 20_000_000), Event::Write(write));
    }
}

/// Whether an error says that another has the lock.
fn is_taken(error: &Error) -> bool {
    match error {
        Error::Taken { .. } => true,
        Error::TimedOut { last, .. } => is_taken(last),
        _ => false,
    }
}

/// Hears nothing.
struct Deaf;

impl Inbox for Deaf {
    fn granted(&self, _node: usize, _grant: Grant) {}
    fn interrupted(&self, _node: usize) {}
    fn unsettled(&self, _node: usize) {}

    fn session_ended(&self, _node: usize) {}
}
