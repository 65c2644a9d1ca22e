//! A cluster as a store: one transaction for each write. The versions are revisions.

use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use tokio::sync::{Notify, watch};

use super::client::{Client, Trouble};
use super::keys::{Keys, end_of};
use super::leases::{Lease, Leases};
use super::messages::{
    CREATE, Compare, DeleteRangeRequest, EQUAL, GREATER, KeyValue, MOD, PutRequest, RangeRequest,
    RangeResponse, Request, RequestOp, Response, Target, TxnRequest, TxnResponse,
};
use crate::locked::locked;
use crate::name::Name;
use crate::node::cas::{Change, Found, Hold, HoldChange, Message, State, Store, Window, Written};
use crate::node::{ClientId, Failure, FailureKind, Inbox, Listed, ParticipantId};
use crate::runtime::{Moment, Runtime, wall_us};
use crate::token::Token;
use quorlock_protocol::ticket_kept;

const TXN: &str = "/etcdserverpb.KV/Txn";
/// So many names are read at once.
const NAMES_PER_LIST: i64 = 256;
/// A client that waits is known to be there for so long, unless it says so again.
const LIFE: Duration = Duration::from_secs(3);
/// It says so again after this.
const SIGN_OF_LIFE: Duration = Duration::from_millis(1_500);
/// An end that cannot be right is taken for this.
const SOON: Duration = Duration::from_millis(250);

/// A cluster, as one client sees it.
#[derive(Debug)]
pub(super) struct EtcdStore {
    pub(super) client: Arc<Client>,
    pub(super) keys: Keys,
    leases: Arc<Leases>,
    runtime: Arc<dyn Runtime>,
    pub(super) me: ClientId,
    life: Mutex<Life>,
    /// Notified when it begins to wait.
    waits: Notify,
    pub(super) inbox: Mutex<Option<(usize, Weak<dyn Inbox>)>>,
    /// Whether grant messages arrive.
    pub(super) is_listening: watch::Sender<bool>,
    /// Whether the client wants nothing more.
    pub(super) is_closed: watch::Sender<bool>,
}

/// What others know of this client.
#[derive(Debug, Default, Clone, Copy)]
struct Life {
    /// When it was last said that it is there.
    said: Option<Moment>,
    /// Since when it waits for some lock.
    waits_since: Option<Moment>,
    /// It waits for a lock until then, or has given up.
    waits_until: Option<Moment>,
}

impl Life {
    /// It waits for a lock until then.
    fn wait(&mut self, now: Moment, until: Moment) {
        let before = self.waits_until.filter(|before| *before > now);
        if before.is_none() {
            self.waits_since = Some(now);
        }
        self.waits_until = Some(before.map_or(until, |before| before.max(until)));
    }

    /// It said then that it is there. Returns whether others may have passed it over before, since they did not know
    /// that it was.
    fn say(&mut self, now: Moment) -> bool {
        let Some(before) = self.said.replace(now) else { return false };
        let waited = self.waits_since.is_some_and(|since| since <= before.after(SIGN_OF_LIFE));
        waited && now.since(before) >= LIFE
    }
}

impl EtcdStore {
    pub(super) fn new(
        client: Client,
        prefix: String,
        me: ClientId,
        runtime: &Arc<dyn Runtime>,
    ) -> Self {
        let (client, keys) = (Arc::new(client), Keys::new(prefix));
        Self {
            leases: Arc::new(Leases::new(&client, keys.rest(), runtime)),
            client,
            keys,
            runtime: Arc::clone(runtime),
            me,
            life: Mutex::default(),
            waits: Notify::new(),
            inbox: Mutex::default(),
            is_listening: watch::Sender::new(false),
            is_closed: watch::Sender::new(false),
        }
    }

    async fn txn(&self, txn: TxnRequest) -> Result<TxnResponse, Trouble> {
        self.client.call(TXN, txn).await
    }

