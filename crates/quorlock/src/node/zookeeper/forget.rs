//! Having an ensemble forget locks.

use std::sync::Arc;

use tokio::sync::mpsc::unbounded_channel;

use super::USUAL_LIMIT;
use super::address::Address;
use super::client::Client;
use super::keys::bucket_of;
use super::store::{Version, ZooKeeperStore};
use super::trouble::Trouble;
use super::wire::{Code, Request};
use crate::Error;
use crate::admin::forget::Kept;
use crate::name::Name;
use crate::node::cas::{Change, Found, HoldChange, Written, fence_forgotten};
use crate::node::{Failure, NodeContext};
use crate::runtime::{BoxFuture, wall_us};

pub(in crate::node) fn forget(
    index: usize,
    url: &str,
    context: &NodeContext,
    names: &Arc<[Name]>,
) -> Result<BoxFuture<'static, Kept>, Error> {
    let address = Address::parse(index, url)?;
    let (context, names) = (context.clone(), Arc::clone(names));
    let client = Client::new(&address, USUAL_LIMIT)?;
    Ok(Box::pin(async move {
        let store = ZooKeeperStore::new(client, context.client, &context.runtime);
        (address.label, forget_all(&store, &names).await)
    }))
}

/// Has an ensemble forget the fence of a free lock if it is above what any holder can have been given. Says whether it
/// has.
pub(in crate::node) fn forget_fence(
    index: usize,
    url: &str,
    context: &NodeContext,
    name: &Name,
) -> Result<BoxFuture<'static, Kept>, Error> {
    let address = Address::parse(index, url)?;
    let (context, name) = (context.clone(), name.clone());
    let client = Client::new(&address, USUAL_LIMIT)?;
    Ok(Box::pin(async move {
        let store = ZooKeeperStore::new(client, context.client, &context.runtime);
        (address.label, forget_fence_in(&store, &name).await)
    }))
}

async fn forget_fence_in(store: &ZooKeeperStore, name: &Name) -> Result<i64, Failure> {
    let (created, _reports) = unbounded_channel();
    let (_, connection) = store.client.dial(&created).await?;
    store.client.set_up(&connection);
    let forgotten = store.forget_fence(name).await;
    connection.close().await;
    forgotten.map(i64::from)
}

/// Returns how many are held or waited for, and were not changed.
pub(super) async fn forget_all(store: &ZooKeeperStore, names: &[Name]) -> Result<i64, Failure> {
    let (created, _reports) = unbounded_channel();
    let (_, connection) = store.client.dial(&created).await?;
    store.client.set_up(&connection);
    let mut kept = 0;
    for name in names {
        kept += i64::from(!store.forget(name).await?);
    }
    connection.close().await;
    Ok(kept)
}

impl ZooKeeperStore {
    /// Deletes a lock that nobody holds or waits for. Returns whether nothing is left of it.
    pub(super) async fn forget(&self, name: &Name) -> Result<bool, Failure> {
        loop {
            let found = self.read_now(name).await?;
            let Some(found) = self.judged(name, found).await? else { continue };
            if !found.holds.is_empty() || found.state.is_waited_for() {
                return Ok(false);
            }
            if self.delete(name, &found).await? {
                return Ok(true);
            }
        }
    }

    /// Forgets a fence that no holder can have been given, if nobody holds the lock. Returns whether there was one.
    async fn forget_fence(&self, name: &Name) -> Result<bool, Failure> {
        loop {
            let found = self.read_now(name).await?;
            let Some(found) = self.judged(name, found).await? else { continue };
            let Some(change) = fence_forgotten(&found, wall_us(&*self.runtime)) else {
                return Ok(false);
            };
            match self.write_now(name, &found, &change).await? {
                Written::Done(_) | Written::Apart(..) => return Ok(true),
                Written::Conflict(_) | Written::Gone => {}
            }
        }
    }

    /// The same, with the holds that are known to be over left out: that takes a write. `None` if another client was
    /// faster.
    pub(super) async fn judged(&self, name: &Name, found: Found) -> Result<Option<Found>, Failure> {
        let now = self.runtime.now();
        if !found.may_be_over(now) {
            return Ok(Some(found));
        }
        let state = found.state.clone();
        let touch = Change { state, holds: HoldChange::Keep, only_if_held: false, message: None };
        Ok(match self.write_now(name, &found, &touch).await? {
            Written::Done(now) | Written::Apart(now, _) => Some(now),
            Written::Conflict(_) | Written::Gone => None,
        })
    }

    /// Deletes a lock if this is what is there. Returns whether nothing is left of it.
    pub(super) async fn delete(&self, name: &Name, found: &Found) -> Result<bool, Failure> {
        let version = Version::unpack(found.version);
        let Some(own) = version.own else { return Ok(true) };
        let (keys, bucket) = (&self.client.keys, bucket_of(name));
        let parts = [
            Request::set_data(&keys.bucket(bucket), &[], version.epoch),
            Request::delete_version(&keys.lock(name), own),
        ];
        let connection = self.client.connection().await?;
        let done = connection.multi(&parts).await.map_err(|trouble| self.failure(trouble))?;
        match done.iter().find_map(|part| part.err().filter(|code| *code != Code::OTHER_PART)) {
            None => Ok(true),
            Some(Code::OTHER_VERSION | Code::NO_NODE) => Ok(false),
            Some(code) => Err(self.failure(Trouble::Code(code))),
        }
    }
}
