//! Reading lines, and changing them: one transaction for each change.

use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::timeout;
use tonic::Streaming;

use super::keys::Keys;
use super::line::{Contender, Line};
use crate::locked::locked;
use crate::name::Name;
use crate::node::contenders::Turns;
use crate::node::etcd::client::{Client, Trouble};
use crate::node::etcd::keys::end_of;
use crate::node::etcd::leases::{Lease, Leases};
use crate::node::etcd::messages::{
    ASCENDING, BY_CREATION, Compare, EQUAL, LeaseTimeToLiveRequest, LeaseTimeToLiveResponse,
    NO_PUT, PutRequest, RangeRequest, RangeResponse, Request, RequestOp, Target, TxnRequest,
    TxnResponse, WatchResponse,
};
use crate::node::etcd::messages::{CREATE, Response};
use crate::node::etcd::store::delete;
use crate::node::{Failure, FailureKind, Inbox, Listed};
use crate::runtime::Runtime;

const TXN: &str = "/etcdserverpb.KV/Txn";
const RANGE: &str = "/etcdserverpb.KV/Range";
/// So many who want one lock are read at once.
const MOST_READ: i64 = 256;
/// So many keys are read at once for a list.
const KEYS_PER_LIST: i64 = 1_024;
/// So many keys are deleted at once. A cluster refuses transactions of more than 128 operations by default.
const MOST_DELETED: usize = 64;
/// So often it is seen to that a key is gone which may still be made.
const SWEEP: Duration = Duration::from_millis(250);

/// A cluster in which locks lie as Go's `concurrency.Mutex` lays them, as one client sees it.
#[derive(Debug)]
pub(super) struct MutexStore {
    pub(super) client: Arc<Client>,
    pub(super) keys: Keys,
    pub(super) leases: Arc<Leases>,
    pub(super) runtime: Arc<dyn Runtime>,
    pub(super) turns: Turns,
    inbox: Mutex<Option<(usize, Weak<dyn Inbox>)>>,
    /// For a watch to begin in.
    limit: Duration,
    /// Whether the client wants nothing more.
    pub(super) is_closed: watch::Sender<bool>,
}

impl MutexStore {
    pub(super) fn new(
        client: Arc<Client>,
        prefix: String,
        runtime: &Arc<dyn Runtime>,
        limit: Duration,
    ) -> Self {
        Self {
            // Nothing is kept of locks that nobody holds.
            leases: Arc::new(Leases::new(&client, Vec::new(), runtime)),
            client,
            keys: Keys::new(prefix),
            runtime: Arc::clone(runtime),
            turns: Turns::default(),
            inbox: Mutex::default(),
            limit,
            is_closed: watch::Sender::new(false),
        }
    }

    pub(super) async fn txn(&self, txn: TxnRequest) -> Result<TxnResponse, Trouble> {
        self.client.call(TXN, txn).await
    }

    /// Runs what names a lease that lasts so long from now on, at the least.
    pub(super) async fn txn_with_lease(
        &self,
        ttl: Duration,
        mut make: impl FnMut(Lease) -> TxnRequest,
    ) -> Result<TxnResponse, Failure> {
        loop {
            let lease = self.leases.lasting(ttl).await?;
            match self.txn(make(lease)).await {
                Ok(answer) => return Ok(answer),
                // It was of use for less long than it should be. Nothing was done.
                Err(Trouble::NoLease) => self.leases.forget(),
                Err(Trouble::Failed(failure)) => return Err(failure),
            }
        }
    }

    /// Fails if this user cannot read behind the prefix. Without one, nobody knows yet which keys it will be.
    pub(super) async fn try_rights(&self) -> Result<(), Failure> {
        let key = self.keys.all();
        if key.is_empty() {
            return Ok(());
        }
        let range = RangeRequest { key, limit: 1, ..RangeRequest::default() };
        let read: Result<RangeResponse, _> = self.client.call(RANGE, range).await;
        read.map(|_| ()).map_err(Trouble::failure)
    }

