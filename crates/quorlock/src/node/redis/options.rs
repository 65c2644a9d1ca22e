//! What can be set for Redis and Valkey nodes alone.

use std::time::Duration;

use url::Url;

use super::dialect::Dialect;
use crate::Error;
use crate::name::is_reserved;
use crate::node::clock_window::{CLIENTS_APART, CLOCK_AHEAD, CLOCK_BEHIND};
use crate::node::{KindTerms, NodeOptions};
use crate::settings::Settings;

/// What can be set for Redis and Valkey nodes alone, for [`Builder::redis`](crate::Builder::redis).
///
/// All clients of a lock have to use the same, except for [`trust_new_nodes`](Self::trust_new_nodes). The URL of a
/// node may say `prefix`, `dialect` and `trust_new` as well, as in `redis://a?dialect=redlock&prefix=app:`. All
/// nodes of one locker then have to say the same.
///
/// ```
/// use quorlock::{Dialect, RedisOptions};
///
/// let options = RedisOptions::default().prefix("app:").dialect(Dialect::Redlock);
/// assert_eq!(options.prefix, b"app:");
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct RedisOptions {
    /// Put before each name to make the key on a server. Default: nothing.
    pub prefix: Vec<u8>,
    /// How locks lie on the servers. Default: [`Dialect::Strict`].
    pub dialect: Dialect,
    /// How far a server's clock may be behind this machine's in the `strict` dialect. Default: 100 ms.
    pub clock_behind: Duration,
    /// How far it may be ahead, the longest way of a request included. Default: 300 ms.
    pub clock_ahead: Duration,
    /// How far the clocks of two clients may be apart. Default: 50 ms.
    pub clients_apart: Duration,
    /// Whether a server without a marker is taken for a new one, and not for one that was emptied.
    /// Default: no.
    pub trust_new_nodes: bool,
}

impl Default for RedisOptions {
    fn default() -> Self {
        Self {
            prefix: Vec::new(),
            dialect: Dialect::default(),
            clock_behind: CLOCK_BEHIND,
            clock_ahead: CLOCK_AHEAD,
            clients_apart: CLIENTS_APART,
            trust_new_nodes: false,
        }
    }
}

impl RedisOptions {
    /// What is put before each name to make the key on a server. In the `redlock` dialect without a prefix, every
    /// Redlock library in any language shares the lock. Default: nothing.
    #[must_use]
    pub fn prefix(mut self, prefix: impl AsRef<[u8]>) -> Self {
        self.prefix = prefix.as_ref().to_vec();
        self
    }

    /// How locks lie on the servers, and so what can be promised of them. Default: [`Dialect::Strict`].
    #[must_use]
    pub fn dialect(mut self, dialect: Dialect) -> Self {
        self.dialect = dialect;
        self
    }

    /// How far a server's clock may be behind this machine's, and how far ahead, the longest way of a
    /// request included. A server whose clock is outside of that casts no vote. Both are taken off the
    /// end of each lease. In the `strict` dialect alone. Default: 100 ms and 300 ms.
    #[must_use]
    pub fn clock_window(mut self, behind: Duration, ahead: Duration) -> Self {
        (self.clock_behind, self.clock_ahead) = (behind, ahead);
        self
    }

    /// How far the clocks of two clients may be apart: what the `strict` dialect rests on. It is taken
    /// off the end of each lease twice. Default: 50 ms.
    #[must_use]
    pub fn clients_apart(mut self, apart: Duration) -> Self {
        self.clients_apart = apart;
        self
    }

    /// Takes a server without a marker for a new one. In the `strict` dialect such a server otherwise casts
    /// no vote for as long as a lock may last, since it may have been emptied. For tests; on servers
    /// that matter, `quorlock init` says it once. Default: no.
    #[must_use]
    pub fn trust_new_nodes(mut self, trust: bool) -> Self {
        self.trust_new_nodes = trust;
        self
    }

    /// What is taken off the end of each lease for clocks that differ.
    #[must_use]
    pub fn margin(&self) -> Duration {
        self.dialect.margin(self)
    }

