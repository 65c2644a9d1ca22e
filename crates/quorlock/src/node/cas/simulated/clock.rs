//! A store that notes when something was written, as ZooKeeper does: by the clock of a leader, which is another one after
//! each election, and which may be set. Its members may lag behind, and say late or early that a client is gone.

use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::time::Instant;

use super::{Client, Planted, Simulated, TTL, What, World, finds, keeps_promises};
use crate::locked::locked;
use crate::name::Name;
use crate::node::cas::{Change, Found, Hold, HoldChange, State, Store, Window, Written};
use crate::node::clock_window::{CLIENTS_APART, CLOCK_AHEAD, CLOCK_BEHIND};
use crate::node::zookeeper::record::{self, Term};
use crate::node::zookeeper::{MARGIN, WINDOW, clocks_apart};
use crate::node::{Answer, ClientId, Failure, FailureKind, Inbox, Listed};
use crate::runtime::{Runtime, wall_us};
use crate::token::Token;

/// A member lags behind by so much at the most.
const LAG: Duration = Duration::from_secs(2);

/// What was once written of a lock.
#[derive(Debug, Clone)]
pub(super) struct Version {
    version: i64,
    at: Instant,
    written_us: u64,
    data: Vec<u8>,
}

/// The ensemble, as one client reaches it.
struct ClockStore {
    world: Arc<World>,
    runtime: Arc<dyn Runtime>,
}

impl World {
    /// What the leader's clock says, in whole milliseconds.
    fn leader_us(&self) -> u64 {
        let true_us =
            1_800_000_000_000_000 + u64::try_from(self.start.elapsed().as_micros()).unwrap_or(0);
        let mut kept = locked(&self.kept);
        let us = true_us.saturating_add_signed(kept.ahead_us) / 1_000 * 1_000;
        kept.latest_us = kept.latest_us.max(us);
        us
    }

    /// What there is of a lock, or was some time ago.
    fn version(&self, name: &Name, ago: Duration) -> Option<Version> {
        let kept = locked(&self.kept);
        let all = kept.written.get(name)?;
        let then = Instant::now() - ago;
        all.iter().rev().find(|version| version.at <= then).cloned()
    }

    /// Runs a write, if the version is still the same. Returns when it was.
    fn write(&self, name: &Name, version: i64, data: &[u8], change: &Change, is_late: bool) -> Ran {
        let there = self.version(name, Duration::ZERO).map_or(0, |there| there.version);
        let compares = match self.planted {
            Planted::UncomparedLateWrite => !is_late,
            Planted::VersionsIgnored => false,
            _ => true,
        };
        if compares && there != version {
            return Ran::Conflict;
        }
        if let Some(message) = &change.message {
            let inboxes = locked(&self.inboxes);
            let inbox = inboxes.get(&message.client).filter(|inbox| !inbox.is_closed());
            // Its session may have ended early, or lives on without it.
            let is_off = !self.is_calm() && self.chance.below(8) == 0;
            if inbox.is_some() == is_off {
                return Ran::Gone;
            }
            // One in eight is lost.
            if let Some(inbox) = inbox
                && (self.is_calm() || self.chance.below(8) > 0)
            {
                let _ = inbox.send(message.grant);
            }
        }
        let written_us = self.leader_us();
        let mut kept = locked(&self.kept);
        kept.revision += 1;
        let version = kept.revision;
        let now = Version { version, at: Instant::now(), written_us, data: data.to_vec() };
        let is_given =
            matches!(change.holds, HoldChange::Replace { .. } | HoldChange::Extend { .. });
        if is_given && change.state.holder().is_some_and(|token| kept.released.contains(&token)) {
            let text =
                format!("{:?}: {name} is given to a token that was released", self.start.elapsed());
            kept.broken.push(text);
        }
        kept.written.entry(name.clone()).or_default().push(now);
        Ran::Done { version, written_us }
    }
}

/// What became of a write.
enum Ran {
    Done { version: i64, written_us: u64 },
    Conflict,
    Gone,
}

impl ClockStore {
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

    fn there(&self, name: &Name) -> Found {
        let (world, is_calm) = (&self.world, self.world.is_calm());
        // A synced read is as of now.
        let is_stale =
            world.planted == Planted::FollowerTrusted && !is_calm && world.chance.below(3) == 0;
        let ago =
            if is_stale { world.chance.millis(LAG.as_millis() as u64) } else { Duration::ZERO };
        let Some(Version { version, written_us, data, .. }) = world.version(name, ago) else {
            return Found::default();
        };
        let (state, terms) = record::decode(&data, written_us).expect("what was written is read");
        let mut found = self.found(version, state, &terms, written_us);
        match world.planted {
            Planted::EndJudgedByRead => {
                let leader_us = world.leader_us();
                found.holds.retain(|hold| hold.end_us > leader_us);
            }
            Planted::EndJudgedLocally => {
                let ours_us = wall_us(&*self.runtime);
                found.holds.retain(|hold| hold.end_us > ours_us);
            }
            _ => {}
        }
        found
    }

