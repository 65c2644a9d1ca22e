//! An etcd cluster as a node, `etcd://a:2379,b:2379,c:2379[/prefix]`: locks that survive the loss of a minority of its
//! members, and that it does not forget.
//!
//! ```text
//!   submit ──▶ cas: verbs, one write each ──▶ store: one transaction ──▶ client: the member that answers
//!                                               └─ leases                     ▲
//!   inbox ◀── grants: a watch ────────────────────────────────────────────────┘
//! ```
//!
//! # Time
//!
//! A record is a key with a lease, and ends when the cluster ends the lease: nobody reads a clock of another machine.
//! What a client believes ends earlier, as it counts from before the lease was asked for. It takes that no clock runs
//! faster or slower than another by more than the drift; how clocks are set does not matter. A lease is never kept
//! alive: `leases` says why.
//!
//! # Order
//!
//! etcd does not run the calls of one connection in their order. The calls of one name wait for each other, and each
//! write names the revision that it was made from. A write that was given up may still run: the next call of that name
//! writes first, after which it cannot.
//!
//! # Waiting
//!
//! The queue of a lock lies beside it. A release writes the record of the first waiter whose client is there, and a
//! message under a key that this client watches. The watch is begun before anything is waited for, since a watch on
//! what has already happened is served only every 100 ms.
//!
//! # Members
//!
//! One member is asked at a time: the one that leads, if the URL names it. If it does not answer, or has no leader, the next
//! one is asked from then on, until there has been an election.
//!
//! Files: `address` reads the URL, `client` calls members, `tls` secures that, `messages` are etcd's own, `keys` says
//! what lies where, `leases` makes records end, `watching` hears what becomes of keys, `store` reads and writes locks, `grants` are the messages, `examine`
//! reports what the cluster is, `forget` clears names away. `mutex` is a kind of its own on the same clusters.

mod address;
mod client;
mod examine;
mod forget;
mod grants;
mod keys;
mod leases;
mod messages;
pub(super) mod mutex;
mod store;
mod tls;
mod watching;

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;

use super::cas::{CasNode, Readiness};
use super::kinds::{Kind, KindTerms};
use super::lanes::kept_back;
use super::{Capabilities, Failure, FailureKind, Login, NodeContext, TtlRange};
use crate::Error;
use crate::admin::init::Look;
use address::Address;
use client::Client;
use quorlock_protocol::Drift;
use store::EtcdStore;

/// etcd clusters.
pub(super) const KIND: Kind = Kind {
    schemes: &[("etcd", Login::BeforeHost), ("etcds", Login::BeforeHost)],
    bare_scheme: false,
    looks_like: "etcd://HOST,HOST",
    forms: "etcd[s]://[USER:PASSWORD@]HOST[:PORT][,HOST[:PORT]...][/PREFIX]",
    // What a cluster has acknowledged it does not forget.
    has_markers: false,
    is_local: false,
    default_url: None,
    resolve: |_, _, _| Ok(()),
    terms: |_| KindTerms::default(),
    member: label,
    open: |index, url, context| Ok(Arc::new(open(index, url, context)?)),
    examine: examine::examine,
    init: |index, url, _| {
        let label = label(index, url)?;
        Ok(Box::pin(async { Look::without_marker(label) }))
    },
    forget: forget::forget,
    forget_fence: forget::forget_fence,
};

/// A call may take so long: longer than an election usually does.
const USUAL_LIMIT: Duration = Duration::from_secs(2);
/// One member may take this part of it, so that there is time to ask others.
const MEMBERS_TRIED: u32 = 4;
/// The least of that.
const LEAST_FOR_MEMBER: Duration = Duration::from_millis(100);
/// Leases are for whole seconds.
const TTLS: TtlRange = TtlRange { shortest: Duration::from_secs(1), ..TtlRange::ANY };
/// Before a cluster that cannot be used is tried again.
const PAUSE: Duration = Duration::from_millis(100);

/// What the node behind a URL is called.
fn label(index: usize, url: &str) -> Result<String, Error> {
    Address::parse(index, url).map(|address| address.label)
}

/// For one call.
fn limit(context: &NodeContext) -> Duration {
    context.settings.node_limit.max(USUAL_LIMIT.min(context.settings.ttl / 4))
}

fn capabilities() -> Capabilities {
    Capabilities::new()
        .drift(Drift { base: Duration::from_millis(2), per_mille: 10 })
        .fences_by_clock()
        .ttls(TTLS)
        .usual_limit(USUAL_LIMIT)
        .stands_alone()
        .queues()
}

/// The cluster behind a URL, which is connected to in the background.
fn open(index: usize, url: &str, context: &NodeContext) -> Result<CasNode<EtcdStore>, Error> {
    let address = Address::parse(index, url)?;
    let limit = limit(context);
    let for_member = (limit / MEMBERS_TRIED).max(LEAST_FOR_MEMBER);
    let client = Client::new(&address, for_member)?;
    let runtime = &context.runtime;
    let store = Arc::new(EtcdStore::new(client, address.prefix, context.client, runtime));
    let (known, readiness) = watch::channel(None);
    let limits = (limit, kept_back(limit, context));
    runtime.spawn(Box::pin(connect(Arc::clone(&store), known, limits)));
    Ok(CasNode::start(address.label, store, readiness, capabilities(), limit, context))
}

/// Connects, and listens from then on.
async fn connect(
    store: Arc<EtcdStore>,
    known: watch::Sender<Readiness>,
    (limit, kept_back): (Duration, Duration),
) {
    let mut closed = store.is_closed.subscribe();
    let serving = async {
        greet(&store.client, &known, kept_back, || store.try_rights()).await;
        let mut is_listening = store.is_listening.subscribe();
        let ready = async {
            // A waiter is notified, so nobody waits before that works.
            let _ = is_listening.wait_for(|is| *is).await;
            known.send_replace(Some(Ok(capabilities())));
        };
        let listening = store.watch_grants(limit, &known);
        tokio::join!(ready, listening, store.live(), store.client.follow_leader());
    };
    tokio::select! {
        _ = closed.wait_for(|is| *is) => {}
        () = serving => {}
    }
}

/// Ends when a member is found that can be used. `known` learns why none is.
async fn greet<R>(
    client: &Client,
    known: &watch::Sender<Readiness>,
    kept_back: Duration,
    try_rights: impl Fn() -> R,
) where
    R: Future<Output = Result<(), Failure>>,
{
    let began = tokio::time::Instant::now();
    loop {
        // It may be up, and not let us in.
        let usable = match find_member(client).await {
            Ok(()) => try_rights().await,
            Err(failure) => Err(failure),
        };
        let Err(failure) = usable else { return };
        // It may be electing a leader.
        let may_pass = matches!(failure.kind(), FailureKind::Broken | FailureKind::Silent);
        if !may_pass || began.elapsed() > kept_back {
            known.send_replace(Some(Err(failure)));
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// Finds a member that can be used.
async fn find_member(client: &Client) -> Result<(), Failure> {
    let mut result = Ok(());
    for _ in 0..client.len() {
        let at = client.active();
        match client.status(at).await {
            Ok(_) => {
                client.move_to_leader().await;
                return Ok(());
            }
            Err(failure) => result = Err(client.passed_over(at, &failure)),
        }
    }
    result
}