    /// Fails if this user cannot read here.
    pub(super) async fn try_rights(&self) -> Result<(), Failure> {
        let read = vec![get(self.keys.rest(), Vec::new())];
        let txn = TxnRequest { success: read, ..TxnRequest::default() };
        self.txn(txn).await.map(|_| ()).map_err(Trouble::failure)
    }

    /// The requests that read all of a lock.
    fn reads(&self, name: &Name) -> Vec<RequestOp> {
        let holds = self.keys.holds(name);
        vec![get(self.keys.state(name), Vec::new()), get(holds.clone(), end_of(&holds))]
    }

    /// What the answers to [`reads`](Self::reads) say.
    fn found(&self, name: &Name, answers: &TxnResponse) -> Result<Found, Failure> {
        let mut found = Found::default();
        if let Some(kv) = kvs(answers, 0).first() {
            let other = || {
                let text = format!("the key {} is no lock of quorlock", shown(&kv.key));
                Failure::new(FailureKind::WrongType, text)
            };
            found.version = kv.mod_revision;
            found.state = State::decode(&kv.value).ok_or_else(other)?;
        }
        let (now, wall_us) = (self.runtime.now(), wall_us(&*self.runtime));
        for kv in kvs(answers, 1) {
            let parsed = self.keys.parse_hold(name, &kv.key).zip(parse_hold(&kv.value));
            let Some(((who, seconds), (token, until_us))) = parsed else {
                let text = format!("the key {} is no lock of quorlock", shown(&kv.key));
                return Err(Failure::new(FailureKind::WrongType, text));
            };
            // Clocks of clients may differ: this is for people.
            let left = Duration::from_micros(until_us.saturating_sub(wall_us));
            let left = left.clamp(SOON, Duration::from_secs(seconds).max(SOON));
            found.holds.push(Hold { who, kind: seconds, until: now.after(left), end_us: 0 });
            found.state.set_holder(token);
        }
        Ok(found)
    }

    /// The requests for a change, and the holds after it.
    async fn requests(
        &self,
        name: &Name,
        found: &Found,
        change: &Change,
    ) -> Result<(Vec<RequestOp>, Vec<Hold>), Failure> {
        let lease = match change.holds {
            HoldChange::Extend { ttl, .. } | HoldChange::Replace { ttl, .. } => {
                Some(self.leases.lasting(ttl).await?)
            }
            HoldChange::Keep | HoldChange::Remove { .. } | HoldChange::Clear => None,
        };
        let rest = self.leases.rest().await?;
        let now = self.runtime.now();
        let mut all = vec![put(self.keys.state(name), change.state.encode(), rest)];
        let kind = lease.map_or(0, |lease| lease.seconds);
        let holds = change.holds.apply(&found.holds, kind, now);
        let holder = change.state.holder().or(found.state.holder());
        match (change.holds, lease, holder) {
            (HoldChange::Keep, ..) => {}
            (HoldChange::Clear, ..) => {
                let holds = self.keys.holds(name);
                all.push(delete(holds.clone(), end_of(&holds)));
            }
            (HoldChange::Extend { who, ttl }, Some(lease), Some(token)) => {
                all.push(self.put_hold(name, who, &token, ttl, lease));
            }
            (HoldChange::Replace { ttl, .. }, Some(lease), Some(token)) => {
                let put = self.put_hold(name, None, &token, ttl, lease);
                if !found.holds.is_empty() {
                    let kept = self.keys.hold(name, None, lease.seconds);
                    all.extend(all_but(&self.keys.holds(name), kept));
                }
                all.push(put);
            }
            (HoldChange::Remove { who }, ..) => {
                for hold in found.holds.iter().filter(|hold| hold.who == who) {
                    all.push(delete(self.keys.hold(name, hold.who, hold.kind), Vec::new()));
                }
            }
            // A hold has a token, and an end.
            (HoldChange::Extend { .. } | HoldChange::Replace { .. }, ..) => {
                return Err(Failure::new(FailureKind::Rejected, "a lock without a holder"));
            }
        }
        if let Some(Message { client, grant }) = &change.message {
            let lease = lease.map_or(rest, |lease| lease.id);
            let text = super::grants::encode(grant);
            all.push(put(self.keys.grant(*client, grant.waiter), text, lease));
        }
        if let Some(sign) = self.sign_of_life(change).await? {
            all.push(sign);
        }
        Ok((all, holds))
    }

