//! The `strict` dialect: owner, end and fence in one record, which the scripts compare by the clocks of the
//! clients, and a marker that tells which start of a server votes (`marker`).
//!
//! A server that was started, emptied or whose clock is wrong casts no vote, so that it may forget and jump. Each
//! call ends with the client's time of day and how the marker has to begin. Old records are swept by clients.

mod refusals;

use std::sync::Arc;
use std::time::Duration;

use super::RestsOn;
use crate::node::redis::marker;
use crate::node::redis::options::RedisOptions;
use crate::node::redis::resp::{Command, Value};
use crate::node::redis::scripts::{Scripts, Sources};
use crate::node::redis::verbs::{By, Sent, pattern};
use crate::node::{Capabilities, Failure, Marker, Members, Request, Verb, clock_window};
use quorlock_protocol::{Drift, MOST_AHEAD_US};

/// So many arguments every call ends with.
pub(super) const SIGNATURE_ARGS: usize = 2;

/// A record is cleared away so long after its lease has ended, and so long after its fence was the time of
/// day.
const KEPT: Duration = Duration::from_secs(24 * 60 * 60);

/// Beside the locks: where the walk through the database goes on that clears old ones away.
const SWEEP: &[u8] = b":quorlock:sweep";

/// The clocks of the servers do not matter, and those of the clients are compared.
pub(super) fn capabilities(options: &RedisOptions) -> Capabilities {
    Capabilities::new()
        .drift(Drift { base: Duration::from_millis(2), per_mille: 10 })
        .margin(clock_margin(options))
        .by_wall_clock()
        .queues()
}

pub(super) fn rests_on(options: &RedisOptions, max_ttl: Duration) -> RestsOn {
    RestsOn {
        quarantine: Some(quiet(options, max_ttl)),
        clock_window: Some((options.clock_behind, options.clock_ahead)),
    }
}

/// What the clock window takes off the end of each lease.
fn clock_margin(options: &RedisOptions) -> Duration {
    clock_window::margin(options.clock_behind, options.clock_ahead, options.clients_apart)
}

/// For how long a server that may have forgotten something casts no vote. It is more than twice what the clock
/// window takes off a lease, since no TTL is shorter than that: what is written into a marker rests on looks at
/// other servers, each of which may be so old.
fn quiet(options: &RedisOptions, max_ttl: Duration) -> Duration {
    max_ttl.saturating_add(clock_margin(options))
}

/// What the scripts are told with each call.
#[derive(Debug, Clone)]
pub(in crate::node::redis) struct Strict {
    scripts: Arc<Scripts>,
    marker_key: Vec<u8>,
    options: RedisOptions,
    max_ttl: Duration,
    /// The set of nodes that this client was given.
    members: Members,
    /// Of the server at the other end of the connection.
    run_id: String,
    /// How its marker begins if it votes.
    voter: Vec<u8>,
}

impl Strict {
    pub(super) fn new(options: &RedisOptions, max_ttl: Duration, members: &Members) -> Self {
        let marker_key = marker::key(&options.prefix);
        let constants = format!(
            "local BEHIND_US, AHEAD_US, QUIET_US, FENCES_AHEAD_US = {}, {}, {}, {MOST_AHEAD_US}\n\
             local MARKER = {}\n\
             local RECORD = '^quorlock (%d+)([ +*=-])(.*) (%d+) (%d+) (%d+)$'\n",
            micros(options.clock_behind),
            micros(options.clock_ahead),
            micros(quiet(options, max_ttl)),
            lua_string(&marker_key),
        );
        let sweeping = format!(
            "local SWEEP, ALL, OLD_US = {}, {}, {}\n",
            lua_string(&[&options.prefix, SWEEP].concat()),
            lua_string(&pattern(&options.prefix)),
            micros(KEPT),
        );
        let scripts = Scripts::new(&Sources {
            constants: &constants,
            sweeping: &sweeping,
            record: include_str!("lua/strict/record.lua"),
            acquire: include_str!("lua/strict/acquire.lua"),
            release: include_str!("lua/strict/release.lua"),
        });
        Self {
            scripts: Arc::new(scripts),
            marker_key,
            options: options.clone(),
            max_ttl,
            members: members.clone(),
            run_id: String::new(),
            voter: Vec::new(),
        }
    }

    pub(super) fn scripts(&self) -> &Scripts {
        &self.scripts
    }

    pub(super) fn marker_key(&self) -> &[u8] {
        &self.marker_key
    }

    pub(super) fn voter(&self) -> &[u8] {
        &self.voter
    }

    /// The connection is to this start of a server.
    pub(super) fn connected_to(&mut self, run_id: &str) {
        run_id.clone_into(&mut self.run_id);
        self.voter = marker::of_a_voter(run_id, &self.members).into_bytes();
    }

    pub(super) fn sign(&self, command: Command<'_>, wall_us: u64) {
        command.number(wall_us).arg(&self.voter);
    }

    pub(super) fn write_own(
        &self,
        request: &Request<'_>,
        by: By,
        out: &mut Vec<u8>,
    ) -> Option<Sent> {
        let whole = by == By::Source;
        let call = |args, out| self.scripts.mark.call(whole, args + SIGNATURE_ARGS, out).number(0);
        let command = match request.verb {
            Verb::Look => call(1, out).arg(b"look"),
            Verb::Mark(mark) => {
                let quiet = quiet(&self.options, self.max_ttl);
                let marker::Written { seen, head, after_us, tail } =
                    marker::write(mark, &self.run_id, quiet, self.max_ttl);
                let after_us = u64::try_from(after_us).unwrap_or(u64::MAX);
                let command = call(5, out).arg(b"mark").arg(seen).arg(head.as_bytes());
                command.number(after_us).arg(tail.as_bytes())
            }
            _ => return None,
        };
        self.sign(command, request.wall_us);
        Some(Sent::Marker)
    }

    pub(super) fn read_marker(&self, text: &[u8], now_us: u64) -> Marker {
        marker::read(text, &self.run_id, now_us)
    }

    pub(super) fn refusal(
        &self,
        parts: &[Value<'_>],
        sent_us: u64,
        now_us: u64,
    ) -> Option<Failure> {
        match parts {
            [Value::Bulk(b"CLOCK"), Value::Bulk(server_us)] => {
                refusals::clock(server_us, sent_us, now_us, self.options.clock_ahead)
            }
            [Value::Bulk(b"MARKER"), Value::Bulk(text), Value::Bulk(server_us)] => {
                let marker = self.read_marker(text, refusals::digits(server_us)?);
                let quiet = quiet(&self.options, self.max_ttl);
                Some(refusals::casts_no_vote(&marker, &self.members, quiet, &self.options.prefix))
            }
            _ => None,
        }
    }
}

/// Any bytes as a string of Lua.
fn lua_string(bytes: &[u8]) -> String {
    let bytes = bytes.iter().map(|byte| format!("\\{byte:03}"));
    format!("'{}'", bytes.collect::<String>())
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}
