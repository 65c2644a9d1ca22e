//! The world: three nodes, two clients, what is under way between them, and the time.

use crate::client::{Client, Phase, Side};
use crate::node::{Answer, FOREVER, Fault, Grant, Memory, Node, Owner, Request};
use crate::setup::{
    CLIENTS, Fence, NODES, NUMBERS_PER_TICK, Question, START, Setup, Time, Variant,
};

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
    /// How often a node's state may still go to disk.
    pub syncs: u8,
    /// The fence of whoever had the lock last. For the properties only, as all below.
    pub last_fence: Fence,
    /// Who that was, if that is the question.
    pub last_holder: Option<u8>,
    /// Somebody got a fence that was not larger than that of whoever had the lock before.
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
    /// A release passes the lock on to whoever waits.
    pub const PASSED_ON: Self = Self(64);

    /// Whether `event` is among them.
    #[must_use]
    pub fn contain(self, event: Self) -> bool {
        self.0 & event.0 != 0
    }

    fn add(&mut self, event: Self) {
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
    /// A client asks all nodes for the lock. Whatever it had before, it forgets without a word.
    Ask(usize, Fence),
    /// A client asks those again that have not granted it.
    AskAgain(usize),
    /// A client sends the largest number to the nodes.
    Confirm(usize),
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
        /// Whether word of a grant arrives.
        heard: bool,
    },
    /// A node forgets.
    Suffer(usize, Fault),
    /// A node's state goes to disk.
    Sync(usize),
}

impl World {
    /// The start: nodes that an operator has marked as new, and nobody has asked for anything.
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
            Action::Confirm(client) => self.confirm(setup, client),
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
            Action::Suffer(node, fault) => self.suffer(node, fault),
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

    fn ask(&mut self, client: usize, ahead: Fence) {
        self.leave(client);
        for column in &mut self.columns {
            // Nobody asks with the token of the last round any more.
            column.node.memory.outlive(client);
            column.node.disk.outlive(client);
        }
        self.rounds -= 1;
        self.clients[client].phase = Phase::Asking;
        self.send_acquire(client, ahead, |_| true);
    }

    fn ask_again(&mut self, client: usize) {
        self.asks -= 1;
        let now = self.now;
        self.send_acquire(client, 0, |side| side.lease <= now);
    }

    fn send_acquire(&mut self, client: usize, ahead: Fence, to: impl Fn(&Side) -> bool) {
        let sent = self.now;
        let proposal = sent * NUMBERS_PER_TICK + ahead;
        for column in &mut self.columns {
            let side = &mut column.sides[client];
            if to(side) {
                let informed = side.informed;
                side.under_way = Some(Request::Acquire { sent, proposal, informed });
            }
        }
    }

    fn confirm(&mut self, setup: &Setup, client: usize) {
        let Some(fence) = self.clients[client].divided(&self.sides(client), self.now) else {
            return;
        };
        let same = self.clients[client].phase == Phase::Confirming { fence };
        self.clients[client].phase = Phase::Confirming { fence };
        for column in &mut self.columns {
            let side = &mut column.sides[client];
            side.counted = side.number == fence || same && side.counted;
            let granted = side.number > 0 || setup.variant == Variant::ConfirmWithoutOwner;
            if granted && !side.counted {
                side.under_way = Some(Request::Confirm { fence });
            }
        }
    }

    fn win(&mut self, setup: &Setup, client: usize) {
        let sides = self.sides(client);
        let Some((fence, until)) = self.clients[client].won(setup, &sides, self.now) else {
            return;
        };
        let phase = self.clients[client].phase;
        self.clients[client].phase = Phase::Holding { fence, until, extending: None };
        if matches!(phase, Phase::Confirming { .. }) {
            self.events.add(Events::CONFIRMED);
        }
        if self.last_holder.is_some_and(|last| usize::from(last) != client) {
            self.events.add(Events::CHANGED_HANDS);
        }
        self.fence_fell |= fence <= self.last_fence;
        self.last_fence = fence;
        self.last_holder = u8::try_from(client).ok();
        for column in &mut self.columns {
            column.sides[client].number = 0;
            column.sides[client].counted = false;
        }
    }

    fn release(&mut self, setup: &Setup, client: usize) {
        // Without grants nobody looks at when it was sent.
        let sent = if setup.bounds.grants { self.now } else { 0 };
        for column in &mut self.columns {
            column.sides[client].under_way = Some(Request::Release { sent });
        }
        self.leave(client);
    }

    /// The client forgets its round. What is under way stays so.
    fn leave(&mut self, client: usize) {
        self.clients[client].phase = Phase::Idle;
        for column in &mut self.columns {
            let side = &mut column.sides[client];
            *side = Side { under_way: side.under_way, informed: side.informed, ..Side::default() };
        }
    }

    fn extend(&mut self, setup: &Setup, client: usize) {
        let sent = self.now;
        let Phase::Holding { fence, extending, .. } = &mut self.clients[client].phase else {
            return;
        };
        *extending = Some(sent);
        self.extensions -= 1;
        let fence = *fence;
        for column in &mut self.columns {
            let side = &mut column.sides[client];
            let heal = sent < side.lease || setup.variant == Variant::UnguardedHeal;
            let informed = side.informed;
            side.under_way = Some(Request::Extend { sent, fence, heal, informed });
            side.counted = false;
        }
    }