    fn put_hold(
        &self,
        name: &Name,
        who: Option<ParticipantId>,
        token: &Token,
        ttl: Duration,
        lease: Lease,
    ) -> RequestOp {
        let ttl_us = u64::try_from(ttl.as_micros()).unwrap_or(u64::MAX);
        let until_us = wall_us(&*self.runtime).saturating_add(ttl_us);
        let value = format!("{} {until_us}", token.text().as_str());
        put(self.keys.hold(name, who, lease.seconds), value.into_bytes(), lease.id)
    }

    /// Says that this client is there, if it is to wait and has not said so lately.
    async fn sign_of_life(&self, change: &Change) -> Result<Option<RequestOp>, Failure> {
        let Some(ttl) = change.state.longest_ttl(self.me) else { return Ok(None) };
        let now = self.runtime.now();
        {
            let mut life = locked(&self.life);
            life.wait(now, now.after(ticket_kept(ttl)));
            self.waits.notify_one();
            if life.said.is_some_and(|said| now.since(said) < SIGN_OF_LIFE) {
                return Ok(None);
            }
        }
        let lease = self.leases.lasting(LIFE).await?;
        Ok(Some(put(self.keys.client(self.me), Vec::new(), lease.id)))
    }

    /// Says again and again that this client is there, while it waits.
    pub(super) async fn live(&self) {
        loop {
            let (now, life) = (self.runtime.now(), *locked(&self.life));
            if life.waits_until.is_none_or(|until| until <= now) {
                self.waits.notified().await;
                continue;
            }
            if life.said.is_none_or(|said| now.since(said) >= SIGN_OF_LIFE) {
                self.say_alive().await;
            }
            self.runtime.sleep(SIGN_OF_LIFE / 3).await;
        }
    }

    async fn say_alive(&self) {
        let now = self.runtime.now();
        let Ok(lease) = self.leases.lasting(LIFE).await else { return };
        let sign = put(self.keys.client(self.me), Vec::new(), lease.id);
        let txn = TxnRequest { success: vec![sign], ..TxnRequest::default() };
        match self.txn(txn).await {
            Ok(_) => self.has_said(now),
            Err(Trouble::NoLease) => self.leases.forget(),
            // It is tried again before long.
            Err(Trouble::Failed(_)) => {}
        }
    }

    /// Whoever waits here asks again if its turn may have gone to another.
    fn has_said(&self, now: Moment) {
        let was_missed = locked(&self.life).say(now);
        if was_missed {
            self.tell(|node, inbox| inbox.interrupted(node));
        }
    }

    /// Deletes what is kept of a lock, unless it is held or waited for. Returns whether nothing is left of it.
    pub(super) async fn forget(&self, name: &Name) -> Result<bool, Failure> {
        loop {
            let found = self.read(name).await?;
            if found.version == 0 && found.holds.is_empty() {
                return Ok(true);
            }
            if !found.holds.is_empty() || found.state.is_waited_for() {
                return Ok(false);
            }
            let key = self.keys.state(name);
            let compare = vec![is_version(key.clone(), found.version)];
            let success = vec![delete(key, Vec::new())];
            let txn = TxnRequest { compare, success, failure: Vec::new() };
            if self.txn(txn).await.map_err(Trouble::failure)?.succeeded {
                return Ok(true);
            }
        }
    }

