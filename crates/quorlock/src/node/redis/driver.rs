//! Keeps a connection to a server, for as long as its node lives.

use std::future::poll_fn;
use std::mem::{Discriminant, discriminant};
use std::sync::Arc;
use std::time::Duration;

use quorlock_protocol::{LONGEST_PAUSE, pause_to_connect};

use super::address::Address;
use super::connect::{Connected, Demands, Predecessor, connect};
use super::link::Link;
use super::session::Session;
use crate::node::{Failure, FailureKind, NodeContext};
use crate::runtime::{Moment, random_u64};

/// Calls that come before the first greeting wait for it no longer than this.
const FIRST_CALLS_WAIT: Duration = Duration::from_millis(50);

/// A warning about a server that cannot be used is not repeated before this.
const QUIET: Duration = Duration::from_secs(60);

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
    let demands = link.demands();
    let mut predecessor: Option<Predecessor> = None;
    let mut failures = 0;
    let mut complaint = Complaint::default();
    let (mut notified, mut ended) = (true, true);
    // Calls wait for the first connection, but not for long.
    let patience = FIRST_CALLS_WAIT.min(context.settings.node_limit);
    let (mut patience, mut awaited) = (context.runtime.sleep(patience), true);
    loop {
        let began = link.now();
        let connected = {
            let attempt = attempt(&address, &context, &demands, predecessor.as_ref());
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
        let why = match connected {
            Ok(mut connected) => {
                connected.took = link.now().since(began);
                let run_id = connected.run_id.clone();
                let client_id = connected.client_id;
                let same = predecessor.as_ref().filter(|before| before.run_id == run_id);
                let looked = same.map(|before| before.tended);
                if let Some(before) = looked {
                    connected.tended = connected.tended.since(&before);
                }
                let tended = connected.tended;
                predecessor = Some(Predecessor { client_id, run_id: run_id.clone(), tended });
                if let Err(why) = &connected.subscribed
                    && std::mem::take(&mut notified)
                {
                    tracing::warn!(
                        node = link.label(),
                        "cannot send grant messages, so that waiters have to ask again and again: {why}"
                    );
                }
                if let Some(why) = &connected.not_ended
                    && std::mem::take(&mut ended)
                {
                    tracing::warn!(node = link.label(), "cannot end a broken connection: {why}");
                }
                complaint.end(link.label());
                let since = link.now();
                let votes = link.up(&connected);
                if !votes {
                    link.inbox.unsettled();
                }
                // Also the first time: who waits already has not asked this server.
                link.inbox.interrupted();
                link.announce();
                let mut session =
                    Session::new(Arc::clone(&link), Arc::clone(&context.runtime), connected);
                let why = run(&link, &context, &mut session, looked.is_some()).await;
                if let Some(predecessor) = &mut predecessor {
                    predecessor.tended = *session.tended();
                }
                context.servers.give_up(&run_id, address.index);
                // A server that drops every connection at once is not to be asked without pause.
                if link.now().since(since) > LONGEST_PAUSE {
                    failures = 0;
                }
                why
            }
            Err(why) => why,
        };
        link.down(&why);
        if link.state().closing {
            return;
        }
        complaint.make(link.label(), &why, link.now());
        if failures > 0 {
            let pause = pause(failures, random_u64(&*context.runtime));
            tokio::select! {
                () = context.runtime.sleep(pause) => {}
                () = link.closed() => return,
            }
        }
        failures += 1;
    }
}

/// Runs a session to its end, and tends the server meanwhile.
async fn run(link: &Link, context: &NodeContext, session: &mut Session, again: bool) -> Failure {
    // At once: many processes are there for a single lock, and old ones are to go also if no client stays for
    // long. The greeting has looked at the server, but not at what has happened since the last connection.
    link.tend(again.then(|| session.tended().evicted()));
    loop {
        let rest = session.tended().rest(random_u64(&*context.runtime));
        let rest = context.runtime.sleep(rest);
        tokio::select! {
            biased;
            why = poll_fn(|cx| session.poll(cx)) => return why,
            () = rest => link.tend(Some(session.tended().evicted())),
        }
    }
}

async fn attempt(
    address: &Address,
    context: &NodeContext,
    demands: &Demands,
    predecessor: Option<&Predecessor>,
) -> Result<Connected, Failure> {
    let limit = context.settings.connect_limit;
    let connected = tokio::select! {
        // First: over a server that sends without end, the time would never be looked at.
        biased;
        () = context.runtime.sleep(limit) => {
            let tls = if address.tls.is_some() { ", and does that port speak TLS" } else { "" };
            let text =
                format!("no greeting within {limit:?}; is it up, is the address right{tls}?");
            return Err(Failure::new(FailureKind::Unreachable, text));
        }
        connected = connect(address, demands, predecessor) => connected?,
    };
    if let Err(other) = context.servers.claim(&connected.run_id, address.index, &address.label) {
        let text = format!("is the same server as {other}");
        return Err(Failure::new(FailureKind::Duplicate, text));
    }
    Ok(connected)
}

fn pause(failures: u32, random: u64) -> Duration {
    let longest = pause_to_connect(failures);
    // Between half and the whole, so that many clients do not come back as one.
    longest / 2 + (longest / 2).mul_f64((random >> 11) as f64 / (1u64 << 53) as f64)
}

struct OnEnd<'a>(&'a Link);

impl Drop for OnEnd<'_> {
    fn drop(&mut self) {
        self.0.state().closing = true;
        self.0.down(&Failure::closed());
    }
}