    fn renew(&mut self, setup: &Setup, client: usize) {
        let sides = self.sides(client);
        let Some(deadline) = self.clients[client].renewed(setup, &sides, self.now) else {
            return;
        };
        if let Phase::Holding { until, extending, .. } = &mut self.clients[client].phase {
            *until = deadline;
            *extending = None;
            self.events.add(Events::EXTENDED);
        }
        for column in &mut self.columns {
            column.sides[client].counted = false;
        }
    }

    fn suffer(&mut self, node: usize, fault: Fault) {
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
            if fault != Fault::Flush {
                side.under_way = None;
            }
            if let Some(Request::Acquire { informed, .. } | Request::Extend { informed, .. }) =
                &mut side.under_way
            {
                *informed = false;
            }
        }
    }

    fn serve(
        &mut self,
        setup: &Setup,
        client: usize,
        node: usize,
        clock: Time,
        heard: bool,
    ) -> bool {
        let column = &mut self.columns[node];
        let Some(request) = column.sides[client].under_way.take() else {
            return false;
        };
        let forgotten = column.node.forgotten;
        let memory = &mut column.node.memory;
        let before = *memory;
        match request {
            Request::Acquire { sent, proposal, informed } => {
                let answer = memory.acquire(setup, client, (sent, proposal, informed), clock);
                let news = *memory != before || self.tells(client, node, heard, answer);
                self.early_vote |= matches!(answer, Answer::Granted(_)) && clock < forgotten;
                if heard {
                    self.hear_vote(setup, client, node, sent, answer);
                }
                news
            }
            Request::Extend { sent, fence, heal, informed } => {
                let answer = memory.extend(setup, client, (fence, heal, informed), clock);
                let news = *memory != before || self.tells(client, node, heard, answer);
                if heard {
                    self.hear_extension(setup, client, node, sent, answer);
                }
                news
            }
            Request::Confirm { fence } => {
                let answer = memory.confirm(setup, client, fence);
                let news = *memory != before || self.tells(client, node, heard, answer);
                let confirming = matches!(self.clients[client].phase, Phase::Confirming { .. });
                if heard && confirming && answer == Answer::Confirmed {
                    self.columns[node].sides[client].counted = true;
                }
                news
            }
            Request::Release { sent } => {
                let grant = memory.release(setup, Owner::of(client), sent, 1 - client);
                let news = *memory != before;
                self.passed_on(setup, node, sent, grant, heard);
                news
            }
        }
    }

    /// Whether an answer is heard that the client does not know yet.
    fn tells(&self, client: usize, node: usize, heard: bool, answer: Answer) -> bool {
        let column = &self.columns[node];
        heard
            && match answer {
                Answer::Held(_) | Answer::Refused => false,
                Answer::Quarantined => {
                    column.node.memory.quarantine == FOREVER && !column.sides[client].informed
                }
                _ => true,
            }
    }

    fn passed_on(
        &mut self,
        setup: &Setup,
        node: usize,
        clock: Time,
        grant: Option<Grant>,
        heard: bool,
    ) {
        let Some(grant) = grant else {
            return;
        };
        self.early_vote |= clock < self.columns[node].node.forgotten;
        if heard {
            self.events.add(Events::PASSED_ON);
            self.hear_vote(setup, grant.client, node, grant.sent, Answer::Granted(grant.fence));
        }
    }

    fn hear_vote(&mut self, setup: &Setup, client: usize, node: usize, sent: Time, answer: Answer) {
        let side = &mut self.columns[node].sides[client];
        side.informed = true;
        let (number, lease) = match answer {
            Answer::Granted(number) => (number, sent + setup.belief()),
            _ => (0, 0),
        };
        match self.clients[client].phase {
            Phase::Idle => {}
            Phase::Asking => {
                side.number = number;
                side.lease = lease;
            }
            Phase::Confirming { fence } => {
                side.number = number;
                side.lease = lease;
                // One with a larger number does not confirm this fence: whoever had the lock before
                // may have had one in between.
                side.counted =
                    number == fence || setup.variant == Variant::LateVoteConfirms && number > fence;
            }
            Phase::Holding { .. } => side.lease = side.lease.max(lease),
        }
    }

    fn hear_extension(
        &mut self,
        setup: &Setup,
        client: usize,
        node: usize,
        sent: Time,
        answer: Answer,
    ) {
        let side = &mut self.columns[node].sides[client];
        side.informed = true;
        let Phase::Holding { extending, .. } = self.clients[client].phase else {
            return;
        };
        // A node in quarantine may have voted for another since, and not know it any more.
        let unbroken = self.now < side.lease;
        let counts = match answer {
            Answer::Extended { quarantined } => {
                !quarantined || unbroken || setup.variant == Variant::LateExtension
            }
            Answer::Healed => unbroken || setup.variant == Variant::UnguardedHeal,
            _ => false,
        };
        if counts {
            if answer == Answer::Healed {
                self.events.add(Events::HEALED);
            }
            side.counted = extending == Some(sent);
            side.lease = side.lease.max(sent + setup.belief());
        }
    }
}

impl Memory {
    /// The token that `client` has used so far is never used again.
    fn outlive(&mut self, client: usize) {
        if self.record.owner == Owner::of(client) {
            self.record.owner = Owner::Gone;
        }
        self.waiting[client] = None;
    }
}
