//! The queues beside the locks: what `pass_on.lua` and the first half of `wait.lua` do.

use std::collections::BTreeMap;
use std::time::Duration;

use quorlock::node::{ClientId, Grant, Proposal, Ticket, TicketNumber};
use quorlock::runtime::Moment;
use quorlock_protocol::ticket_kept;

use super::Script;
use super::verbs::{Keys, Records, Taking};

#[derive(Debug, Clone, Default)]
pub(super) struct Queue {
    /// By ticket number, then by token, as a sorted set has them.
    pub(super) places: BTreeMap<(u64, Vec<u8>), Waiter>,
    /// The last millisecond of its life, on the server's clock.
    pub(super) until: u64,
}

/// What the latest request with a ticket said.
#[derive(Debug, Clone, Copy)]
pub(super) struct Waiter {
    pub(super) ticket: Ticket,
    pub(super) ttl_ms: u64,
    pub(super) sent: Moment,
    pub(super) proposal: Option<Proposal>,
    /// When it was seen by the server's clock, in microseconds.
    pub(super) seen_us: u64,
}

/// Then the client that stood there has long stopped asking.
fn forgotten_ms(ttl_ms: u64) -> u64 {
    ticket_kept(Duration::from_millis(ttl_ms)).as_millis() as u64
}

/// Whose turn it is.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Turn {
    Mine,
    Another,
    Nobody,
}

impl<R: Records> Keys<R> {
    /// Takes or keeps a place, and returns its ticket number.
    pub(super) fn take_place(
        &mut self,
        name: &[u8],
        me: &[u8],
        waiter: Waiter,
        script: &Script<'_>,
    ) -> u64 {
        let now = script.millis();
        let queue = self.queues.entry(name.to_vec()).or_default();
        let mine = queue.places.keys().find(|(_, token)| token == me).cloned();
        let ticket_no = match (waiter.ticket.ticket_no, &mine) {
            (TicketNumber::Agreed(ticket_no), _) => ticket_no,
            (TicketNumber::New(_), Some((ticket_no, _))) => *ticket_no,
            (TicketNumber::New(least), None) => {
                let last = queue.places.last_key_value().map(|((ticket_no, _), _)| ticket_no + 1);
                last.map_or(least, |behind| behind.max(least))
            }
        };
        if let Some(mine) = mine {
            queue.places.remove(&mine);
        }
        queue.places.insert((ticket_no, me.to_vec()), waiter);
        let forgotten = forgotten_ms(waiter.ttl_ms);
        if queue.until.saturating_sub(now) * 6 < forgotten * 5 {
            queue.until = now + forgotten;
        }
        ticket_no
    }

    /// Passes a lock on to the first in its queue who is still there.
    pub(super) fn pass_on(
        &mut self,
        name: &[u8],
        me: &[u8],
        next: u64,
        script: &mut Script<'_>,
    ) -> Turn {
        loop {
            let head = self.queues.get_mut(name).and_then(|queue| queue.places.pop_first());
            let Some(((_, token), waiter)) = head else {
                self.records.left_in_queue(name, false);
                self.records.drop(name, script);
                self.queues.remove(name);
                return Turn::Nobody;
            };
            let others = self.queues.get(name).is_some_and(|queue| !queue.places.is_empty());
            if !others {
                self.queues.remove(name);
            }
            self.records.left_in_queue(name, others);
            if token == me {
                return Turn::Mine;
            }
            // No waiter waits for so long without asking again.
            if script.micros() > waiter.seen_us + forgotten_ms(waiter.ttl_ms) * 1_000 {
                continue;
            }
            let proposal = waiter.proposal.map(|proposal| proposal.at_least(next));
            let (ttl_ms, seen_us) = (waiter.ttl_ms, Some(waiter.seen_us));
            let taking = Taking { ttl_ms, proposal, least: next, seen_us };
            // A waiter that wants a fence that cannot be given out is passed over.
            let Ok(fence) = self.records.take(name, &token, taking, script) else { continue };
            let (Ticket { client, waiter, secret, .. }, sent) = (waiter.ticket, waiter.sent);
            let grant = Grant { waiter, secret, sent, others, fence };
            if script.publish(client, grant) {
                return Turn::Another;
            }
        }
    }

    /// Lets go of a lock: it is passed on, or free if there is no waiter, or none may have it now.
    pub(super) fn release_record(
        &mut self,
        name: &[u8],
        me: &[u8],
        next: u64,
        script: &mut Script<'_>,
    ) {
        let waiting = self.queues.get(name).is_some_and(|queue| !queue.places.is_empty());
        self.records.left_in_queue(name, waiting);
        let fenced = self.records.fence_refusal(name, next, script).is_none();
        if !waiting || !self.records.may_pass_on(script) || !fenced {
            return self.records.drop(name, script);
        }
        while self.pass_on(name, me, next, script) == Turn::Mine {}
    }

    /// The tickets of a client.
    pub(super) fn tickets(&self, client: ClientId) -> Vec<Ticket> {
        let waiters = self.queues.values().flat_map(|queue| queue.places.values());
        waiters.map(|waiter| waiter.ticket).filter(|ticket| ticket.client == client).collect()
    }

    pub(super) fn leave(&mut self, name: &[u8], me: &[u8]) {
        if let Some(queue) = self.queues.get_mut(name) {
            queue.places.retain(|(_, token), _| token != me);
            if queue.places.is_empty() {
                self.queues.remove(name);
            }
        }
    }
}
