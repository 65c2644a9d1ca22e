//! What a client does: it asks, confirms, extends, releases, and draws its conclusions.

use crate::client::{Phase, Side};
use crate::node::{Memory, Owner, Request};
use crate::setup::{FENCES_PER_TICK, Fence, Setup, Variant};
use crate::world::{Events, World};

impl World {
    pub(crate) fn ask(&mut self, client: usize, ahead: Fence) {
        self.leave(client);
        for column in &mut self.columns {
            // No client asks with the token of the last round any more.
            column.node.memory.outlive(client);
            column.node.disk.outlive(client);
        }
        self.rounds -= 1;
        self.clients[client].phase = Phase::Asking { since: self.now };
        self.send_acquire(client, ahead, |_| true);
    }

    pub(crate) fn ask_again(&mut self, client: usize) {
        self.asks -= 1;
        let now = self.now;
        self.send_acquire(client, 0, |side| side.lease <= now);
    }

    fn send_acquire(&mut self, client: usize, ahead: Fence, to: impl Fn(&Side) -> bool) {
        let sent = self.now;
        let proposal = sent * FENCES_PER_TICK + ahead;
        for column in &mut self.columns {
            let side = &mut column.sides[client];
            if to(side) {
                let informed = side.informed;
                side.under_way = Some(Request::Acquire { sent, proposal, informed });
            }
        }
    }

    pub(crate) fn confirm(&mut self, client: usize, everybody: bool) {
        let Some(fence) = self.clients[client].divided(&self.sides(client), self.now) else {
            return;
        };
        let (since, same) = match self.clients[client].phase {
            Phase::Asking { since } => (since, false),
            Phase::Confirming { fence: before, since } => (since, before == fence),
            Phase::Idle | Phase::Holding { .. } => return,
        };
        self.clients[client].phase = Phase::Confirming { fence, since };
        for column in &mut self.columns {
            let side = &mut column.sides[client];
            side.counted = side.fence == fence || same && side.counted;
            if !side.counted && (everybody || side.fence > 0) {
                side.under_way = Some(Request::Confirm { fence });
            }
        }
    }

    pub(crate) fn win(&mut self, setup: &Setup, client: usize) {
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
            column.sides[client].fence = 0;
            column.sides[client].counted = false;
        }
    }

    pub(crate) fn release(&mut self, setup: &Setup, client: usize) {
        // Without grants nothing looks at when it was sent.
        let sent = if setup.bounds.grants { self.now } else { 0 };
        for column in &mut self.columns {
            column.sides[client].under_way = Some(Request::Release { sent });
        }
        self.leave(client);
    }

    /// The client forgets its round. What is under way stays so.
    pub(crate) fn leave(&mut self, client: usize) {
        self.clients[client].phase = Phase::Idle;
        for column in &mut self.columns {
            let side = &mut column.sides[client];
            *side = Side { under_way: side.under_way, informed: side.informed, ..Side::default() };
        }
    }

    pub(crate) fn extend(&mut self, setup: &Setup, client: usize) {
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

    pub(crate) fn renew(&mut self, setup: &Setup, client: usize) {
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