    /// The request that reads who wants a lock.
    pub(super) fn reads(&self, name: &Name) -> RequestOp {
        RequestOp { request: Some(Request::Range(self.range(name, 0))) }
    }

    fn range(&self, name: &Name, min_create_revision: i64) -> RangeRequest {
        let key = self.keys.line(name);
        RangeRequest {
            range_end: end_of(&key),
            key,
            limit: MOST_READ,
            sort_order: ASCENDING,
            sort_target: BY_CREATION,
            min_create_revision,
        }
    }

    /// What the answer to [`reads`](Self::reads) at that place says.
    pub(super) async fn line(
        &self,
        name: &Name,
        answers: &TxnResponse,
        at: usize,
    ) -> Result<Line, Failure> {
        let answer = answers.responses.get(at).and_then(|answer| answer.response.as_ref());
        match answer {
            Some(Response::Range(range)) if range.more => self.read(name).await,
            Some(Response::Range(range)) => Ok(Line::new(&self.keys.line(name), range.kvs.clone())),
            _ => Err(Failure::new(FailureKind::Broken, "a transaction was answered only in part")),
        }
    }

    /// Who wants a lock, as of no earlier than the call.
    pub(super) async fn read(&self, name: &Name) -> Result<Line, Failure> {
        let (mut all, mut from) = (Vec::new(), 0);
        loop {
            // Who comes between two pages stands behind all of them.
            let page: RangeResponse =
                self.client.call(RANGE, self.range(name, from)).await.map_err(Trouble::failure)?;
            all.extend(page.kvs);
            match all.last() {
                Some(last) if page.more => from = last.create_revision + 1,
                _ => return Ok(Line::new(&self.keys.line(name), all)),
            }
        }
    }

    /// For how long the lease of a client of another library lasts unless it is kept alive.
    pub(super) async fn lease_remaining(&self, id: i64) -> Option<Duration> {
        let path = "/etcdserverpb.Lease/LeaseTimeToLive";
        let answer: LeaseTimeToLiveResponse =
            self.client.call(path, LeaseTimeToLiveRequest { id }).await.ok()?;
        u64::try_from(answer.ttl).ok().map(Duration::from_secs)
    }

    /// Watches who leaves a line. What is read after this is at least as new as the beginning of the watch.
    pub(super) async fn watch_line(&self, name: &Name) -> Option<Streaming<WatchResponse>> {
        let at = self.client.active();
        match timeout(self.limit, self.client.watch(self.keys.line(name), NO_PUT)).await {
            Ok(Ok(stream)) => Some(stream),
            Ok(Err(status)) => {
                self.client.passed_over(at, &self.client.trouble(&status).failure());
                None
            }
            Err(_) => {
                let text = format!("it begins no watch within {:?}", self.limit);
                self.client.passed_over(at, &Failure::new(FailureKind::Silent, text));
                None
            }
        }
    }

    /// Deletes the key of one who wants a lock. Returns whether it was there.
    pub(super) async fn remove(&self, key: &[u8], place: i64) -> Result<bool, Failure> {
        let success = vec![delete(key.to_vec(), Vec::new())];
        let compare = vec![has_place(key.to_vec(), place)];
        let txn = TxnRequest { compare, success, failure: Vec::new() };
        self.txn(txn).await.map(|answer| answer.succeeded).map_err(Trouble::failure)
    }

    /// Sees to it that a key is gone which may still be made until `until`: by a request that was not answered.
    pub(super) fn sweep(self: &Arc<Self>, key: Vec<u8>, until: quorlock_protocol::Moment) {
        let store = Arc::clone(self);
        self.runtime.spawn(Box::pin(async move {
            while store.runtime.now() < until {
                store.runtime.sleep(SWEEP).await;
                let success = vec![delete(key.clone(), Vec::new())];
                let compare = vec![is_there(key.clone())];
                let txn = TxnRequest { compare, success, failure: Vec::new() };
                // It is made once at the most.
                if store.txn(txn).await.is_ok_and(|answer| answer.succeeded) {
                    return;
                }
            }
        }));
    }

