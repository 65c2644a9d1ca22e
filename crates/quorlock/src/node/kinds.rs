//! The kinds of nodes that a URL can stand for: one line each in the table, and one folder each beside this file.

use std::sync::Arc;
use std::time::Duration;

use super::context::NodeContext;
#[cfg(feature = "redis")]
use super::redis::RedisOptions;
use super::{Login, Node};
use crate::Error;
use crate::admin::examine::Examination;
use crate::admin::forget::Kept;
use crate::admin::init::Look;
use crate::name::Name;
use crate::runtime::BoxFuture;
use crate::settings::Settings;

/// All of them. A new kind is one line here.
pub(super) const KINDS: &[Kind] = &[
    #[cfg(feature = "redis")]
    super::redis::KIND,
    #[cfg(feature = "etcd")]
    super::etcd::KIND,
    #[cfg(feature = "etcd")]
    super::etcd::mutex::KIND,
    #[cfg(feature = "zookeeper")]
    super::zookeeper::KIND,
    #[cfg(feature = "zookeeper")]
    super::zookeeper::curator::KIND,
    #[cfg(feature = "sqlite")]
    super::sqlite::KIND,
];

/// What can be set for the nodes of one kind alone, for each kind that has something of the sort.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct NodeOptions {
    /// For Redis and Valkey nodes.
    #[cfg(feature = "redis")]
    pub redis: RedisOptions,
}

/// What the options of a kind mean for those who know nothing of that kind.
#[derive(Debug, Clone, Default)]
pub(crate) struct KindTerms {
    /// Put before each name on the nodes: names are checked together with it.
    pub(crate) name_prefix: Vec<u8>,
    /// How far a node's clock may be ahead of a client's.
    pub(crate) clock_ahead: Duration,
    /// Whether a node without a marker is taken for a new one.
    pub(crate) trusts_new_nodes: bool,
}

#[cfg(feature = "redis")]
impl From<RedisOptions> for NodeOptions {
    fn from(redis: RedisOptions) -> Self {
        Self { redis }
    }
}

impl NodeOptions {
    /// These options, with what the URLs of some nodes say of them.
    ///
    /// # Errors
    /// [`Error::Misuse`] for options that cannot work, or nodes that do not agree.
    pub fn with_urls<U: AsRef<str>>(
        mut self,
        urls: &[U],
        settings: &Settings,
    ) -> Result<Self, Error> {
        self.resolve(urls, false, settings)?;
        Ok(self)
    }

    /// Takes what URLs say into the options, checks those of the kinds that are used, and returns what they mean. A
    /// node of the user's own making may be like one of any kind.
    pub(crate) fn resolve(
        &mut self,
        urls: &[impl AsRef<str>],
        has_own: bool,
        settings: &Settings,
    ) -> Result<KindTerms, Error> {
        let mut terms = KindTerms::default();
        for kind in KINDS {
            let urls = urls.iter().map(AsRef::as_ref).enumerate();
            let urls: Vec<_> = urls.filter(|(_, url)| kind.login_of(url).is_some()).collect();
            if !urls.is_empty() {
                (kind.resolve)(self, &urls, settings)?;
            }
            if !urls.is_empty() || has_own {
                terms.merge((kind.terms)(self));
            }
        }
        Ok(terms)
    }
}

impl KindTerms {
    fn merge(&mut self, other: Self) {
        if !other.name_prefix.is_empty() {
            self.name_prefix = other.name_prefix;
        }
        self.clock_ahead = self.clock_ahead.max(other.clock_ahead);
        self.trusts_new_nodes |= other.trusts_new_nodes;
    }
}

/// What is found out of a node, apart from locking; an error if its URL cannot be one.
type Asked<T> = Result<BoxFuture<'static, T>, Error>;
/// A node, which need not be up; an error if its URL cannot be one.
type Opened = Result<Arc<dyn Node>, Error>;
/// Takes what URLs say into the options. The index is the place of a node among those that were given.
type Resolve = fn(&mut NodeOptions, &[(usize, &str)], &Settings) -> Result<(), Error>;
/// Several locks.
type Names = Arc<[Name]>;

