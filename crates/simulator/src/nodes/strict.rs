//! Records of the `strict` dialect: owner, expiry and fence in one, and a marker that tells which
//! start of the server has been voting.

use std::time::Duration;

use quorlock::node::{ClosedFor, Marker, MarkerState, Members, Writes};

use super::participants::Shares;
use super::verbs::{Records as Dialect, Refusal, Taking, Winning, refuse};
use super::{ByName, Script};
use crate::planted::Planted;

/// How far a fence may be ahead of the client's time of day.
pub(super) const MOST_AHEAD_US: u64 = 24 * 60 * 60 * 1_000_000;

#[derive(Debug, Clone, Default)]
pub(crate) struct Records {
    pub(super) locks: ByName<Lock>,
    marker: Option<Mark>,
}

#[derive(Debug, Clone, Default)]
pub(super) struct Lock {
    pub(super) fence: u64,
    pub(super) expiry_us: u64,
    /// Empty if it is free.
    pub(super) owner: Vec<u8>,
    pub(super) shares: Shares,
    /// Whether a waiter may stand in its queue.
    pub(super) waited: bool,
}

impl Lock {
    /// A record that says who holds it does not say whether a client waits: that is taken for granted.
    fn set_shares(&mut self, shares: Shares) {
        self.waited |= !shares.is_empty();
        self.shares = shares;
    }
}

/// Which set of nodes the server belongs to.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Mark {
    state: MarkerState,
    run_id: u64,
    members: Option<Members>,
    closed_for: Option<ClosedFor>,
    /// From when on it counts, by the server's clock in microseconds.
    from_us: u64,
    nonce: u64,
}

/// How a server stands to the set of a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Standing {
    Votes,
    Quiet,
    Other,
}

impl Records {
    /// Those of a server that an operator has said to be new, as one of these members.
    pub(super) fn marked(run_id: u64, members: Members) -> Self {
        let (state, members) = (MarkerState::Formed, Some(members));
        let mark = Mark { state, run_id, members, closed_for: None, from_us: 0, nonce: 1 };
        Self { locks: ByName::new(), marker: Some(mark) }
    }

    /// Shows the last fence of every lock, to be changed.
    pub(super) fn fences(&mut self, mut change: impl FnMut(&[u8], &mut u64)) {
        for (name, lock) in &mut self.locks {
            change(name, &mut lock.fence);
        }
    }

    /// Until when it casts no vote, by the server's clock in nanoseconds.
    pub(super) fn quarantine(&self) -> Option<u64> {
        let mark = self.marker.as_ref().filter(|mark| mark.state == MarkerState::Formed)?;
        Some(mark.from_us * 1_000)
    }

    /// Whether the server would vote for clients of this set, over a connection to this start of it.
    pub(super) fn votes_for(&self, set: &str, run_id: u64) -> bool {
        self.marker.as_ref().is_some_and(|mark| {
            mark.state == MarkerState::Formed && mark.run_id == run_id && mark.is_of(set)
        })
    }

    fn standing(&self, script: &Script<'_>) -> Standing {
        let Some(mark) = &self.marker else { return Standing::Quiet };
        let ours = mark.is_of(&script.set) || script.has(Planted::ServesOtherSets);
        let this_start = mark.run_id == script.run_id || script.has(Planted::MarkerByPresence);
        let due = mark.from_us <= script.micros();
        match mark.state {
            MarkerState::Blank => Standing::Quiet,
            MarkerState::Formed if ours && this_start && due => Standing::Votes,
            MarkerState::Formed | MarkerState::Forming if ours => Standing::Quiet,
            _ => Standing::Other,
        }
    }

    /// What is said of the marker.
    fn marker(&self, script: &Script<'_>) -> Marker {
        let nonce = self.marker.as_ref().map_or(0, |mark| mark.nonce);
        let instance = [script.run_id, nonce].map(u64::to_be_bytes).concat();
        let Some(mark) = &self.marker else {
            return Marker::without_set(instance, MarkerState::Absent);
        };
        Marker {
            instance,
            state: mark.state,
            members: mark.members.clone(),
            closed_for: mark.closed_for.clone(),
            restarted: mark.state != MarkerState::Blank && mark.run_id != script.run_id,
            left: Duration::from_micros(mark.from_us.saturating_sub(script.micros())),
        }
    }

