//! Grant messages: keys that are written with a grant, and a watch that reports them to the client they are for.

use std::time::Duration;

use tokio::sync::watch;
use tokio::time::timeout;
use tonic::{Status, Streaming};

use super::messages::{NO_DELETE, WatchResponse};
use super::store::EtcdStore;
use crate::locked::locked;
use crate::node::cas::Readiness;
use crate::node::{Grant, Inbox, Secret};
use crate::runtime::Moment;

/// Before a watch that ended is begun anew.
const PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// The value of a grant message. Its key names the waiter.
pub(super) fn encode(grant: &Grant) -> Vec<u8> {
    let Grant { sent, secret, others, fence, .. } = grant;
    let secret = secret.text();
    let secret = String::from_utf8_lossy(&secret);
    format!("{} {secret} {} {fence}", sent.as_nanos(), u8::from(*others)).into_bytes()
}

/// Reads such a message; `None` if it is something else.
fn decode(waiter: &[u8], value: &[u8]) -> Option<Grant> {
    let waiter = std::str::from_utf8(waiter).ok()?.parse().ok()?;
    let mut words = std::str::from_utf8(value).ok()?.split(' ');
    let sent = Moment::from_nanos(words.next()?.parse().ok()?);
    let secret = Secret::parse(words.next()?.as_bytes())?;
    let others = words.next()? == "1";
    let fence = words.next()?.parse().ok()?;
    Some(Grant { waiter, sent, secret, others, fence })
}

impl EtcdStore {
    /// Listens until the client is closed. `limit` is for a watch to begin; `known` learns why it does not.
    pub(super) async fn watch_grants(&self, limit: Duration, known: &watch::Sender<Readiness>) {
        let mut closed = self.is_closed.subscribe();
        let mut pause = PAUSE;
        let mut is_first = true;
        while !*closed.borrow_and_update() {
            let watching = async {
                let at = self.client.active();
                let key = self.keys.grants(self.me);
                let begin_watch = self.client.watch(key, NO_DELETE);
                let failed = match timeout(limit, begin_watch).await {
                    Ok(Ok(stream)) => {
                        self.is_listening.send_replace(true);
                        if !std::mem::replace(&mut is_first, false) {
                            self.tell(|node, inbox| inbox.interrupted(node));
                        }
                        pause = PAUSE;
                        self.read_grants(stream).await
                    }
                    Ok(Err(status)) => Some(status),
                    Err(_) => Some(Status::deadline_exceeded("the watch did not begin")),
                };
                self.is_listening.send_replace(false);
                if let Some(status) = failed {
                    let failure = self.client.trouble(&status).failure();
                    let failure = self.client.passed_over(at, &failure);
                    known.send_if_modified(|known| {
                        let is_news = matches!(known, None | Some(Err(_)));
                        if is_news {
                            *known = Some(Err(failure));
                        }
                        is_news
                    });
                }
            };
            tokio::select! {
                () = watching => {}
                _ = closed.changed() => return,
            }
            tokio::select! {
                () = tokio::time::sleep(pause) => pause = (pause * 2).min(LONGEST_PAUSE),
                _ = closed.changed() => return,
            }
        }
    }

    /// Reports grants until the watch ends, or another member is asked. Returns why, if it is the member's fault.
    async fn read_grants(&self, mut stream: Streaming<WatchResponse>) -> Option<Status> {
        loop {
            let message = tokio::select! {
                message = stream.message() => message,
                () = self.client.moved.notified() => return None,
            };
            match message {
                Ok(Some(message)) if !message.canceled => self.report(&message),
                Ok(Some(message)) => return Some(Status::unavailable(message.cancel_reason)),
                Ok(None) => return Some(Status::unavailable("the watch ended")),
                Err(status) => return Some(status),
            }
        }
    }

    fn report(&self, message: &WatchResponse) {
        let prefix = self.keys.grants(self.me);
        for kv in message.events.iter().filter_map(|event| event.kv.as_ref()) {
            let grant = kv.key.strip_prefix(&*prefix).and_then(|waiter| decode(waiter, &kv.value));
            if let Some(grant) = grant {
                self.tell(|node, inbox| inbox.granted(node, grant));
            }
        }
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
        let secret = Secret::random(&TokioRuntime::current());
        let grant =
            Grant { waiter: 7, sent: Moment::from_nanos(9), secret, others: true, fence: u64::MAX };
        assert_eq!(decode(b"7", &encode(&grant)), Some(grant));
        for (waiter, value) in
            [(&b"x"[..], encode(&grant)), (b"7", b"9 x 1 2".to_vec()), (b"7", Vec::new())]
        {
            assert_eq!(decode(waiter, &value), None);
        }
    }
}
