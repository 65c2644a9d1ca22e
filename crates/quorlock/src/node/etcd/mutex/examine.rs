//! What a cluster is, and what its locks rest on when they are shared; and having it forget some.

use std::sync::Arc;

use super::{LEAST_FOR_MEMBER, USUAL_LIMIT, store_at};
use crate::Error;
use crate::admin::examine::{Examination, Unnotified, try_out};
use crate::admin::forget::Kept;
use crate::name::Name;
use crate::node::etcd::address::Address;
use crate::node::etcd::examine::look;
use crate::node::{Failure, Node, NodeContext};
use crate::runtime::BoxFuture;

const UNNOTIFIED: Unnotified = Unnotified::Wrong(
    "let this user read and write all keys behind the prefix: a watch on them says whose turn it is",
);

/// Looks a cluster over.
pub(super) fn examine(
    index: usize,
    url: &str,
    context: &NodeContext,
    name: &[u8],
) -> Result<BoxFuture<'static, Examination>, Error> {
    let address = Address::parse(index, url)?;
    let store = store_at(&address, USUAL_LIMIT.max(LEAST_FOR_MEMBER), context)?;
    let opened = super::open(index, url, context).map(|node| Arc::new(node) as Arc<dyn Node>);
    let (context, name) = (context.clone(), name.to_vec());
    Ok(Box::pin(async move {
        let mut examination = Examination::new(address.label.as_str());
        examination.text("kind", "etcd, shared with concurrency.Mutex");
        examination.text("prefix", address.prefix.as_str());
        if let Err(failure) = look(&mut examination, &store.client).await {
            examination.fail(&failure);
            return examination;
        }
        examination.ok(
            "shared",
            "with clients of etcd's Go library, whose leases are kept alive: what these believe may outlast their key \
             by the time that a leader stands still; let the resource check fences",
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
    let store = store_at(&address, USUAL_LIMIT.max(LEAST_FOR_MEMBER), context)?;
    let names = Arc::clone(names);
    Ok(Box::pin(async move {
        let count = async {
            let mut kept = 0;
            for name in &*names {
                kept += i64::from(store.read(name).await?.len() > 0);
            }
            Ok::<i64, Failure>(kept)
        };
        (address.label, count.await)
    }))
}
