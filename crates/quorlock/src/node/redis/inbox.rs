//! Grant messages, which the server sends without being asked.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, Weak};

use super::resp::Value;
use crate::locked::locked;
use crate::node::{ClientId, Grant, Inbox, Secret, Ticket};
use crate::runtime::Moment;
use crate::token::{read_hex, write_hex};

/// Between the prefix of all keys and the id of a client: the channel on which it is notified.
const CHANNEL: &[u8] = b":quorlock:inbox:";

/// The channel of a client. It starts as the keys do, so that a user that is limited to a prefix listens
/// and publishes only there.
pub(super) fn channel(prefix: &[u8], client: ClientId) -> Vec<u8> {
    [prefix, CHANNEL, client.to_string().as_bytes()].concat()
}

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

/// Reads what the server said without being asked; `None` if it is nothing to act upon.
pub(super) fn read(parts: &[Value<'_>]) -> Result<Option<Grant>, Malformed> {
    // One channel is subscribed to, so that every message is for it.
    let [Value::Bulk(b"message"), _, text] = parts else { return Ok(None) };
    let Value::Bulk(text) = text else { return Err(Malformed) };
    let text = std::str::from_utf8(text).map_err(|_| Malformed)?;
    let (named, rest) = text.split_once(' ').ok_or(Malformed)?;
    let (waiter, secret) = parse_named(named).ok_or(Malformed)?;
    let mut parts = rest.split(' ').map(|digits| digits.parse().map_err(|_| Malformed));
    let mut next = || parts.next().ok_or(Malformed)?;
    let (sent, others, fence) = (Moment::from_nanos(next()?), next()? > 0, next()?);
    if parts.next().is_some() {
        return Err(Malformed);
    }
    Ok(Some(Grant { waiter, secret, sent, others, fence }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::TicketNumber;
    use crate::runtime::TokioRuntime;

    fn message(text: &[u8]) -> Result<Option<Grant>, Malformed> {
        read(&[Value::Bulk(b"message"), Value::Bulk(b":quorlock:inbox:00"), Value::Bulk(text)])
    }

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
            assert_eq!(message(&text), Ok(Some(Grant { waiter, secret, sent, others, fence })));
        }
    }

    #[test]
    fn what_makes_no_sense_is_not_taken_for_a_grant_message() {
        let named = "0".repeat(48);
        assert!(message(format!("{named} 2 0 4").as_bytes()).is_ok_and(|grant| grant.is_some()));
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
            assert_eq!(message(text.as_bytes()), Err(Malformed), "{text:?}");
        }
        assert_eq!(message(b"\xff 1"), Err(Malformed));
        let invalidated = [Value::Bulk(b"invalidate"), Value::Array(vec![])];
        assert_eq!(read(&invalidated), Ok(None));
        assert_eq!(read(&[]), Ok(None));
    }

    #[tokio::test]
    async fn a_channel_starts_as_the_keys_do() {
        let client = ClientId::random(&TokioRuntime::current());
        let text = |prefix: &[u8]| String::from_utf8(channel(prefix, client)).unwrap();
        assert_eq!(text(b""), format!(":quorlock:inbox:{client}"));
        assert_eq!(text(b"app a:"), format!("app a::quorlock:inbox:{client}"));
    }
}
