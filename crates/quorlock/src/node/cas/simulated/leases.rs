//! A store that ends leases, as etcd does.

use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::time::Instant;

use super::{Client, LIMIT, Planted, Simulated, TTL, What, World, finds, keeps_promises};
use crate::locked::locked;
use crate::name::Name;
use crate::node::cas::state::Place;
use crate::node::cas::{Change, Found, HoldChange, Store, Window, Written};
use crate::node::{Answer, ClientId, Failure, FailureKind, Inbox, Listed, Secret};
use crate::runtime::{Moment, Runtime, wall_us};
use crate::token::Token;

/// A lease may have been asked for so long before it is used.
const SLACK: Duration = Duration::from_secs(2);

impl World {
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
            _ => true,
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
}

/// The cluster, as one client reaches it.
struct LeaseStore {
    world: Arc<World>,
    runtime: Arc<dyn Runtime>,
}

impl LeaseStore {
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

impl Store for LeaseStore {
    async fn read(&self, name: &Name) -> Result<Found, Failure> {
        self.trip().await?;
        let found = self.world.found(name);
        self.trip().await?;
        Ok(found)
    }

    async fn write(&self, name: &Name, found: &Found, change: &Change) -> Result<Written, Failure> {
        use HoldChange::{Extend, Replace};
        let ttl = match change.holds {
            Extend { ttl, .. } | Replace { ttl, .. } => ttl,
            _ => TTL,
        };
        let world = &self.world;
        let is_barrier = change.holds == HoldChange::Keep
            && change.message.is_none()
            && change.state == found.state;
        if world.planted == Planted::NoBarrier && is_barrier {
            return Ok(Written::Done(found.clone()));
        }
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

    async fn absent(&self, clients: &[ClientId]) -> Result<Vec<ClientId>, Failure> {
        self.trip().await?;
        let absent = self.world.absent(clients);
        self.trip().await?;
        Ok(absent)
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

impl Simulated for LeaseStore {
    const BELIEVED: Duration = TTL;
    /// Nothing rests on them but the fences' start.
    const APART: Duration = Duration::from_millis(900);
    const TURNS: u64 = 4;
    const WRONG: Duration = Duration::from_secs(8);

    fn new(world: &Arc<World>, runtime: &Arc<dyn Runtime>) -> Self {
        Self { world: Arc::clone(world), runtime: Arc::clone(runtime) }
    }

    fn disturb(world: &World) {
        let until = Instant::now() + world.chance.millis(1_500);
        locked(&world.kept).still_until = Some(until);
    }

    fn calm(_: &World) {}

    fn holder(world: &World, name: &Name) -> Option<Token> {
        let found = world.found(name);
        found.state.holder().filter(|_| !found.holds.is_empty())
    }
}

#[test]
fn promises_are_kept_whatever_becomes_of_requests() {
    keeps_promises::<LeaseStore>();
}

#[test]
fn mistakes_are_found() {
    finds::<LeaseStore>(&[
        Planted::UncomparedLateWrite,
        Planted::LeaseKeptAlive,
        Planted::VersionsIgnored,
        Planted::NoBarrier,
        Planted::ReleaseOvertakes,
    ]);
}

/// A ticket of a client that is not there.
fn dead_place(client: &Client<LeaseStore>, number: u64) -> Place {
    Place {
        token: Token::random(&*client.runtime),
        client: ClientId(1_000 + number),
        waiter: number,
        secret: Secret::random(&*client.runtime),
        sent: client.runtime.now(),
        ttl: TTL,
        proposal: None,
        asked_us: wall_us(&*client.runtime),
        seen_us: None,
    }
}

/// A lock that somebody holds, with so many waiters that have died, in a cluster without faults.
async fn held_with_dead_waiters(count: u64) -> (Arc<World>, Client<LeaseStore>, Name, Token) {
    let world = World::new(1, Planted::Nothing);
    *locked(&world.is_calm) = true;
    let client = Client::<LeaseStore>::new(&world, 0);
    let (name, token) = (Name::new("a").expect("a name"), Token::random(&*client.runtime));
    assert!(client.try_once(&name, token).await.is_some());
    {
        let mut kept = locked(&world.kept);
        kept.revision += 1;
        let revision = kept.revision;
        let found = kept.found.get_mut(&name).expect("a lock");
        found.version = revision;
        for number in 0..count {
            found.state.queue.put(number, dead_place(&client, number));
        }
    }
    (world, client, name, token)
}

#[tokio::test(start_paused = true)]
async fn many_dead_waiters_keep_nobody_from_releasing() {
    let (world, mut client, name, token) = held_with_dead_waiters(2_000).await;
    let began = client.runtime.now();
    let release = What::Release(began.after(TTL * 2), 0);
    let (_, answer) = client.ask(&name, token, release);
    assert!(matches!(answer.await, Answer::Done));
    let took = client.runtime.now().since(began);
    assert!(took < LIMIT, "{took:?}");
    assert_eq!(LeaseStore::holder(&world, &name), None);
    assert!(client.wait(&name, Token::random(&*client.runtime)).await.is_some());
}

#[tokio::test(start_paused = true)]
async fn dead_waiters_are_passed_over_for_one_who_is_there() {
    let (_world, mut client, name, token) = held_with_dead_waiters(2_000).await;
    let waiting = Token::random(&*client.runtime);
    let until = client.runtime.now().after(TTL * 2);
    let other = Client::<LeaseStore>::new(&client.world, 1);
    let waits = client.wait(&name, waiting);
    let releases = async {
        tokio::time::sleep(LIMIT / 4).await;
        other.ask(&name, token, What::Release(until, 0)).1.await
    };
    let (had, released) = tokio::join!(waits, releases);
    assert!(had.is_some() && matches!(released, Answer::Done));
}
