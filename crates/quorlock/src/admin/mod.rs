//! What is done to nodes apart from locking: looking them over, marking new ones, changing their set, and
//! having them forget names.
//!
//! ```no_run
//! # async fn example() -> Result<(), quorlock::Error> {
//! use quorlock::Locker;
//!
//! let nodes = ["redis://a", "redis://b", "redis://c"];
//! for node in Locker::builder().nodes(nodes).admin().init(false).await? {
//!     println!("{}: {:?}", node.node, node.state);
//! }
//! # Ok(())
//! # }
//! ```
//!
//! All of it goes over connections of its own, which are closed when it is done. What needs the connections of a
//! [`Locker`](crate::Locker) are methods of it: [`inspect`](crate::Locker::inspect), [`list`](crate::Locker::list) and
//! [`force_release`](crate::Locker::force_release).
//!
//! Files: `examine` looks nodes over, `init` marks new ones, `members` shows the set of nodes and changes it, `forget`
//! clears names away, `inspect` is what a locker is asked about locks. What a kind of node does for it stands in its
//! folder, in files of the same names.

pub mod examine;
pub(crate) mod forget;
pub(crate) mod init;
mod inspect;
pub(crate) mod members;

pub use examine::Checkup;
pub use init::{InitState, NodeInit, Refusal};
pub use inspect::Listing;
#[doc(hidden)]
pub use members::change_own_nodes;
pub use members::{Changed, MemberChange, MemberReport, MemberState, MemberStatus, Progress};

use crate::Error;
use crate::builder::Builder;
use crate::error::NodeAnswers;

/// What is done to nodes apart from locking, from [`Builder::admin`].
#[derive(Debug)]
#[must_use = "it does nothing by itself"]
pub struct Admin {
    builder: Builder,
}

impl Admin {
    pub(crate) fn new(builder: Builder) -> Self {
        Self { builder }
    }

    /// Looks the nodes over: what they are, what is wrong
    /// with them, and what to do about it. A lock whose name starts with `name` is tried out on each
    /// node, released and forgotten.
    ///
    /// # Errors
    /// [`Error::Misuse`]: settings that do not fit together, a URL that cannot be read, or a name that
    /// no lock can start with. What is wrong with a node stands in the [`Checkup`].
    ///
    /// # Panics
    /// Outside of a tokio runtime, unless [`Builder::runtime`] was given.
    ///
    /// # Cancel safety
    /// Dropping it closes the connections. A lock that was being tried out ends with its TTL.
    pub async fn examine(mut self, name: impl AsRef<[u8]>) -> Result<Checkup, Error> {
        let quorum = self.builder.complete()?;
        // What is tried out starts like this, and goes on behind a colon.
        self.builder.settings.name([name.as_ref(), b":"].concat())?;
        examine::examine(
            &self.builder.urls,
            &self.builder.nodes,
            quorum,
            &self.builder.context()?,
            name.as_ref(),
        )
        .await
    }

    /// Marks the nodes as new: they vote from now on, and do not wait first until everything has ended
    /// that they may have granted and forgotten. Only Redis and Valkey nodes in the `strict` dialect
    /// need this.
    ///
    /// **Only if you know for certain** that no lock which any client still believes in was
    /// ever granted by these nodes. Otherwise two may hold one lock.
    ///
    /// All of them are looked at first. A node that was restarted, that has no marker while others of the
    /// set vote, that is in quarantine, that belongs to another set of nodes or serves clients with another
    /// longest TTL or clock window, or on which a lock is held is no new one. Unless `force` is set, it is
    /// refused, and no node is changed then, nor if one of them cannot be reached.
    ///
    /// # Errors
    /// [`Error::Misuse`]: settings that do not fit together, a URL that cannot be read, or one server
    /// behind two URLs. What became of each node stands in the answer.
    ///
    /// # Panics
    /// Outside of a tokio runtime, unless [`Builder::runtime`] was given.
    ///
    /// # Cancel safety
    /// Dropping it closes the connections. Some nodes may have been marked by then.
    pub async fn init(mut self, force: bool) -> Result<Vec<NodeInit>, Error> {
        self.builder.complete()?;
        init::init(&self.builder.urls, &self.builder.nodes, &self.builder.context()?, force).await
    }

