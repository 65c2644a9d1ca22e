//! What is to be promised of the locks on Redis and Valkey nodes, and in databases.

use std::env;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::time::Duration;

use quorlock::node::NodeOptions;
use quorlock::{Builder, MysqlOptions, PostgresOptions, RedisOptions, Settings};

use super::{Lookup, misuse};
use crate::args::DialectArgs;
use crate::exit::Failed;

/// For tests alone: in no file and no argument, where it would stay.
const TRUST: &str = "QUORLOCK_TRUST_NEW_NODES";

/// The settings that all clients of a lock have to share.
#[derive(Clone)]
pub(crate) struct Promises {
    pub(crate) redis: RedisOptions,
    pub(crate) max_ttl: Duration,
}

impl Promises {
    /// What the command line says, or else the environment, or else the file.
    pub(crate) fn new(
        args: &DialectArgs,
        prefix: Option<OsString>,
        lookup: &mut Lookup<'_>,
    ) -> Result<Self, Failed> {
        let (default, config) = (RedisOptions::default(), lookup.config);
        let file_prefix = config.prefix.clone().map(Into::into);
        let prefix = lookup.setting("prefix", prefix, file_prefix, Ok)?.unwrap_or_default();
        let read = |value: OsString| value.to_string_lossy().parse();
        let dialect = lookup.setting("dialect", args.dialect, config.dialect, read)?;
        let max_ttl = lookup.duration("max_ttl", args.max_ttl, config.max_ttl)?;
        let behind = lookup.in_file("clock_behind", config.clock_behind, default.clock_behind);
        let ahead = lookup.in_file("clock_ahead", config.clock_ahead, default.clock_ahead);
        let apart = lookup.in_file("clients_apart", config.clients_apart, default.clients_apart);
        let redis = default
            .prefix(prefix.as_bytes())
            .dialect(dialect.unwrap_or_default())
            .clock_window(behind, ahead)
            .clients_apart(apart)
            .trust_new_nodes(trusts(env::var_os(TRUST).as_deref())?);
        Ok(Self { redis, max_ttl: max_ttl.unwrap_or(Settings::default().max_ttl) })
    }

    /// The same with what the URLs of the nodes say of it. Those that cannot be read are left to those who can say
    /// why.
    pub(crate) fn with_urls(mut self, urls: &[String]) -> Self {
        let options = NodeOptions::from(self.redis.clone());
        if let Ok(options) = options.with_urls(urls, &Settings::default()) {
            self.redis = options.redis;
        }
        self
    }

    /// The same for PostgreSQL nodes, which know one dialect alone.
    pub(crate) fn postgres(&self) -> PostgresOptions {
        PostgresOptions::default()
            .clock_window(self.redis.clock_behind, self.redis.clock_ahead)
            .clients_apart(self.redis.clients_apart)
            .trust_new_nodes(self.redis.trust_new_nodes)
    }

    /// The same for MySQL and MariaDB nodes.
    pub(crate) fn mysql(&self) -> MysqlOptions {
        MysqlOptions::default()
            .clock_window(self.redis.clock_behind, self.redis.clock_ahead)
            .clients_apart(self.redis.clients_apart)
            .trust_new_nodes(self.redis.trust_new_nodes)
    }

    /// What is taken off the end of each lease on nodes that have markers, so that nobody counts on it.
    pub(crate) fn margin(&self) -> Duration {
        self.postgres().margin()
    }

    /// How long a node casts no vote that may have forgotten locks.
    pub(crate) fn quarantine(&self) -> Duration {
        self.postgres().quarantine(self.max_ttl)
    }

    /// Whether new nodes need not be marked as new.
    pub(crate) fn trusts_new_nodes(&self) -> bool {
        self.redis.trust_new_nodes
    }

    pub(crate) fn apply(&self, builder: Builder) -> Builder {
        let builder = builder.redis(self.redis.clone()).postgres(self.postgres());
        builder.mysql(self.mysql()).max_ttl(self.max_ttl)
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
    fn new_nodes_are_trusted_only_if_that_was_written() {
        for (value, trusted) in [(None, false), (Some("0"), false), (Some(""), false)] {
            assert_eq!(trusts(value.map(OsStr::new)).unwrap(), trusted, "{value:?}");
        }
        assert!(trusts(Some(OsStr::new("1"))).unwrap());
        let error = trusts(Some(OsStr::new("yes"))).unwrap_err();
        assert!(error.code == 78 && error.message.contains("quorlock init"), "{error:?}");
    }
}
