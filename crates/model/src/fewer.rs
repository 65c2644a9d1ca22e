//! Worlds that behave alike are made one, so that fewer have to be looked at.

use crate::client::Phase;
use crate::node::{FOREVER, Marker, Memory, Owner, Request};
use crate::setup::{CLIENTS, FENCES_PER_TICK, START, Setup, Time};
use crate::world::World;

impl World {
    /// Drops what can make no difference any more.
    ///
    /// Whatever a node compares with its clock is compared with a request's time: one that is under
    /// way, or one that is sent from now on. What is over for the oldest of these is over for all.
    pub fn tidy(&mut self, setup: &Setup) {
        let oldest = self.oldest();
        let floor = oldest.saturating_sub(setup.bounds.behind);
        let ticket = self.columns.iter().flat_map(|column| {
            let both = [column.node.memory.waiting, column.node.disk.waiting];
            both.into_iter().flatten().flatten().map(|ticket| ticket.sent)
        });
        let fences = ticket.min().map_or(oldest, |sent| sent.min(oldest)) * FENCES_PER_TICK;
        let idle = self.clients.map(|client| client.phase == Phase::Idle);
        let restorable = setup.bounds.restored && self.faults > 0;
        for column in &mut self.columns {
            let silent: [bool; CLIENTS] =
                std::array::from_fn(|client| column.sides[client].under_way.is_none());
            let node = &mut column.node;
            if !restorable {
                node.disk = Memory::default();
            }
            for memory in [&mut node.memory, &mut node.disk] {
                for client in 0..CLIENTS {
                    if idle[client] {
                        memory.waiting[client] = None;
                        if silent[client] && memory.record.owner == Owner::of(client) {
                            memory.record.owner = Owner::Gone;
                        }
                    }
                }
                memory.tidy(floor, fences);
            }
            if node.forgotten <= floor {
                node.forgotten = 0;
            }
            // Only a quarantine that has not started asks who has heard of it.
            if node.memory.marker == Marker::OfThisRun && node.memory.quarantine != FOREVER {
                for side in &mut column.sides {
                    side.informed = true;
                    if let Some(
                        Request::Acquire { informed, .. } | Request::Extend { informed, .. },
                    ) = &mut side.under_way
                    {
                        *informed = true;
                    }
                }
            }
        }
        for (index, client) in self.clients.iter_mut().enumerate() {
            for column in &mut self.columns {
                let side = &mut column.sides[index];
                if side.lease <= self.now {
                    side.lease = 0;
                }
            }
            if let Phase::Asking { since } | Phase::Confirming { since, .. } = &mut client.phase
                && *since + setup.belief() <= self.now
            {
                *since = 0;
            }
        }
        // A client that wins from now on was granted the lock by a request that is still believed.
        let youngest = (self.now + 1).saturating_sub(setup.belief());
        if self.last_fence < youngest * FENCES_PER_TICK {
            self.last_fence = 0;
        }
    }

    /// When the oldest request was sent that is under way or yet to come.
    fn oldest(&self) -> Time {
        if self.strays > 0 {
            return START;
        }
        let under_way = self.columns.iter().flat_map(|column| column.sides);
        let sent = under_way.filter_map(|side| match side.under_way? {
            Request::Acquire { sent, .. } | Request::Extend { sent, .. } => Some(sent),
            Request::Release { sent } => (sent > 0).then_some(sent),
            Request::Confirm { .. } => None,
        });
        sent.min().map_or(self.now, |sent| sent.min(self.now))
    }

    /// The same world with nodes and clients in an order that depends on nothing but their states.
    #[must_use]
    pub fn sorted(&self) -> Self {
        let mut one = *self;
        one.columns.sort_unstable();
        let mut other = self.swapped();
        other.columns.sort_unstable();
        one.min(other)
    }

    /// The same world with the clients' names exchanged.
    fn swapped(&self) -> Self {
        let mut world = *self;
        world.clients.swap(0, 1);
        world.last_holder = self.last_holder.map(|client| 1 - client);
        for column in &mut world.columns {
            column.sides.swap(0, 1);
            for memory in [&mut column.node.memory, &mut column.node.disk] {
                memory.waiting.swap(0, 1);
                if let Owner::Client(client) = &mut memory.record.owner {
                    *client = 1 - *client;
                }
            }
        }
        world
    }
}

impl Memory {
    fn tidy(&mut self, floor: Time, fences: Time) {
        let record = &mut self.record;
        if record.expiry <= floor {
            record.expiry = 0;
        }
        if record.owner == Owner::Gone && record.expiry == 0 {
            record.owner = Owner::Nobody;
        }
        if record.owner == Owner::Nobody {
            record.expiry = 0;
        }
        if record.fence < fences {
            record.fence = 0;
        }
        if self.quarantine <= floor {
            self.quarantine = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use stateright::{Checker, Model};

    use super::*;
    use crate::setup::{Bounds, Question, Variant};

    const BOUNDS: Bounds = Bounds { ticks: 2, losses: false, ..Bounds::PLAIN };

    /// All worlds that can be reached if each is put through `keep`.
    fn reach(setup: &Setup, keep: impl Fn(World) -> World) -> HashSet<World> {
        let start = keep(World::start(setup));
        let mut seen = HashSet::from([start]);
        let mut left = vec![start];
        let mut actions = Vec::new();
        while let Some(world) = left.pop() {
            setup.actions(&world, &mut actions);
            for action in actions.drain(..) {
                let mut next = world;
                if next.apply(setup, action) {
                    let next = keep(next);
                    if seen.insert(next) {
                        left.push(next);
                    }
                }
            }
        }
        seen
    }

    /// With and without what is left out, the same kinds of worlds can be reached.
    fn assert_nothing_is_lost(bounds: Bounds) {
        let setup = Setup { variant: Variant::Strict, bounds, question: Question::Safety };
        let tidy = |mut world: World| {
            world.tidy(&setup);
            world
        };
        let bare = reach(&setup, |world| world);
        let kinds: HashSet<World> = bare.iter().map(|world| tidy(*world).sorted()).collect();
        let fewer = reach(&setup, |world| tidy(world).sorted());
        assert!(
            fewer == kinds,
            "{} worlds of {} kinds, not {}",
            bare.len(),
            kinds.len(),
            fewer.len()
        );
        assert!(fewer.len() * 5 < bare.len(), "{} of {} worlds", fewer.len(), bare.len());
        let checked = setup.checker().spawn_dfs().join();
        assert_eq!(checked.unique_state_count(), fewer.len());
    }

    #[test]
    fn nothing_is_lost_without_faults() {
        assert_nothing_is_lost(BOUNDS);
    }

    #[test]
    fn nothing_is_lost_with_faults() {
        let held = Bounds { held_at_start: true, faults: 1, extensions: 1, ..BOUNDS };
        assert_nothing_is_lost(Bounds { emptied: true, restored: true, ..held });
    }

    #[test]
    fn nothing_is_lost_with_requests_of_earlier_rounds() {
        assert_nothing_is_lost(Bounds { held_at_start: true, strays: 1, ..BOUNDS });
    }

    #[test]
    fn nothing_is_lost_when_a_client_asks_again() {
        assert_nothing_is_lost(Bounds { held_at_start: true, asks: 1, behind: 1, ..BOUNDS });
    }
}
