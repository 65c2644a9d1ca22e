//! A release by one command, where a server has one that deletes what has a certain value.
//!
//! It takes the server a fraction of what a script does, and knows of no queue. So a client that takes a place in
//! a queue changes the value of the record (`lua/redlock/record.lua`): the command deletes nothing then,
//! and the script is sent behind it, which passes the lock on. That is another round trip, at the moment
//! when a client waits. Where it has happened, the next releases therefore go by the script at once.

use crate::node::Request;
use crate::node::redis::connect::field;
use crate::node::redis::resp::Command;
use crate::token::Token;

/// So many releases go by the script after one that the command was not enough for.
const SCRIPTED: u8 = 64;

/// The command of this server, and whether to use it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Shortcut {
    command: DeleteIfEqual,
    /// So many releases more go by the script.
    scripted: u8,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum DeleteIfEqual {
    /// `DELIFEQ key value`, Valkey 9 and later.
    Delifeq,
    /// `DELEX key IFEQ value`, Redis 8.4 and later.
    Delex,
}

impl Shortcut {
    /// What a server has, by its `INFO`. Valkey calls itself Redis 7.2.4 there as well.
    pub(super) fn of(info: &str) -> Option<Self> {
        let version = |name| {
            let mut parts = field(info, name)?.split('.').map(str::parse);
            Some((parts.next()?.ok()?, parts.next()?.ok()?))
        };
        let command = match (version("valkey_version"), version("redis_version")) {
            (Some((9.., _)), _) => DeleteIfEqual::Delifeq,
            (None, Some((9.., _) | (8, 4..))) => DeleteIfEqual::Delex,
            _ => return None,
        };
        Some(Self { command, scripted: 0 })
    }

    /// Whether the next release goes by the command.
    pub(super) fn is_next(&mut self) -> bool {
        let next = self.scripted == 0;
        self.scripted = self.scripted.saturating_sub(1);
        next
    }

    /// A client waits, or it was another's anyway.
    pub(super) fn was_refused(&mut self) {
        self.scripted = SCRIPTED;
    }

    pub(super) fn write(
        &self,
        prefix: &[u8],
        request: &Request<'_>,
        token: &Token,
        out: &mut Vec<u8>,
    ) {
        let name = request.name.as_bytes();
        match self.command {
            DeleteIfEqual::Delifeq => {
                Command::new(out, 3).written(b"$7\r\nDELIFEQ\r\n").arg2(prefix, name)
            }
            DeleteIfEqual::Delex => {
                let command = Command::new(out, 4).written(b"$5\r\nDELEX\r\n");
                command.arg2(prefix, name).written(b"$4\r\nIFEQ\r\n")
            }
        }
        .arg(&token.text());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_known_by_its_version() {
        use DeleteIfEqual::{Delex, Delifeq};
        for (info, command) in [
            ("redis_version:7.2.4\r\nvalkey_version:9.1.2\r\n", Some(Delifeq)),
            ("redis_version:7.2.4\r\nvalkey_version:10.0.0\r\n", Some(Delifeq)),
            ("redis_version:7.2.4\r\nvalkey_version:8.1.3\r\n", None),
            ("redis_version:9.0.0\r\nvalkey_version:8.1.3\r\n", None),
            ("redis_version:8.4.0\r\n", Some(Delex)),
            ("redis_version:9.0.0\r\n", Some(Delex)),
            ("redis_version:8.2.9\r\n", None),
            ("redis_version:7.0.15\r\n", None),
            ("redis_version:\r\n", None),
            ("# Server\r\n", None),
        ] {
            assert_eq!(Shortcut::of(info).map(|it| it.command), command, "{info}");
        }
    }

    #[test]
    fn after_a_refusal_some_releases_go_by_the_script() {
        let mut shortcut = Shortcut::of("valkey_version:9.0.0").expect("Valkey 9 has it");
        assert!(shortcut.is_next() && shortcut.is_next());
        shortcut.was_refused();
        assert_eq!((0..1_000).position(|_| shortcut.is_next()), Some(SCRIPTED.into()));
        assert!(shortcut.is_next());
    }
}
