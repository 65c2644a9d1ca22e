//! Locks in etcd that are shared with clients of its Go library, `etcd+mutex://a:2379,b:2379,c:2379[/prefix]`: they lie
//! there as `concurrency.Mutex` lays them, which is how `etcdctl lock` and etcd's lock service lay them too.
//!
//! ```text
//!   NAME/694d8a7e11a0c30e   made at revision 41   holds the lock: the lowest
//!   NAME/1f30c8d2aa90be17                    44   waits for 41
//!   NAME/694d8a7e11a0c315                    52   waits for 41 and 44
//! ```
//!
//! Each who wants the lock puts a key with a lease. Places are given out by etcd, so that all take turns, whatever
//! library they use, and the place of a holder is its fence.
//!
//! # Time
//!
//! Go's clients have their lease kept alive, and believe what the cluster says of that. Here nobody has to: a key that
//! is put again with another lease keeps its place, and each lease that we use was [granted](super::leases). So this
//! half of the clients is as safe as with `etcd://`, and the other half as safe as it is without us.
//!
//! # Differences from `etcd://`
//!
//! Fences and places cannot be proposed, and so none can be reserved for others of a process: each holder asks the
//! cluster. One lock is held by one process at a time, whose token may go to another one. Who waits is put into the line
//! by a write, and a waiter that dies holds up those behind it until its key ends.
//!
//! Files: `keys` says what lies where, `line` who wants a lock, `store` reads and changes
//! lines, `verbs` are what nodes do, `turns` waits, `examine` reports on the cluster, and on what is shared.

mod examine;
mod keys;
mod line;
mod store;
mod turns;
mod verbs;

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;

use super::address::Address;
use super::client::Client;
use super::{LEAST_FOR_MEMBER, MEMBERS_TRIED, USUAL_LIMIT};
use crate::Error;
use crate::admin::init::Look;
use crate::node::kinds::{Kind, KindTerms};
use crate::node::lanes::{LaneNode, Readiness, kept_back};
use crate::node::{Capabilities, Login, NodeContext};
use quorlock_protocol::Drift;
use store::MutexStore;

/// etcd clusters with locks as Go's clients know them.
pub(in crate::node) const KIND: Kind = Kind {
    schemes: &[("etcd+mutex", Login::BeforeHost), ("etcds+mutex", Login::BeforeHost)],
    bare_scheme: false,
    looks_like: "etcd+mutex://HOST,HOST",
    forms: "etcd[s]+mutex://[USER:PASSWORD@]HOST[:PORT][,HOST[:PORT]...][/PREFIX]",
    has_markers: false,
    is_local: false,
    default_url: None,
    resolve: |_, _, _| Ok(()),
    terms: |_| KindTerms::default(),
    member: super::label,
    open: |index, url, context| Ok(Arc::new(open(index, url, context)?)),
    examine: examine::examine,
    init: |index, url, _| {
        let label = super::label(index, url)?;
        Ok(Box::pin(async { Look::without_marker(label) }))
    },
    forget: examine::forget,
    // Fences are the cluster's own.
    forget_fence: |index, url, _, _| {
        let label = super::label(index, url)?;
        Ok(Box::pin(async { (label, Ok(0)) }))
    },
};

fn capabilities() -> Capabilities {
    Capabilities::new()
        .drift(Drift { base: Duration::from_millis(2), per_mille: 10 })
        .ttls(super::TTLS)
        .usual_limit(USUAL_LIMIT)
        .stands_alone()
        .queues()
        .own_order()
        .without_participants()
}

/// The cluster behind a URL, which is connected to in the background.
fn open(
    index: usize,
    url: &str,
    context: &NodeContext,
) -> Result<LaneNode<Arc<MutexStore>>, Error> {
    let address = Address::parse(index, url)?;
    let limit = super::limit(context);
    let store =
        Arc::new(store_at(&address, (limit / MEMBERS_TRIED).max(LEAST_FOR_MEMBER), context)?);
    let (known, readiness) = watch::channel(None);
    context.runtime.spawn(Box::pin(connect(Arc::clone(&store), known, kept_back(limit, context))));
    Ok(LaneNode::serve(address.label, store, readiness, capabilities(), limit, context))
}

/// The locks of a cluster. `limit` is for one member to answer in.
fn store_at(
    address: &Address,
    limit: Duration,
    context: &NodeContext,
) -> Result<MutexStore, Error> {
    let client = Arc::new(Client::new(address, limit)?);
    let prefix = address.prefix.clone();
    Ok(MutexStore::new(client, prefix, &context.runtime, limit))
}

async fn connect(store: Arc<MutexStore>, known: watch::Sender<Readiness>, kept_back: Duration) {
    let mut closed = store.is_closed.subscribe();
    tokio::select! {
        _ = closed.wait_for(|is| *is) => {}
        () = super::greet(&store.client, &known, kept_back, || store.try_rights()) => {
            known.send_replace(Some(Ok(capabilities())));
        }
    }
}
