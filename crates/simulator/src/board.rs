//! What processes tell each other besides the locks: ids of owners, and tokens of locks that are handed over.

use std::collections::BTreeMap;

use quorlock::Guard;

#[derive(Default)]
pub(crate) struct Board {
    /// The id of each owner who shares a lock, and which.
    owners: Vec<(usize, String)>,
    /// The token of each lock that was kept, for the process that takes it first.
    kept: Vec<(usize, String)>,
    /// The guards of each shared lock, by its token.
    guards: BTreeMap<String, Vec<Shared>>,
}

/// A guard of a shared lock.
struct Shared {
    window: u32,
    holding: u32,
    fence: u64,
}

impl Board {
    pub(crate) fn share(&mut self, name: usize, owner: String) {
        self.owners.push((name, owner));
    }

    /// It is not shared any longer.
    pub(crate) fn withdraw(&mut self, owner: &str) {
        self.owners.retain(|(_, other)| other != owner);
    }

    pub(crate) fn has_owners(&self) -> bool {
        !self.owners.is_empty()
    }

    pub(crate) fn any_owner(&self, chosen: u64) -> Option<(usize, String)> {
        let index = chosen.checked_rem(self.owners.len() as u64)?;
        self.owners.get(index as usize).cloned()
    }

    pub(crate) fn keep(&mut self, name: usize, token: String) {
        self.kept.push((name, token));
    }

    pub(crate) fn take_kept(&mut self) -> Option<(usize, String)> {
        self.kept.pop()
    }

    /// What a new guard has in common with those of the same token. One who waited may be granted the same
    /// token twice, at different times: that is another holding.
    pub(crate) fn holding(&self, guard: &Guard, is_open: impl Fn(u32) -> bool) -> Option<u32> {
        let same = |shared: &&Shared| shared.fence == guard.fence() || is_open(shared.window);
        let guards = self.guards.get(guard.token().as_str())?;
        guards.iter().rev().find(same).map(|shared| shared.holding)
    }

    pub(crate) fn holds(&mut self, guard: &Guard, (window, holding): (u32, u32)) {
        let (fence, token) = (guard.fence(), guard.token().as_str().to_owned());
        self.guards.entry(token).or_default().push(Shared { window, holding, fence });
    }
}
