//! What a holder of several locks has in its hands.

use std::sync::Arc;
use std::time::Duration;

use super::block_on::block_on;
use super::guard::Guard;
use super::lost::{self, Presence};
use crate::runtime::Runtime;
use crate::{Error, GuardState, Loss, Name, Released};

/// Several locks that are held, as [`crate::Guards`] are.
///
/// Dropping it releases all of them in the background, in async code too: it does not block or panic.
/// Iterating over it by value gives the guards, each on its own from then on.
#[derive(Debug)]
#[must_use = "guards that are dropped release their locks at once"]
pub struct Guards {
    /// Dropped before the locks are released, which is no loss.
    presence: Presence,
    guards: crate::Guards,
    runtime: Arc<dyn Runtime>,
}

impl Guards {
    pub(super) fn new(guards: crate::Guards, runtime: Arc<dyn Runtime>) -> Self {
        Self { presence: Presence::default(), guards, runtime }
    }

    /// The names of the locks, in their order.
    pub fn names(&self) -> impl Iterator<Item = &Name> {
        self.guards.iter().map(crate::Guard::name)
    }

    /// How many locks there are. A name that was given twice is one.
    #[must_use]
    pub fn len(&self) -> usize {
        self.guards.len()
    }

    /// Never so: without names nothing is locked.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.guards.is_empty()
    }

    /// Whether all of them are held at this moment. Once it is `false` it stays so.
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.guards.is_held()
    }

    /// What is left of the validity of the one that ends first; zero once any of them is lost.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        self.guards.remaining()
    }

    /// What is left to stop the work in once a loss was notified. See [`crate::Guards::grace`].
    #[must_use]
    pub fn grace(&self) -> Duration {
        self.guards.grace()
    }

    /// What is known of one of them; `None` for a name that is not among them.
    #[must_use]
    pub fn state(&self, name: impl AsRef<[u8]>) -> Option<GuardState> {
        self.guards.get(name).map(crate::Guard::state)
    }

    /// The fence that this holder has for one of them; `None` for a name that is not among them. Each
    /// lock has a fence of its own. See [`crate::Guard::fence`].
    ///
    /// # Panics
    /// If the locker was built [without fences](crate::Builder::fences).
    #[must_use]
    pub fn fence(&self, name: impl AsRef<[u8]>) -> Option<u64> {
        self.guards.get(name).map(crate::Guard::fence)
    }

    /// Makes all of them last for another TTL from now.
    ///
    /// # Errors
    /// Those of [`crate::Guards::extend`], and [`Error::Misuse`] in async code. Nothing is extended
    /// then.
    pub fn extend(&self) -> Result<(), Error> {
        block_on("Guards::extend", async { self.guards.extend().await })?
    }

    /// Blocks until the first of them is lost, or is about to be, and says which one and why; `None`
    /// if none is after `at_most`.
    ///
    /// # Errors
    /// [`Error::Misuse`] in async code.
    pub fn wait_lost(&self, at_most: Duration) -> Result<Option<(Name, Loss)>, Error> {
        lost::wait("Guards::wait_lost", &*self.runtime, self.guards.lost(), at_most)
    }

    /// Calls `tell` when the first of them is lost, or is about to be; not when these guards are
    /// released, dropped or taken apart before that. See [`Guard::on_lost`] for where it is called.
    pub fn on_lost(&self, tell: impl FnOnce((Name, Loss)) + Send + 'static) {
        self.presence.tell(&*self.runtime, self.guards.lost(), tell);
    }

    /// Gives all of them back on all nodes, and blocks until a majority has let go of each.
    ///
    /// # Errors
    /// Those of [`crate::Guards::release`], and [`Error::Misuse`] in async code. All are released
    /// all the same.
    pub fn release(self) -> Result<Vec<Released>, Error> {
        let Self { presence, guards, .. } = self;
        drop(presence);
        block_on("Guards::release", guards.release())?
    }
}

impl IntoIterator for Guards {
    type Item = Guard;
    type IntoIter = std::iter::Map<std::vec::IntoIter<crate::Guard>, fn(crate::Guard) -> Guard>;

    fn into_iter(self) -> Self::IntoIter {
        self.guards.into_iter().map(Guard::new)
    }
}
