//! What an ensemble is, and what its locks rest on when they are shared; and having it forget some.

use std::sync::Arc;

use super::{USUAL_LIMIT, store_at};
use crate::Error;
use crate::admin::examine::{Examination, Unnotified, try_out};
use crate::admin::forget::Kept;
use crate::name::Name;
use crate::node::zookeeper::address::Address;
use crate::node::zookeeper::examine::{diagnose_ensemble, diagnose_members};
use crate::node::{Failure, Node, NodeContext};
use crate::runtime::BoxFuture;

const UNNOTIFIED: Unnotified = Unnotified::Wrong(
    "let this user read, create and delete nodes below CHROOT/NAME: a watch there says whose turn it is",
);

/// Looks an ensemble over.
pub(super) fn examine(
    index: usize,
    url: &str,
    context: &NodeContext,
    name: &[u8],
) -> Result<BoxFuture<'static, Examination>, Error> {
    let address = Address::parse(index, url)?;
    let store = store_at(&address, USUAL_LIMIT, context)?;
    let opened = super::open(index, url, context).map(|node| Arc::new(node) as Arc<dyn Node>);
    let (context, name) = (context.clone(), name.to_vec());
    Ok(Box::pin(async move {
        let mut examination = Examination::new(address.label.as_str());
        examination.text("kind", "zookeeper, shared with Curator");
        examination.text("chroot", store.paths.top());
        let is_secure = address.tls.is_some();
        let looked = async {
            let connection = diagnose_members(&mut examination, &store.client, is_secure).await?;
            diagnose_ensemble(&mut examination, &connection).await;
            connection.close().await;
            Ok::<(), Failure>(())
        };
        if let Err(failure) = looked.await {
            examination.fail(&failure);
            return examination;
        }
        examination.ok(
            "shared",
            "with clients of Curator: a lock lasts as long as the session of its holder, by the word of the ensemble, and \
             no longer than a process that stands still; let the resource check fences",
        );
        // Nothing is kept of what is tried out.
        try_out(&mut examination, opened, &context, &name, UNNOTIFIED).await;
        examination
    }))
}

/// Nothing is kept of a lock that nobody holds: says how many of these are held or waited for.
pub(super) fn forget(
    index: usize,
    url: &str,
    context: &NodeContext,
    names: &Arc<[Name]>,
) -> Result<BoxFuture<'static, Kept>, Error> {
    let address = Address::parse(index, url)?;
    let store = store_at(&address, USUAL_LIMIT, context)?;
    let names = Arc::clone(names);
    Ok(Box::pin(async move {
        let count = async {
            let (events, _reports) = tokio::sync::mpsc::unbounded_channel();
            let (_, connection) = store.client.dial(&events).await?;
            let mut kept = 0;
            for name in &*names {
                let line = store.read(&connection, &store.paths.lock(name)).await;
                kept += i64::from(line.map_err(|it| store.failure(it))?.len() > 0);
            }
            connection.close().await;
            Ok::<i64, Failure>(kept)
        };
        (address.label, count.await)
    }))
}
