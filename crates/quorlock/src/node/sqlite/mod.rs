//! One SQLite file as a node, `sqlite:PATH`: the locks of all processes of one machine, without a
//! server.
//!
//! ```text
//!   callers ── submit ──▶ channel ──▶ worker: one thread, which owns the connection
//!                 │                     │  takes all calls that are there, runs them in one
//!                 ▼                     │  transaction, answers after the commit
//!               watch ◀── done ─────────┘
//!                 └─ tells rounds that their calls are late when the worker is stuck
//! ```
//!
//! # Time
//!
//! A record ends at a moment of the boot clock, which all processes of the machine share, which
//! never jumps, and which runs on while the machine is suspended. It carries the boot id of the
//! kernel as well, and is void under any other: the boot clock starts anew with the machine. So
//! neither a changed time of day nor a restart can make a record last longer or shorter, nothing
//! drifts, and nothing has to be taken off the validity.
//!
//! # Durability
//!
//! The file is in WAL mode with `synchronous=NORMAL`: a commit is a write, not a wait for the disk.
//! That is enough. A *process* that crashes takes nothing with it that it has written, since the
//! kernel keeps it. A *machine* that crashes may lose the last commits, but it comes back with
//! another boot id, and then every record is void anyway. What must not happen is that the file is
//! damaged, and WAL mode orders its writes to the disk so that it is not. That takes a wait for the
//! disk now and then, when the WAL has grown to its full size.
//!
//! # Processes that get in each other's way
//!
//! Every transaction is `BEGIN IMMEDIATE`: it has the right to write from its start, and cannot
//! fail half-way because another has written meanwhile. While another process writes, the worker
//! tries again every millisecond or more often, until the time limit of the call has passed.
//!
//! Files: `address` reads the URL and knows the default file, `connect` opens the file and refuses
//! those that would not keep a lock, `worker` is the thread, `watch` looks after the calls
//! meanwhile, `verbs` is the SQL, `error` gives remedies, `examine` tells what the file is.

#[cfg(not(target_os = "linux"))]
compile_error!("the feature sqlite needs Linux, for its boot id; use a Redis node elsewhere");

mod address;
mod connect;
mod error;
mod examine;
mod verbs;
mod watch;
mod worker;

use std::sync::mpsc::Sender;
use std::sync::{Arc, Weak};
use std::thread;
use std::time::Duration;

use tokio::sync::watch::Receiver;

use super::{Call, Capabilities, ClientId, Failure, FailureKind, Inbox, Node, Setting};
use crate::Error;
use crate::runtime::BoxFuture;
use address::Address;
pub use address::default_url;
pub(super) use examine::examine;
use quorlock_protocol::Drift;
use watch::Watch;
use worker::{Readiness, Worker};

/// A SQLite file.
#[derive(Debug)]
pub(crate) struct SqliteNode {
    label: String,
    calls: Sender<Call>,
    watch: Arc<Watch>,
    readiness: Receiver<Readiness>,
}

impl SqliteNode {
    /// The file behind `url`. It is opened at once, in the background.
    pub(crate) fn new(index: usize, url: &str, setting: &Setting) -> Result<Self, Error> {
        let address = Address::parse(index, url)?;
        let label = address.label.clone();
        let watch = Arc::new(Watch::new(setting));
        let (calls, worker, readiness) = Worker::new(address, setting, &watch);
        // Nobody joins the thread: the last to let go of a node may be the thread itself, with the
        // call that it has just answered. It ends by itself when the channel is closed and empty.
        let started = thread::Builder::new().name("quorlock-sqlite".into()).spawn(|| worker.run());
        if let Err(error) = started {
            let text = format!("its thread cannot be started ({error}); end some others first");
            let failure = Failure::new(FailureKind::Unreachable, text);
            return Err(Error::Node { node: label, failure });
        }
        setting.runtime.spawn(Box::pin(Arc::clone(&watch).run()));
        Ok(Self { label, calls, watch, readiness })
    }
}

impl Node for SqliteNode {
    fn label(&self) -> &str {
        &self.label
    }

    fn capabilities(&self) -> Capabilities {
        // One machine, one clock: nothing drifts.
        Capabilities { drift: Drift { base: Duration::ZERO, per_mille: 0 }, margin: Duration::ZERO }
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
        self.watch.submit(call, &self.calls);
    }

    /// There is nothing to hear: see what the verbs do about [`Verb::Wait`](super::Verb::Wait).
    fn listen(&self, _client: ClientId, _node: usize, _inbox: Weak<dyn Inbox>) {}
}

impl Drop for SqliteNode {
    fn drop(&mut self) {
        self.watch.close();
    }
}
