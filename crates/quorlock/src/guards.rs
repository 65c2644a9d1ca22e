//! What a holder of several locks has in its hands.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::task::Poll;
use std::time::Duration;

use crate::Error;
use crate::drive::Released;
use crate::guard::Guard;
use crate::loss::FirstLost;

/// Several locks that are held, in the order of their names. From
/// [`Locker::lock_many`](crate::Locker::lock_many).
///
/// Each of them is a [`Guard`], and the bad news of a guard holds for each: read it first. A caller
/// that needs all of them has lost them when the first is lost.
///
/// Dropping it releases all of them in the background. Iterating over it by value gives the guards,
/// each on its own from then on.
#[derive(Debug)]
#[must_use = "guards that are dropped release their locks at once"]
pub struct Guards {
    /// Sorted by name, each name once, never empty.
    guards: Vec<Guard>,
}

impl Guards {
    pub(crate) fn new(sorted: impl Iterator<Item = Guard>) -> Self {
        Self { guards: sorted.collect() }
    }

    /// The guards, in the order of their names.
    pub fn iter(&self) -> std::slice::Iter<'_, Guard> {
        self.guards.iter()
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

    /// The guard of one name: `guards.get("a").map(Guard::fence)` is the fence that goes with what the
    /// lock `a` protects. Each lock has a fence of its own.
    #[must_use]
    pub fn get(&self, name: impl AsRef<[u8]>) -> Option<&Guard> {
        let name = name.as_ref();
        let found = self.guards.binary_search_by(|guard| guard.name().as_bytes().cmp(name));
        found.ok().and_then(|index| self.guards.get(index))
    }

    /// Whether all of them are held at this moment. Once it is `false` it stays so.
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.iter().all(Guard::is_held)
    }

    /// What is left of the validity of the one that ends first; zero once any of them is lost.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        self.iter().map(Guard::remaining).min().unwrap_or_default()
    }

    /// What is left to stop the work in once a loss was notified: until then no other client can have
    /// any of them. Zero if another may have one already.
    #[must_use]
    pub fn grace(&self) -> Duration {
        self.iter().map(Guard::grace).min().unwrap_or_default()
    }

    /// Makes all of them last for another TTL from now, as [`Guard::extend`] does for one.
    ///
    /// The nodes are asked when this is called; the future only waits for what they say.
    ///
    /// # Errors
    /// That of the first one, in the order of names, that was not extended, as from
    /// [`Guard::extend`]. The others may have been.
    ///
    /// # Cancel safety
    /// Dropping the future loses nothing: each is extended all the same if enough nodes answer.
    pub fn extend(&self) -> impl Future<Output = Result<(), Error>> + Send + use<> {
        let extending: Vec<_> = self.iter().map(Guard::extend).collect();
        async move { all(extending).await.map(drop) }
    }

    /// Ends when the first of them is lost, or is about to be, and says which one and why. For each
    /// it is as [`Guard::lost`] tells.
    ///
    /// # Cancel safety
    /// Nothing is lost by dropping it.
    pub fn lost(&self) -> FirstLost {
        FirstLost::of(self.iter())
    }

    /// Does some work, and drops it when any of the locks is lost or about to be, as
    /// [`Guard::run`] does for one.
    ///
    /// # Errors
    /// [`Error::Lost`]: the work was not finished. It names the lock.
    ///
    /// # Cancel safety
    /// Dropping it drops the work.
    pub async fn run<W: Future>(&self, work: W) -> Result<W::Output, Error> {
        let mut lost = self.lost();
        let mut work = pin!(work);
        poll_fn(|cx| {
            if let Poll::Ready((name, reason)) = Pin::new(&mut lost).poll(cx) {
                return Poll::Ready(Err(Error::Lost { name, reason }));
            }
            work.as_mut().poll(cx).map(Ok)
        })
        .await
    }

    /// Gives all of them back on all nodes, and tells what became of each, in the order of names.
    ///
    /// The nodes are asked when this is called; the future only waits for what they say.
    ///
    /// # Errors
    /// That of the first one, in the order of names, whose release failed, as from
    /// [`Guard::release`]. The others are released all the same.
    ///
    /// # Cancel safety
    /// Dropping the future takes nothing back: the releases go on without it.
    pub fn release(self) -> impl Future<Output = Result<Vec<Released>, Error>> + Send + use<> {
        let releasing: Vec<_> = self.guards.into_iter().map(Guard::release).collect();
        all(releasing)
    }
}

/// Waits for all of them, which are under way already, whatever becomes of the first.
async fn all<T, F>(under_way: Vec<F>) -> Result<Vec<T>, Error>
where
    F: Future<Output = Result<T, Error>>,
{
    let mut results = Vec::with_capacity(under_way.len());
    for one in under_way {
        results.push(one.await);
    }
    results.into_iter().collect()
}

impl IntoIterator for Guards {
    type Item = Guard;
    type IntoIter = std::vec::IntoIter<Guard>;

    fn into_iter(self) -> Self::IntoIter {
        self.guards.into_iter()
    }
}

impl<'a> IntoIterator for &'a Guards {
    type Item = &'a Guard;
    type IntoIter = std::slice::Iter<'a, Guard>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}
