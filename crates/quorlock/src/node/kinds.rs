//! The kinds of nodes that a URL can stand for: one line each in the table, and one folder each beside this file.

use std::sync::Arc;

use super::url::Setting;
use super::{Login, Node};
use crate::Error;
use crate::examine::Examination;
use crate::forget::Kept;
use crate::init::Look;
use crate::name::Name;
use crate::runtime::BoxFuture;

/// All of them. A new kind is one line here.
pub(super) const KINDS: &[Kind] = &[
    #[cfg(feature = "redis")]
    super::redis::KIND,
    #[cfg(feature = "sqlite")]
    super::sqlite::KIND,
];

/// What is found out of a node, apart from locking; an error if its URL cannot be one.
type Asked<T> = Result<BoxFuture<'static, T>, Error>;
/// A node, which need not be up; an error if its URL cannot be one.
type Opened = Result<Arc<dyn Node>, Error>;
/// Several locks.
type Names = Arc<[Name]>;

/// One kind of node. What it does gets a URL, and its place among those that were given.
pub(super) struct Kind {
    /// The schemes of its URLs, and where each has the name and the password to log in with.
    pub(super) schemes: &'static [(&'static str, Login)],
    /// What its URLs look like, for error messages.
    pub(super) looks_like: &'static str,
    /// Whether its nodes keep which set they belong to in the `strict` dialect, so that new ones have to be told.
    pub(super) has_markers: bool,
    /// What the node is called in its set, without secrets.
    pub(super) member: fn(usize, &str) -> Result<String, Error>,
    /// Makes the node.
    pub(super) open: fn(usize, &str, &Setting) -> Opened,
    /// Looks it over. The names of locks that are tried out there start with the last argument.
    pub(super) examine: fn(usize, &str, &Setting, &[u8]) -> Asked<Examination>,
    /// Finds out which set it belongs to, and how to make it ours.
    pub(super) init: fn(usize, &str, &Setting) -> Asked<Look>,
    /// Has it forget these locks, if they are free.
    pub(super) forget: fn(usize, &str, &Setting, &Names) -> Asked<Kept>,
    /// Has it forget the number of a lock that nobody can have been given.
    pub(super) forget_number: fn(usize, &str, &Setting, &Name) -> Asked<Kept>,
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
        KINDS.iter().find_map(|kind| {
            let (_, login) = kind.schemes.iter().find(|(known, _)| *known == scheme(url))?;
            Some((kind, *login))
        })
    }
}

/// Whether it can be one, and nothing else.
fn is_scheme(text: &str) -> bool {
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
