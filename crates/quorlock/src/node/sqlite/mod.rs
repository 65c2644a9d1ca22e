//! One SQLite file as a node, `sqlite:PATH`: the locks of all processes of one machine, without a
//! server.
//!
//! ```text
//!   callers ── submit ──▶ executor: the open file, one thread at a time; answers after the commit
//!                 │        ▲ │
//!                 │ if it  │ └── message ──▶ the executor of the next holder, in whatever process
//!                 │ is     │
//!                 │ taken  │
//!                 ▼        │
//!               watch ── worker: a thread that opens the file, and serves what had to wait
//!                 └─ tells rounds that their calls are late when the worker is stuck
//! ```
//!
//! # Time
//!
//! A record ends at a moment of the boot clock, which all processes of the machine share, which
//! never jumps, and which runs on while the machine is suspended. The file carries the boot id of
//! the kernel as well, and is void under any other: the boot clock starts anew with the machine. So
//! neither a changed time of day nor a restart can make a record last longer or shorter, nothing
//! drifts, and nothing has to be taken off the validity.
//!
//! A container may see another boot id under the same kernel. So the file is emptied only while
//! nobody has it open, and records that end soon by the present clock are waited for.
//!
//! # Durability
//!
//! The file is in WAL mode with `synchronous=OFF`: nothing waits for the disk, neither a commit nor
//! a checkpoint. That is enough. A *process* that is killed, at whatever instruction, takes nothing
//! with it that it has committed and leaves nothing behind that it has not, since the kernel keeps
//! what was written, in the order in which it was written. A *machine* that crashes may lose commits
//! and leave the file damaged. But it comes back with another boot id, which no old file can hold:
//! the process that opens the file then empties it without looking at what is in it. Only the fences of
//! holders go on from where they were: `boot` says how.
//!
//! # Being removed, replaced or cut short
//!
//! The file, its `-wal` and its `-shm` are looked at before each transaction. If one of them is not the
//! one that is open, the file is opened again. If the file has lost its `-wal`, or is a copy, what it
//! granted may be lost: it grants nothing until that has ended, for the longest TTL that its users may
//! ask for.
//!
//! # Who serves a call
//!
//! The caller's own thread, if no other thread of this process serves calls, all calls before it have
//! run, and no other process writes at this moment. That takes some 20 µs, most of them in the
//! kernel, and does not wait for its turn: not for another thread, not for another process, not for
//! the disk. What can still hold it up is the kernel, when it has too much to write out, and SQLite
//! itself: if others commit each time when it is about to begin, it looks again after a microsecond,
//! and after ten such accidents in a row after 39 and then more. Otherwise the worker serves the call,
//! together with all others that are there by then, in one transaction.
//!
//! # Waiting
//!
//! A release finds the queue of the lock in the file, and writes the record of the first in it who is
//! still there, in the same transaction. Then it sends it a message: `wake` has the ways and the means.
//! Nobody polls. A message can only get lost with the process that was to send it, killed between the
//! commit and the message; then the new holder finds out when the record that it waits for would have
//! ended. A process that was killed while it waited is passed over at once.
//!
//! The task that waits for messages runs on tokio, which must have its I/O enabled, as for Redis nodes.
//!
//! # Processes that get in each other's way
//!
//! Every transaction is `BEGIN IMMEDIATE`: it has the right to write from its start, and cannot
//! fail half-way because another has written meanwhile. While another process writes, the worker
//! tries again every millisecond or more often, until the time limit of the call has passed.
//!
//! Files: `address` reads the URL and knows the default file, `place` knows who may write where it lies,
//! `connect` opens it and refuses what would not keep a lock, `boot` is what it knows of itself,
//! `identity` notices when it is removed or replaced, `executor` serves calls, `worker` is the thread, `watch` looks after
//! the calls meanwhile, `verbs` and `queue` are the SQL, `notes` what holders say of themselves,
//! `sweep` removes what nobody comes back for, `wake` brings grant messages to other processes, `error` gives
//! remedies, `examine` reports what the file is, `forget` clears names away.

#[cfg(not(target_os = "linux"))]
compile_error!("the feature sqlite needs Linux, for its boot id; use a Redis node elsewhere");

