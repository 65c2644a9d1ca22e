//! The world: some nodes, and what any number of clients and operators may do to them.

use super::node::{Marker, Node, Past, Statements};
use super::setup::{NODES, Setup, Variant};

/// All that is, at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct World {
    /// The nodes.
    pub nodes: [Node; NODES],
    /// How often nodes may still forget.
    pub faults: u8,
}

/// What may happen next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// Time passes.
    Tick,
    /// A client takes a node back into its set, which has formed.
    TakeBack {
        /// The set.
        set: u8,
        /// The node.
        node: usize,
    },
    /// A client takes a node into its set, which forms.
    Form {
        /// The set.
        set: u8,
        /// The node.
        node: usize,
    },
    /// A client declares its set formed, on one node.
    Complete {
        /// The set.
        set: u8,
        /// The node.
        node: usize,
    },
    /// An operator closes a node.
    Close {
        /// The set that it refuses from then on.
        from: u8,
        /// The set in favour of which.
        to: u8,
        /// The node.
        node: usize,
    },
    /// A node loses its marker.
    Empty(usize),
    /// A node restarts with a marker that it has had.
    Restart(usize, Marker),
}

impl World {
    /// The start.
    pub(crate) fn start(setup: &Setup) -> Self {
        let nodes = std::array::from_fn(|node| {
            let first = setup.profile(node) & 1 != 0;
            let marker = if setup.bounds.formed_at_start && first {
                Marker::Formed { set: 0, age: setup.bounds.quarantine }
            } else {
                Marker::Blank
            };
            Node::new(setup, marker)
        });
        let mut world = Self { nodes, faults: setup.bounds.faults };
        world.tidy(setup);
        world
    }

    /// All that may happen.
    pub(crate) fn actions(&self, setup: &Setup, actions: &mut Vec<Action>) {
        actions.push(Action::Tick);
        for set in setup.sets() {
            for node in setup.members(set) {
                self.client_actions(setup, set, node, actions);
            }
        }
        for (change, &(from, to)) in setup.bounds.changes.iter().enumerate() {
            for node in setup.members(from) {
                if self.may_close(setup, change, node) {
                    actions.push(Action::Close { from, to, node });
                }
            }
        }
        if self.faults > 0 {
            for node in 0..NODES {
                self.faults_of(setup, node, actions);
            }
        }
    }

    fn client_actions(&self, setup: &Setup, set: u8, node: usize, actions: &mut Vec<Action>) {
        if self.may_take_back(setup, set, node) {
            actions.push(Action::TakeBack { set, node });
        }
        if self.may_form(setup, set, node) {
            actions.push(Action::Form { set, node });
        }
        if self.may_complete(setup, set, node) {
            actions.push(Action::Complete { set, node });
        }
    }

    /// A member that does not carry a formed set is taken back while a majority of members does.
    fn may_take_back(&self, setup: &Setup, set: u8, node: usize) -> bool {
        let it = &self.nodes[node];
        let enough = match setup.variant {
            Variant::TakenBackByOne => 1,
            Variant::JoinsByItself if it.marker == Marker::Blank => 0,
            _ => setup.majority(set),
        };
        (self.may_take(setup, set, node) || it.marker.forming(set))
            && self.others(setup, set, node, Statements::formed(set)) >= enough
    }

    /// A set begins to form when every member can be taken into it, or carries it.
    fn may_form(&self, setup: &Setup, set: u8, node: usize) -> bool {
        let it = &self.nodes[node];
        let open = setup.variant == Variant::TakesOpenNodes
            && matches!(it.marker, Marker::Formed { set: its, .. } if its != set);
        (open || self.may_take(setup, set, node))
            && self.others(setup, set, node, Statements::available(set)) >= Self::rest(setup, set)
            && self.is_chosen(setup, set, node)
    }

    /// Closed nodes are taken in when a majority of the old set takes part in the change, or when
    /// somebody has found that before.
    fn is_chosen(&self, setup: &Setup, set: u8, node: usize) -> bool {
        let closed = matches!(self.nodes[node].marker, Marker::Closed { .. });
        let others = |statement| self.others(setup, set, node, statement);
        let majority = |(change, &(from, to)): (usize, &(u8, u8))| {
            to == set && self.count(setup, from, Statements::chosen(change)) >= setup.majority(from)
        };
        setup.variant == Variant::UnchosenChange
            || !closed && others(Statements::unclosed(set)) >= Self::rest(setup, set)
            || others(Statements::carries(set)) > 0
            || setup.bounds.changes.iter().enumerate().any(majority)
    }

    /// A set has formed when every member has carried it for a quarantine.
    fn may_complete(&self, setup: &Setup, set: u8, node: usize) -> bool {
        let it = &self.nodes[node];
        let due = match setup.variant {
            Variant::UnnamedInstance => it.seen(setup, Statements::due(set)),
            Variant::UnnamedRun if it.marker == Marker::Restored(set) => {
                it.seen(setup, Statements::due(set))
            }
            _ => it.marker.forming(set) && it.marker.ready(setup, set),
        };
        due && self.others(setup, set, node, Statements::ready(set)) >= Self::rest(setup, set)
    }

