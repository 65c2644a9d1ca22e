//! Word of grants, which the server sends without being asked.

use std::sync::{Mutex, Weak};

use super::resp::Value;
use crate::locked::locked;
use crate::node::{ClientId, Grant, Inbox};
use crate::runtime::Moment;

/// Before the id of a client: the channel on which it is told. The scripts know it too.
const CHANNEL: &str = "quorlock:inbox:";

/// The channel of a client.
pub(super) fn channel(client: ClientId) -> String {
    format!("{CHANNEL}{client}")
}

/// Where word of grants goes.
pub(super) struct Incoming {
    /// Whose channel the connection listens to.
    pub(super) client: ClientId,
    listener: Mutex<Option<(usize, Weak<dyn Inbox>)>>,
}

/// A message that is no word of a grant.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Malformed;

impl Incoming {
    pub(super) fn new(client: ClientId) -> Self {
        Self { client, listener: Mutex::new(None) }
    }

    pub(super) fn listen(&self, client: ClientId, node: usize, inbox: Weak<dyn Inbox>) {
        if client == self.client {
            *locked(&self.listener) = Some((node, inbox));
        }
    }

    pub(super) fn granted(&self, grant: Grant) {
        self.tell(|node, inbox| inbox.granted(node, grant));
    }

    pub(super) fn interrupted(&self) {
        self.tell(|node, inbox| inbox.interrupted(node));
    }

    pub(super) fn unsettled(&self) {
        self.tell(|node, inbox| inbox.unsettled(node));
    }

    /// Nothing is locked while the listener is told: it may submit calls.
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
    let mut numbers = text.split(' ').map(|digits| digits.parse().map_err(|_| Malformed));
    let mut next = || numbers.next().ok_or(Malformed)?;
    let (waiter, sent, others) = (next()?, Moment::from_nanos(next()?), next()? > 0);
    let number = next()?;
    if numbers.next().is_some() {
        return Err(Malformed);
    }
    Ok(Some(Grant { waiter, sent, others, number }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(text: &[u8]) -> Result<Option<Grant>, Malformed> {
        read(&[Value::Bulk(b"message"), Value::Bulk(b"quorlock:inbox:00"), Value::Bulk(text)])
    }

    #[test]
    fn word_of_a_grant_is_read_to_its_last_digit() {
        let (waiter, sent) = (u64::MAX, Moment::from_nanos(u64::MAX - 1));
        let number = (1 << 53) - 1;
        for (text, others) in [
            (&b"18446744073709551615 18446744073709551614 0 9007199254740991"[..], false),
            (b"18446744073709551615 18446744073709551614 12 9007199254740991", true),
        ] {
            assert_eq!(message(text), Ok(Some(Grant { waiter, sent, others, number })));
        }
    }

    #[test]
    fn what_makes_no_sense_is_not_taken_for_word_of_a_grant() {
        for text in [
            &b""[..],
            b"1",
            b"1 2",
            b"1 2 3",
            b"1 2 3 ",
            b" 1 2",
            b"1 2 3 4 5",
            b"1 x 0 4",
            b"-1 2 0 4",
            b"1 18446744073709551616 0 4",
        ] {
            assert_eq!(message(text), Err(Malformed), "{}", text.escape_ascii());
        }
        assert_eq!(message(b"\xff 1"), Err(Malformed));
        let invalidated = [Value::Bulk(b"invalidate"), Value::Array(vec![])];
        assert_eq!(read(&invalidated), Ok(None));
        assert_eq!(read(&[]), Ok(None));
    }
}
