//! Records of the `redlock` dialect: a string with an expiry, and the fence in a second key.

use std::time::Duration;

use quorlock::node::{Mark, Marker};

use super::participants::Shares;
use super::verbs::{FENCES_END, Records as Dialect, Refusal, Taking, Winning, refuse};
use super::{ByName, Script};
use crate::planted::Planted;

/// What the server keeps. Whatever has expired counts as gone, and goes when it is in the way.
#[derive(Debug, Clone, Default)]
pub(crate) struct Records {
    locks: ByName<Lock>,
    fences: ByName<u64>,
}

#[derive(Debug, Clone)]
struct Lock {
    token: Vec<u8>,
    /// The last millisecond of its life.
    until: u64,
    shares: Shares,
    /// Whether a waiter has taken a place in the queue behind it.
    marked: bool,
}

impl Records {
    /// Shows the last fence of every lock, to be changed.
    pub(super) fn fences(&mut self, mut change: impl FnMut(&[u8], &mut u64)) {
        for (name, fence) in &mut self.fences {
            change(name, fence);
        }
    }
}

impl Dialect for Records {
    fn expire(&mut self, name: &[u8], script: &Script<'_>) {
        if self.locks.get(name).is_some_and(|lock| lock.until < script.millis()) {
            self.locks.remove(name);
        }
    }

    fn clock_refusal(&self, _: &Script<'_>) -> Option<Refusal> {
        None
    }

    fn vote_refusal(&mut self, _: &Script<'_>) -> Option<Refusal> {
        None
    }

    fn set_refusal(&self, _: &Script<'_>) -> Option<Refusal> {
        None
    }

    fn mark(&mut self, _: Option<&Mark>, _: &Script<'_>) -> Option<Marker> {
        None
    }

    fn may_pass_on(&mut self, _: &Script<'_>) -> bool {
        true
    }

    fn quiet_us(&self, _: &Script<'_>) -> u64 {
        0
    }

    fn read(&self, name: &[u8]) -> Option<Vec<u8>> {
        self.locks.get(name).map(|lock| lock.token.clone())
    }

    fn is_live(&self, _: &[u8], _: &Script<'_>) -> bool {
        true
    }

    fn left(&self, name: &[u8], script: &Script<'_>) -> Duration {
        let until = self.locks.get(name).map_or(0, |lock| lock.until);
        Duration::from_millis(until.saturating_sub(script.millis()))
    }

    fn last_fence(&self, name: &[u8]) -> u64 {
        self.fences.get(name).copied().unwrap_or_default()
    }

    fn newest(&self, _: u64) -> u64 {
        0
    }

    fn fence_refusal(&self, _: &[u8], least: u64, script: &Script<'_>) -> Option<Refusal> {
        let refused = least >= FENCES_END && !script.has(Planted::PoisonAdopted);
        refused.then_some(Refusal::Fence)
    }

    fn raise(&mut self, name: &[u8], least: u64, script: &Script<'_>) -> Result<u64, Refusal> {
        let fence = self.last_fence(name).max(least);
        refuse(self.fence_refusal(name, fence, script))?;
        self.fences.insert(name.to_vec(), fence);
        Ok(fence)
    }

    fn take(
        &mut self,
        name: &[u8],
        token: &[u8],
        taking: Taking,
        script: &Script<'_>,
    ) -> Result<u64, Refusal> {
        let fenced = taking.proposal.is_some();
        let fence = if fenced { taking.fence(self.last_fence(name), script)? } else { 0 };
        let until = script.millis() + taking.ttl_ms;
        let (token, shares, marked) = (token.to_vec(), Shares::new(), false);
        self.locks.insert(name.to_vec(), Lock { token, until, shares, marked });
        if fenced {
            self.fences.insert(name.to_vec(), fence);
        }
        Ok(fence)
    }

    fn keep(&mut self, name: &[u8], ttl_ms: u64, script: &Script<'_>) -> Result<u64, Refusal> {
        let fence = self.last_fence(name);
        refuse(self.fence_refusal(name, fence, script))?;
        if let Some(lock) = self.locks.get_mut(name) {
            lock.until = lock.until.max(script.millis() + ttl_ms);
        }
        Ok(fence)
    }

    fn heal(
        &mut self,
        _: &[u8],
        _: &[u8],
        _: u64,
        _: u64,
        _: Shares,
        _: &Script<'_>,
    ) -> Result<Option<u64>, Refusal> {
        Ok(None)
    }

    fn win_back(
        &mut self,
        name: &[u8],
        token: &[u8],
        winning: Winning,
        script: &Script<'_>,
    ) -> Result<Option<u64>, Refusal> {
        let Winning { ttl_ms, last, shares, waited } = winning;
        let fence = if last > 0 { self.last_fence(name).max(last) } else { 0 };
        refuse(self.fence_refusal(name, fence, script))?;
        if self.locks.contains_key(name) {
            return Ok(None);
        }
        let (until, marked) = (script.millis() + ttl_ms, waited && shares.is_empty());
        self.locks.insert(name.to_vec(), Lock { token: token.to_vec(), until, shares, marked });
        if fence > 0 {
            self.fences.insert(name.to_vec(), fence);
        }
        Ok(Some(fence))
    }

    fn shares(&self, name: &[u8]) -> Shares {
        self.locks.get(name).map(|lock| lock.shares.clone()).unwrap_or_default()
    }

    fn share(&mut self, name: &[u8], shares: Shares) {
        if let Some(lock) = self.locks.get_mut(name) {
            lock.shares = shares;
        }
    }

    fn ends(&self, name: &[u8], script: &Script<'_>) -> u64 {
        script.micros() + self.left(name, script).as_micros() as u64
    }

    fn end_at(&mut self, name: &[u8], end_us: u64) {
        if let Some(lock) = self.locks.get_mut(name) {
            lock.until = end_us.div_ceil(1_000);
        }
    }

    fn drop(&mut self, name: &[u8], _: &Script<'_>) {
        self.locks.remove(name);
    }

    fn queued_behind(&mut self, name: &[u8]) {
        if let Some(lock) = self.locks.get_mut(name) {
            lock.marked = true;
        }
    }

    fn left_in_queue(&mut self, _: &[u8], _: bool) {}

    /// Who took the lock beside a queue that an earlier one has left is not marked. Those in the queue ask
    /// again when the record of that one ends.
    fn tells_that_nobody_waits(&self, name: &[u8]) -> bool {
        self.locks.get(name).is_some_and(|lock| !lock.marked && lock.shares.is_empty())
    }

    fn kept(&self, name: &[u8], clock: u64) -> Option<(&[u8], u64)> {
        let lock = self.locks.get(name).filter(|lock| lock.until >= clock / 1_000_000)?;
        Some((&lock.token, lock.until * 1_000_000))
    }

    fn names(&self) -> Vec<Vec<u8>> {
        self.locks.keys().cloned().collect()
    }
}
