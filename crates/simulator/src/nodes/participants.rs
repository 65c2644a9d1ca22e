//! Who holds a lock with its token: what `participants.lua` does.

use quorlock::node::ParticipantId;

use super::Script;
use super::verbs::{Keys, Records, Refusal};
use crate::planted::Planted;

/// The maker, which is `None`, and who takes part, each with its end by the server's clock in microseconds.
/// Empty while only the maker holds the lock.
pub(super) type Shares = Vec<(Option<ParticipantId>, u64)>;

const MOST: usize = 256;

impl<R: Records> Keys<R> {
    /// Keeps a record longer for one of those who hold it; `None` if there is no room for another one.
    pub(super) fn keep_for(
        &mut self,
        who: Option<ParticipantId>,
        name: &[u8],
        ttl_ms: u64,
        script: &Script<'_>,
    ) -> Result<Option<u64>, Refusal> {
        let now = script.micros();
        let mut shares = self.records.shares(name);
        if shares.is_empty() && who.is_some() {
            shares.push((None, self.records.ends(name, script)));
        }
        if !shares.is_empty() {
            let mine = shares.iter().find(|(other, _)| *other == who).map(|(_, end)| *end);
            shares.retain(|(other, end)| *other != who && *end > now);
            if shares.len() >= MOST && mine.is_none() && who.is_some() {
                return Ok(None);
            }
            shares.push((who, mine.unwrap_or_default().max(now + ttl_ms * 1_000)));
        }
        let fence = self.records.keep(name, ttl_ms, script)?;
        if !shares.is_empty() {
            self.records.share(name, shares);
        }
        Ok(Some(fence))
    }

    /// Whether anybody holds it but its maker.
    pub(super) fn is_shared(&self, name: &[u8], script: &Script<'_>) -> bool {
        let shares = self.records.shares(name);
        shares.iter().any(|(who, end)| who.is_some() && *end > script.micros())
    }

    /// Whether a participant is listed.
    pub(super) fn is_listed(&self, who: Option<ParticipantId>, name: &[u8]) -> bool {
        self.records.shares(name).iter().any(|(other, _)| *other == who)
    }

    /// Takes one of those who hold it off the list. Returns whether it is left to others.
    pub(super) fn leave_to_others(
        &mut self,
        who: Option<ParticipantId>,
        name: &[u8],
        script: &Script<'_>,
    ) -> bool {
        if who.is_none() && script.has(Planted::MakerDropsShared) {
            return false;
        }
        let mut others = self.records.shares(name);
        others.retain(|(other, _)| *other != who);
        let Some(latest) = others.iter().map(|(_, end)| *end).max() else { return false };
        let over = latest <= script.micros();
        if over && (script.has(Planted::DeadByAnyClock) || self.records.may_pass_on(script)) {
            return false;
        }
        self.records.share(name, others);
        self.records.end_at(name, latest);
        true
    }
}