mod address;
mod boot;
mod connect;
mod error;
mod examine;
mod executor;
mod forget;
mod identity;
mod notes;
mod place;
mod queue;
mod sweep;
mod verbs;
mod wake;
mod watch;
mod worker;

use std::sync::mpsc::Sender;
use std::sync::{Arc, Weak};
use std::thread;

use tokio::sync::watch::Receiver;

use super::kinds::{Kind, KindTerms};
use super::{Call, Capabilities, ClientId, Failure, FailureKind, Inbox, Login, Node, NodeContext};
use crate::Error;
use crate::admin::init::Look;
use crate::runtime::BoxFuture;
use address::Address;
use executor::Executor;
use watch::Watch;
use worker::{Readiness, Worker};

/// SQLite files.
pub(super) const KIND: Kind = Kind {
    schemes: &[("sqlite", Login::Nowhere)],
    bare_scheme: true,
    looks_like: "sqlite:PATH",
    forms: "sqlite:PATH",
    // A file does not forget: what is written there is there, or the file is not.
    has_markers: false,
    is_local: true,
    default_url: Some(address::default_url),
    resolve: |_, _, _| Ok(()),
    terms: |_| KindTerms::default(),
    member: label,
    open: |index, url, context| Ok(Arc::new(SqliteNode::new(index, url, context)?)),
    examine: examine::examine,
    init: |index, url, _| {
        let label = label(index, url)?;
        Ok(Box::pin(async { Look::without_marker(label) }))
    },
    forget: forget::forget,
    // Its fences are not compared with the time of day.
    forget_fence: |index, url, _, _| {
        let label = label(index, url)?;
        Ok(Box::pin(async { (label, Ok(0)) }))
    },
};

/// What the node behind a URL is called, without opening its file.
fn label(index: usize, url: &str) -> Result<String, Error> {
    Address::parse(index, url).map(|address| address.label)
}

/// A SQLite file.
#[derive(Debug)]
pub(crate) struct SqliteNode {
    label: String,
    calls: Sender<Call>,
    executor: Arc<Executor>,
    watch: Arc<Watch>,
    readiness: Receiver<Readiness>,
}

impl SqliteNode {
    /// The file behind `url`. It is opened at once, in the background.
    pub(crate) fn new(index: usize, url: &str, context: &NodeContext) -> Result<Self, Error> {
        let address = Address::parse(index, url)?;
        let label = address.label.clone();
        let watch = Arc::new(Watch::new(context));
        let executor = Executor::new(&context.runtime, context.client);
        let (calls, worker, readiness) = Worker::new(address, context, &executor, &watch);
        // Nobody joins the thread: the last to let go of a node may be the thread itself, with the
        // call that it has just answered. It ends by itself when the channel is closed and empty.
        let started = thread::Builder::new().name("quorlock-sqlite".into()).spawn(|| worker.run());
        if let Err(error) = started {
            let text = format!("its thread cannot be started ({error}); end some others first");
            let failure = Failure::new(FailureKind::Unreachable, text);
            return Err(Error::Node { node: label, failure });
        }
        context.runtime.spawn(Box::pin(Arc::clone(&watch).run()));
        Ok(Self { label, calls, executor, watch, readiness })
    }
}

impl Node for SqliteNode {
    fn label(&self) -> &str {
        &self.label
    }

    fn capabilities(&self) -> Capabilities {
        // One machine, one clock: nothing drifts.
        Capabilities::new().queues()
    }

    fn ready(&self) -> BoxFuture<'_, Result<(), Failure>> {
        let mut readiness = self.readiness.clone();
        Box::pin(async move {
            match readiness.wait_for(Option::is_some).await {
                Ok(known) => known.clone().unwrap_or(Ok(())),
                Err(_) => Err(Failure::closed()),
            }
        })
    }

    fn submit(&self, call: Call) {
        if let Err(call) = self.executor.serve_at_once(call, || self.watch.is_idle()) {
            self.watch.submit(call, &self.calls);
        }
    }

    fn listen(&self, client: ClientId, node: usize, inbox: Weak<dyn Inbox>) {
        self.executor.listen(client, node, inbox);
    }
}

impl Drop for SqliteNode {
    fn drop(&mut self) {
        self.watch.close();
    }
}