/// One kind of node. What it does gets a URL, and its place among those that were given.
pub(super) struct Kind {
    /// The schemes of its URLs, and where each has the name and the password to log in with.
    pub(super) schemes: &'static [(&'static str, Login)],
    /// Whether its URLs do without slashes, as `sqlite:PATH` does.
    pub(super) bare_scheme: bool,
    /// What its URLs look like in short, for error messages.
    pub(super) looks_like: &'static str,
    /// The whole forms of its URLs, for people who write them.
    pub(super) forms: &'static str,
    /// Whether its nodes keep which set they belong to, so that new ones have to be marked as new.
    pub(super) has_markers: bool,
    /// Whether a node is seen by the processes of one machine alone.
    pub(super) is_local: bool,
    /// The URL of the node to use where none was named, if there is one of this kind.
    pub(super) default_url: Option<fn() -> Result<String, Error>>,
    /// Takes what its URLs say into the options, and checks these.
    pub(super) resolve: Resolve,
    /// What the options mean for those who know nothing of this kind.
    pub(super) terms: fn(&NodeOptions) -> KindTerms,
    /// What the node is called in its set, without secrets.
    pub(super) member: fn(usize, &str) -> Result<String, Error>,
    /// Makes the node.
    pub(super) open: fn(usize, &str, &NodeContext) -> Opened,
    /// Looks it over. The names of locks that are tried out there start with the last argument.
    pub(super) examine: fn(usize, &str, &NodeContext, &[u8]) -> Asked<Examination>,
    /// Finds out which set it belongs to, and how to make it ours.
    pub(super) init: fn(usize, &str, &NodeContext) -> Asked<Look>,
    /// Has it forget these locks, if they are free.
    pub(super) forget: fn(usize, &str, &NodeContext, &Names) -> Asked<Kept>,
    /// Has it forget the fence of a lock that no holder can have been given.
    pub(super) forget_fence: fn(usize, &str, &NodeContext, &Name) -> Asked<Kept>,
}

impl Kind {
    /// The kind of the `index`-th URL.
    pub(super) fn of(index: usize, url: &str) -> Result<&'static Self, Error> {
        Self::known(url).map(|(kind, _)| kind).ok_or_else(|| {
            let looks: Vec<_> = KINDS.iter().map(|kind| kind.looks_like).collect();
            // The URL is not shown whole: what follows the scheme may hold a password, and so may what has none.
            let problem = match url.split_once("://") {
                Some((scheme, _)) if is_scheme(scheme) => {
                    format!(
                        "node {} has the URL scheme {scheme:?}, which no kind of node has",
                        index + 1
                    )
                }
                _ => format!("node {} is no URL: it has no scheme", index + 1),
            };
            Error::misuse(
                problem,
                match looks.as_slice() {
                    [] => "build quorlock with the feature redis or sqlite".to_owned(),
                    looks => format!("use {}", looks.join(", or ")),
                },
            )
        })
    }

    /// The kind of a URL, and where that has its login; `None` for a scheme that no kind has.
    pub(super) fn known(url: &str) -> Option<(&'static Self, Login)> {
        KINDS.iter().find_map(|kind| Some((kind, kind.login_of(url)?)))
    }

    /// Where a URL of this kind has its login; `None` for a URL of another kind.
    fn login_of(&self, url: &str) -> Option<Login> {
        let (_, login) = self.schemes.iter().find(|(known, _)| *known == scheme(url))?;
        Some(*login)
    }
}

/// Whether it can be one, and nothing else.
pub(super) fn is_scheme(text: &str) -> bool {
    let valid = |byte: u8| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte);
    !text.is_empty() && text.bytes().all(valid)
}

fn scheme(url: &str) -> &str {
    url.split_once(':').map_or("", |(scheme, _)| scheme)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scheme_is_of_one_kind() {
        let schemes = KINDS.iter().flat_map(|kind| kind.schemes).map(|(scheme, _)| *scheme);
        let mut all: Vec<_> = schemes.collect();
        let count = all.len();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), count);
    }

    #[test]
    #[cfg(all(feature = "redis", feature = "sqlite"))]
    fn options_count_where_there_are_nodes_of_their_kind() {
        let options = RedisOptions::default().prefix("app:").trust_new_nodes(true);
        let terms = |urls: &[&str], has_own| {
            let settings = Settings::default();
            let mut options = NodeOptions::from(options.clone());
            let terms = options.resolve(urls, has_own, &settings).unwrap();
            (terms.name_prefix, terms.clock_ahead.as_millis(), terms.trusts_new_nodes)
        };
        let of_redis = (b"app:".to_vec(), 300, true);
        assert_eq!(terms(&["redis://a", "redis://b"], false), of_redis);
        assert_eq!(terms(&["sqlite:a", "redis+unix:///b"], false), of_redis);
        assert_eq!(terms(&[], true), of_redis);
        assert_eq!(terms(&["sqlite:a"], false), (Vec::new(), 0, false));
        assert_eq!(terms(&["redis://a?prefix=x"], false), (b"x".to_vec(), 300, true));
    }

    #[test]
    #[cfg(all(feature = "redis", feature = "sqlite"))]
    fn an_unknown_scheme_is_refused_with_those_that_are_known() {
        let Err(error) = Kind::of(1, "http://user:hunter2@host") else { panic!("accepted") };
        let text = error.to_string();
        for part in ["node 2", "\"http\"", "redis://HOST", "sqlite:PATH"] {
            assert!(text.contains(part), "{text}");
        }
        assert!(!text.contains("hunter2"), "{text}");
        for url in ["hunter2@host:6379", "hunter2", "user:hunter2@host", "a hunter2://x", ""] {
            let Err(error) = Kind::of(0, url) else { panic!("accepted") };
            let text = error.to_string();
            assert!(text.contains("node 1 is no URL: it has no scheme"), "{text}");
            assert!(text.contains("redis://HOST") && !text.contains("hunter2"), "{text}");
        }
    }
}
