//! Grant messages: nodes that are created with a grant, and a watch that reports them to the client they are for. The
//! name of such a node says it all, and comes with the report: nothing has to be read.

use super::connection::Connection;
use super::keys::Keys;
use super::store::ZooKeeperStore;
use super::trouble::Trouble;
use super::wire::Request;
use crate::locked::locked;
use crate::node::{ClientId, Grant, Inbox, Secret};
use crate::runtime::Moment;

/// What the names of all messages begin with.
const GRANT: &str = "grant-";

/// The path of a grant message.
pub(super) fn path(keys: &Keys, client: ClientId, grant: &Grant) -> String {
    let Grant { waiter, sent, secret, others, fence } = grant;
    let secret = secret.text();
    format!(
        "{}/{GRANT}{waiter}-{}-{}-{}-{fence}",
        keys.client(client),
        sent.as_nanos(),
        String::from_utf8_lossy(&secret),
        u8::from(*others)
    )
}

/// Reads the last part of such a path; `None` if it is something else.
fn decode(name: &str) -> Option<Grant> {
    let mut words = name.strip_prefix(GRANT)?.split('-');
    let waiter = words.next()?.parse().ok()?;
    let sent = Moment::from_nanos(words.next()?.parse().ok()?);
    let secret = Secret::parse(words.next()?.as_bytes())?;
    let others = words.next()? == "1";
    let fence = words.next()?.parse().ok()?;
    words.next().is_none().then_some(Grant { waiter, sent, secret, others, fence })
}

impl ZooKeeperStore {
    /// Listens on a new session, and takes in what came when there was none.
    pub(super) async fn listen_on(&self, connection: &Connection) -> Result<(), Trouble> {
        let mine = self.client.keys.client(self.me);
        let watched = connection.send(Request::add_watch(&mine));
        let there = connection.children(&mine);
        watched.await?;
        for name in there.await? {
            self.report(connection, &format!("{mine}/{name}"));
        }
        Ok(())
    }

    /// Something was created below the watch.
    pub(super) fn report(&self, connection: &Connection, path: &str) {
        let name = path.rsplit('/').next().unwrap_or_default();
        let Some(grant) = decode(name) else { return };
        self.tell(|node, inbox| inbox.granted(node, grant));
        // Nobody waits for that: what is left goes with the session that has written it.
        drop(connection.send(Request::delete(path)));
    }

    pub(super) fn tell(&self, what: impl FnOnce(usize, &dyn Inbox)) {
        let to = locked(&self.inbox).clone();
        if let Some((node, inbox)) = to
            && let Some(inbox) = inbox.upgrade()
        {
            what(node, &*inbox);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::TokioRuntime;

    #[tokio::test]
    async fn what_is_written_is_read() {
        let runtime = TokioRuntime::current();
        let secret = Secret::random(&runtime);
        let sent = Moment::from_nanos(9);
        let grant = Grant { waiter: 7, sent, secret, others: true, fence: u64::MAX };
        let path = path(&Keys::new("/x".to_owned()), ClientId::random(&runtime), &grant);
        let name = path.rsplit('/').next().unwrap();
        assert_eq!(decode(name), Some(grant));
        for other in ["alive", "grant-", "grant-7-9-x-1-2", &format!("{name}-1")] {
            assert_eq!(decode(other), None, "{other}");
        }
    }
}
