//! From a URL to a node.

use std::sync::Arc;

use super::context::NodeContext;
use super::kinds::{KINDS, Kind, is_scheme};
use super::{ClientId, Members, Node, NodeOptions};
use crate::Error;
use crate::admin::examine::Examination;
use crate::admin::forget::Kept;
use crate::admin::init::Look;
use crate::name::Name;
use crate::runtime::{BoxFuture, Runtime};
use crate::settings::Settings;

/// Where the URL of a node has the name and the password to log in with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Login {
    /// Nowhere: it asks nobody for a password.
    Nowhere,
    /// Before its host, as `USER:PASSWORD@`.
    BeforeHost,
    /// Among its parameters, as `?user=USER&pass=PASSWORD`.
    Parameters,
}

/// Where the URL of a node has its login; `None` for a scheme that no kind of node has.
#[must_use]
pub fn login_of(url: &str) -> Option<Login> {
    Kind::known(url).map(|(_, login)| login)
}

/// Whether a node behind such a URL keeps which set it belongs to, so that a new one has to be marked as new.
#[must_use]
pub fn has_marker(url: &str) -> bool {
    Kind::known(url).is_some_and(|(kind, _)| kind.has_markers)
}

/// Whether a node behind such a URL is seen by the processes of one machine alone.
pub(crate) fn is_local(url: &str) -> bool {
    Kind::known(url).is_some_and(|(kind, _)| kind.is_local)
}

/// What the URLs of nodes look like, for people: the forms of all kinds.
#[must_use]
pub fn url_forms() -> String {
    let forms: Vec<_> = KINDS.iter().map(|kind| kind.forms).collect();
    match forms.as_slice() {
        [] => String::new(),
        [one] => (*one).to_owned(),
        [others @ .., last] => format!("{}, or {last}", others.join(", ")),
    }
}

/// The URL of the node to use where none was named: for the processes of this user on this machine.
///
/// # Errors
/// [`Error::Misuse`] if no kind of node has one, or if there is no place for it.
pub fn default_url() -> Result<String, Error> {
    match KINDS.iter().find_map(|kind| kind.default_url) {
        Some(default_url) => default_url(),
        None => Err(Error::misuse(
            "no node was named, and no kind of node of this build has a default",
            "name one, or build quorlock with the feature sqlite",
        )),
    }
}

/// The URLs in a list with commas between them: `redis://a,redis://b`. A comma separates only if a scheme
/// follows it, since one URL may name several hosts. Spaces around a URL, and URLs that are empty, are left out.
///
/// ```
/// let urls = quorlock::node::split_urls("redis://a, redis://b:7000,");
/// assert_eq!(urls, ["redis://a", "redis://b:7000"]);
/// ```
#[must_use]
pub fn split_urls(list: &str) -> Vec<String> {
    let mut urls = Vec::new();
    let mut rest = list;
    while !rest.is_empty() {
        let is_end = |(comma, _): &(usize, &str)| begins_url(&rest[comma + 1..]);
        let end = rest.match_indices(',').find(is_end).map(|(comma, _)| comma);
        let (url, behind) = match end {
            Some(comma) => (&rest[..comma], &rest[comma + 1..]),
            None => (rest, ""),
        };
        let url = url.trim_matches(|c: char| c == ',' || c.is_whitespace());
        if !url.is_empty() {
            urls.push(url.to_owned());
        }
        rest = behind;
    }
    urls
}

/// Whether a text begins with a scheme: any that two slashes follow, or one that does without them.
fn begins_url(text: &str) -> bool {
    let text = text.trim_start();
    text.split_once("://").is_some_and(|(it, _)| is_scheme(it))
        || Kind::known(text).is_some_and(|(kind, _)| kind.bare_scheme)
}

/// What the node behind the `index`-th URL is called in its set.
pub(crate) fn member(index: usize, url: &str) -> Result<String, Error> {
    (Kind::of(index, url)?.member)(index, url)
}

/// The nodes behind some URLs, for use without a [`Locker`](crate::Locker). They connect in the
/// background; [`Node::ready`] waits for that. Messages of grants to tickets of `client` go to what is
/// given to [`Node::listen`].
///
/// # Errors
/// [`Error::Misuse`] for a URL that cannot be read, or options that do not fit together.
pub fn open<U: AsRef<str>>(
    urls: impl IntoIterator<Item = U>,
    settings: &Settings,
    options: &NodeOptions,
    runtime: &Arc<dyn Runtime>,
    client: ClientId,
) -> Result<Vec<Arc<dyn Node>>, Error> {
    let urls: Vec<_> = urls.into_iter().collect();
    open_with(&urls, &NodeContext::new(&urls, &[], settings, options, runtime, client)?)
}

