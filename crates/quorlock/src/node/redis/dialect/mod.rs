//! How locks lie on a server: a file for each dialect, and what differs between them as methods of one enum.
//!
//! A further dialect is a file here, its scripts in `lua/`, and an arm in each `match` of this file.

mod redlock;
mod shortcut;
mod strict;

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use super::connect::Connected;
use super::options::RedisOptions;
use super::resp::{Command, Value};
use super::scripts::Scripts;
use super::verbs::{By, Sent};
use crate::node::{Capabilities, Failure, Marker, Members, Request};
use redlock::Redlock;
use strict::Strict;

/// How locks lie on Redis and Valkey nodes, and so what can be promised of them.
///
/// All clients of a lock have to use the same dialect.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Dialect {
    /// A lock stays exclusive though nodes crash, forget what they granted, are emptied, or have their
    /// clocks moved. The clocks of the *clients* have to be right within
    /// [`clients_apart`](RedisOptions::clients_apart), as they are with NTP.
    #[default]
    Strict,
    /// The lock of the Redis documentation, which every Redlock library in any language shares. A lock
    /// stays exclusive while no clock jumps and no node forgets.
    Redlock,
}

/// All dialects, and what each is called.
const NAMES: &[(Dialect, &str)] = &[(Dialect::Strict, "strict"), (Dialect::Redlock, "redlock")];

/// What a dialect rests on, for a look at how a server is set up.
#[derive(Debug, Clone, Copy)]
pub(super) struct RestsOn {
    /// For how long a server casts no vote that may have forgotten something. `None` if none may forget.
    pub(super) quarantine: Option<Duration>,
    /// How far a server's clock may be behind and ahead. `None` if it must not jump.
    pub(super) clock_window: Option<(Duration, Duration)>,
}

impl Dialect {
    /// What they are called, for people: `strict or redlock`.
    #[must_use]
    pub fn names() -> String {
        NAMES.iter().map(|(_, name)| *name).collect::<Vec<_>>().join(" or ")
    }

    pub(super) fn capabilities(self, options: &RedisOptions) -> Capabilities {
        match self {
            Self::Strict => strict::capabilities(options),
            Self::Redlock => redlock::capabilities(),
        }
    }

    /// What is taken off the end of each lease.
    pub(super) fn margin(self, options: &RedisOptions) -> Duration {
        self.capabilities(options).margin
    }

    pub(super) fn rests_on(self, options: &RedisOptions, max_ttl: Duration) -> RestsOn {
        match self {
            Self::Strict => strict::rests_on(options, max_ttl),
            Self::Redlock => RestsOn { quarantine: None, clock_window: None },
        }
    }

    /// Whether a server keeps which set of nodes it belongs to.
    pub(super) fn has_markers(self) -> bool {
        match self {
            Self::Strict => true,
            Self::Redlock => false,
        }
    }

    /// Whether there are no locks without fences.
    pub(super) fn always_fences(self) -> bool {
        match self {
            Self::Strict => true,
            Self::Redlock => false,
        }
    }
}

impl fmt::Display for Dialect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = NAMES.iter().find(|(dialect, _)| dialect == self).map(|(_, name)| *name);
        f.write_str(name.unwrap_or_default())
    }
}

impl FromStr for Dialect {
    type Err = String;

    /// Reads the name of a dialect.
    fn from_str(text: &str) -> Result<Self, String> {
        let known = NAMES.iter().find(|(_, name)| *name == text);
        known
            .map(|(dialect, _)| *dialect)
            .ok_or_else(|| format!("{text:?} is no dialect; write {}", Self::names()))
    }
}

/// A dialect, and what it knows of the server at the other end of a connection.
#[derive(Debug, Clone)]
pub(super) enum DialectState {
    Strict(Box<Strict>),
    Redlock(Redlock),
}

impl DialectState {
    /// For a server that is not connected to yet.
    pub(super) fn new(options: &RedisOptions, max_ttl: Duration, members: &Members) -> Self {
        match options.dialect {
            Dialect::Strict => Self::Strict(Box::new(Strict::new(options, max_ttl, members))),
            Dialect::Redlock => Self::Redlock(Redlock::default()),
        }
    }

