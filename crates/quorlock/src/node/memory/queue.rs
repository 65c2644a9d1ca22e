//! The queue of one lock.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::node::{Proposal, Ticket, TicketNumber};
use crate::runtime::Moment;
use crate::token::Token;

/// Three leases, or three seconds: then the client that stood here has long stopped asking.
const LEASES_UNTIL_FORGOTTEN: u32 = 3;
const LEAST_UNTIL_FORGOTTEN: Duration = Duration::from_secs(3);

/// Who waits for a lock, in the order of their turns.
#[derive(Default)]
pub(super) struct Queue {
    /// By ticket number and token, so that two tickets with one number stand in the same order everywhere.
    places: BTreeMap<(u64, Vec<u8>), Place>,
    /// When all of it is forgotten unless a waiter asks again.
    ends: Moment,
}

/// What the latest request with a ticket said, all of it from that one request.
pub(super) struct Place {
    pub(super) ticket: Ticket,
    pub(super) ttl: Duration,
    pub(super) sent: Moment,
    pub(super) proposal: Option<Proposal>,
}

impl Queue {
    pub(super) fn is_live(&self, now: Moment) -> bool {
        self.ends > now && !self.places.is_empty()
    }

    /// How many stand in it.
    pub(super) fn len(&self) -> usize {
        self.places.len()
    }

    /// Takes or keeps a place, and returns its ticket number.
    pub(super) fn join(&mut self, token: &Token, place: Place) -> u64 {
        let mine = self.leave(token);
        let ticket_no = match place.ticket.ticket_no {
            TicketNumber::Agreed(ticket_no) => ticket_no,
            TicketNumber::New(least) => mine.unwrap_or_else(|| {
                let last =
                    self.places.last_key_value().map(|((last, _), _)| last.saturating_add(1));
                last.map_or(least, |behind| behind.max(least))
            }),
        };
        let forgotten = (place.ttl * LEASES_UNTIL_FORGOTTEN).max(LEAST_UNTIL_FORGOTTEN);
        self.ends = self.ends.max(place.sent.after(forgotten));
        self.places.insert((ticket_no, token.text().to_vec()), place);
        ticket_no
    }

    /// Gives up a place, and returns the ticket number it had.
    pub(super) fn leave(&mut self, token: &Token) -> Option<u64> {
        let text = token.text();
        let ticket_no = self.places.keys().find(|(_, other)| *other == *text)?.0;
        self.places.remove(&(ticket_no, text.to_vec()));
        Some(ticket_no)
    }

    /// Takes out the first waiter.
    pub(super) fn next(&mut self) -> Option<(Vec<u8>, Place)> {
        self.places.pop_first().map(|((_, token), place)| (token, place))
    }
}