/// The same for some nodes of a set, from [`members`].
///
/// # Errors
/// [`Error::Misuse`] for a URL that cannot be read, or options that do not fit together.
pub fn open_some<U: AsRef<str>>(
    urls: impl IntoIterator<Item = U>,
    members: Members,
    settings: &Settings,
    options: &NodeOptions,
    runtime: &Arc<dyn Runtime>,
    client: ClientId,
) -> Result<Vec<Arc<dyn Node>>, Error> {
    let urls: Vec<_> = urls.into_iter().collect();
    let context = NodeContext::new(&urls, &[], settings, options, runtime, client)?;
    open_with(&urls, &NodeContext { members, ..context })
}

/// The set of the nodes behind some URLs, as their clients have to agree on it.
///
/// # Errors
/// [`Error::Misuse`] for a URL that cannot be read, or options that do not fit together.
pub fn members<U: AsRef<str>>(
    urls: impl IntoIterator<Item = U>,
    settings: &Settings,
    options: &NodeOptions,
) -> Result<Members, Error> {
    let urls: Vec<_> = urls.into_iter().collect();
    let terms = options.clone().resolve(&urls, false, settings)?;
    let names = urls.iter().enumerate().map(|(index, url)| member(index, url.as_ref()));
    let names = names.collect::<Result<Vec<_>, _>>()?;
    Ok(Members::new(names, settings.max_ttl, terms.clock_ahead))
}

/// The same for a set of nodes of which these may be some only.
pub(crate) fn open_with<U: AsRef<str>>(
    urls: &[U],
    context: &NodeContext,
) -> Result<Vec<Arc<dyn Node>>, Error> {
    let urls = urls.iter().enumerate();
    urls.map(|(index, url)| from_url(index, url.as_ref(), context)).collect()
}

/// The node behind the `index`-th URL, which need not be up.
fn from_url(index: usize, url: &str, context: &NodeContext) -> Result<Arc<dyn Node>, Error> {
    (Kind::of(index, url)?.open)(index, url, context)
}

/// Looks the node behind the `index`-th URL over. `name` is how the names of locks start that are
/// tried out there.
pub(crate) fn examine(
    index: usize,
    url: &str,
    context: &NodeContext,
    name: &[u8],
) -> Result<BoxFuture<'static, Examination>, Error> {
    (Kind::of(index, url)?.examine)(index, url, context, name)
}

/// Finds out which set the node behind the `index`-th URL belongs to, and how to make it ours.
pub(crate) fn init(
    index: usize,
    url: &str,
    context: &NodeContext,
) -> Result<BoxFuture<'static, Look>, Error> {
    (Kind::of(index, url)?.init)(index, url, context)
}

/// Has the node behind the `index`-th URL forget these locks, if they are free.
pub(crate) fn forget(
    index: usize,
    url: &str,
    context: &NodeContext,
    names: &Arc<[Name]>,
) -> Result<BoxFuture<'static, Kept>, Error> {
    (Kind::of(index, url)?.forget)(index, url, context, names)
}

/// Has the node behind the `index`-th URL forget the fence of a lock that no holder can have been given.
pub(crate) fn forget_fence(
    index: usize,
    url: &str,
    context: &NodeContext,
    name: &Name,
) -> Result<BoxFuture<'static, Kept>, Error> {
    (Kind::of(index, url)?.forget_fence)(index, url, context, name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(all(feature = "redis", feature = "sqlite"))]
    fn a_comma_separates_urls_only_before_a_scheme() {
        for (list, urls) in [
            ("redis://a,redis://b", &["redis://a", "redis://b"][..]),
            (" redis://a ,\n rediss://b:1/2,, ", &["redis://a", "rediss://b:1/2"]),
            ("sqlite:/a,sqlite:b,redis+unix:///c", &["sqlite:/a", "sqlite:b", "redis+unix:///c"]),
            ("etcd://a:1,redis:2,c,redis://d", &["etcd://a:1,redis:2,c", "redis://d"]),
            ("redis://:x,y@a,http://b", &["redis://:x,y@a", "http://b"]),
            ("redis+unix:///run/a,b.sock,redis://c", &["redis+unix:///run/a,b.sock", "redis://c"]),
            ("a,b", &["a,b"]),
            ("a,redis://b", &["a", "redis://b"]),
            (",", &[]),
            ("", &[]),
        ] {
            assert_eq!(split_urls(list), urls, "{list}");
        }
    }

    #[test]
    #[cfg(all(feature = "redis", feature = "sqlite"))]
    fn the_forms_of_all_kinds_are_listed() {
        let forms = url_forms();
        assert!(forms.starts_with("redis://") && forms.ends_with("or sqlite:PATH"), "{forms}");
    }
}
