//! Leases: what makes records end by themselves.
//!
//! A lease is granted, used for some seconds, and never kept alive. A member that has been stopped may say that a
//! lease was kept alive though another leader has ended it, but it cannot grant one: that takes the cluster. So what a
//! client believes rests on the grant alone: a record lasts for the lease's time after the grant was *asked for*, at
//! the least, by a clock of the right rate.
//!
//! Locks of one TTL share a lease. It is granted for some seconds more than their TTL, so that for these seconds it
//! lasts long enough for any of them. It is replaced in good time while it is in use.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::client::{Client, Trouble};
use super::messages::{
    LeaseGrantRequest, LeaseGrantResponse, PutRequest, RangeRequest, RangeResponse, Request,
    RequestOp, TxnRequest, TxnResponse,
};
use super::store::is_version;
use crate::locked::locked;
use crate::node::{Failure, FailureKind};
use crate::runtime::{Moment, Runtime, wall_us};

/// For so long a lease is used for new records.
const SLACK: Duration = Duration::from_secs(2);
/// A lease of this age is replaced when it is used.
const REPLACED_AT: Duration = Duration::from_secs(1);
/// What is kept of a lock that nobody holds is kept for so long: after a day the time of day alone makes every new
/// fence higher.
const REST_SECONDS: i64 = 26 * 3_600;
/// The lease for that is shared by all clients, and replaced so often.
const REST_REPLACED_AFTER: Duration = Duration::from_secs(3_600);

/// The leases of one client.
#[derive(Debug)]
pub(super) struct Leases {
    client: Arc<Client>,
    runtime: Arc<dyn Runtime>,
    /// Where the lease of what is kept of free locks is found.
    rest_key: Vec<u8>,
    pool: Mutex<HashMap<u64, Pooled>>,
    /// One grant at a time.
    granting: tokio::sync::Mutex<()>,
    rest: Mutex<Option<(i64, Moment)>>,
}

/// A lease for locks of one TTL.
#[derive(Debug, Clone, Copy)]
struct Pooled {
    id: i64,
    /// Read before it was asked for.
    asked: Moment,
    lasts: Duration,
    is_being_replaced: bool,
}

/// What a record is attached to.
#[derive(Debug, Clone, Copy)]
pub(super) struct Lease {
    pub(super) id: i64,
    /// For how many seconds it was asked for.
    pub(super) seconds: u64,
}

impl Leases {
    pub(super) fn new(client: &Arc<Client>, rest_key: Vec<u8>, runtime: &Arc<dyn Runtime>) -> Self {
        Self {
            client: Arc::clone(client),
            runtime: Arc::clone(runtime),
            rest_key,
            pool: Mutex::default(),
            granting: tokio::sync::Mutex::default(),
            rest: Mutex::default(),
        }
    }

    /// A lease that lasts so long from now on, at the least.
    pub(super) async fn lasting(self: &Arc<Self>, ttl: Duration) -> Result<Lease, Failure> {
        let seconds = whole_seconds(ttl);
        if let Some(lease) = self.pooled(seconds, ttl) {
            return Ok(lease);
        }
        let _one_at_a_time = self.granting.lock().await;
        if let Some(lease) = self.pooled(seconds, ttl) {
            return Ok(lease);
        }
        self.grant(seconds).await?;
        self.pooled(seconds, ttl).ok_or_else(|| {
            let text = format!("a lease of {seconds} s was granted too late to be of use");
            Failure::new(FailureKind::Unreachable, text)
        })
    }

    /// One that is there and lasts long enough.
    fn pooled(self: &Arc<Self>, seconds: u64, ttl: Duration) -> Option<Lease> {
        let now = self.runtime.now();
        let mut pool = locked(&self.pool);
        let lease = pool.get_mut(&seconds)?;
        let age = now.since(lease.asked);
        if age.saturating_add(ttl) > lease.lasts || age > SLACK {
            return None;
        }
        let id = lease.id;
        if age > REPLACED_AT && !lease.is_being_replaced {
            lease.is_being_replaced = true;
            let leases = Arc::clone(self);
            self.runtime.spawn(Box::pin(async move {
                // If it fails, the next that needs one says so.
                let _ = leases.grant(seconds).await;
            }));
        }
        Some(Lease { id, seconds })
    }

