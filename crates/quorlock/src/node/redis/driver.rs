//! Keeps a connection to a server, for as long as its node lives.

use std::future::poll_fn;
use std::sync::Arc;
use std::time::Duration;

use super::address::Address;
use super::connect::{Connected, Demands, Predecessor, connect};
use super::link::Link;
use super::session::Session;
use crate::node::{Failure, FailureKind, Setting};
use crate::runtime::random_u64;

/// The pause after the first failed attempt to connect; it doubles with each further one.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
/// A server that returns is found again within this and the time to connect.
const LONGEST_PAUSE: Duration = Duration::from_millis(400);

/// Connects again and again until the node is dropped.
pub(super) async fn drive(link: Arc<Link>, address: Address, setting: Setting) {
    // However this ends, be it with the whole runtime, nobody is left waiting.
    let _end = OnEnd(&link);
    let demands = link.demands();
    let mut predecessor: Option<Predecessor> = None;
    let mut failures = 0;
    let mut told = true;
    loop {
        let attempt = attempt(&address, &setting, &demands, predecessor.as_ref());
        let connected = tokio::select! {
            biased;
            () = link.closed() => return,
            connected = attempt => connected,
        };
        let why = match connected {
            Ok(mut connected) => {
                let run_id = connected.run_id.clone();
                let client_id = connected.client_id;
                let same = predecessor.as_ref().filter(|before| before.run_id == run_id);
                let looked = same.map(|before| before.tended);
                if let Some(before) = looked {
                    connected.tended = connected.tended.since(&before);
                }
                let tended = connected.tended;
                let again = predecessor
                    .replace(Predecessor { client_id, run_id: run_id.clone(), tended })
                    .is_some();
                if let Err(why) = &connected.told
                    && std::mem::take(&mut told)
                {
                    tracing::warn!(
                        node = link.label(),
                        "cannot send word of grants, so that waiters have to ask again and again: {why}"
                    );
                }
                if failures > 0 {
                    tracing::info!(node = link.label(), "connected again");
                }
                let since = link.now();
                let votes = link.up(&connected);
                if !votes {
                    link.inbox.unsettled();
                }
                if again {
                    link.inbox.interrupted();
                }
                let mut session =
                    Session::new(Arc::clone(&link), Arc::clone(&setting.runtime), connected);
                let why = run(&link, &setting, &mut session, looked.is_some()).await;
                if let Some(predecessor) = &mut predecessor {
                    predecessor.tended = *session.tended();
                }
                setting.servers.give_up(&run_id, address.index);
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
        if failures == 0 {
            tracing::warn!(node = link.label(), "cannot be used: {why}");
        } else {
            let pause = pause(failures, random_u64(&*setting.runtime));
            tokio::select! {
                () = setting.runtime.sleep(pause) => {}
                () = link.closed() => return,
            }
        }
        failures += 1;
    }
}

/// Runs a session to its end, and tends the server meanwhile.
async fn run(link: &Link, setting: &Setting, session: &mut Session, again: bool) -> Failure {
    // At once: many processes are there for a single lock, and old ones are to go also if no client stays for
    // long. The greeting has looked at the server, but not at what has happened since the last connection.
    link.tend(again.then(|| session.tended().evicted()));
    loop {
        let rest = session.tended().rest(random_u64(&*setting.runtime));
        let rest = setting.runtime.sleep(rest);
        tokio::select! {
            biased;
            why = poll_fn(|cx| session.poll(cx)) => return why,
            () = rest => link.tend(Some(session.tended().evicted())),
        }
    }
}

async fn attempt(
    address: &Address,
    setting: &Setting,
    demands: &Demands,
    predecessor: Option<&Predecessor>,
) -> Result<Connected, Failure> {
    let limit = setting.settings.connect_limit;
    let connected = tokio::select! {
        // First: over a server that sends without end, the time would never be looked at.
        biased;
        () = setting.runtime.sleep(limit) => {
            let tls = if address.tls.is_some() { ", and does that port speak TLS" } else { "" };
            let text =
                format!("no greeting within {limit:?}; is it up, is the address right{tls}?");
            return Err(Failure::new(FailureKind::Unreachable, text));
        }
        connected = connect(address, demands, predecessor) => connected?,
    };
    if let Err(other) = setting.servers.claim(&connected.run_id, address.index, &address.label) {
        let text = format!("is the same server as {other}");
        return Err(Failure::new(FailureKind::Duplicate, text));
    }
    Ok(connected)
}

fn pause(failures: u32, random: u64) -> Duration {
    let longest = FIRST_PAUSE.saturating_mul(1 << (failures - 1).min(8)).min(LONGEST_PAUSE);
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
