//! Which entries of ours wait for their turn, and which have had it.

use std::collections::HashMap;
use std::sync::Mutex;
use std::time::Duration;

use tokio::sync::watch;

use crate::locked::locked;
use crate::node::{Grant, Secret};
use crate::runtime::Moment;

/// The entries with which this client waits or has waited, until they are released, each by its key and its place.
#[derive(Debug, Default)]
pub(in crate::node) struct Turns(Mutex<HashMap<Vec<u8>, Entry>>);

#[derive(Debug)]
struct Entry {
    /// What the latest request with it said. The task that waits ends when this is gone.
    ticket: watch::Sender<Waiter>,
    place: i64,
    is_mine: bool,
}

/// What a grant message has to say.
#[derive(Debug, Clone, Copy)]
pub(in crate::node) struct Waiter {
    pub(in crate::node) waiter: u64,
    pub(in crate::node) sent: Moment,
    pub(in crate::node) secret: Secret,
    pub(in crate::node) is_fenced: bool,
    /// The longest TTL that it has asked for.
    pub(in crate::node) ttl: Duration,
    /// Whether others wait behind it, by the latest look.
    pub(in crate::node) others: bool,
}

impl Waiter {
    /// The message that its turn has come, with the fence of its place.
    pub(in crate::node) fn grant(self, fence: u64) -> Grant {
        let Self { waiter, sent, secret, is_fenced, others, .. } = self;
        Grant { waiter, sent, secret, others, fence: if is_fenced { fence } else { 0 } }
    }
}

/// How one that waits stands.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::node) enum Turn {
    /// It has come.
    Mine,
    /// Not yet. A task that notices has to be started, if it is new.
    NotYet { is_new: bool },
}

impl Turns {
    /// Whether it waits with this key, and its turn has not come.
    pub(in crate::node) fn is_waiting(&self, key: &[u8], place: i64) -> bool {
        locked(&self.0).get(key).is_some_and(|entry| entry.place == place && !entry.is_mine)
    }

    /// Whether the turn of this place has come. Another may have been made under the same key since.
    pub(in crate::node) fn is_mine(&self, key: &[u8], place: i64) -> bool {
        locked(&self.0).get(key).is_some_and(|entry| entry.place == place && entry.is_mine)
    }

    /// It waits with this key, and this is its latest request.
    pub(in crate::node) fn wait(
        &self,
        key: &[u8],
        place: i64,
        waiter: Waiter,
    ) -> (Turn, watch::Receiver<Waiter>) {
        let mut all = locked(&self.0);
        if let Some(entry) = all.get(key).filter(|entry| entry.place == place) {
            let turn = if entry.is_mine { Turn::Mine } else { Turn::NotYet { is_new: false } };
            entry.ticket.send_replace(waiter);
            return (turn, entry.ticket.subscribe());
        }
        let ticket = watch::Sender::new(waiter);
        let receiver = ticket.subscribe();
        all.insert(key.to_vec(), Entry { ticket, place, is_mine: false });
        (Turn::NotYet { is_new: true }, receiver)
    }

    /// Its turn has come. What to tell the client, if it waits for that.
    pub(in crate::node) fn come(&self, key: &[u8], place: i64) -> Option<Waiter> {
        let mut all = locked(&self.0);
        let entry = all.get_mut(key).filter(|entry| entry.place == place && !entry.is_mine)?;
        entry.is_mine = true;
        Some(*entry.ticket.borrow())
    }

    /// The same, whatever its place is, which is returned.
    #[cfg(feature = "zookeeper")]
    pub(in crate::node) fn come_any(&self, key: &[u8]) -> Option<(Waiter, i64)> {
        let place = locked(&self.0).get(key)?.place;
        Some((self.come(key, place)?, place))
    }

    /// The lock is not held with this key any more, if it was.
    #[cfg(feature = "etcd")]
    pub(in crate::node) fn end_held(&self, key: &[u8]) {
        let mut all = locked(&self.0);
        if all.get(key).is_some_and(|entry| entry.is_mine) {
            all.remove(key);
        }
    }

    /// Nobody waits with this key any more.
    pub(in crate::node) fn end(&self, key: &[u8]) {
        locked(&self.0).remove(key);
    }

    /// Nor with any other. Those whose turn has not come.
    pub(in crate::node) fn end_all(&self) -> Vec<Vec<u8>> {
        let all = std::mem::take(&mut *locked(&self.0));
        all.into_iter().filter(|(_, entry)| !entry.is_mine).map(|(key, _)| key).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::TokioRuntime;

    #[tokio::test]
    async fn a_turn_is_that_of_one_place() {
        let (turns, key) = (Turns::default(), b"x/1");
        let waiter = Waiter {
            waiter: 1,
            sent: Moment::default(),
            secret: Secret::random(&TokioRuntime::current()),
            is_fenced: true,
            ttl: Duration::from_secs(1),
            others: false,
        };
        assert_eq!(turns.wait(key, 7, waiter).0, Turn::NotYet { is_new: true });
        assert!(turns.come(key, 8).is_none() && !turns.is_mine(key, 7));
        assert!(turns.come(key, 7).is_some() && turns.is_mine(key, 7));
        assert!(!turns.is_mine(key, 9), "the key was made again behind others");
    }
}