    async fn try_write(
        &self,
        name: &Name,
        found: &Found,
        change: &Change,
    ) -> Result<Written, Trouble> {
        let now = self.runtime.now();
        let (success, holds) = self.requests(name, found, change).await?;
        let mut compare = vec![is_version(self.keys.state(name), found.version)];
        let mut failure = self.reads(name);
        if change.only_if_held {
            let holds = self.keys.holds(name);
            compare.push(exists(holds.clone(), end_of(&holds)));
        } else if found.version == 0 && found.holds.is_empty() {
            // Nothing is known of it: there may be holds though the state has been forgotten.
            let holds = self.keys.holds(name);
            compare.push(Compare { result: EQUAL, ..exists(holds.clone(), end_of(&holds)) });
        }
        if let Some(message) = &change.message {
            let client = self.keys.client(message.client);
            compare.push(exists(client.clone(), Vec::new()));
            failure.push(get(client, Vec::new()));
        }
        let says_alive = success.iter().any(|op| is_put(op, &self.keys.client(self.me)));
        let answer = self.txn(TxnRequest { compare, success, failure }).await?;
        if answer.succeeded {
            if says_alive {
                self.has_said(now);
            }
            let version = answer.header.map_or(0, |header| header.revision);
            return Ok(Written::Done(Found { version, state: change.state.clone(), holds }));
        }
        let there = self.found(name, &answer)?;
        let is_gone = change.message.is_some() && kvs(&answer, 2).is_empty();
        if is_gone && there.version == found.version {
            return Ok(Written::Gone);
        }
        Ok(Written::Conflict(there))
    }
}

impl Store for EtcdStore {
    async fn read(&self, name: &Name) -> Result<Found, Failure> {
        let txn = TxnRequest { success: self.reads(name), ..TxnRequest::default() };
        let answer = self.txn(txn).await.map_err(Trouble::failure)?;
        self.found(name, &answer)
    }

    async fn write(&self, name: &Name, found: &Found, change: &Change) -> Result<Written, Failure> {
        loop {
            match self.try_write(name, found, change).await {
                Ok(written) => return Ok(written),
                Err(Trouble::Failed(failure)) => return Err(failure),
                // The leases were of use for less long than they should be. Nothing was written.
                Err(Trouble::NoLease) => self.leases.forget(),
            }
        }
    }

    async fn absent(&self, clients: &[ClientId]) -> Result<Vec<ClientId>, Failure> {
        let reads = clients.iter().map(|client| get(self.keys.client(*client), Vec::new()));
        let txn = TxnRequest { success: reads.collect(), ..TxnRequest::default() };
        let answer = self.txn(txn).await.map_err(Trouble::failure)?;
        let is_absent = |(at, client)| kvs(&answer, at).is_empty().then_some(client);
        Ok(clients.iter().copied().enumerate().filter_map(is_absent).collect())
    }

    async fn list(&self, from: &[u8]) -> Result<Listed, Failure> {
        let all = self.keys.all_holds();
        let key = if from.is_empty() { all.clone() } else { from.to_vec() };
        let (range_end, limit) = (end_of(&all), NAMES_PER_LIST);
        let range = RangeRequest { key, range_end, limit, ..RangeRequest::default() };
        let page: RangeResponse =
            self.client.call("/etcdserverpb.KV/Range", range).await.map_err(Trouble::failure)?;
        let next = page.kvs.last().filter(|_| page.more).map(|kv| [&kv.key[..], b"\0"].concat());
        let ours = page.kvs.iter().filter(|kv| parse_hold(&kv.value).is_some());
        let mut names: Vec<_> = ours.filter_map(|kv| self.keys.parse_name(&kv.key)).collect();
        names.dedup();
        Ok(Listed { names, next })
    }

    /// A lease that has ended is gone.
    fn window(&self) -> Option<Window> {
        None
    }

    fn is_listening(&self) -> bool {
        *self.is_listening.borrow()
    }

    fn listen(&self, node: usize, inbox: Weak<dyn Inbox>) {
        *locked(&self.inbox) = Some((node, inbox));
    }

    async fn close(&self) {
        self.is_closed.send_replace(true);
        if locked(&self.life).said.is_none() {
            return;
        }
        let grants = self.keys.grants(self.me);
        let success = vec![
            delete(self.keys.client(self.me), Vec::new()),
            delete(grants.clone(), end_of(&grants)),
        ];
        // If it fails, both end with their leases.
        let _ = self.txn(TxnRequest { success, ..TxnRequest::default() }).await;
    }
}

