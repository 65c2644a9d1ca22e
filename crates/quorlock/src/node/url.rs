//! From a URL to a node.

use std::sync::Arc;

use super::kinds::Kind;
use super::servers::Servers;
use super::{ClientId, Members, Node};
use crate::Error;
use crate::drive::Set;
use crate::examine::Examination;
use crate::forget::Kept;
use crate::init::Look;
use crate::name::Name;
use crate::runtime::{BoxFuture, Runtime};
use crate::settings::Settings;

/// What a node takes from its locker.
#[derive(Debug, Clone)]
pub(crate) struct Setting {
    pub(crate) settings: Settings,
    pub(crate) runtime: Arc<dyn Runtime>,
    pub(crate) servers: Arc<Servers>,
    /// Whom nodes send word of grants to.
    pub(crate) client: ClientId,
    /// The set of nodes that all clients have to agree on.
    pub(crate) members: Members,
}

impl Setting {
    /// For the nodes behind these URLs, and others of the user's own making.
    pub(crate) fn new(
        urls: &[impl AsRef<str>],
        own: &[Arc<dyn Node>],
        settings: &Settings,
        runtime: &Arc<dyn Runtime>,
        client: ClientId,
    ) -> Result<Self, Error> {
        let named = urls.iter().enumerate().map(|(index, url)| member(index, url.as_ref()));
        let own = own.iter().map(|node| Ok(node.label().to_owned()));
        let names = named.chain(own).collect::<Result<Vec<_>, _>>()?;
        Ok(Self {
            settings: settings.clone(),
            runtime: Arc::clone(runtime),
            servers: Arc::default(),
            client,
            members: Members::new(names, settings.max_ttl, settings.clock_ahead),
        })
    }
}

impl Setting {
    /// The set of nodes of which these are some or all.
    pub(crate) fn set<'a>(&'a self, nodes: &'a [Arc<dyn Node>]) -> Set<'a> {
        Set {
            nodes,
            members: &self.members,
            quorum: self.members.quorum(),
            runtime: &*self.runtime,
            trusting: self.settings.trust_new_nodes,
            former: &[],
        }
    }
}

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

/// Whether a node behind such a URL keeps which set it belongs to in the `strict` dialect, so that a new one
/// has to be told that it is.
#[must_use]
pub fn has_marker(url: &str) -> bool {
    Kind::known(url).is_some_and(|(kind, _)| kind.has_markers)
}

/// What the node behind the `index`-th URL is called in its set.
pub(crate) fn member(index: usize, url: &str) -> Result<String, Error> {
    (Kind::of(index, url)?.member)(index, url)
}

/// The nodes behind some URLs, for use without a [`Locker`](crate::Locker). They connect in the
/// background; [`Node::ready`] waits for that. Word of grants to tickets of `client` goes to what is
/// given to [`Node::listen`].
///
/// # Errors
/// [`Error::Misuse`] for a URL that cannot be read.
pub fn open<U: AsRef<str>>(
    urls: impl IntoIterator<Item = U>,
    settings: &Settings,
    runtime: &Arc<dyn Runtime>,
    client: ClientId,
) -> Result<Vec<Arc<dyn Node>>, Error> {
    let urls: Vec<_> = urls.into_iter().collect();
    open_with(&urls, &Setting::new(&urls, &[], settings, runtime, client)?)
}

/// The same for some nodes of a set, from [`members`].
///
/// # Errors
/// [`Error::Misuse`] for a URL that cannot be read.
pub fn open_some<U: AsRef<str>>(
    urls: impl IntoIterator<Item = U>,
    members: Members,
    settings: &Settings,
    runtime: &Arc<dyn Runtime>,
    client: ClientId,
) -> Result<Vec<Arc<dyn Node>>, Error> {
    let urls: Vec<_> = urls.into_iter().collect();
    let setting = Setting::new(&urls, &[], settings, runtime, client)?;
    open_with(&urls, &Setting { members, ..setting })
}

/// The set of the nodes behind some URLs, as their clients have to agree on it.
///
/// # Errors
/// [`Error::Misuse`] for a URL that cannot be read.
pub fn members<U: AsRef<str>>(
    urls: impl IntoIterator<Item = U>,
    settings: &Settings,
) -> Result<Members, Error> {
    let names = urls.into_iter().enumerate().map(|(index, url)| member(index, url.as_ref()));
    let names = names.collect::<Result<Vec<_>, _>>()?;
    Ok(Members::new(names, settings.max_ttl, settings.clock_ahead))
}

/// The same for a set of nodes of which these may be some only.
pub(crate) fn open_with<U: AsRef<str>>(
    urls: &[U],
    setting: &Setting,
) -> Result<Vec<Arc<dyn Node>>, Error> {
    let urls = urls.iter().enumerate();
    urls.map(|(index, url)| from_url(index, url.as_ref(), setting)).collect()
}

/// The node behind the `index`-th URL, which need not be up.
fn from_url(index: usize, url: &str, setting: &Setting) -> Result<Arc<dyn Node>, Error> {
    (Kind::of(index, url)?.open)(index, url, setting)
}

/// Looks the node behind the `index`-th URL over. `name` is how the names of locks start that are
/// tried out there.
pub(crate) fn examine(
    index: usize,
    url: &str,
    setting: &Setting,
    name: &[u8],
) -> Result<BoxFuture<'static, Examination>, Error> {
    (Kind::of(index, url)?.examine)(index, url, setting, name)
}

/// Finds out which set the node behind the `index`-th URL belongs to, and how to make it ours.
pub(crate) fn init(
    index: usize,
    url: &str,
    setting: &Setting,
) -> Result<BoxFuture<'static, Look>, Error> {
    (Kind::of(index, url)?.init)(index, url, setting)
}

/// Has the node behind the `index`-th URL forget these locks, if they are free.
pub(crate) fn forget(
    index: usize,
    url: &str,
    setting: &Setting,
    names: &Arc<[Name]>,
) -> Result<BoxFuture<'static, Kept>, Error> {
    (Kind::of(index, url)?.forget)(index, url, setting, names)
}

/// Has the node behind the `index`-th URL forget the number of a lock that nobody can have been given.
pub(crate) fn forget_number(
    index: usize,
    url: &str,
    setting: &Setting,
    name: &Name,
) -> Result<BoxFuture<'static, Kept>, Error> {
    (Kind::of(index, url)?.forget_number)(index, url, setting, name)
}
