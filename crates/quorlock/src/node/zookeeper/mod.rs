//! A ZooKeeper ensemble as a node, `zookeeper://a:2181,b:2181,c:2181[/chroot]`: locks that survive the loss of a minority
//! of its members, and that it does not forget.
//!
//! ```text
//!   submit ──▶ cas: verbs, one write each ──▶ store: one multi ──▶ client: a session with one member
//!                                                                      │
//!   inbox ◀── grants: what is created below a watch ◀──────────────────┘
//! ```
//!
//! # Time
//!
//! A record is a node that stays, changed by compare-and-set. No session ends it: a session can end earlier than its
//! client believes, and cannot be handed to another process. It ends at a time of the leader's clock, which the ensemble
//! notes with each write. That clock is a witness and not an authority: a holder believes in a record only if the
//! write of it was noted near the holder's own time of day, and the next takes it only once a write of its own was noted
//! behind the end, and near its own time of day. `cas` says how, and decision 15 why that is enough.
//!
//! # Sessions
//!
//! A session says that a client is there: whoever waits has a node that goes with its session. A release that grants
//! compares that the node is there, in the same multi that writes the record and the message. Every connection begins a
//! session of its own.
//!
//! # Waiting
//!
//! The queue of a lock lies in its node. A grant message is a node whose name says it all, below a path that its client
//! watches.
//!
//! # Order
//!
//! Requests of one connection are done in their order. A write whose fate is not known is overtaken by another one, as
//! `cas` does it everywhere. What a member says without having asked the others may be old: it is asked to catch up before
//! a read that decides anything.
//!
//! Files: `address` reads the URL, `client` has the members and a session with one of them, `pauses` lie between
//! sessions, `connection` is one, `wire` its messages, `acl` who may do what, `trouble` what errors mean, `keys` says what lies where, `record`
//! what a lock's node says, `store` reads and writes locks, `list` names them, `life` says that a client is there,
//! `grants` are the messages, `sweep` deletes what nobody has used for a day, `examine` reports what the ensemble is,
//! `forget` clears names away. `curator` is a kind of its own on the same ensembles.

mod acl;
mod address;
mod client;
mod connection;
pub(super) mod curator;
mod examine;
mod forget;
mod grants;
mod keys;
mod life;
mod list;
mod pauses;
pub(super) mod record;
mod store;
mod sweep;
mod trouble;
mod wire;

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc::unbounded_channel;
use tokio::sync::watch;

use super::cas::{CasNode, Readiness, Window};
use super::clock_window::{self, CLIENTS_APART, CLOCK_AHEAD, CLOCK_BEHIND};
use super::kinds::{Kind, KindTerms};
use super::lanes::kept_back;
use super::{Capabilities, Failure, FailureKind, Login, NodeContext};
use crate::Error;
use crate::admin::init::Look;
use address::Address;
use client::Client;
use pauses::Pauses;
use quorlock_protocol::{Drift, Untimely};
use store::ZooKeeperStore;
use wire::Event;