    /// For how long a server casts no vote that may have forgotten locks, if none of them may last for longer
    /// than `max_ttl`. Zero in a dialect that does not notice.
    #[must_use]
    pub fn quarantine(&self, max_ttl: Duration) -> Duration {
        self.dialect.rests_on(self, max_ttl).quarantine.unwrap_or(Duration::ZERO)
    }

    /// Whether servers keep which set of nodes they belong to, so that new ones have to be marked as new.
    #[must_use]
    pub fn has_markers(&self) -> bool {
        self.dialect.has_markers()
    }

    /// Checks them, alone and together with the settings of the locker.
    pub(super) fn check(&self, settings: &Settings) -> Result<(), Error> {
        if is_reserved(&self.prefix) {
            return Err(Error::misuse(
                format!("the prefix \"{}\" has \":quorlock:\" in it", self.prefix.escape_ascii()),
                "choose another: keys that lie beside a lock have that in them",
            ));
        }
        if self.dialect.always_fences() && !settings.fences {
            return Err(Error::misuse(
                format!(
                    "locks without fences were asked for in the {} dialect, which always has them",
                    self.dialect
                ),
                "use the redlock dialect, or leave the fences on",
            ));
        }
        Ok(())
    }

    /// What they mean for those who know nothing of Redis.
    pub(super) fn terms(&self) -> KindTerms {
        KindTerms {
            name_prefix: self.prefix.clone(),
            clock_ahead: self.clock_ahead,
            trusts_new_nodes: self.trust_new_nodes && self.has_markers(),
        }
    }
}

/// What the URL of one node says of these options.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct UrlOptions {
    pub(super) prefix: Option<Vec<u8>>,
    pub(super) dialect: Option<Dialect>,
    pub(super) trust_new_nodes: Option<bool>,
}

impl UrlOptions {
    /// What the URL of the `index`-th node says. One that cannot be read says nothing: it is refused when the node is
    /// opened.
    fn of(index: usize, url: &str) -> Result<Self, Error> {
        let mut options = Self::default();
        let Ok(url) = Url::parse(url) else { return Ok(options) };
        for (key, value) in url.query_pairs() {
            if let Some(Err((problem, remedy))) = options.read(&key, &value) {
                let problem = format!("the URL of node {} {problem}", index + 1);
                return Err(Error::misuse(problem, remedy));
            }
        }
        Ok(options)
    }

    /// Reads a parameter of a URL. Returns what is wrong with its value and what to write, or `None` if these
    /// options have no such parameter.
    pub(super) fn read(&mut self, key: &str, value: &str) -> Option<Result<(), (String, String)>> {
        match key {
            "prefix" => self.prefix = Some(value.as_bytes().to_vec()),
            "dialect" => match value.parse() {
                Ok(dialect) => self.dialect = Some(dialect),
                Err(_) => {
                    let shown: String = value.chars().take(80).collect();
                    let remedy = format!("write {}", Dialect::names());
                    return Some(Err((format!("has the dialect {shown:?}"), remedy)));
                }
            },
            "trust_new" => match value {
                "1" | "true" => self.trust_new_nodes = Some(true),
                "0" | "false" => self.trust_new_nodes = Some(false),
                _ => {
                    let shown: String = value.chars().take(80).collect();
                    let problem = format!("has trust_new={shown:?}");
                    return Some(Err((problem, "write trust_new=1 or trust_new=0".to_owned())));
                }
            },
            _ => return None,
        }
        Some(Ok(()))
    }

    /// What holds for a node with such a URL.
    fn over(&self, options: &RedisOptions) -> RedisOptions {
        RedisOptions {
            prefix: self.prefix.clone().unwrap_or_else(|| options.prefix.clone()),
            dialect: self.dialect.unwrap_or(options.dialect),
            trust_new_nodes: self.trust_new_nodes.unwrap_or(options.trust_new_nodes),
            ..options.clone()
        }
    }
}

