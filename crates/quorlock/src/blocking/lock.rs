//! Asking for locks, and waiting for them.

use std::future::IntoFuture;
use std::time::Duration;

use super::block_on::block_on;
use super::guard::Guard;
use super::guards::Guards;
use super::same_as;
use crate::{Error, Owner};

/// A lock to be taken: refine it, then [`acquire`](Self::acquire) it.
#[derive(Debug)]
#[must_use = "a lock is taken only by acquire"]
pub struct Lock(pub(super) crate::Lock);

impl Lock {
    same_as! { "Lock":
        wait(at_most: Duration)
        ttl(ttl: Duration)
        votes_within(at_most: Duration)
        at_least(validity: Duration)
        fixed()
        max_extensions(most: u32)
        max_hold(longest: Duration)
        owner(owner: &Owner)
        note(note: impl Into<String>)
    }

    /// Takes the lock, and blocks until it is held or the waiting time is over.
    ///
    /// # Errors
    /// Those of [`Locking`](crate::Locking), and [`Error::Misuse`] in async code.
    pub fn acquire(self) -> Result<Guard, Error> {
        block_on("Lock::acquire", self.0.into_future())?.map(Guard::new)
    }
}

/// Several locks to be taken, all or none: refine them, then [`acquire`](Self::acquire) them.
#[derive(Debug)]
#[must_use = "locks are taken only by acquire"]
pub struct LockMany(pub(super) crate::LockMany);

impl LockMany {
    same_as! { "LockMany":
        wait(at_most: Duration)
        ttl(ttl: Duration)
        fixed()
        max_extensions(most: u32)
        max_hold(longest: Duration)
        owner(owner: &Owner)
        note(note: impl Into<String>)
    }

    /// Takes the locks, and blocks until all are held or the waiting time is over.
    ///
    /// # Errors
    /// Those of [`LockingMany`](crate::LockingMany), and [`Error::Misuse`] in async code.
    pub fn acquire(self) -> Result<Guards, Error> {
        let runtime = self.0.runtime();
        let guards = block_on("LockMany::acquire", self.0.into_future())??;
        Ok(Guards::new(guards, runtime))
    }
}
