//! The model as the checker sees it: what may happen in a world, and what must hold in it.

use stateright::{Model, Property};

use crate::client::Phase;
use crate::node::{Fault, Owner, Request};
use crate::setup::{CLIENTS, NODES, Question, START, Setup, Variant};
use crate::world::{Action, Events, World};

/// Never two clients inside their windows.
pub const ONE_HOLDER: &str = "one holder at a time";
/// Fences strictly increase in the order of holding.
pub const FENCES_GROW: &str = "fences grow";
/// No node votes while a vote that it has forgotten may still count.
pub const NO_EARLY_VOTE: &str = "no vote in quarantine";

/// The lock goes from one client to the other.
const CHANGES_HANDS: &str = "the lock changes hands";
/// Fences differ, and the largest is confirmed by a majority in time.
const CONFIRM_NEEDED: &str = "a fence has to be confirmed";
/// A lease is extended beyond its first end.
const EXTENDED: &str = "a lease is extended";
/// A node forgets the vote for the holder.
const FORGOTTEN_WHILE_HELD: &str = "a node forgets while the lock is held";
/// The holder's record is back on a node that had forgotten it, and counts.
const HEALED: &str = "a record is healed";
/// A node restarts from its disk with a record of an earlier time.
const RESTORED: &str = "a record comes back from disk";
/// An extension takes the lock anew on a node that has no record of it.
const WON_BACK: &str = "a node is won back";
/// A release passes the lock on.
const PASSED_ON: &str = "a lock is passed on";

impl Model for Setup {
    type State = World;
    type Action = Action;

    fn init_states(&self) -> Vec<World> {
        vec![World::start(self).sorted()]
    }

    fn actions(&self, world: &World, actions: &mut Vec<Action>) {
        if world.now < self.end() {
            actions.push(Action::Tick);
        }
        for client in 0..CLIENTS {
            self.client_actions(world, client, actions);
            for node in 0..NODES {
                self.serve_actions(world, client, node, actions);
            }
        }
        for node in 0..NODES {
            self.node_actions(world, node, actions);
        }
    }

    fn next_state(&self, world: &World, action: Action) -> Option<World> {
        self.after(world, action).map(|next| next.sorted())
    }

    fn properties(&self) -> Vec<Property<Self>> {
        match self.question {
            Question::Safety => vec![
                Property::always(ONE_HOLDER, |_, world: &World| {
                    world.clients.iter().filter(|client| client.inside(world.now)).count() < 2
                }),
                Property::always(FENCES_GROW, |_, world: &World| !world.fence_fell),
                Property::always(NO_EARLY_VOTE, |_, world: &World| !world.early_vote),
            ],
            Question::Witnesses => self.witnesses(),
        }
    }
}

impl Setup {
    /// The world after `action`, with nodes and clients under their names.
    pub(crate) fn after(&self, world: &World, action: Action) -> Option<World> {
        let mut next = *world;
        if !next.apply(self, action) {
            return None;
        }
        next.tidy(self);
        Some(next)
    }

    fn client_actions(&self, world: &World, client: usize, actions: &mut Vec<Action>) {
        let sides = world.sides(client);
        let it = &world.clients[client];
        if world.rounds > 0 {
            actions.push(Action::Ask(client, 0));
            if self.bounds.eager > 0 {
                actions.push(Action::Ask(client, self.bounds.eager));
            }
        }
        if it.divided(&sides, world.now).is_some() {
            actions.push(Action::Confirm { client, everybody: true });
            actions.push(Action::Confirm { client, everybody: false });
        }
        match it.phase {
            Phase::Idle => return,
            Phase::Asking { .. } => {
                if world.asks > 0 && sides.iter().any(|side| side.lease <= world.now) {
                    actions.push(Action::AskAgain(client));
                }
            }
            Phase::Confirming { .. } => {}
            Phase::Holding { until, .. } => {
                let in_time = world.now < until || self.variant == Variant::LateExtension;
                if world.extensions > 0 && in_time && world.now + self.belief() > until {
                    actions.push(Action::Extend(client));
                }
            }
        }
        actions.push(Action::Release(client));
    }

    fn serve_actions(&self, world: &World, client: usize, node: usize, actions: &mut Vec<Action>) {
        let Some(request) = world.columns[node].sides[client].under_way else {
            return;
        };
        let believable = match request {
            Request::Acquire { sent, .. } | Request::Extend { sent, .. } => {
                if self.variant == Variant::DropBeforeClockCheck {
                    actions.push(Action::Disbelieve { client, node });
                }
                sent.saturating_sub(self.bounds.behind)..=sent + self.bounds.ahead
            }
            // Neither looks at the clock.
            Request::Confirm { .. } | Request::Release { .. } => 0..=0,
        };
        for clock in believable {
            actions.push(Action::Serve { client, node, clock, heard: true });
            if self.bounds.losses {
                actions.push(Action::Serve { client, node, clock, heard: false });
            }
        }
    }

    fn node_actions(&self, world: &World, node: usize, actions: &mut Vec<Action>) {
        let memory = &world.columns[node].node.memory;
        if self.bounds.grants && memory.record.owner == Owner::Gone {
            for first in 0..CLIENTS {
                actions.push(Action::ReleaseOld { node, first, heard: true });
                if self.bounds.losses {
                    actions.push(Action::ReleaseOld { node, first, heard: false });
                }
            }
        }
        if world.strays > 0 {
            actions.extend((START..=world.now).map(|sent| Action::Stray { node, sent }));
        }
        if world.faults == 0 {
            return;
        }
        if self.bounds.emptied {
            actions.push(Action::Suffer(node, Fault::Emptied));
        }
        if self.bounds.restored {
            actions.push(Action::Suffer(node, Fault::Restored));
            if world.syncs > 0 {
                actions.push(Action::Sync(node));
            }
        }
    }

    fn witnesses(&self) -> Vec<Property<Self>> {
        let bounds = &self.bounds;
        let mut all = vec![
            Property::sometimes(CHANGES_HANDS, |_, world: &World| {
                world.events.contain(Events::CHANGED_HANDS)
            }),
            Property::sometimes(CONFIRM_NEEDED, |_, world: &World| {
                world.events.contain(Events::CONFIRMED)
            }),
        ];
        if bounds.extensions > 0 {
            all.push(Property::sometimes(EXTENDED, |_, world: &World| {
                world.events.contain(Events::EXTENDED)
            }));
        }
        if bounds.faults > 0 {
            all.push(Property::sometimes(FORGOTTEN_WHILE_HELD, |_, world: &World| {
                world.events.contain(Events::FORGOTTEN)
            }));
        }
        if bounds.faults > 0 && bounds.extensions > 0 {
            all.push(Property::sometimes(HEALED, |_, world: &World| {
                world.events.contain(Events::HEALED)
            }));
        }
        if bounds.syncs > 0 {
            all.push(Property::sometimes(RESTORED, |_, world: &World| {
                world.events.contain(Events::RESTORED)
            }));
        }
        if bounds.wins_back {
            all.push(Property::sometimes(WON_BACK, |_, world: &World| {
                world.events.contain(Events::WON_BACK)
            }));
        }
        if bounds.grants {
            all.push(Property::sometimes(PASSED_ON, |_, world: &World| {
                world.events.contain(Events::PASSED_ON)
            }));
        }
        all
    }
}