    fn write(&mut self, mark: &quorlock::node::Mark, script: &Script<'_>) {
        // What was seen on another start of the server names nothing that is there.
        let there = self.marker(script).instance;
        if there != mark.seen {
            return;
        }
        let (state, waits) = match mark.writes {
            Writes::Blank => (MarkerState::Blank, false),
            Writes::Forming(_) => (MarkerState::Forming, true),
            Writes::Formed(_) => (MarkerState::Formed, false),
            Writes::TakenBack(_) => (MarkerState::Formed, true),
            Writes::Closed { .. } => (MarkerState::Closed, false),
        };
        let closed_for = match &mark.writes {
            Writes::Closed { closed_for, .. } => Some(closed_for.clone()),
            _ => None,
        };
        self.marker = Some(Mark {
            state,
            run_id: script.run_id,
            members: mark.writes.members().cloned(),
            closed_for,
            from_us: if waits && !script.has(Planted::NoQuarantine) {
                script.micros() + script.quiet_us
            } else {
                0
            },
            nonce: mark.nonce,
        });
    }
}

impl Mark {
    fn is_of(&self, set: &str) -> bool {
        self.members.as_ref().is_some_and(|members| members.digest() == set)
    }
}

impl Dialect for Records {
    fn expire(&mut self, name: &[u8], script: &Script<'_>) {
        if script.has(Planted::ExpiryBeforeClock)
            && let Some(lock) = self.locks.get_mut(name)
            && lock.expiry_us <= script.micros()
        {
            (lock.owner, lock.expiry_us, lock.shares) = (Vec::new(), 0, Shares::new());
        }
    }

    fn clock_refusal(&self, script: &Script<'_>) -> Option<Refusal> {
        let (earliest, latest) = script.window_us;
        (!(earliest..=latest).contains(&script.micros())).then_some(Refusal::Clock)
    }

    fn vote_refusal(&mut self, script: &Script<'_>) -> Option<Refusal> {
        if let Some(refusal) = self.clock_refusal(script) {
            return Some(refusal);
        }
        (self.standing(script) != Standing::Votes)
            .then(|| Refusal::Marker(self.marker(script).into()))
    }

    fn set_refusal(&self, script: &Script<'_>) -> Option<Refusal> {
        let other = self.standing(script) == Standing::Other;
        other.then(|| Refusal::Marker(self.marker(script).into()))
    }

    fn may_pass_on(&mut self, script: &Script<'_>) -> bool {
        self.clock_refusal(script).is_none() && self.standing(script) == Standing::Votes
    }

    fn quiet_us(&self, script: &Script<'_>) -> u64 {
        if self.standing(script) == Standing::Votes {
            return 0;
        }
        let begun = |mark: &&Mark| {
            let carries = matches!(mark.state, MarkerState::Formed | MarkerState::Forming);
            carries && mark.run_id == script.run_id && mark.is_of(&script.set)
        };
        let from_us = self.marker.as_ref().filter(begun).map(|mark| mark.from_us);
        let left = from_us.map(|from_us| from_us.saturating_sub(script.micros()));
        // One that is due waits for other nodes.
        left.unwrap_or(script.quiet_us).max(1)
    }

    fn mark(&mut self, mark: Option<&quorlock::node::Mark>, script: &Script<'_>) -> Option<Marker> {
        if let Some(mark) = mark {
            self.write(mark, script);
        }
        Some(self.marker(script))
    }

    fn read(&self, name: &[u8]) -> Option<Vec<u8>> {
        let lock = self.locks.get(name).filter(|lock| !lock.owner.is_empty());
        lock.map(|lock| lock.owner.clone())
    }

    fn is_live(&self, name: &[u8], script: &Script<'_>) -> bool {
        self.locks.get(name).is_some_and(|lock| lock.expiry_us > script.micros())
    }

    fn left(&self, name: &[u8], script: &Script<'_>) -> Duration {
        let expiry_us = self.locks.get(name).map_or(0, |lock| lock.expiry_us);
        Duration::from_millis(expiry_us.saturating_sub(script.micros()).div_ceil(1_000))
    }

    fn last_fence(&self, name: &[u8]) -> u64 {
        self.locks.get(name).map_or(0, |lock| lock.fence)
    }

    fn newest(&self, wall_us: u64) -> u64 {
        wall_us
    }

    fn fence_refusal(&self, name: &[u8], least: u64, script: &Script<'_>) -> Option<Refusal> {
        let most = script.wall_us + MOST_AHEAD_US;
        let refused = self.last_fence(name).max(least) > most;
        (refused && !script.has(Planted::PoisonAdopted)).then_some(Refusal::Fence)
    }

    fn raise(&mut self, name: &[u8], least: u64, script: &Script<'_>) -> Result<u64, Refusal> {
        refuse(self.fence_refusal(name, least, script))?;
        let lock = self.locks.entry(name.to_vec()).or_default();
        lock.fence = lock.fence.max(least);
        Ok(lock.fence)
    }

