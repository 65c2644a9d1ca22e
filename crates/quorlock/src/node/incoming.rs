//! Grant messages that come as text over a connection of the node's own, and where they go.
//!
//! ```text
//!   WAITER+SECRET SENT_NS OTHERS FENCE
//! ```

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, Weak};

use super::{ClientId, Grant, Inbox, Secret, Ticket};
use crate::locked::locked;
use crate::runtime::Moment;
use crate::token::{read_hex, write_hex};

/// The hexadecimal digits of a waiter.
const WAITER_BYTES: usize = 16;

/// How a ticket is named on the server, and in a message: its waiter, and the secret of the request.
pub(super) fn named(ticket: &Ticket) -> [u8; WAITER_BYTES + Secret::TEXT_BYTES] {
    let mut named = [0; WAITER_BYTES + Secret::TEXT_BYTES];
    let (waiter, secret) = named.split_at_mut(WAITER_BYTES);
    write_hex(&ticket.waiter.to_be_bytes(), waiter);
    secret.copy_from_slice(&ticket.secret.text());
    named
}

fn parse_named(text: &str) -> Option<(u64, Secret)> {
    let (waiter, secret) = text.as_bytes().split_at_checked(WAITER_BYTES)?;
    Some((u64::from_be_bytes(read_hex(waiter)?), Secret::parse(secret)?))
}

/// Where grant messages go.
pub(super) struct Incoming {
    /// Whose channel the connection listens to.
    pub(super) client: ClientId,
    listener: Mutex<Option<(usize, Weak<dyn Inbox>)>>,
    /// Whether the server was found to cast no vote before there was a listener.
    unheard: AtomicBool,
}

/// A message that is not a grant message.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Malformed;

impl Incoming {
    pub(super) fn new(client: ClientId) -> Self {
        Self { client, listener: Mutex::new(None), unheard: AtomicBool::new(false) }
    }

    pub(super) fn listen(&self, client: ClientId, node: usize, inbox: Weak<dyn Inbox>) {
        if client == self.client {
            *locked(&self.listener) = Some((node, inbox));
            if self.unheard.swap(false, Ordering::AcqRel) {
                self.unsettled();
            }
        }
    }

    pub(super) fn granted(&self, grant: Grant) {
        self.tell(|node, inbox| inbox.granted(node, grant));
    }

    pub(super) fn interrupted(&self) {
        self.tell(|node, inbox| inbox.interrupted(node));
    }

    pub(super) fn unsettled(&self) {
        // Before the look, so that one that begins to listen meanwhile finds it.
        self.unheard.store(true, Ordering::Release);
        self.tell(|node, inbox| {
            self.unheard.store(false, Ordering::Release);
            inbox.unsettled(node);
        });
    }

    /// Nothing is locked while the listener is notified: it may submit calls.
    fn tell(&self, tell: impl FnOnce(usize, &dyn Inbox)) {
        let listener = locked(&self.listener).clone();
        if let Some((node, inbox)) = listener
            && let Some(inbox) = inbox.upgrade()
        {
            tell(node, &*inbox);
        }
    }
}

/// Reads a grant message.
pub(super) fn grant(text: &[u8]) -> Result<Grant, Malformed> {
    let text = std::str::from_utf8(text).map_err(|_| Malformed)?;
    let (named, rest) = text.split_once(' ').ok_or(Malformed)?;
    let (waiter, secret) = parse_named(named).ok_or(Malformed)?;
    let mut parts = rest.split(' ').map(|digits| digits.parse().map_err(|_| Malformed));
    let mut next = || parts.next().ok_or(Malformed)?;
    let (sent, others, fence) = (Moment::from_nanos(next()?), next()? > 0, next()?);
    if parts.next().is_some() {
        return Err(Malformed);
    }
    Ok(Grant { waiter, secret, sent, others, fence })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::TicketNumber;
    use crate::runtime::TokioRuntime;

    #[tokio::test]
    async fn a_grant_message_is_read_to_its_last_digit() {
        let runtime = TokioRuntime::current();
        let (client, ticket_no) = (ClientId::random(&runtime), TicketNumber::New(1));
        let (waiter, sent) = (u64::MAX - 9, Moment::from_nanos(u64::MAX - 1));
        let secret = Secret::random(&runtime);
        let named = named(&Ticket {
            client,
            waiter,
            secret,
            ticket_no,
            sent,
            keep: std::time::Duration::ZERO,
        });
        let fence = (1 << 53) - 1;
        for (text, others) in [
            (" 18446744073709551614 0 9007199254740991", false),
            (" 18446744073709551614 12 9007199254740991", true),
        ] {
            let text = [&named[..], text.as_bytes()].concat();
            assert_eq!(grant(&text), Ok(Grant { waiter, secret, sent, others, fence }));
        }
    }

    #[test]
    fn what_makes_no_sense_is_not_taken_for_a_grant_message() {
        let named = "0".repeat(48);
        assert!(grant(format!("{named} 2 0 4").as_bytes()).is_ok());
        for text in [
            String::new(),
            " ".into(),
            "1 2 0 4".into(),
            named.clone(),
            format!("{named} 2"),
            format!("{named} 2 3"),
            format!("{named} 2 3 "),
            format!(" {named} 2 3"),
            format!("{named} 2 3 4 5"),
            format!("{named} x 0 4"),
            format!("{named} -2 0 4"),
            format!("{named} 18446744073709551616 0 4"),
            format!("{named}0 2 0 4"),
            format!("{} 2 0 4", &named[1..]),
            format!("{} 2 0 4", named.replace('0', "X")),
            format!("{}ä 2 0 4", &named[2..]),
        ] {
            assert_eq!(grant(text.as_bytes()), Err(Malformed), "{text:?}");
        }
        assert_eq!(grant(b"\xff 1"), Err(Malformed));
    }
}
