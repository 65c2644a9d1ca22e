//! The model as the checker sees it: what must hold, and what has to be possible.

use stateright::{Model, Property};

use super::setup::Setup;
use super::world::{Action, World};
use crate::setup::Question;

/// Never two sets of which a majority votes.
pub const ONE_SET: &str = "one set in force at a time";
/// No set grants a lease while one that another set has granted may be valid.
pub const LEASES_END: &str = "leases of one set end before another grants any";
/// No node votes while a vote that it has forgotten may still count.
pub const NO_EARLY_MEMBER: &str = "no member votes in quarantine";
/// Clients with another list do not take a set down.
pub const STAYS_IN_FORCE: &str = "a set stays in force without change or fault";

/// The set that the changes lead to is in force, with all members, after all faults.
const CHANGED: &str = "the new set comes into force";
/// The same of the first set.
const WHOLE_AGAIN: &str = "a set is whole again after its members forgot";

impl Model for Setup {
    type State = World;
    type Action = Action;

    fn init_states(&self) -> Vec<World> {
        vec![World::start(self).sorted(self)]
    }

    fn actions(&self, world: &World, actions: &mut Vec<Action>) {
        world.actions(self, actions);
    }

    fn next_state(&self, world: &World, action: Action) -> Option<World> {
        Some(world.after(self, action).sorted(self))
    }

    fn properties(&self) -> Vec<Property<Self>> {
        match self.question {
            Question::Safety => self.safety(),
            Question::Witnesses => self.witnesses(),
        }
    }
}

impl Setup {
    fn safety(&self) -> Vec<Property<Self>> {
        let mut all = vec![
            Property::always(ONE_SET, |setup: &Self, world: &World| {
                setup.sets().filter(|set| world.in_force(setup, *set)).count() < 2
            }),
            Property::always(LEASES_END, |setup: &Self, world: &World| {
                setup.sets().filter(|set| world.leased(setup, *set)).count() < 2
            }),
            Property::always(NO_EARLY_MEMBER, |setup: &Self, world: &World| {
                !world.nodes.iter().any(|node| node.votes_early(setup))
            }),
        ];
        let bounds = &self.bounds;
        if bounds.formed_at_start && bounds.changes.is_empty() && bounds.faults == 0 {
            all.push(Property::always(STAYS_IN_FORCE, |setup: &Self, world: &World| {
                world.in_force(setup, 0)
            }));
        }
        all
    }

    fn witnesses(&self) -> Vec<Property<Self>> {
        let mut all = vec![Property::sometimes(WHOLE_AGAIN, |setup: &Self, world: &World| {
            world.faults == 0 && world.is_whole(setup, 0)
        })];
        if !self.bounds.changes.is_empty() {
            all.push(Property::sometimes(CHANGED, |setup: &Self, world: &World| {
                world.faults == 0 && world.is_whole(setup, setup.last())
            }));
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{HashMap, HashSet};

    use super::*;
    use crate::members::setup::{Bounds, Variant};

    /// Everything that can be reached if each world is put through `keep`, and from which worlds
    /// without a further fault.
    fn reach(setup: &Setup, keep: impl Fn(World) -> World) -> (Vec<World>, Vec<Vec<usize>>) {
        let start = keep(World::start(setup));
        let mut indices = HashMap::from([(start, 0)]);
        let mut worlds = vec![start];
        let mut from = vec![Vec::new()];
        let mut actions = Vec::new();
        let mut at = 0;
        while let Some(world) = worlds.get(at).copied() {
            world.actions(setup, &mut actions);
            for action in actions.drain(..) {
                let next = keep(world.after(setup, action));
                let index = *indices.entry(next).or_insert_with(|| {
                    worlds.push(next);
                    from.push(Vec::new());
                    worlds.len() - 1
                });
                if next.faults == world.faults {
                    from[index].push(at);
                }
            }
            at += 1;
        }
        (worlds, from)
    }

    /// Whatever was interrupted, and whatever one node has forgotten: the change can be completed.
    fn assert_can_be_completed(bounds: Bounds) {
        let bounds = Bounds { formed_at_start: true, ..bounds };
        let setup = Setup { variant: Variant::Rules, bounds, question: Question::Safety };
        let (worlds, from) = reach(&setup, |world| world.sorted(&setup));
        let mut good: Vec<bool> =
            worlds.iter().map(|world| world.is_whole(&setup, setup.last())).collect();
        let mut left: Vec<usize> = (0..worlds.len()).filter(|index| good[*index]).collect();
        assert!(!left.is_empty());
        while let Some(index) = left.pop() {
            for &before in &from[index] {
                if !good[before] {
                    good[before] = true;
                    left.push(before);
                }
            }
        }
        let stuck = good.iter().position(|good| !good).map(|index| worlds[index]);
        assert_eq!(stuck, None, "of {} worlds", worlds.len());
    }

    #[test]
    fn nothing_is_lost_when_members_have_no_names() {
        let bounds = Bounds { restored: false, ..Bounds::REMOVE };
        let setup = Setup { variant: Variant::Rules, bounds, question: Question::Safety };
        let (named, _) = reach(&setup, |world| world);
        let kinds: HashSet<_> = named.iter().map(|world| world.sorted(&setup)).collect();
        let (fewer, _) = reach(&setup, |world| world.sorted(&setup));
        assert!(fewer.len() * 3 < named.len() * 2, "{} of {}", fewer.len(), named.len());
        assert!(HashSet::from_iter(fewer) == kinds);
    }

    #[test]
    fn a_replacement_can_be_completed() {
        assert_can_be_completed(Bounds::REPLACE);
    }

    #[test]
    fn an_addition_can_be_completed() {
        assert_can_be_completed(Bounds::ADD);
        assert_can_be_completed(Bounds::GROW);
    }

    #[test]
    fn a_removal_can_be_completed() {
        assert_can_be_completed(Bounds::REMOVE);
    }
}
