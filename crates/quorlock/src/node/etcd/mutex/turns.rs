//! Waiting for our turn: a key of ours stands in the line, and a watch says who leaves it.
//!
//! ```text
//!   wait ──▶ watch begins ──▶ key is put, line is read ──▶ who is ahead ── each that leaves ──▶ nobody: our turn
//!                                                             │                                  │
//!                              the key is put again, in time ─┘                    grant message ┘
//! ```
//!
//! Only keys that are ahead matter, and none comes to be ahead later: places are revisions. So it is our turn once all
//! of them have been seen to leave, and nothing has to be read then. A client that dies leaves a key, which ends with
//! its lease.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tonic::Streaming;

use super::line::{Line, fence};
use super::store::MutexStore;
use crate::name::Name;
use crate::node::Failure;
use crate::node::contenders::{Turn, Waiter};
use crate::node::etcd::messages::{PutRequest, Request, RequestOp, TxnRequest, WatchResponse};
use crate::node::etcd::store::is_version;
use crate::runtime::Moment;

/// Before a watch that ended is begun anew.
const PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
/// The key is put again after this part of its TTL.
const PUT_AGAIN: u32 = 3;

/// A key of ours in a line.
#[derive(Debug, Clone)]
pub(super) struct Mine {
    pub(super) name: Name,
    pub(super) key: Vec<u8>,
    pub(super) place: i64,
}

impl MutexStore {
    /// Waits with a key that stands behind others in `line`; `stream` watches it since before it was read. Says whether
    /// its turn has come meanwhile.
    pub(super) fn wait_for_turn(
        self: &Arc<Self>,
        mine: Mine,
        waiter: Waiter,
        line: &Line,
        stream: Option<Streaming<WatchResponse>>,
    ) -> Turn {
        let (turn, mut ticket) = self.turns.wait(&mine.key, mine.place, waiter);
        if turn == (Turn::NotYet { is_new: true }) {
            let ahead = stream.is_some().then(|| line.ahead_of(mine.place));
            let waiting = Waiting {
                store: Arc::clone(self),
                ticket: ticket.clone(),
                ahead: ahead.unwrap_or_default(),
                stream,
                mine,
            };
            self.runtime.spawn(Box::pin(async move {
                let is_over = async { while ticket.changed().await.is_ok() {} };
                tokio::select! {
                    () = waiting.run() => {}
                    () = is_over => {}
                }
            }));
        }
        turn
    }

    /// The turn of this key has come: the client is notified, if it waits for that.
    pub(super) fn turn_has_come(&self, key: &[u8], place: i64) {
        let Some(waiter) = self.turns.come(key, place) else { return };
        let grant = waiter.grant(fence(place));
        self.tell(|node, inbox| inbox.granted(node, grant));
    }
}

/// The task of one key that waits.
struct Waiting {
    store: Arc<MutexStore>,
    mine: Mine,
    ticket: watch::Receiver<Waiter>,
    /// Who has to leave, if there is a stream that says who does.
    ahead: Vec<(Vec<u8>, i64)>,
    stream: Option<Streaming<WatchResponse>>,
}

/// When the key is put again.
#[derive(Debug)]
struct PutAgain {
    at: Moment,
    /// For how long it rests after it has failed.
    pause: Duration,
}

impl PutAgain {
    /// It was put just now, and is again after a part of its TTL.
    fn after(part: Duration, now: Moment) -> Self {
        Self { at: now.after(part), pause: PAUSE }
    }

    /// It has failed just now, however long that took: meanwhile others may have left, which is heard first.
    fn failed(&mut self, now: Moment) {
        self.at = now.after(self.pause);
        self.pause = (self.pause * 2).min(LONGEST_PAUSE);
    }
}

/// What came of waiting for one event.
enum Heard {
    /// There may be fewer ahead.
    Left,
    /// Our own key is gone.
    Gone,
    /// The watch is over.
    Nothing,
}