    pub(super) fn scripts(&self) -> &Scripts {
        match self {
            Self::Strict(strict) => strict.scripts(),
            Self::Redlock(_) => redlock::scripts(),
        }
    }

    /// Takes in what the greeting told. Returns whether the server votes, as far as its marker tells.
    pub(super) fn connected(&mut self, connected: &Connected) -> bool {
        match self {
            Self::Strict(strict) => {
                strict.connected_to(&connected.run_id);
                connected.marker.starts_with(strict.voter())
            }
            Self::Redlock(redlock) => {
                redlock.connected(&connected.info);
                true
            }
        }
    }

    /// The connection is to this start of a server.
    pub(super) fn connected_to(&mut self, run_id: &str) {
        match self {
            Self::Strict(strict) => strict.connected_to(run_id),
            Self::Redlock(_) => {}
        }
    }

    /// Writes the command for a request that this dialect does otherwise than by the script of its verb.
    pub(super) fn write_own(
        &mut self,
        prefix: &[u8],
        request: &Request<'_>,
        by: By,
        out: &mut Vec<u8>,
    ) -> Option<Sent> {
        match self {
            Self::Strict(strict) => strict.write_own(request, by, out),
            Self::Redlock(redlock) => redlock.write_own(prefix, request, by, out),
        }
    }

    /// Whether the script of a release has to be told that we may have a place in the queue.
    pub(super) fn release_names_queue(&self) -> bool {
        match self {
            // Its record tells.
            Self::Strict(_) => false,
            Self::Redlock(_) => true,
        }
    }

    /// So many arguments each script ends with besides its own.
    pub(super) fn signature_args(&self) -> usize {
        match self {
            Self::Strict(_) => strict::SIGNATURE_ARGS,
            Self::Redlock(_) => 0,
        }
    }

    /// Writes them, for a script that is sent at that time of day.
    pub(super) fn sign(&self, command: Command<'_>, wall_us: u64) {
        match self {
            Self::Strict(strict) => strict.sign(command, wall_us),
            Self::Redlock(_) => {}
        }
    }

    /// The key of the marker, if servers have one. Then they may not throw anything away for want of memory.
    pub(super) fn marker_key(&self) -> Option<&[u8]> {
        match self {
            Self::Strict(strict) => Some(strict.marker_key()),
            Self::Redlock(_) => None,
        }
    }

    /// How the marker of this server begins if it votes.
    pub(super) fn voter(&self) -> Option<&[u8]> {
        match self {
            Self::Strict(strict) => Some(strict.voter()),
            Self::Redlock(_) => None,
        }
    }

    /// Whether clients clear old locks away, and not the server's expiry.
    pub(super) fn sweeps(&self) -> bool {
        match self {
            Self::Strict(_) => true,
            Self::Redlock(_) => false,
        }
    }

    /// What the text of a marker says, at `now_us` by the server's own clock.
    pub(super) fn read_marker(&self, text: &[u8], now_us: u64) -> Option<Marker> {
        match self {
            Self::Strict(strict) => Some(strict.read_marker(text, now_us)),
            Self::Redlock(_) => None,
        }
    }

    /// Why the server has not looked at a request, or casts no vote, if its reply says so in this dialect.
    pub(super) fn refusal(
        &self,
        parts: &[Value<'_>],
        sent_us: u64,
        now_us: u64,
    ) -> Option<Failure> {
        match self {
            Self::Strict(strict) => strict.refusal(parts, sent_us, now_us),
            Self::Redlock(_) => None,
        }
    }

    /// The command that was to do without a script has done nothing.
    pub(super) fn shortcut_failed(&mut self, reply: &Value<'_>) {
        match self {
            Self::Strict(_) => {}
            Self::Redlock(redlock) => redlock.shortcut_failed(reply),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_dialect_is_read_by_its_name() {
        for (dialect, name) in NAMES {
            assert_eq!(name.parse(), Ok(*dialect));
            assert_eq!(dialect.to_string(), *name);
        }
        let error = "Strict".parse::<Dialect>().unwrap_err();
        assert_eq!(error, "\"Strict\" is no dialect; write strict or redlock");
    }
}