    /// A change closes members that carry the old set, while a majority carries it as formed or takes
    /// part in the change.
    fn may_close(&self, setup: &Setup, change: usize, node: usize) -> bool {
        let (from, _) = setup.bounds.changes[change];
        let marker = self.nodes[node].marker;
        let open = marker.carries(from)
            || marker == Marker::Restored(from)
            || setup.variant == Variant::ClosesBlankNodes && marker == Marker::Blank;
        let grounds = self.count(setup, from, Statements::ground(change));
        open && (grounds >= setup.majority(from) || setup.variant == Variant::UngroundedChange)
    }

    /// Whether a write that takes `node` into `set` is obeyed by the node: it names what was read.
    fn may_take(&self, setup: &Setup, set: u8, node: usize) -> bool {
        let it = &self.nodes[node];
        match setup.variant {
            Variant::UnnamedInstance => it.seen(setup, Statements::free(set)),
            _ => it.marker.free_for(setup, set),
        }
    }

    /// How many members besides the one at hand have to agree to the forming of a set.
    fn rest(setup: &Setup, set: u8) -> usize {
        match setup.variant {
            Variant::FormsByMajority => setup.majority(set) - 1,
            _ => setup.size(set) - 1,
        }
    }

    /// Of how many members `statement` can have been read.
    fn count(&self, setup: &Setup, set: u8, statement: Statements) -> usize {
        setup.members(set).filter(|member| self.nodes[*member].seen(setup, statement)).count()
    }

    /// Of how many members besides `node`.
    fn others(&self, setup: &Setup, set: u8, node: usize, statement: Statements) -> usize {
        let others = setup.members(set).filter(|member| *member != node);
        others.filter(|member| self.nodes[*member].seen(setup, statement)).count()
    }

    fn faults_of(&self, setup: &Setup, node: usize, actions: &mut Vec<Action>) {
        let it = &self.nodes[node];
        if setup.bounds.emptied && it.marker != Marker::Blank {
            actions.push(Action::Empty(node));
        }
        if setup.bounds.restored {
            actions.extend(it.past.restored(setup).map(|marker| Action::Restart(node, marker)));
        }
    }

    /// The world after `action`.
    pub(crate) fn after(&self, setup: &Setup, action: Action) -> Self {
        let mut next = *self;
        next.apply(setup, action);
        next
    }

    fn apply(&mut self, setup: &Setup, action: Action) {
        match action {
            Action::Tick => self.nodes.iter_mut().for_each(|node| node.grow(setup)),
            Action::TakeBack { set, node } => {
                self.nodes[node].write(setup, Marker::Formed { set, age: 0 });
            }
            Action::Form { set, node } => {
                self.nodes[node].write(setup, Marker::Forming { set, age: 0 });
            }
            Action::Complete { set, node } => {
                let age = setup.bounds.quarantine;
                self.nodes[node].write(setup, Marker::Formed { set, age });
            }
            Action::Close { from, to, node } => {
                self.nodes[node].write(setup, Marker::Closed { from, to });
            }
            Action::Empty(node) => {
                self.faults -= 1;
                self.nodes[node].empty(setup);
            }
            Action::Restart(node, marker) => {
                self.faults -= 1;
                self.nodes[node].restart(setup, marker);
            }
        }
        self.tidy(setup);
    }

    /// Drops what can make no difference any more.
    fn tidy(&mut self, setup: &Setup) {
        if self.faults == 0 || !setup.bounds.restored {
            for node in &mut self.nodes {
                node.past = Past::default();
            }
        }
    }

    /// The same world with members that are alike in an order that depends on nothing but their
    /// states.
    pub(crate) fn sorted(&self, setup: &Setup) -> Self {
        let mut world = *self;
        for one in 0..NODES {
            for other in one + 1..NODES {
                if setup.profile(one) == setup.profile(other)
                    && world.nodes[other] < world.nodes[one]
                {
                    world.nodes.swap(one, other);
                }
            }
        }
        world
    }

    /// How many members vote for a set.
    fn votes(&self, setup: &Setup, set: u8) -> usize {
        let members = setup.members(set);
        members.filter(|node| self.nodes[*node].marker.votes_for(setup) == Some(set)).count()
    }

    /// Whether all members vote for a set.
    pub(crate) fn is_whole(&self, setup: &Setup, set: u8) -> bool {
        self.votes(setup, set) == setup.size(set)
    }

    /// Whether a majority votes for a set.
    pub(crate) fn in_force(&self, setup: &Setup, set: u8) -> bool {
        self.votes(setup, set) >= setup.majority(set)
    }

    /// Whether a lease that a majority of a set has granted may be valid.
    pub(crate) fn leased(&self, setup: &Setup, set: u8) -> bool {
        let members = setup.members(set);
        let recent = members
            .filter(|node| self.nodes[*node].voted[usize::from(set)] < setup.bounds.quarantine)
            .count();
        recent >= setup.majority(set)
    }
}
