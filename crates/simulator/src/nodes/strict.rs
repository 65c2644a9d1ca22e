//! Records of the `strict` dialect: owner, expiry and number in one, and a marker that tells which
//! start of the server has been voting.

use std::time::Duration;

use super::verbs::{Records as Dialect, Refusal, Taking};
use super::{ByName, Script};
use crate::planted::Planted;

#[derive(Debug, Clone, Default)]
pub(crate) struct Records {
    locks: ByName<Lock>,
    marker: Option<Marker>,
}

#[derive(Debug, Clone, Default)]
struct Lock {
    number: u64,
    expiry_us: u64,
    /// Empty if it is free.
    owner: Vec<u8>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Marker {
    run_id: u64,
    begins: Begins,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Begins {
    /// It votes from then on, by the server's clock in microseconds.
    At(u64),
    /// It was emptied, and waits for a request that repeats this word.
    With(u64),
}

impl Records {
    /// Those of a server that an operator has said to be new.
    pub(super) fn marked(run_id: u64) -> Self {
        Self { locks: ByName::new(), marker: Some(Marker { run_id, begins: Begins::At(0) }) }
    }

    /// Until when it casts no vote, by the server's clock in nanoseconds.
    pub(super) fn quarantine(&self) -> Option<u64> {
        match self.marker?.begins {
            Begins::At(from_us) => Some(from_us * 1_000),
            Begins::With(_) => None,
        }
    }

    /// The word that it wants to hear again; zero for none.
    pub(super) fn word(&self) -> u64 {
        match self.marker {
            Some(Marker { begins: Begins::With(word), .. }) => word,
            _ => 0,
        }
    }

    /// From when on this start of the server casts votes, and the word that has to be repeated first.
    /// One that is new here begins now.
    fn voting(&mut self, script: &Script<'_>) -> (u64, u64) {
        let marker = self.marker.filter(|marker| {
            marker.run_id == script.run_id || script.has(Planted::MarkerByPresence)
        });
        if let Some(Marker { begins: Begins::At(from_us), .. }) = marker {
            return (from_us, 0);
        }
        let quiet_us = if script.has(Planted::NoQuarantine) { 0 } else { script.quiet_us };
        let from_us = script.micros() + quiet_us;
        let word = match marker {
            Some(Marker { begins: Begins::With(word), .. }) if word != script.word => word,
            None if self.marker.is_none()
                && quiet_us > 0
                && !script.has(Planted::EmptiedBeginsAtOnce) =>
            {
                script.micros().max(1)
            }
            _ => 0,
        };
        let begins = if word == 0 { Begins::At(from_us) } else { Begins::With(word) };
        self.marker = Some(Marker { run_id: script.run_id, begins });
        (from_us, word)
    }
}

impl Dialect for Records {
    fn expire(&mut self, name: &[u8], script: &Script<'_>) {
        if script.has(Planted::ExpiryBeforeClock)
            && let Some(lock) = self.locks.get_mut(name)
            && lock.expiry_us <= script.micros()
        {
            (lock.owner, lock.expiry_us) = (Vec::new(), 0);
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
        let (from_us, word) = self.voting(script);
        let left = Duration::from_micros(from_us.saturating_sub(script.micros()));
        (!left.is_zero()).then_some(Refusal::Quarantine { left, word })
    }

    fn may_pass_on(&mut self, script: &Script<'_>) -> bool {
        if script.has(Planted::ReleaseMarks) {
            return script.micros() >= self.voting(script).0;
        }
        if self.clock_refusal(script).is_some() {
            return false;
        }
        if script.has(Planted::ReleaseBegins) {
            return script.micros() >= self.voting(script).0;
        }
        !self.is_quiet(script)
    }

    fn is_quiet(&self, script: &Script<'_>) -> bool {
        self.clone().voting(script).0 > script.micros()
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

    fn last_number(&self, name: &[u8]) -> u64 {
        self.locks.get(name).map_or(0, |lock| lock.number)
    }

    fn newest(&self, wall_us: u64) -> u64 {
        wall_us
    }

    fn raise(&mut self, name: &[u8], least: u64) -> u64 {
        let lock = self.locks.entry(name.to_vec()).or_default();
        lock.number = lock.number.max(least);
        lock.number
    }

    fn take(&mut self, name: &[u8], token: &[u8], taking: Taking, script: &Script<'_>) -> u64 {
        // What the new holder counts from is not before the request that it counts from was seen.
        let from = script.micros().max(taking.seen_us.unwrap_or_default());
        let lock = self.locks.entry(name.to_vec()).or_default();
        lock.number = match taking.proposal {
            Some(proposal) => proposal.after(lock.number),
            None => taking.least.max(lock.number + 1),
        };
        lock.expiry_us = from + taking.ttl_ms * 1_000;
        lock.owner = token.to_vec();
        lock.number
    }

    fn keep(&mut self, name: &[u8], ttl_ms: u64, script: &Script<'_>) -> u64 {
        let lock = self.locks.entry(name.to_vec()).or_default();
        let until = script.micros() + ttl_ms * 1_000;
        let shortens = script.has(Planted::ExtendShortens);
        lock.expiry_us = if shortens { until } else { lock.expiry_us.max(until) };
        lock.number
    }

    fn heal(
        &mut self,
        name: &[u8],
        token: &[u8],
        ttl_ms: u64,
        least: u64,
        script: &Script<'_>,
    ) -> Option<u64> {
        let held = self.read(name).is_some() && self.is_live(name, script);
        if held || self.last_number(name) > least || script.micros() >= self.voting(script).0 {
            return None;
        }
        let owner = token.to_vec();
        self.locks.insert(name.to_vec(), Lock { number: least, expiry_us: 0, owner });
        Some(self.keep(name, ttl_ms, script))
    }

    fn drop(&mut self, name: &[u8], _: &Script<'_>) {
        if let Some(lock) = self.locks.get_mut(name) {
            (lock.owner, lock.expiry_us) = (Vec::new(), 0);
        }
    }

    fn kept(&self, name: &[u8], clock: u64) -> Option<(&[u8], u64)> {
        let lock = self.locks.get(name).filter(|lock| !lock.owner.is_empty())?;
        (lock.expiry_us > clock / 1_000).then_some((&lock.owner, lock.expiry_us * 1_000))
    }

    fn names(&self) -> Vec<Vec<u8>> {
        self.locks.keys().cloned().collect()
    }
}
