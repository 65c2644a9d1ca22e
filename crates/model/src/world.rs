//! The world: three nodes, two clients, what is under way between them, and the time.

use crate::client::{Client, Phase, Side};
use crate::node::{Fault, Node, Owner, Request};
use crate::setup::{CLIENTS, Fence, NODES, Question, START, Setup, Time, Variant};

/// All that is, at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct World {
    /// The true time, which the clients' clocks show.
    pub now: Time,
    /// Each node, with what lies between it and the clients.
    pub columns: [Column; NODES],
    /// The clients.
    pub clients: [Client; CLIENTS],
    /// How often a client may still begin a round.
    pub rounds: u8,
    /// How often a client may still ask again.
    pub asks: u8,
    /// How often a holder may still extend its lease.
    pub extensions: u8,
    /// How often nodes may still forget.
    pub faults: u8,
    /// How often a node may still serve a request of an earlier round.
    pub strays: u8,
    /// How often a node's state may still go to disk.
    pub syncs: u8,
    /// The fence of the last holder. For the properties only, as all below.
    pub last_fence: Fence,
    /// Who that was, if that is the question.
    pub last_holder: Option<u8>,
    /// A client got a fence that was not larger than that of the holder before it.
    pub fence_fell: bool,
    /// A node voted while a vote that it had forgotten could still count.
    pub early_vote: bool,
    /// What has happened in the last step, if that is the question.
    pub events: Events,
}

/// A set of events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Events(u8);

impl Events {
    /// A lock is won by a client other than the one that had it last.
    pub const CHANGED_HANDS: Self = Self(1);
    /// A lock is won with a fence that had to be confirmed.
    pub const CONFIRMED: Self = Self(2);
    /// A lease is extended.
    pub const EXTENDED: Self = Self(4);
    /// A node forgets a vote that counts for the holder.
    pub const FORGOTTEN: Self = Self(8);
    /// A record is re-created, and counts.
    pub const HEALED: Self = Self(16);
    /// A record comes back from disk.
    pub const RESTORED: Self = Self(32);
    /// A release passes the lock on to a waiter.
    pub const PASSED_ON: Self = Self(64);
    /// A node is won back.
    pub const WON_BACK: Self = Self(128);

    /// Whether `event` is among them.
    #[must_use]
    pub fn contain(self, event: Self) -> bool {
        self.0 & event.0 != 0
    }

    pub(crate) fn add(&mut self, event: Self) {
        self.0 |= event.0;
    }
}

/// A node, and what lies between it and each client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Column {
    /// The node.
    pub node: Node,
    /// What lies between.
    pub sides: [Side; CLIENTS],
}

/// What may happen next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// Time passes.
    Tick,
    /// A client asks all nodes for the lock. Whatever it had before, it forgets without a message.
    Ask(usize, Fence),
    /// A client asks those again that have not granted it.
    AskAgain(usize),
    /// A client sends the largest fence to the nodes.
    Confirm {
        /// Who.
        client: usize,
        /// To those too that have not granted it the lock, as far as it knows.
        everybody: bool,
    },
    /// A client lets go of the lock, or stops trying for it.
    Release(usize),
    /// A holder asks all nodes to keep the lock longer.
    Extend(usize),
    /// A node does what a client has sent.
    Serve {
        /// Who sent it.
        client: usize,
        /// The node.
        node: usize,
        /// What the node's clock shows.
        clock: Time,
        /// Whether the answer arrives.
        heard: bool,
    },
    /// A request finds that the node's clock is not to be believed.
    Disbelieve {
        /// Who sent it.
        client: usize,
        /// The node.
        node: usize,
    },
    /// The release of an earlier round is repeated.
    ReleaseOld {
        /// The node.
        node: usize,
        /// Who waits in front, if both clients do.
        first: usize,
        /// Whether the grant message arrives.
        heard: bool,
    },
    /// A node serves a request with a token that nobody uses any more.
    Stray {
        /// The node.
        node: usize,
        /// When it was sent.
        sent: Time,
    },
    /// A node forgets.
    Suffer(usize, Fault),
    /// A node's state goes to disk.
    Sync(usize),
}

