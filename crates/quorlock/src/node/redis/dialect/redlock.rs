//! The `redlock` dialect: `SET name token NX PX ttl`, as the Redis documentation describes it, so that every
//! Redlock library in any language shares the lock.
//!
//! Fences and queues lie in keys beside the record, of which such libraries know nothing. The server's own
//! expiry clears everything away. It rests on servers that do not forget, and whose clocks do not jump.

use std::sync::LazyLock;
use std::time::Duration;

use super::shortcut::Shortcut;
use crate::node::redis::resp::{Command, Value};
use crate::node::redis::scripts::{Scripts, Sources};
use crate::node::redis::verbs::{By, Sent, millis};
use crate::node::{Capabilities, Request, Verb};
use quorlock_protocol::Drift;

static SCRIPTS: LazyLock<Scripts> = LazyLock::new(|| {
    Scripts::new(&Sources {
        constants: "",
        sweeping: "local SWEEP, ALL, OLD_US, MARKER, RECORD, BEHIND_US, AHEAD_US\n",
        record: include_str!("lua/redlock/record.lua"),
        acquire: include_str!("lua/redlock/acquire.lua"),
        release: include_str!("lua/redlock/release.lua"),
    })
});

pub(super) fn scripts() -> &'static Scripts {
    &SCRIPTS
}

/// A daemon that slews a clock to the right time may run it 8 % off for a while.
pub(super) fn capabilities() -> Capabilities {
    let drift = Drift { base: Duration::from_millis(2), per_mille: 100 };
    Capabilities::new().drift(drift).fences_by_clock().queues()
}

/// What is known of the server at the other end of a connection.
#[derive(Debug, Clone, Default)]
pub(in crate::node::redis) struct Redlock {
    /// For releases.
    shortcut: Option<Shortcut>,
}

impl Redlock {
    /// The connection is to a server with this `INFO`.
    pub(super) fn connected(&mut self, info: &str) {
        self.shortcut = Shortcut::of(info);
    }

    pub(super) fn write_own(
        &mut self,
        prefix: &[u8],
        request: &Request<'_>,
        by: By,
        out: &mut Vec<u8>,
    ) -> Option<Sent> {
        match request.verb {
            Verb::Acquire { token, ttl, proposal: None } => {
                Command::new(out, 6)
                    .written(b"$3\r\nSET\r\n")
                    .arg2(prefix, request.name.as_bytes())
                    .arg(&token.text())
                    .written(b"$2\r\nNX\r\n$2\r\nPX\r\n")
                    .number(millis(ttl));
                Some(Sent::Set)
            }
            Verb::Release { token, queued: false, participant: None, .. } if by == By::Shortest => {
                let shortcut = self.shortcut.as_mut()?;
                shortcut.is_next().then(|| {
                    shortcut.write(prefix, request, token, out);
                    Sent::Shortcut
                })
            }
            _ => None,
        }
    }

    pub(super) fn shortcut_failed(&mut self, reply: &Value<'_>) {
        match (reply, &mut self.shortcut) {
            // The script tells what is there instead.
            (Value::Int(0), Some(shortcut)) => shortcut.was_refused(),
            (Value::Error(text), _) if text.starts_with(b"WRONGTYPE") => {}
            // A user without the right to it, most likely.
            (_, shortcut) => *shortcut = None,
        }
    }
}
