//! Having an ensemble forget locks.

use std::sync::Arc;

use tokio::sync::mpsc::unbounded_channel;

use super::USUAL_LIMIT;
use super::address::Address;
use super::client::Client;
use super::store::ZooKeeperStore;
use crate::Error;
use crate::admin::forget::Kept;
use crate::name::Name;
use crate::node::{Failure, NodeContext};
use crate::runtime::BoxFuture;

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