impl World {
    /// The start: nodes that an operator has marked as new, and no client has asked for anything.
    #[must_use]
    pub fn start(setup: &Setup) -> Self {
        let column = Column { node: Node::marked(), sides: [Side::default(); CLIENTS] };
        let mut world = Self {
            now: START,
            columns: [column; NODES],
            clients: [Client::default(); CLIENTS],
            rounds: setup.bounds.rounds,
            asks: setup.bounds.asks,
            extensions: setup.bounds.extensions,
            faults: setup.bounds.faults,
            strays: setup.bounds.strays,
            syncs: setup.bounds.syncs,
            last_fence: 0,
            last_holder: None,
            fence_fell: false,
            early_vote: false,
            events: Events::default(),
        };
        if setup.bounds.held_at_start {
            world.apply(setup, Action::Ask(0, 0));
            for node in 0..NODES {
                world.apply(setup, Action::Serve { client: 0, node, clock: START, heard: true });
                world.columns[node].node.disk = world.columns[node].node.memory;
            }
        }
        world.tidy(setup);
        world
    }

    /// What lies between `client` and each node.
    #[must_use]
    pub fn sides(&self, client: usize) -> [Side; NODES] {
        self.columns.map(|column| column.sides[client])
    }

    /// Lets `action` happen. Returns whether it makes a difference: a request that a node serves
    /// without a change, and whose answer counts for nothing, might as well never have arrived.
    pub fn apply(&mut self, setup: &Setup, action: Action) -> bool {
        self.events = Events::default();
        match action {
            Action::Tick => self.tick(setup),
            Action::Ask(client, ahead) => self.ask(client, ahead),
            Action::AskAgain(client) => self.ask_again(client),
            Action::Confirm { client, everybody } => self.confirm(client, everybody),
            Action::Release(client) => self.release(setup, client),
            Action::Extend(client) => self.extend(setup, client),
            Action::Serve { client, node, clock, heard } => {
                if !self.serve(setup, client, node, clock, heard) {
                    return false;
                }
            }
            Action::Disbelieve { client, node } => {
                self.columns[node].sides[client].under_way = None;
                self.columns[node].node.memory.drop_expired();
            }
            Action::ReleaseOld { node, first, heard } => {
                let grant =
                    self.columns[node].node.memory.release(setup, Owner::Gone, self.now, first);
                self.passed_on(setup, node, self.now, grant, heard);
            }
            Action::Stray { node, sent } => {
                if !self.stray(setup, node, sent) {
                    return false;
                }
            }
            Action::Suffer(node, fault) => self.suffer(setup, node, fault),
            Action::Sync(node) => {
                self.syncs -= 1;
                self.columns[node].node.disk = self.columns[node].node.memory;
            }
        }
        for client in 0..CLIENTS {
            self.win(setup, client);
            self.renew(setup, client);
        }
        if setup.question == Question::Safety {
            self.last_holder = None;
            self.events = Events::default();
        }
        true
    }

    fn tick(&mut self, setup: &Setup) {
        self.now += 1;
        for client in 0..CLIENTS {
            if let Phase::Holding { until, .. } = self.clients[client].phase
                && until <= self.now
                && setup.variant != Variant::LateExtension
            {
                self.leave(client);
            }
        }
    }

    fn suffer(&mut self, setup: &Setup, node: usize, fault: Fault) {
        self.faults -= 1;
        let now = self.now;
        let column = &mut self.columns[node];
        column.node.suffer(fault);
        let forgets = |(client, side): (&Client, &Side)| client.inside(now) && now < side.lease;
        if self.clients.iter().zip(&column.sides).any(forgets) && column.node.forgotten > now {
            self.events.add(Events::FORGOTTEN);
        }
        if column.node.memory.record.expiry > now {
            self.events.add(Events::RESTORED);
        }
        for side in &mut column.sides {
            side.informed = false;
            if setup.bounds.connections_end {
                side.under_way = None;
            }
            if let Some(Request::Acquire { informed, .. } | Request::Extend { informed, .. }) =
                &mut side.under_way
            {
                *informed = false;
            }
        }
    }
}
