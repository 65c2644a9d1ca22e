//! What can be set for MySQL and MariaDB nodes alone.

use std::time::Duration;

use super::address::Address;
use crate::Error;
use crate::node::{Capabilities, KindTerms, NodeOptions};
use crate::settings::Settings;
use quorlock_protocol::Drift;

/// What can be set for MySQL and MariaDB nodes alone, for [`Builder::mysql`](crate::Builder::mysql).
///
/// The same as for Redis nodes in the `strict` dialect, and with the same defaults. All clients of a lock have to use the
/// same, except for [`trust_new_nodes`](Self::trust_new_nodes).
///
/// ```
/// use std::time::Duration;
/// use quorlock::MysqlOptions;
///
/// let options = MysqlOptions::default().clients_apart(Duration::from_millis(10));
/// assert_eq!(options.margin(), Duration::from_millis(420));
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct MysqlOptions {
    /// How far a server's clock may be behind this machine's. Default: 100 ms.
    pub clock_behind: Duration,
    /// How far it may be ahead, the longest way of a request included. Default: 300 ms.
    pub clock_ahead: Duration,
    /// How far the clocks of two clients may be apart. Default: 50 ms.
    pub clients_apart: Duration,
    /// Whether a database without a marker is taken for a new one, and not for one that was emptied.
    /// Default: no.
    pub trust_new_nodes: bool,
}

impl Default for MysqlOptions {
    fn default() -> Self {
        Self {
            clock_behind: Duration::from_millis(100),
            clock_ahead: Duration::from_millis(300),
            clients_apart: Duration::from_millis(50),
            trust_new_nodes: false,
        }
    }
}

impl MysqlOptions {
    /// How far a server's clock may be behind this machine's, and how far ahead, the longest way of a request
    /// included. A server whose clock is outside of that casts no vote. Both are taken off the end of each lease.
    /// Default: 100 ms and 300 ms.
    #[must_use]
    pub fn clock_window(mut self, behind: Duration, ahead: Duration) -> Self {
        (self.clock_behind, self.clock_ahead) = (behind, ahead);
        self
    }

    /// How far the clocks of two clients may be apart. It is taken off the end of each lease twice. Default: 50 ms.
    #[must_use]
    pub fn clients_apart(mut self, apart: Duration) -> Self {
        self.clients_apart = apart;
        self
    }

    /// Takes a database without a marker for a new one. It otherwise casts no vote for as long as a lock may last,
    /// since it may have been emptied. For tests; on databases that matter, `quorlock init` says it once. Default: no.
    #[must_use]
    pub fn trust_new_nodes(mut self, trust: bool) -> Self {
        self.trust_new_nodes = trust;
        self
    }

    /// What is taken off the end of each lease for clocks that differ.
    #[must_use]
    pub fn margin(&self) -> Duration {
        let window = self.clock_behind.saturating_add(self.clock_ahead);
        window.saturating_add(self.clients_apart.saturating_mul(2))
    }

    /// For how long a database casts no vote that may have forgotten locks, if none of them may last for longer than
    /// `max_ttl`.
    #[must_use]
    pub fn quarantine(&self, max_ttl: Duration) -> Duration {
        max_ttl.saturating_add(self.margin())
    }

    /// The clocks of the servers do not matter, and those of the clients are compared.
    pub(super) fn capabilities(&self) -> Capabilities {
        Capabilities::new()
            .drift(Drift { base: Duration::from_millis(2), per_mille: 10 })
            .margin(self.margin())
            .by_wall_clock()
            .queues()
    }

    /// What they mean for those who know nothing of MySQL.
    pub(super) fn terms(&self) -> KindTerms {
        KindTerms {
            name_prefix: Vec::new(),
            clock_ahead: self.clock_ahead,
            trusts_new_nodes: self.trust_new_nodes,
        }
    }
}

/// Checks the options. URLs say nothing of them.
pub(in crate::node) fn resolve(
    _options: &mut NodeOptions,
    urls: &[(usize, &str)],
    settings: &Settings,
) -> Result<(), Error> {
    for (index, url) in urls {
        Address::parse(*index, url)?;
    }
    if settings.fences {
        return Ok(());
    }
    Err(Error::misuse(
        "locks without fences were asked for on MySQL and MariaDB nodes, which always have them",
        "leave the fences on",
    ))
}