    /// Looks at the set of nodes: what each of them says of it. Nothing is changed.
    ///
    /// # Errors
    /// [`Error::Misuse`]: settings that do not fit together, a URL that cannot be read, or one server
    /// behind two URLs. What is wrong with a node stands in the report.
    ///
    /// # Panics
    /// Outside of a tokio runtime, unless [`Builder::runtime`] was given.
    ///
    /// # Cancel safety
    /// Dropping it closes the connections.
    pub async fn members(mut self) -> Result<MemberReport, Error> {
        self.builder.complete()?;
        members::members(&self.builder.urls, &self.builder.nodes, &self.builder.context()?).await
    }

    /// Changes the set of nodes by one, and takes that as far as it goes at once: the members of the old set
    /// are closed, and serve it no more; those of the new one carry it, and vote when all of them have
    /// done so for a quarantine. **Until then nobody gets a lock, and locks that are held are lost at the end of
    /// their time.** At no moment both sets vote.
    ///
    /// Stopped anywhere, it is completed by doing it again, with the old list; or by the clients of the new set
    /// themselves, once all of its nodes carry it. `gone` says that the member which leaves never comes back
    /// with what it knows, if it cannot be reached.
    ///
    /// Only Redis and Valkey nodes in the `strict` dialect know of their set: others need nothing but the new
    /// list, given to all clients at once.
    ///
    /// # Errors
    /// [`Error::Misuse`]: settings that do not fit together, a URL that cannot be read, or a change that would
    /// not come to its end: it says why, and nothing was changed.
    ///
    /// # Panics
    /// Outside of a tokio runtime, unless [`Builder::runtime`] was given.
    ///
    /// # Cancel safety
    /// Dropping it leaves the change where it is: do it again.
    pub async fn change_members(
        mut self,
        change: &MemberChange,
        gone: bool,
    ) -> Result<Changed, Error> {
        self.builder.complete()?;
        members::change(&self.builder.urls, &self.builder.context()?, change, gone).await
    }

    /// Has the nodes forget locks that are free: the last fence of each, which they would keep for a
    /// day. A lock that is held or waited for is left alone.
    ///
    /// **Only for names that nobody uses again**, such as those of a test or a measurement: a later
    /// holder may get a fence that is not above an earlier one's.
    ///
    /// Returns the nodes that did not forget all of them, and why; there they go by themselves. Nodes
    /// of your own making are not asked.
    ///
    /// # Errors
    /// [`Error::Misuse`]: settings that do not fit together, a URL that cannot be read, or a name that no
    /// lock can have.
    ///
    /// # Panics
    /// Outside of a tokio runtime, unless [`Builder::runtime`] was given.
    ///
    /// # Cancel safety
    /// Dropping it closes the connections. Some nodes may have forgotten by then.
    pub async fn forget<N: AsRef<[u8]>>(
        mut self,
        names: impl IntoIterator<Item = N>,
    ) -> Result<NodeAnswers, Error> {
        self.builder.complete()?;
        let names = names.into_iter().map(|name| self.builder.settings.name(name));
        let names = names.collect::<Result<_, _>>()?;
        forget::forget(&self.builder.urls, &self.builder.context()?, names).await
    }

    /// Has the nodes forget the fence of a lock, where it is one that no holder can have been given: more than a
    /// day ahead of the time of day, so that those nodes [refuse](crate::node::FailureKind::Fence) the lock. A client
    /// that holds it there loses it on that node in the `strict` dialect.
    ///
    /// **Only once nobody holds the lock**, and if the clocks of clients were not ahead by so much when it was
    /// last taken: holders have such fences then, and later ones would get lower ones.
    ///
    /// Returns how many nodes have forgotten it, and which could not be asked. Nodes of your own making are
    /// not asked.
    ///
    /// # Errors
    /// [`Error::Misuse`]: settings that do not fit together, a URL that cannot be read, or a name that no
    /// lock can have.
    ///
    /// # Panics
    /// Outside of a tokio runtime, unless [`Builder::runtime`] was given.
    ///
    /// # Cancel safety
    /// Dropping it closes the connections. Some nodes may have forgotten by then.
    pub async fn forget_fence(
        mut self,
        name: impl AsRef<[u8]>,
    ) -> Result<(usize, NodeAnswers), Error> {
        self.builder.complete()?;
        let name = self.builder.settings.name(name)?;
        forget::forget_fence(&self.builder.urls, &self.builder.context()?, &name).await
    }
}
