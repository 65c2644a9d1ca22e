//! Where locks come from.

use std::sync::Arc;
use std::time::Duration;

use super::block_on::block_on;
use super::guard::Guard;
use super::lock::{Lock, LockMany};
use super::{may_block, same_as, thread};
use crate::node::Node;
use crate::{Drift, Error, NodeRelease, Owner, Status};

/// Takes locks on a set of nodes, as [`crate::Locker`] does.
///
/// A clone shares the connections and the thread. When the last clone and the last guard are gone
/// both end; [`shutdown`](Self::shutdown) waits for releases that are still under way.
#[derive(Debug, Clone)]
pub struct Locker(crate::Locker);

impl Locker {
    /// Sets up a locker.
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// Takes a lock, waiting for it without end unless [`Lock::wait`] sets one. See
    /// [`crate::Locker::lock`].
    pub fn lock(&self, name: impl AsRef<[u8]>) -> Lock {
        Lock(self.0.lock(name))
    }

    /// Takes a lock if it is free: one attempt, no waiting.
    pub fn try_lock(&self, name: impl AsRef<[u8]>) -> Lock {
        Lock(self.0.try_lock(name))
    }

    /// Takes several locks, all or none, in an order that cannot dead-lock. See
    /// [`crate::Locker::lock_many`].
    pub fn lock_many<N: AsRef<[u8]>>(&self, names: impl IntoIterator<Item = N>) -> LockMany {
        LockMany(self.0.lock_many(names))
    }

    /// A new owner, for whom nothing is held yet.
    #[must_use]
    pub fn new_owner(&self) -> Owner {
        self.0.new_owner()
    }

    /// Asks every node who holds a lock. Changes nothing.
    ///
    /// # Errors
    /// [`Error::Misuse`] for a name that no lock can have, and in async code. What went wrong at a
    /// node stands in the status.
    pub fn inspect(&self, name: impl AsRef<[u8]>) -> Result<Status, Error> {
        block_on("Locker::inspect", self.0.inspect(name))?
    }

    /// All locks that are not free. See [`crate::Locker::list`].
    ///
    /// # Errors
    /// Those of [`crate::Locker::list`], and [`Error::Misuse`] in async code.
    pub fn list(&self) -> Result<Vec<Status>, Error> {
        block_on("Locker::list", self.0.list())?
    }

    /// Takes a lock away from its holder. See [`crate::Locker::force_release`].
    ///
    /// # Errors
    /// Those of [`crate::Locker::force_release`], and [`Error::Misuse`] in async code.
    pub fn force_release(&self, seen: &Status) -> Result<Vec<NodeRelease>, Error> {
        block_on("Locker::force_release", self.0.force_release(seen))?
    }

    /// Goes on with a lock that was [kept](Guard::into_token). See [`crate::Locker::resume`].
    ///
    /// # Errors
    /// Those of [`crate::Locker::resume`], and [`Error::Misuse`] in async code.
    pub fn resume(&self, name: impl AsRef<[u8]>, token: impl AsRef<[u8]>) -> Result<Guard, Error> {
        block_on("Locker::resume", self.0.resume(name, token))?.map(Guard::new)
    }

    /// Refuses new locks, and waits until every release that is under way was answered by every
    /// node, or has passed its time limit. For the end of a program, which does not wait for what
    /// its threads still do.
    ///
    /// Guards that are still held stay valid, and can be released afterwards.
    ///
    /// # Errors
    /// [`Error::Misuse`] in async code. Nothing is shut down then.
    pub fn shutdown(&self) -> Result<(), Error> {
        block_on("Locker::shutdown", self.0.shutdown())
    }
}

/// Sets a [`Locker`] up. Every default stands in [`Settings`](crate::Settings).
#[derive(Debug, Default)]
#[must_use = "a builder does nothing until connect"]
pub struct Builder(crate::Builder);

impl Builder {
    same_as! { "Builder":
        nodes(urls: impl IntoIterator<Item = impl Into<String>>)
        with_nodes(nodes: impl IntoIterator<Item = Arc<dyn Node>>)
        ttl(ttl: Duration)
        max_ttl(max_ttl: Duration)
        node_limit(limit: Duration)
        loss_lead(lead: Duration)
        max_extensions(most: u32)
        max_hold(longest: Duration)
        connect_limit(limit: Duration)
        drift(drift: Drift)
        longest_retry_delay(longest: Duration)
        local_turns(turns: u16)
        fences(fences: bool)
    }

    /// As [`Builder::mysql`](crate::Builder::mysql).
    #[cfg(feature = "mysql")]
    pub fn mysql(self, options: crate::MysqlOptions) -> Self {
        Self(self.0.mysql(options))
    }

    /// As [`Builder::postgres`](crate::Builder::postgres).
    #[cfg(feature = "postgres")]
    pub fn postgres(self, options: crate::PostgresOptions) -> Self {
        Self(self.0.postgres(options))
    }

    /// As [`Builder::redis`](crate::Builder::redis).
    #[cfg(feature = "redis")]
    pub fn redis(self, options: crate::RedisOptions) -> Self {
        Self(self.0.redis(options))
    }

    /// Checks the settings, starts the thread, connects to the nodes, and returns as soon as a
    /// majority is ready and the others have had a moment to be.
    ///
    /// # Errors
    /// Those of [`crate::Builder::connect`], and [`Error::Misuse`] in async code or when no thread
    /// can be started.
    pub fn connect(self) -> Result<Locker, Error> {
        const WHAT: &str = "Builder::connect";
        // Before the thread is started.
        may_block(WHAT)?;
        let connecting = self.0.runtime(thread::start()?).connect();
        block_on(WHAT, connecting)?.map(Locker)
    }
}