    fn found(&self, version: i64, state: State, terms: &[Term], written_us: u64) -> Found {
        let (now, ours_us) = (self.runtime.now(), wall_us(&*self.runtime));
        let until = |end_us: u64| {
            let micros = Duration::from_micros(end_us.abs_diff(ours_us));
            if end_us > ours_us { now.after(micros) } else { now.before(micros) }
        };
        let holds = terms.iter().map(|term| term.hold(written_us, until)).collect();
        Found { version, state, holds }
    }

    /// What is written of those who hold a lock.
    fn terms(&self, holds: &[Hold], change: HoldChange) -> Vec<Term> {
        match (self.world.planted, change) {
            (Planted::EndNotCarried, HoldChange::Extend { who, .. }) => {
                let forgotten = |hold: &Hold| match hold.who == who {
                    true => Hold { end_us: 0, ..*hold },
                    false => *hold,
                };
                record::terms(&holds.iter().map(forgotten).collect::<Vec<_>>(), change)
            }
            _ => record::terms(holds, change),
        }
    }
}

impl Store for ClockStore {
    async fn read(&self, name: &Name) -> Result<Found, Failure> {
        self.trip().await?;
        let found = self.there(name);
        self.trip().await?;
        Ok(found)
    }

    async fn write(&self, name: &Name, found: &Found, change: &Change) -> Result<Written, Failure> {
        let world = &self.world;
        let terms = self.terms(&found.holds, change.holds);
        let data = record::encode(&change.state, &terms);
        let sent_us = wall_us(&*self.runtime);
        self.trip().await?;
        let fate = if world.is_calm() { 9 } else { world.chance.below(12) };
        match fate {
            // It runs, and the answer is lost.
            0 => {
                world.write(name, found.version, &data, change, false);
                Err(Failure::new(FailureKind::Broken, "the connection broke"))
            }
            // It runs later, or never.
            1 | 2 => {
                let (world, name, change) = (Arc::clone(world), name.clone(), change.clone());
                let (version, late) = (found.version, world.chance.millis(4_000));
                tokio::spawn(async move {
                    tokio::time::sleep(late).await;
                    world.write(&name, version, &data, &change, true);
                });
                if fate == 1 {
                    std::future::pending::<()>().await;
                }
                Err(Failure::new(FailureKind::Silent, "no answer"))
            }
            _ => {
                let ran = world.write(name, found.version, &data, change, false);
                self.trip().await.map_err(|_| Failure::new(FailureKind::Broken, "no leader"))?;
                let (version, written_us) = match ran {
                    Ran::Done { version, written_us } => (version, written_us),
                    Ran::Conflict => return Ok(Written::Conflict(self.there(name))),
                    Ran::Gone => return Ok(Written::Gone),
                };
                let mut state = change.state.clone();
                state.set_seen(written_us, WINDOW.ahead);
                let mut now = self.found(version, state, &terms, written_us);
                let apart = clocks_apart(written_us, sent_us, wall_us(&*self.runtime));
                let is_blind = match world.planted {
                    Planted::HolderDoesNotLook => written_us < sent_us,
                    Planted::AheadNotLookedAt => written_us > sent_us,
                    _ => false,
                };
                if let Some(failure) = apart.filter(|_| !is_blind) {
                    return Ok(Written::Apart(now, failure));
                }
                now.holds.retain(|hold| hold.end_us > written_us);
                Ok(Written::Done(now))
            }
        }
    }

    async fn absent(&self, clients: &[ClientId]) -> Result<Vec<ClientId>, Failure> {
        self.trip().await?;
        Ok(self.world.absent(clients))
    }

    async fn list(&self, _from: &[u8]) -> Result<Listed, Failure> {
        Ok(Listed::default())
    }

    fn window(&self) -> Option<Window> {
        Some(match self.world.planted {
            Planted::HolderDoesNotLook => Window { behind: Duration::from_secs(3_600), ..WINDOW },
            _ => WINDOW,
        })
    }

    fn is_listening(&self) -> bool {
        true
    }

    fn listen(&self, _node: usize, _inbox: Weak<dyn Inbox>) {}

    async fn close(&self) {}
}

impl Simulated for ClockStore {
    const BELIEVED: Duration = TTL.saturating_sub(MARGIN);
    const APART: Duration = CLIENTS_APART;
    const TURNS: u64 = 3;
    const WRONG: Duration = Duration::from_secs(8);

    fn new(world: &Arc<World>, runtime: &Arc<dyn Runtime>) -> Self {
        Self { world: Arc::clone(world), runtime: Arc::clone(runtime) }
    }