    /// Some of the locks that are held by clients of this library.
    pub(super) async fn list(&self, from: &[u8]) -> Result<Listed, Failure> {
        let all = self.keys.all();
        // No key is empty: this is the first that there can be.
        let start = if all.is_empty() { b"\0".to_vec() } else { all.clone() };
        let (range_end, limit) = (end_of(&all), KEYS_PER_LIST);
        let key = if from.is_empty() { start } else { from.to_vec() };
        let range = RangeRequest { key, range_end, limit, ..RangeRequest::default() };
        let page: RangeResponse = self.client.call(RANGE, range).await.map_err(Trouble::failure)?;
        let last = page.kvs.last().map(|kv| kv.key.clone());
        let mut contenders: Vec<_> = page.kvs.into_iter().map(Contender::new).collect();
        let mut next = last.filter(|_| page.more).map(|last| [&*last, b"\0"].concat());
        if let Some(last) = contenders.last().filter(|_| next.is_some()) {
            // Others of the last line may be on the next page, which then begins with them all.
            let line = Keys::line_of(&last.key).map(<[u8]>::to_vec);
            let is_last = |other: &Contender| Keys::line_of(&other.key) == line.as_deref();
            let whole = contenders.iter().position(is_last).unwrap_or_default();
            if whole > 0 {
                next = Some(contenders[whole].key.clone());
                contenders.truncate(whole);
            }
        }
        Ok(Listed { names: self.held(&contenders), next })
    }

    /// The names of the locks that are held by clients of this library, of those whose lines are there.
    fn held(&self, contenders: &[Contender]) -> Vec<Name> {
        let mut firsts = std::collections::BTreeMap::<&[u8], &Contender>::new();
        for contender in contenders {
            if let Some(line) = Keys::line_of(&contender.key) {
                let first = firsts.entry(line).or_insert(contender);
                if contender.place < first.place {
                    *first = contender;
                }
            }
        }
        let ours = firsts.into_iter().filter(|(_, first)| first.ours.is_some());
        ours.filter_map(|(line, _)| self.keys.name_of(line)).collect()
    }

    pub(super) fn set_inbox(&self, node: usize, inbox: Weak<dyn Inbox>) {
        *locked(&self.inbox) = Some((node, inbox));
    }

    pub(super) fn tell(&self, what: impl FnOnce(usize, &dyn Inbox)) {
        let to = locked(&self.inbox).clone();
        if let Some((node, inbox)) = to
            && let Some(inbox) = inbox.upgrade()
        {
            what(node, &*inbox);
        }
    }

    /// The client wants nothing more: nobody waits for what it waited for. What it holds may be another process's.
    pub(super) async fn leave_all(&self) {
        self.is_closed.send_replace(true);
        for some in self.turns.end_all().chunks(MOST_DELETED) {
            let success = some.iter().map(|key| delete(key.clone(), Vec::new())).collect();
            // If it fails, they end with their leases.
            let _ = self.txn(TxnRequest { success, ..TxnRequest::default() }).await;
        }
    }
}

/// A put of a value with a lease.
pub(super) fn put(key: Vec<u8>, value: Vec<u8>, lease: Lease) -> RequestOp {
    let put = PutRequest { key, value, lease: lease.id, ..PutRequest::default() };
    RequestOp { request: Some(Request::Put(put)) }
}

/// Whether a key was made at this revision; zero for one that is not there.
pub(super) fn has_place(key: Vec<u8>, place: i64) -> Compare {
    let union = Some(Target::CreateRevision(place));
    Compare { result: EQUAL, target: CREATE, key, union, range_end: Vec::new() }
}

fn is_there(key: Vec<u8>) -> Compare {
    crate::node::etcd::store::exists(key, Vec::new())
}

/// Whether nobody wants a lock, nor any whose name begins with its own and a slash.
pub(super) fn is_empty(line: Vec<u8>) -> Compare {
    let range_end = end_of(&line);
    Compare { range_end, ..has_place(line, 0) }
}