    async fn grant(&self, seconds: u64) -> Result<(), Failure> {
        let asked = self.runtime.now();
        let ttl = i64::try_from(seconds).unwrap_or(i64::MAX);
        let (id, lasts) = self.grant_one(ttl).await?;
        let mut pool = locked(&self.pool);
        // Those that nobody has used for long.
        pool.retain(|_, lease| asked.since(lease.asked) <= lease.lasts);
        pool.insert(seconds, Pooled { id, asked, lasts, is_being_replaced: false });
        Ok(())
    }

    /// Returns its id, and for how long it lasts.
    async fn grant_one(&self, ttl: i64) -> Result<(i64, Duration), Failure> {
        let request = LeaseGrantRequest { ttl, id: 0 };
        let path = "/etcdserverpb.Lease/LeaseGrant";
        let granted: LeaseGrantResponse =
            self.client.call(path, request).await.map_err(Trouble::failure)?;
        if granted.id == 0 || granted.ttl < ttl || !granted.error.is_empty() {
            let text = format!("it does not grant a lease of {ttl} s: {}", granted.error);
            return Err(Failure::new(FailureKind::Rejected, text));
        }
        let lasts = Duration::from_secs(u64::try_from(granted.ttl).unwrap_or(0));
        Ok((granted.id, lasts))
    }

    /// The lease of what is kept of locks that nobody holds.
    pub(super) async fn rest(&self) -> Result<i64, Failure> {
        let now = self.runtime.now();
        if let Some((id, since)) = *locked(&self.rest)
            && now.since(since) < REST_REPLACED_AFTER
        {
            return Ok(id);
        }
        let _one_at_a_time = self.granting.lock().await;
        let id = self.share_rest().await.map_err(Trouble::failure)?;
        *locked(&self.rest) = Some((id, now));
        Ok(id)
    }

    /// Takes the lease that others use, or has them use a new one.
    async fn share_rest(&self) -> Result<i64, Trouble> {
        let key = self.rest_key.clone();
        let get = RangeRequest { key: key.clone(), ..RangeRequest::default() };
        let seen: RangeResponse = self.client.call("/etcdserverpb.KV/Range", get).await?;
        let hour = wall_us(&*self.runtime) / 1_000_000 / REST_REPLACED_AFTER.as_secs();
        let there = seen.kvs.first();
        if let Some((id, since)) = there.and_then(|kv| parse_rest(&kv.value))
            && since >= hour.saturating_sub(1)
        {
            return Ok(id);
        }
        let (id, _) = self.grant_one(REST_SECONDS).await?;
        let value = format!("{id} {hour}").into_bytes();
        let put = PutRequest { key: key.clone(), value, lease: id, ..PutRequest::default() };
        let version = there.map_or(0, |kv| kv.mod_revision);
        let txn = TxnRequest {
            compare: vec![is_version(key, version)],
            success: vec![RequestOp { request: Some(Request::Put(put)) }],
            failure: Vec::new(),
        };
        // If another was faster, both leases serve.
        let _: TxnResponse = self.client.call("/etcdserverpb.KV/Txn", txn).await?;
        Ok(id)
    }

    /// One of the leases is gone: all are asked for anew.
    pub(super) fn forget(&self) {
        locked(&self.pool).clear();
        *locked(&self.rest) = None;
    }
}

/// For how many seconds a lease for records of this TTL is asked for.
fn whole_seconds(ttl: Duration) -> u64 {
    let more = u64::from(ttl.subsec_nanos() > 0);
    ttl.as_secs().saturating_add(more).saturating_add(SLACK.as_secs())
}

/// Its id, and the hour since which it is used.
fn parse_rest(value: &[u8]) -> Option<(i64, u64)> {
    let (id, hour) = std::str::from_utf8(value).ok()?.split_once(' ')?;
    Some((id.parse().ok()?, hour.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_outlasts_the_ttl_by_the_time_in_which_it_is_used() {
        let ms = Duration::from_millis;
        for (ttl, seconds) in [(ms(1), 3), (ms(1_000), 3), (ms(1_001), 4), (ms(10_000), 12)] {
            assert_eq!(whole_seconds(ttl), seconds);
            assert!(Duration::from_secs(seconds) >= ttl + SLACK);
        }
    }

    #[test]
    fn what_cannot_be_read_is_no_lease() {
        assert_eq!(parse_rest(b"7 5"), Some((7, 5)));
        for text in [&b""[..], b"7", b"x 5", b"7 x", b"\xff 5"] {
            assert_eq!(parse_rest(text), None);
        }
    }
}