/// Takes what the URLs of all Redis nodes say into the options, and checks these. The index is the place of
/// a node among those that were given.
pub(in crate::node) fn resolve(
    options: &mut NodeOptions,
    urls: &[(usize, &str)],
    settings: &Settings,
) -> Result<(), Error> {
    let mut found: Option<(usize, RedisOptions)> = None;
    for (index, url) in urls {
        let said = UrlOptions::of(*index, url)?.over(&options.redis);
        match &found {
            Some((first, before)) => agree((*first, before), (*index, &said))?,
            None => found = Some((*index, said)),
        }
    }
    if let Some((_, said)) = found {
        options.redis = said;
    }
    options.redis.check(settings)
}

/// Refuses two nodes of one locker with different options.
fn agree(
    (first, ours): (usize, &RedisOptions),
    (second, theirs): (usize, &RedisOptions),
) -> Result<(), Error> {
    let shown = |options: &RedisOptions| {
        [
            ("prefix", format!("\"{}\"", options.prefix.escape_ascii())),
            ("dialect", options.dialect.to_string()),
            ("trust_new", options.trust_new_nodes.to_string()),
        ]
    };
    let differs = shown(ours).into_iter().zip(shown(theirs)).find(|(one, other)| one != other);
    match differs {
        None => Ok(()),
        Some(((what, one), (_, other))) => Err(Error::misuse(
            format!("node {} has the {what} {one}, and node {} has {other}", first + 1, second + 1),
            "give all nodes of a lock the same: in each URL, or once for all of them",
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resolved(urls: &[&str], options: RedisOptions) -> Result<RedisOptions, String> {
        let urls: Vec<_> = urls.iter().copied().enumerate().collect();
        let mut all = NodeOptions { redis: options };
        resolve(&mut all, &urls, &Settings::default())
            .map(|()| all.redis)
            .map_err(|error| error.to_string())
    }

    #[test]
    fn a_url_overrides_what_was_set_for_all() {
        let set = RedisOptions::default().prefix("a:").trust_new_nodes(true);
        let said = resolved(&["redis://h?dialect=redlock&prefix=b:"], set.clone()).unwrap();
        assert_eq!(said, set.clone().dialect(Dialect::Redlock).prefix("b:"));
        let said = resolved(&["redis://h?trust_new=0", "redis://i?trust_new=false"], set.clone());
        assert_eq!(said.unwrap(), set.clone().trust_new_nodes(false));
        assert_eq!(resolved(&["redis://h", "redis://i?prefix=a:"], set.clone()).unwrap(), set);
    }

    #[test]
    fn nodes_that_differ_are_refused_with_both_values() {
        for (urls, says) in [
            (
                ["redis://h?dialect=redlock", "redis://:hunter2@i"],
                "node 1 has the dialect redlock, and node 2 has strict",
            ),
            (
                ["redis://h?prefix=a:", "redis://:hunter2@i?prefix=b:"],
                "node 1 has the prefix \"a:\", and node 2 has \"b:\"",
            ),
            (
                ["redis://h", "redis://:hunter2@i?trust_new=1"],
                "node 1 has the trust_new false, and node 2 has true",
            ),
        ] {
            let error = resolved(&urls, RedisOptions::default()).unwrap_err();
            assert!(error.contains(says) && !error.contains("hunter2"), "{error}");
        }
    }

    #[test]
    fn options_that_cannot_work_are_refused_with_the_value_and_a_remedy() {
        let reserved = RedisOptions::default().prefix("a:quorlock:b");
        let error = resolved(&["redis://h"], reserved).unwrap_err();
        assert!(error.contains("a:quorlock:b") && error.contains("choose another"), "{error}");
        let settings = Settings { fences: false, ..Settings::default() };
        let error = RedisOptions::default().check(&settings).unwrap_err().to_string();
        assert!(error.contains("in the strict dialect") && error.contains("redlock"), "{error}");
        RedisOptions::default().dialect(Dialect::Redlock).check(&settings).unwrap();
    }
}
