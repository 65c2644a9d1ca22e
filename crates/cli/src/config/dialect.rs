//! What is to be promised of the locks on Redis and Valkey nodes.

use std::env;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::time::Duration;

use quorlock::{Builder, Dialect, Settings};

use super::{Lookup, misuse};
use crate::args::DialectArgs;
use crate::exit::Failed;

/// For tests alone: in no file and no argument, where it would stay.
const TRUST: &str = "QUORLOCK_TRUST_NEW_NODES";

/// The settings that all clients of a lock have to share.
#[derive(Clone, Copy)]
pub(crate) struct Promises {
    pub(crate) dialect: Dialect,
    pub(crate) max_ttl: Duration,
    clock_behind: Duration,
    clock_ahead: Duration,
    clients_apart: Duration,
    trust_new_nodes: bool,
}

impl Promises {
    /// What the command line says, or else the environment, or else the file.
    pub(crate) fn new(args: &DialectArgs, lookup: &mut Lookup<'_>) -> Result<Self, Failed> {
        let (default, config) = (Settings::default(), lookup.config);
        let read = |value: OsString| parse(&value.to_string_lossy());
        let dialect = lookup.setting("dialect", args.dialect, config.dialect, read)?;
        let max_ttl = lookup.duration("max_ttl", args.max_ttl, config.max_ttl)?;
        Ok(Self {
            dialect: dialect.unwrap_or_default(),
            max_ttl: max_ttl.unwrap_or(default.max_ttl),
            clock_behind: lookup.in_file("clock_behind", config.clock_behind, default.clock_behind),
            clock_ahead: lookup.in_file("clock_ahead", config.clock_ahead, default.clock_ahead),
            clients_apart: lookup.in_file(
                "clients_apart",
                config.clients_apart,
                default.clients_apart,
            ),
            trust_new_nodes: trusts(env::var_os(TRUST).as_deref())?,
        })
    }

    /// What the strict dialect takes off the end of each lease, so that nobody counts on it.
    pub(crate) fn margin(&self) -> Duration {
        let window = self.clock_behind.saturating_add(self.clock_ahead);
        window.saturating_add(self.clients_apart.saturating_mul(2))
    }

    /// How long a node casts no vote that may have forgotten locks.
    pub(crate) fn quarantine(&self) -> Duration {
        self.max_ttl.saturating_add(self.margin())
    }

    /// Whether new nodes need not be told that they are.
    pub(crate) fn trusts_new_nodes(&self) -> bool {
        self.trust_new_nodes
    }

    pub(crate) fn apply(&self, builder: Builder) -> Builder {
        builder
            .dialect(self.dialect)
            .max_ttl(self.max_ttl)
            .clock_window(self.clock_behind, self.clock_ahead)
            .clients_apart(self.clients_apart)
            .trust_new_nodes(self.trust_new_nodes)
    }
}

/// Reads the name of a dialect.
///
/// # Errors
/// A message that has the text and the names, if it is none of them.
pub(crate) fn parse(text: &str) -> Result<Dialect, String> {
    match text {
        "strict" => Ok(Dialect::Strict),
        "redlock" => Ok(Dialect::Redlock),
        _ => Err(format!("{text:?} is no dialect; write strict or redlock")),
    }
}

/// The name of a dialect.
pub(crate) fn name(dialect: Dialect) -> &'static str {
    match dialect {
        Dialect::Redlock => "redlock",
        _ => "strict",
    }
}

fn trusts(value: Option<&OsStr>) -> Result<bool, Failed> {
    match value.map(OsStr::as_bytes) {
        None | Some(b"" | b"0") => Ok(false),
        Some(b"1") => Ok(true),
        Some(_) => Err(misuse(format!(
            "{TRUST} is neither 1 nor 0; it is for tests, so rather unset it and use quorlock init"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_dialect_is_read_by_its_name() {
        for dialect in [Dialect::Strict, Dialect::Redlock] {
            assert_eq!(parse(name(dialect)), Ok(dialect));
        }
        let error = parse("Strict").unwrap_err();
        assert_eq!(error, "\"Strict\" is no dialect; write strict or redlock");
    }

    #[test]
    fn new_nodes_are_trusted_only_if_that_was_written() {
        for (value, trusted) in [(None, false), (Some("0"), false), (Some(""), false)] {
            assert_eq!(trusts(value.map(OsStr::new)).unwrap(), trusted, "{value:?}");
        }
        assert!(trusts(Some(OsStr::new("1"))).unwrap());
        let error = trusts(Some(OsStr::new("yes"))).unwrap_err();
        assert!(error.code == 78 && error.message.contains("quorlock init"), "{error:?}");
    }
}