    /// An election, or a clock that is set.
    fn disturb(world: &World) {
        let chance = &world.chance;
        let span =
            |most: Duration| i64::try_from(chance.below(most.as_micros() as u64 + 1)).unwrap_or(0);
        let ahead_us = match chance.below(if world.has_wrong_client { 3 } else { 8 }) {
            // As far as it may be.
            0 => -span(CLOCK_BEHIND),
            1 | 2 => span(CLOCK_AHEAD),
            // Further, by little or by much.
            3 => -span(TTL * 2),
            4 => span(TTL * 2),
            5 => -span(CLOCK_BEHIND * 3),
            _ => 0,
        };
        let until = Instant::now() + chance.millis(1_500);
        let mut kept = locked(&world.kept);
        kept.ahead_us = ahead_us;
        if ahead_us % 2 == 0 {
            kept.still_until = Some(until);
        }
    }

    fn calm(world: &World) {
        locked(&world.kept).ahead_us = 0;
    }

    fn holder(world: &World, name: &Name) -> Option<Token> {
        let Version { written_us, data, .. } = world.version(name, Duration::ZERO)?;
        let (state, terms) = record::decode(&data, written_us)?;
        // It may have been shown to be over before the clock was set back.
        world.leader_us();
        let latest_us = locked(&world.kept).latest_us;
        let lasts = terms.iter().any(|term| term.end_us(written_us) > latest_us);
        state.holder().filter(|_| lasts)
    }
}

#[test]
fn promises_are_kept_whatever_clock_the_leader_has() {
    keeps_promises::<ClockStore>();
}

#[test]
fn mistakes_with_clocks_are_found() {
    finds::<ClockStore>(&[
        Planted::UncomparedLateWrite,
        Planted::VersionsIgnored,
        Planted::EndJudgedByRead,
        Planted::EndJudgedLocally,
        Planted::HolderDoesNotLook,
        Planted::FollowerTrusted,
        Planted::EndNotCarried,
        Planted::AheadNotLookedAt,
    ]);
}

/// A store without faults, and a client of it.
fn calm_client() -> (Arc<World>, Client<ClockStore>, Name, Token) {
    let world = World::new(1, Planted::Nothing);
    *locked(&world.is_calm) = true;
    let client = Client::<ClockStore>::new(&world, 0);
    let token = Token::random(&*client.runtime);
    (world, client, Name::new("a").expect("a name"), token)
}

fn set_clock_ahead(world: &World, ahead: Duration) {
    locked(&world.kept).ahead_us = i64::try_from(ahead.as_micros()).unwrap_or(i64::MAX);
}

fn read(world: &World, name: &Name) -> (State, Vec<u64>) {
    let Version { written_us, data, .. } = world.version(name, Duration::ZERO).expect("a lock");
    let (state, terms) = record::decode(&data, written_us).expect("what was written is read");
    (state, terms.iter().map(|term| term.end_us(written_us)).collect())
}

#[tokio::test(start_paused = true)]
async fn what_is_taken_back_leaves_the_fence_as_it_was() {
    let (world, client, name, token) = calm_client();
    set_clock_ahead(&world, TTL);
    assert_eq!(client.try_once(&name, token).await, None);
    let (state, ends) = read(&world, &name);
    assert_eq!((state.fence, ends), (0, Vec::new()));
}

#[tokio::test(start_paused = true)]
async fn a_clock_that_was_ahead_for_a_moment_makes_no_hold_last_longer() {
    let (world, client, name, token) = calm_client();
    assert!(client.try_once(&name, token).await.is_some());
    let (_, before) = read(&world, &name);
    set_clock_ahead(&world, TTL);
    let (_, answer) = client.ask(&name, token, What::Extend);
    assert!(matches!(answer.await, Answer::Failed(_)));
    assert_eq!(read(&world, &name).1, before);
    set_clock_ahead(&world, Duration::ZERO);
    assert!(matches!(client.ask(&name, token, What::Extend).1.await, Answer::Granted { .. }));
}

#[tokio::test(start_paused = true)]
async fn a_clock_that_was_ahead_for_a_moment_gives_nobody_a_longer_turn() {
    let (world, mut client, name, token) = calm_client();
    assert!(client.try_once(&name, token).await.is_some());
    set_clock_ahead(&world, TTL * 4);
    let waiting = Token::random(&*client.runtime);
    let (id, runtime) = (client.id, Arc::clone(&client.runtime));
    let other = Client::<ClockStore>::new(&world, 1);
    let asked_us = wall_us(&*other.runtime);
    let _ = tokio::time::timeout(Duration::from_millis(500), client.wait(&name, waiting)).await;
    set_clock_ahead(&world, Duration::ZERO);
    let release = What::Release(runtime.now().after(TTL * 2), 0);
    assert!(matches!(client.ask(&name, token, release).1.await, Answer::Done));
    let (state, ends) = read(&world, &name);
    assert_eq!((state.holder(), client.id), (Some(waiting), id));
    let longest = TTL + Duration::from_secs(2);
    let most_us = asked_us + u64::try_from(longest.as_micros()).unwrap_or(u64::MAX);
    assert!(ends.iter().all(|end| *end <= most_us), "{ends:?} {most_us}");
}