fn get(key: Vec<u8>, range_end: Vec<u8>) -> RequestOp {
    let range = RangeRequest { key, range_end, ..RangeRequest::default() };
    RequestOp { request: Some(Request::Range(range)) }
}

fn put(key: Vec<u8>, value: Vec<u8>, lease: i64) -> RequestOp {
    let put = PutRequest { key, value, lease, ..PutRequest::default() };
    RequestOp { request: Some(Request::Put(put)) }
}

pub(super) fn delete(key: Vec<u8>, range_end: Vec<u8>) -> RequestOp {
    RequestOp { request: Some(Request::Delete(DeleteRangeRequest { key, range_end })) }
}

/// Deletes all keys that begin like this but for one: a transaction must not write a key twice.
fn all_but(prefix: &[u8], kept: Vec<u8>) -> [RequestOp; 2] {
    let behind = [&kept[..], b"\0"].concat();
    [delete(prefix.to_vec(), kept), delete(behind, end_of(prefix))]
}

fn is_put(op: &RequestOp, key: &[u8]) -> bool {
    matches!(&op.request, Some(Request::Put(put)) if put.key == key)
}

/// Whether a key was last written at this revision; zero for one that is not there.
pub(super) fn is_version(key: Vec<u8>, version: i64) -> Compare {
    let union = Some(Target::ModRevision(version));
    Compare { result: EQUAL, target: MOD, key, union, range_end: Vec::new() }
}

/// Whether there is a key in the range.
pub(super) fn exists(key: Vec<u8>, range_end: Vec<u8>) -> Compare {
    let union = Some(Target::CreateRevision(0));
    Compare { result: GREATER, target: CREATE, key, union, range_end }
}

/// What the answer at that place has read.
pub(super) fn kvs(answers: &TxnResponse, at: usize) -> &[KeyValue] {
    match answers.responses.get(at).and_then(|answer| answer.response.as_ref()) {
        Some(Response::Range(range)) => &range.kvs,
        _ => &[],
    }
}

/// The token of a hold, and about when it ends, by the time of day.
fn parse_hold(value: &[u8]) -> Option<(Token, u64)> {
    let (token, until_us) = std::str::from_utf8(value).ok()?.split_once(' ')?;
    Some((Token::parse(token.as_bytes())?, until_us.parse().ok()?))
}

pub(super) fn shown(key: &[u8]) -> String {
    String::from_utf8_lossy(key).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn however_many_hold_a_lock_they_are_deleted_in_two_ranges_around_the_next() {
        let keys = Keys::new("p/".to_owned());
        let name = Name::new("a").unwrap();
        let kept = keys.hold(&name, None, 12);
        let ranges = all_but(&keys.holds(&name), kept.clone());
        let is_deleted = |key: &[u8]| {
            ranges.iter().any(|op| {
                let Some(Request::Delete(range)) = &op.request else { return false };
                range.key.as_slice() <= key && key < range.range_end.as_slice()
            })
        };
        assert!(!is_deleted(&kept));
        for who in [None, Some(ParticipantId(0)), Some(ParticipantId(u64::MAX))] {
            for seconds in [1, 3, 11, 13, 120] {
                assert!(is_deleted(&keys.hold(&name, who, seconds)), "{who:?} {seconds}");
            }
        }
    }

    #[test]
    fn who_was_not_heard_of_while_it_waited_may_have_missed_its_turn() {
        let at = |millis| Moment::default().after(Duration::from_millis(millis));
        let mut life = Life::default();
        life.wait(at(1), at(30_000));
        assert!(!life.say(at(0)), "the first sign");
        assert!(!life.say(at(2_999)));
        assert!(life.say(at(6_000)), "it stood still");
        assert!(!life.say(at(7_500)));
        // It waited for nothing meanwhile.
        life.wait(at(60_000), at(90_000));
        assert!(!life.say(at(60_000)));
        assert!(life.say(at(63_000)));
    }
}
