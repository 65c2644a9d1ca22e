//! Keeps connections to a server, for as long as its node lives.

use std::future::poll_fn;
use std::mem::{Discriminant, discriminant};
use std::sync::Arc;
use std::time::Duration;

use quorlock_protocol::{LONGEST_PAUSE, pause_to_connect};

use super::address::Address;
use super::connect::{Connected, Predecessors, connect};
use super::link::{Link, Unsent};
use super::session::Session;
use crate::node::{Failure, FailureKind, NodeContext};
use crate::runtime::{Moment, random_u64};

/// Calls that come before the first greeting wait for it no longer than this.
const FIRST_CALLS_WAIT: Duration = Duration::from_millis(50);

/// A warning about a server that cannot be used is not repeated before this.
const QUIET: Duration = Duration::from_secs(60);

/// A client looks after a database so often, or up to twice as often, by chance.
const TEND_EVERY: Duration = Duration::from_secs(10);
/// So often while there is much to clear away.
const TEND_SOON: Duration = Duration::from_millis(200);

/// The last warning about a server that cannot be used.
#[derive(Default)]
struct Complaint {
    last: Option<(Discriminant<FailureKind>, Moment)>,
    /// It has not been reported yet that it is over.
    open: bool,
}

impl Complaint {
    fn make(&mut self, node: &str, why: &Failure, now: Moment) {
        let kind = discriminant(&why.kind());
        let known = |(last, at)| last == kind && now.since(at) < QUIET;
        if self.open || self.last.is_some_and(known) {
            tracing::debug!(node, "cannot be used: {why}");
            return;
        }
        tracing::warn!(node, "cannot be used: {why}");
        self.last = Some((kind, now));
        self.open = true;
    }

    fn end(&mut self, node: &str) {
        if std::mem::take(&mut self.open) {
            tracing::warn!(node, all_clear = true, "connected again");
        }
    }
}

/// Connects again and again until the node is dropped.
pub(super) async fn drive(link: Arc<Link>, address: Address, context: NodeContext) {
    // However this ends, be it with the whole runtime, nobody is left waiting.
    let _end = OnEnd(&link);
    let mut failures = 0;
    let mut complaint = Complaint::default();
    let mut predecessors = Predecessors::default();
    // Calls wait for the first connection, but not for long.
    let patience = FIRST_CALLS_WAIT.min(context.settings.node_limit);
    let (mut patience, mut awaited) = (context.runtime.sleep(patience), true);
    loop {
        let connected = {
            let attempt = attempt(&address, &context, &predecessors);
            tokio::pin!(attempt);
            loop {
                tokio::select! {
                    biased;
                    () = link.closed() => return,
                    connected = &mut attempt => break connected,
                    () = &mut patience, if awaited => link.is_late(),
                }
                awaited = false;
            }
        };
        awaited = false;
        let (why, (sent, unsent)) = match connected {
            Ok(connected) => {
                complaint.end(link.label());
                let since = link.now();
                let place = connected.place.clone();
                predecessors = connected.predecessors.clone();
                let votes = link.up(&connected);
                if !votes {
                    link.inbox.unsettled();
                }
                // Also the first time: who waits already has not asked this server.
                link.inbox.interrupted();
                link.announce();
                let mut session = Session::new(Arc::clone(&link), connected);
                let why = run(&context, &mut session).await;
                context.servers.give_up(&place, address.index);
                // A server that drops every connection at once is not to be asked without pause.
                if link.now().since(since) > LONGEST_PAUSE {
                    failures = 0;
                }
                (why, session.left())
            }
            Err(why) => (why, <(Vec<Unsent>, Vec<Unsent>)>::default()),
        };
        link.down(&why, sent, unsent);
        if link.state().closing {
            return;
        }
        complaint.make(link.label(), &why, link.now());
        if failures > 0 {
            let pause = jittered(pause_to_connect(failures), &context);
            tokio::select! {
                () = context.runtime.sleep(pause) => {}
                () = link.closed() => return,
            }
        }
        failures += 1;
    }
}

/// Runs a session to its end, and looks after the database meanwhile.
async fn run(context: &NodeContext, session: &mut Session) -> Failure {
    loop {
        let longest = if session.more { TEND_SOON } else { TEND_EVERY };
        let rest = context.runtime.sleep(jittered(longest, context));
        tokio::select! {
            biased;
            why = poll_fn(|cx| session.poll(cx)) => return why,
            () = rest => session.tend(),
        }
    }
}

async fn attempt(
    address: &Address,
    context: &NodeContext,
    predecessors: &Predecessors,
) -> Result<Connected, Failure> {
    let limit = context.settings.connect_limit;
    tokio::select! {
        // First: over a server that sends without end, the time would never be looked at.
        biased;
        () = context.runtime.sleep(limit) => {
            let text = format!("no greeting within {limit:?}; is it up, and is the address right?");
            Err(Failure::new(FailureKind::Unreachable, text))
        }
        connected = connect(address, context, context.client, predecessors) => connected,
    }
}

/// Between half and the whole, so that many clients do not come back as one.
fn jittered(longest: Duration, context: &NodeContext) -> Duration {
    let random = random_u64(&*context.runtime);
    longest / 2 + (longest / 2).mul_f64((random >> 11) as f64 / (1u64 << 53) as f64)
}

struct OnEnd<'a>(&'a Link);

impl Drop for OnEnd<'_> {
    fn drop(&mut self) {
        self.0.state().closing = true;
        self.0.down(&Failure::closed(), Vec::new(), Vec::new());
    }
}