/// ZooKeeper ensembles.
pub(super) const KIND: Kind = Kind {
    schemes: &[("zookeeper", Login::BeforeHost), ("zookeepers", Login::BeforeHost)],
    bare_scheme: false,
    looks_like: "zookeeper://HOST,HOST",
    forms: "zookeeper[s]://[USER:PASSWORD@]HOST[:PORT][,HOST[:PORT]...][/CHROOT]",
    // What an ensemble has acknowledged it does not forget.
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

/// How far the leader's clock may be from ours. All clients have to agree on it, so that it cannot be set.
pub(super) const WINDOW: Window = Window { behind: CLOCK_BEHIND, ahead: CLOCK_AHEAD };
/// What the window takes off the end of each lease.
pub(super) const MARGIN: Duration =
    clock_window::margin(WINDOW.behind, WINDOW.ahead, CLIENTS_APART);
/// A call may take so long: longer than an election of a small ensemble usually does.
const USUAL_LIMIT: Duration = Duration::from_secs(2);
/// One member may take this part of it, so that there is time to ask others.
const MEMBERS_TRIED: u32 = 2;
/// The least of that.
const LEAST_FOR_MEMBER: Duration = Duration::from_millis(100);

/// What the node behind a URL is called.
fn label(index: usize, url: &str) -> Result<String, Error> {
    Address::parse(index, url).map(|address| address.label)
}

fn capabilities() -> Capabilities {
    Capabilities::new()
        .drift(Drift { base: Duration::from_millis(2), per_mille: 10 })
        .margin(MARGIN)
        .by_wall_clock()
        .usual_limit(USUAL_LIMIT)
        .stands_alone()
        .queues()
}

/// Why nothing is to be believed that rests on the time of a write, if the leader's clock was outside of the window. The
/// write was sent and its answer received at these times of day.
pub(super) fn clocks_apart(leader_us: u64, sent_us: u64, received_us: u64) -> Option<Failure> {
    let micros = |duration: Duration| u64::try_from(duration.as_micros()).unwrap_or(u64::MAX);
    if leader_us < sent_us.saturating_sub(micros(WINDOW.behind)) {
        Some(clock_window::failure(Untimely::Behind(Duration::from_micros(sent_us - leader_us))))
    } else if leader_us > received_us.saturating_add(micros(WINDOW.ahead)) {
        Some(clock_window::failure(Untimely::Ahead(Duration::from_micros(leader_us - received_us))))
    } else {
        None
    }
}

/// The ensemble behind a URL, which is connected to in the background.
fn open(
    index: usize,
    url: &str,
    context: &NodeContext,
) -> Result<CasNode<Arc<ZooKeeperStore>>, Error> {
    let address = Address::parse(index, url)?;
    let limit = context.settings.node_limit.max(USUAL_LIMIT.min(context.settings.ttl / 4));
    let for_member = (limit / MEMBERS_TRIED).max(LEAST_FOR_MEMBER);
    let client = Client::new(&address, for_member)?;
    let runtime = &context.runtime;
    let store = Arc::new(ZooKeeperStore::new(client, context.client, runtime));
    let (known, readiness) = watch::channel(None);
    runtime.spawn(Box::pin(connect(Arc::clone(&store), known, kept_back(limit, context))));
    let store = Arc::new(store);
    Ok(CasNode::start(address.label, store, readiness, capabilities(), limit, context))
}

/// Keeps a session, and listens on it, until the client wants nothing more.
async fn connect(store: Arc<ZooKeeperStore>, known: watch::Sender<Readiness>, kept_back: Duration) {
    let mut closed = store.is_closed.subscribe();
    tokio::select! {
        _ = closed.wait_for(|is| *is) => {}
        () = keep_session(&store, &known, kept_back) => {}
    }
}

async fn keep_session(
    store: &Arc<ZooKeeperStore>,
    known: &watch::Sender<Readiness>,
    kept_back: Duration,
) {
    let began = tokio::time::Instant::now();
    let (mut pauses, mut is_first) = (Pauses::new(), true);
    loop {
        let (events, mut reports) = unbounded_channel();
        let failure = match store.client.dial(&events).await {
            Ok((at, connection)) => {
                drop(events);
                let begun = tokio::time::Instant::now();
                let listening = async {
                    store.listen_on(&connection).await?;
                    store.say_alive_again(&connection).await
                };
                match listening.await {
                    Ok(()) => {
                        store.client.set_up(&connection);
                        store.is_listening.send_replace(true);
                        known.send_replace(Some(Ok(capabilities())));
                        if !std::mem::replace(&mut is_first, false) {
                            store.tell(|node, inbox| inbox.interrupted(node));
                        }
                        while let Some(event) = reports.recv().await {
                            if let Event::Created(path) = event {
                                store.report(&connection, &path);
                            }
                        }
                        store.is_listening.send_replace(false);
                        store.client.set_connecting();
                        let why = connection.ended().await;
                        store.client.passed_over(at, &why);
                        let pause = pauses.after_session(begun.elapsed(), &*store.runtime);
                        tokio::time::sleep(pause).await;
                        continue;
                    }
                    Err(trouble) => {
                        let failure = store.failure(trouble);
                        store.client.passed_over(at, &failure);
                        failure
                    }
                }
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