impl Waiting {
    async fn run(mut self) {
        let mut pause = PAUSE;
        let runtime = Arc::clone(&self.store.runtime);
        let mut again = PutAgain::after(self.put_again(), runtime.now());
        loop {
            if self.stream.is_none() {
                match self.begin().await {
                    Ok(true) => pause = PAUSE,
                    Ok(false) => return self.lost(),
                    Err(()) => {
                        runtime.sleep(pause).await;
                        pause = (pause * 2).min(LONGEST_PAUSE);
                    }
                }
            }
            if self.stream.is_some() && self.ahead.is_empty() {
                return self.store.turn_has_come(&self.mine.key, self.mine.place);
            }
            let now = runtime.now();
            if again.at <= now {
                match self.put().await {
                    Ok(true) => again = PutAgain::after(self.put_again(), runtime.now()),
                    Ok(false) => return self.lost(),
                    Err(_) => again.failed(runtime.now()),
                }
                continue;
            }
            let Some(stream) = &mut self.stream else { continue };
            let heard = tokio::select! {
                message = stream.message() => heard(message, &self.mine, &mut self.ahead),
                () = runtime.sleep(again.at.since(now)) => Heard::Left,
            };
            match heard {
                Heard::Left => {}
                Heard::Gone => return self.lost(),
                Heard::Nothing => self.stream = None,
            }
        }
    }

    /// When to put the key again.
    fn put_again(&self) -> Duration {
        self.ticket.borrow().ttl / PUT_AGAIN
    }

    /// Begins to watch, and looks who is ahead. Says whether our key is there.
    async fn begin(&mut self) -> Result<bool, ()> {
        let stream = self.store.watch_line(&self.mine.name).await.ok_or(())?;
        let line = self.store.read(&self.mine.name).await.map_err(|_| ())?;
        self.stream = Some(stream);
        self.ahead = line.ahead_of(self.mine.place);
        Ok(line.get(&self.mine.key).is_some_and(|found| found.place == self.mine.place))
    }

    /// Looks who is ahead, and has the key last longer. Says whether it is there.
    async fn put(&mut self) -> Result<bool, Failure> {
        let Mine { name, key, place } = &self.mine;
        let line = self.store.read(name).await?;
        let Some(found) = line.get(key).filter(|found| found.place == *place) else {
            return Ok(false);
        };
        // This is so whatever becomes of the rest.
        self.ahead = line.ahead_of(*place);
        let Some(value) = &found.ours else { return Ok(true) };
        // A request of the client may be faster. What it was answered then counts from later, and so this must not
        // be done: the version is another one.
        let compare = vec![is_version(key.clone(), found.version)];
        let put = |lease| {
            let put =
                PutRequest { key: key.clone(), lease, ignore_value: true, ..PutRequest::default() };
            let success = vec![RequestOp { request: Some(Request::Put(put)) }];
            TxnRequest { compare: compare.clone(), success, failure: Vec::new() }
        };
        self.store.txn_with_lease(value.ttl, |lease| put(lease.id)).await?;
        Ok(true)
    }

    /// The key is gone: the client asks again, and stands behind the others then.
    fn lost(&self) {
        if self.store.turns.is_waiting(&self.mine.key, self.mine.place) {
            self.store.turns.end(&self.mine.key);
            self.store.tell(|node, inbox| inbox.interrupted(node));
        }
    }
}

/// Takes those out who have left.
fn heard(
    message: Result<Option<WatchResponse>, tonic::Status>,
    mine: &Mine,
    ahead: &mut Vec<(Vec<u8>, i64)>,
) -> Heard {
    let Ok(Some(message)) = message else { return Heard::Nothing };
    if message.canceled {
        return Heard::Nothing;
    }
    for gone in message.events.iter().filter_map(|event| event.kv.as_ref()) {
        // A client of another library may have come back under the same key since.
        let is_gone = |key: &[u8], place: i64| gone.key == key && gone.mod_revision > place;
        if is_gone(&mine.key, mine.place) {
            return Heard::Gone;
        }
        ahead.retain(|(key, place)| !is_gone(key, *place));
    }
    Heard::Left
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_that_cannot_be_put_again_leaves_time_to_hear_who_left() {
        let part = Duration::from_secs(1);
        let mut again = PutAgain::after(part, Moment::default());
        let mut pauses = Vec::new();
        for _ in 0..7 {
            // It takes longer to fail than the first pause is.
            let now = again.at.after(Duration::from_millis(400));
            again.failed(now);
            pauses.push(again.at.since(now).as_millis());
        }
        assert_eq!(pauses, [50, 100, 200, 400, 800, 1_000, 1_000]);
        again = PutAgain::after(part, again.at);
        assert_eq!(again.pause, PAUSE);
    }
}
