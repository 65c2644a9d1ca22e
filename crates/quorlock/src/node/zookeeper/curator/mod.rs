//! Locks in ZooKeeper that are shared with clients of Curator, `zookeeper+curator://a:2181,b:2181,c:2181[/chroot]`: they
//! lie there as its `InterProcessMutex` lays them.
//!
//! ```text
//!   /NAME/_c_6f0f…-lock-0000000041   of session 7   holds the lock: the lowest number
//!   /NAME/_c_1b9a…-lock-0000000042   of session 9   waits for 41
//!   /NAME/_c_c40e…-lock-0000000043   of session 7   waits for 41 and 42
//! ```
//!
//! Each who wants the lock makes an entry that ends with its session. ZooKeeper numbers the entries, so that all take
//! turns, whatever library they use.
//!
//! # Time
//!
//! The session is all that there is. The servers end one that has not sent a word for its length, by a clock that starts
//! anew with each word *that has reached the leader*: a member passes words on twice a tick, and may die with one. So what a
//! client believes is less than the session, and counts from when it sent a request that the ensemble has
//! answered:
//!
//! ```text
//!   the leader knows of a word that was sent at   t − S/6 − tick/2   or later, when it answers a request of t
//!   the session ends at                           t + S − S/6 − tick/2   or later: S is two ticks at the least
//!                                               ≥ t + S × 7/12
//!   the holder believes until                     t + TTL less what clocks may differ,   TTL ≤ S/2
//! ```
//!
//! A word is sent every sixth of the session, S. A session that has ended is told at once, where there is a connection.
//!
//! # Connections
//!
//! One that breaks is followed by another, to the next member, which goes on with the session. What was sent on the
//! first is done before anything on the second, or never.
//!
//! # Differences from `zookeeper://`
//!
//! A lock cannot outlive its process, nor be handed to another. Fences are the changes that made the entries. The
//! leader's clock does not matter.
//!
//! Files: `paths` says what lies where, `line` who wants a lock, `watches` who leaves, `store` asks the ensemble, `verbs`
//! are what nodes do, `examine` reports on the ensemble, and on what is shared.

mod examine;
mod line;
mod paths;
mod store;
mod verbs;
mod watches;

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc::unbounded_channel;
use tokio::sync::watch;

use super::address::Address;
use super::client::Client;
use super::connection::Wanted;
use super::pauses::Pauses;
use super::{LEAST_FOR_MEMBER, MEMBERS_TRIED, USUAL_LIMIT, label};
use crate::Error;
use crate::admin::init::Look;
use crate::node::kinds::{Kind, KindTerms};
use crate::node::lanes::{LaneNode, Readiness, kept_back};
use crate::node::{Capabilities, FailureKind, Login, NodeContext, RecordEnd, TtlRange};
use quorlock_protocol::Drift;
use store::CuratorStore;

/// ZooKeeper ensembles with locks as Curator knows them.
pub(in crate::node) const KIND: Kind = Kind {
    schemes: &[("zookeeper+curator", Login::BeforeHost), ("zookeepers+curator", Login::BeforeHost)],
    bare_scheme: false,
    looks_like: "zookeeper+curator://HOST,HOST",
    forms: "zookeeper[s]+curator://[USER:PASSWORD@]HOST[:PORT][,HOST[:PORT]...][/CHROOT]",
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
    forget: examine::forget,
    // Fences are the ensemble's own.
    forget_fence: |index, url, _, _| {
        let label = label(index, url)?;
        Ok(Box::pin(async { (label, Ok(0)) }))
    },
};

/// A session is asked for that is so many times as long as the TTL.
const SESSION_TTLS: u32 = 2;
/// In a session a word is sent so often, at the least.
const WORDS: u32 = 6;
/// A session is counted in ticks of the servers, often of two seconds.
const SHORTEST: Duration = Duration::from_secs(1);

/// What can be done in a session of this length. Before it is known, in any.
fn capabilities(session: Option<Duration>) -> Capabilities {
    let longest = session.map_or(Duration::MAX, |session| session / SESSION_TTLS);
    let ttls = TtlRange { shortest: SHORTEST.min(longest), longest, ..TtlRange::ANY };
    Capabilities::new()
        .drift(Drift { base: Duration::from_millis(2), per_mille: 10 })
        .ttls(ttls)
        .records_end(RecordEnd::Session)
        .usual_limit(USUAL_LIMIT)
        .stands_alone()
        .queues()
        .own_order()
        .without_participants()
}

/// The ensemble behind a URL, which is connected to in the background.
fn open(
    index: usize,
    url: &str,
    context: &NodeContext,
) -> Result<LaneNode<Arc<CuratorStore>>, Error> {
    let address = Address::parse(index, url)?;
    let limit = context.settings.node_limit.max(USUAL_LIMIT.min(context.settings.ttl / 4));
    let for_member = (limit / MEMBERS_TRIED).max(LEAST_FOR_MEMBER);
    let store = Arc::new(store_at(&address, for_member, context)?);
    let (known, readiness) = watch::channel(None);
    context.runtime.spawn(Box::pin(connect(Arc::clone(&store), known, kept_back(limit, context))));
    Ok(LaneNode::serve(address.label, store, readiness, capabilities(None), limit, context))
}

/// The locks of an ensemble. `limit` is for one member to answer in.
fn store_at(
    address: &Address,
    limit: Duration,
    context: &NodeContext,
) -> Result<CuratorStore, Error> {
    let length = context.settings.ttl.saturating_mul(SESSION_TTLS);
    let client = Client::shared(address, limit, Wanted { length, words: WORDS, id: None })?;
    Ok(CuratorStore::new(client, address.chroot.clone(), &context.runtime))
}

/// Keeps a session until the client wants nothing more.
async fn connect(store: Arc<CuratorStore>, known: watch::Sender<Readiness>, kept_back: Duration) {
    let mut closed = store.is_closed.subscribe();
    tokio::select! {
        _ = closed.wait_for(|is| *is) => {}
        () = keep_session(&store, &known, kept_back) => {}
    }
}

async fn keep_session(
    store: &Arc<CuratorStore>,
    known: &watch::Sender<Readiness>,
    kept_back: Duration,
) {
    let began = tokio::time::Instant::now();
    let mut pauses = Pauses::new();
    loop {
        let (events, mut reports) = unbounded_channel();
        let failure = match store.client.dial(&events).await {
            Ok((at, connection)) => {
                drop(events);
                let begun = tokio::time::Instant::now();
                store.take_up(&connection);
                known.send_replace(Some(Ok(capabilities(Some(connection.session)))));
                let looking = async {
                    // If it fails, so does the connection.
                    let _ = store.look_again(&connection).await;
                };
                tokio::join!(looking, store.take_events(&mut reports));
                store.client.set_connecting();
                let why = connection.ended().await;
                store.client.passed_over(at, &why);
                let pause = pauses.after_session(begun.elapsed(), &*store.runtime);
                tokio::time::sleep(pause).await;
                continue;
            }
            Err(failure) => failure,
        };
        // It may be electing a leader.
        let may_pass = matches!(failure.kind(), FailureKind::Broken | FailureKind::Silent);
        if !may_pass || began.elapsed() > kept_back {
            known.send_if_modified(|known| {
                let is_news = matches!(known, None | Some(Err(_)));
                if is_news {
                    *known = Some(Err(failure.clone()));
                }
                is_news
            });
        }
        store.client.set_down(failure);
        tokio::time::sleep(pauses.after_failure(&*store.runtime)).await;
    }
}