    fn take(
        &mut self,
        name: &[u8],
        token: &[u8],
        taking: Taking,
        script: &Script<'_>,
    ) -> Result<u64, Refusal> {
        let fence = taking.fence(self.last_fence(name), script)?;
        refuse(self.fence_refusal(name, fence, script))?;
        // What the new holder counts from is not before the request that it counts from was seen.
        let from = script.micros().max(taking.seen_us.unwrap_or_default());
        let lock = self.locks.entry(name.to_vec()).or_default();
        lock.fence = fence;
        lock.expiry_us = from + taking.ttl_ms * 1_000;
        (lock.owner, lock.shares) = (token.to_vec(), Shares::new());
        Ok(fence)
    }

    fn keep(&mut self, name: &[u8], ttl_ms: u64, script: &Script<'_>) -> Result<u64, Refusal> {
        refuse(self.fence_refusal(name, 0, script))?;
        let lock = self.locks.entry(name.to_vec()).or_default();
        let until = script.micros() + ttl_ms * 1_000;
        let shortens = script.has(Planted::ExtendShortens);
        lock.expiry_us = if shortens { until } else { lock.expiry_us.max(until) };
        Ok(lock.fence)
    }

    fn heal(
        &mut self,
        name: &[u8],
        token: &[u8],
        ttl_ms: u64,
        least: u64,
        shares: Shares,
        script: &Script<'_>,
    ) -> Result<Option<u64>, Refusal> {
        let held = self.read(name).is_some() && self.is_live(name, script);
        if held || self.last_fence(name) > least || self.standing(script) != Standing::Quiet {
            return Ok(None);
        }
        refuse(self.fence_refusal(name, least, script))?;
        let lock = self.locks.entry(name.to_vec()).or_default();
        (lock.fence, lock.expiry_us) = (least, 0);
        lock.owner = token.to_vec();
        lock.set_shares(shares);
        self.keep(name, ttl_ms, script).map(Some)
    }

    fn win_back(
        &mut self,
        name: &[u8],
        token: &[u8],
        winning: Winning,
        script: &Script<'_>,
    ) -> Result<Option<u64>, Refusal> {
        let Winning { ttl_ms, last, shares, .. } = winning;
        if !script.has(Planted::WinBackInQuarantine) {
            refuse(self.vote_refusal(script))?;
        }
        refuse(self.fence_refusal(name, last, script))?;
        if self.read(name).is_some() && self.is_live(name, script) {
            return Ok(None);
        }
        let lock = self.locks.entry(name.to_vec()).or_default();
        (lock.fence, lock.expiry_us) = (lock.fence.max(last), 0);
        lock.owner = token.to_vec();
        lock.set_shares(shares);
        self.keep(name, ttl_ms, script).map(Some)
    }

    fn drop(&mut self, name: &[u8], _: &Script<'_>) {
        if let Some(lock) = self.locks.get_mut(name) {
            (lock.owner, lock.expiry_us, lock.shares) = (Vec::new(), 0, Shares::new());
        }
    }

    fn shares(&self, name: &[u8]) -> Shares {
        self.locks.get(name).map(|lock| lock.shares.clone()).unwrap_or_default()
    }

    fn share(&mut self, name: &[u8], shares: Shares) {
        if let Some(lock) = self.locks.get_mut(name) {
            lock.set_shares(shares);
        }
    }

    fn ends(&self, name: &[u8], _: &Script<'_>) -> u64 {
        self.locks.get(name).map_or(0, |lock| lock.expiry_us)
    }

    fn end_at(&mut self, name: &[u8], end_us: u64) {
        if let Some(lock) = self.locks.get_mut(name) {
            lock.expiry_us = end_us;
        }
    }

    fn queued_behind(&mut self, name: &[u8]) {
        self.left_in_queue(name, true);
    }

    fn left_in_queue(&mut self, name: &[u8], others: bool) {
        self.locks.entry(name.to_vec()).or_default().waited = others;
    }

    fn tells_that_nobody_waits(&self, name: &[u8]) -> bool {
        self.locks.get(name).is_some_and(|lock| !lock.waited)
    }

    fn kept(&self, name: &[u8], clock: u64) -> Option<(&[u8], u64)> {
        let lock = self.locks.get(name).filter(|lock| !lock.owner.is_empty())?;
        (lock.expiry_us > clock / 1_000).then_some((&lock.owner, lock.expiry_us * 1_000))
    }

    fn names(&self) -> Vec<Vec<u8>> {
        self.locks.keys().cloned().collect()
    }
}
