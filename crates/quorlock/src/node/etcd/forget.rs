//! Having a cluster forget locks.

use std::sync::Arc;

use super::address::Address;
use super::client::Client;
use super::store::EtcdStore;
use super::{LEAST_FOR_MEMBER, USUAL_LIMIT};
use crate::Error;
use crate::admin::forget::Kept;
use crate::name::Name;
use crate::node::cas::{Store as _, Written, fence_forgotten};
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
    let client = Client::new(&address, USUAL_LIMIT.max(LEAST_FOR_MEMBER))?;
    Ok(Box::pin(async move {
        let store = EtcdStore::new(client, address.prefix, context.client, &context.runtime);
        (address.label, forget_all(&store, &names).await)
    }))
}

/// Has a cluster forget the fence of a free lock if it is above what any holder can have been given. Says whether it
/// has.
pub(in crate::node) fn forget_fence(
    index: usize,
    url: &str,
    context: &NodeContext,
    name: &Name,
) -> Result<BoxFuture<'static, Kept>, Error> {
    let address = Address::parse(index, url)?;
    let (context, name) = (context.clone(), name.clone());
    let client = Client::new(&address, USUAL_LIMIT.max(LEAST_FOR_MEMBER))?;
    Ok(Box::pin(async move {
        let store = EtcdStore::new(client, address.prefix, context.client, &context.runtime);
        (address.label, forget_fence_in(&store, &name, &context).await)
    }))
}

async fn forget_fence_in(
    store: &EtcdStore,
    name: &Name,
    context: &NodeContext,
) -> Result<i64, Failure> {
    loop {
        let found = store.read(name).await?;
        let Some(change) = fence_forgotten(&found, wall_us(&*context.runtime)) else {
            return Ok(0);
        };
        if let Written::Done(_) = store.write(name, &found, &change).await? {
            return Ok(1);
        }
    }
}

/// Returns how many are held or waited for, and were not changed.
pub(super) async fn forget_all(store: &EtcdStore, names: &[Name]) -> Result<i64, Failure> {
    let mut kept = 0;
    for name in names {
        kept += i64::from(!store.forget(name).await?);
    }
    Ok(kept)
}
