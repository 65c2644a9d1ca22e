//! From a URL to a node.

use std::sync::Arc;

use super::servers::Servers;
use super::{ClientId, Node};
use crate::Error;
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
    let setting = Setting {
        settings: settings.clone(),
        runtime: Arc::clone(runtime),
        servers: Arc::default(),
        client,
    };
    let urls = urls.into_iter().enumerate();
    urls.map(|(index, url)| from_url(index, url.as_ref(), &setting)).collect()
}

/// The node behind the `index`-th URL, which need not be up.
fn from_url(index: usize, url: &str, setting: &Setting) -> Result<Arc<dyn Node>, Error> {
    match Kind::of(index, url)? {
        #[cfg(feature = "redis")]
        Kind::Redis => Ok(Arc::new(super::redis::RedisNode::new(index, url, setting)?)),
        #[cfg(feature = "sqlite")]
        Kind::Sqlite => Ok(Arc::new(super::sqlite::SqliteNode::new(index, url, setting)?)),
    }
}

/// Looks the node behind the `index`-th URL over. `name` is how the names of locks start that are
/// tried out there.
pub(crate) fn examine(
    index: usize,
    url: &str,
    setting: &Setting,
    name: &[u8],
) -> Result<BoxFuture<'static, Examination>, Error> {
    match Kind::of(index, url)? {
        #[cfg(feature = "redis")]
        Kind::Redis => super::redis::examine(index, url, setting, name),
        #[cfg(feature = "sqlite")]
        Kind::Sqlite => super::sqlite::examine(index, url, setting, name),
    }
}

/// Finds out whether the node behind the `index`-th URL can be marked as new.
pub(crate) fn init(
    index: usize,
    url: &str,
    setting: &Setting,
) -> Result<BoxFuture<'static, Look>, Error> {
    match Kind::of(index, url)? {
        #[cfg(feature = "redis")]
        Kind::Redis => super::redis::init(index, url, setting),
        // A file does not forget: what is written there is there, or the file is not.
        #[cfg(feature = "sqlite")]
        Kind::Sqlite => {
            let label = super::sqlite::label(index, url)?;
            Ok(Box::pin(async { Look::settled(label, crate::init::InitState::NotNeeded) }))
        }
    }
}

/// Has the node behind the `index`-th URL forget these locks, if they are free.
pub(crate) fn forget(
    index: usize,
    url: &str,
    setting: &Setting,
    names: &Arc<[Name]>,
) -> Result<BoxFuture<'static, Kept>, Error> {
    match Kind::of(index, url)? {
        #[cfg(feature = "redis")]
        Kind::Redis => super::redis::forget(index, url, setting, names),
        #[cfg(feature = "sqlite")]
        Kind::Sqlite => super::sqlite::forget(index, url, setting, names),
    }
}

/// The kinds of nodes that a URL can stand for.
enum Kind {
    #[cfg(feature = "redis")]
    Redis,
    #[cfg(feature = "sqlite")]
    Sqlite,
}

impl Kind {
    fn of(index: usize, url: &str) -> Result<Self, Error> {
        match url.split_once(':').map_or("", |(scheme, _)| scheme) {
            #[cfg(feature = "redis")]
            "redis" | "rediss" | "valkey" | "valkeys" | "redis+unix" | "valkey+unix" | "unix" => {
                Ok(Self::Redis)
            }
            #[cfg(feature = "sqlite")]
            "sqlite" => Ok(Self::Sqlite),
            // The URL is not shown whole: what follows the scheme may hold a password.
            scheme => Err(Error::misuse(
                format!(
                    "node {} has the URL scheme {scheme:?}, which no kind of node has",
                    index + 1
                ),
                "use redis://HOST, rediss://HOST, redis+unix:///PATH or sqlite:PATH (the last needs the \
                 feature sqlite)",
            )),
        }
    }
}
