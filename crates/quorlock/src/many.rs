//! Asking for several locks, all or none.
//!
//! ```text
//!   lock_many(["b", "a", "b"])  ──▶  a ── taken ──▶ b ── taken ──▶ Guards
//!                                    └─ kept by the watchdog while the next is waited for
//! ```
//!
//! Two callers that want the same names in different orders would wait for each other for ever, each
//! with what the other needs. So every caller takes them in one order, that of their bytes: a waiter
//! holds only names before the one it waits for, and a circle cannot close.

use std::collections::BTreeSet;
use std::fmt;
use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use crate::Error;
use crate::core::Core;
use crate::guard::Guard;
use crate::guards::Guards;
use crate::lock::Lock;
use crate::locker::Locker;
use crate::locking::Locking;
use crate::loss::Lost;
use crate::name::Name;
use crate::owner::Owner;
use crate::runtime::Runtime;
use quorlock_protocol::Moment;

impl Locker {
    /// Takes several locks, all or none, waiting for them without end unless [`LockMany::wait`]
    /// sets one.
    ///
    /// They are taken one after another in the order of their bytes, whatever order they are named
    /// in, so that callers of this cannot wait for each other in a circle. One who holds a lock by
    /// other means, and asks for more, can: take them all by one call. A name that is given twice
    /// is one lock.
    ///
    /// See [`LockingMany`] for the errors and for what dropping the future does.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use std::time::Duration;
    /// # use quorlock::{Locker, node::{Node, memory::MemoryNode}};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), quorlock::Error> {
    /// # let node = Arc::new(MemoryNode::new()) as Arc<dyn Node>;
    /// # let locker = Locker::builder().with_nodes([node]).connect().await?;
    /// let accounts = ["accounts/7", "accounts/3"];
    /// let guards = locker.lock_many(accounts).wait(Duration::from_secs(5)).await?;
    /// assert!(guards.is_held() && guards.len() == 2);
    /// guards.run(async { /* move the money */ }).await?;
    /// guards.release().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn lock_many<N: AsRef<[u8]>>(&self, names: impl IntoIterator<Item = N>) -> LockMany {
        LockMany::new(self.core(), names)
    }
}

/// Several locks to be taken, all or none: refine them, then `.await` them.
///
/// Made by [`Locker::lock_many`].
#[derive(Debug)]
#[must_use = "locks are taken only when they are awaited"]
pub struct LockMany {
    /// The first of them, or what is wrong with the names.
    first: Lock,
    /// The others, in the order in which they are taken.
    rest: Vec<Name>,
}

impl LockMany {
    fn new<N: AsRef<[u8]>>(core: &Arc<Core>, names: impl IntoIterator<Item = N>) -> Self {
        let sorted: Result<BTreeSet<_>, _> =
            names.into_iter().map(|name| core.settings.name(name)).collect();
        let mut names = sorted.map(IntoIterator::into_iter);
        let first = match &mut names {
            Ok(names) => names.next().ok_or_else(no_names),
            Err(error) => Err(error.clone()),
        };
        let rest = names.map_or_else(|_| Vec::new(), Iterator::collect);
        Self { first: Lock::new(core, first), rest }
    }

    /// Waits so long at the most, for all of them together, then fails with [`Error::TimedOut`].
    /// Zero is a single attempt for each.
    pub fn wait(self, at_most: Duration) -> Self {
        self.refine(|lock| lock.wait(at_most))
    }

    /// Takes them for another time than the [`Locker`]'s own.
    pub fn ttl(self, ttl: Duration) -> Self {
        self.refine(|lock| lock.ttl(ttl))
    }

    /// Does not extend them by themselves: each ends a TTL after it was taken, unless
    /// [`Guards::extend`] is called. The first may end while the last is waited for, which fails
    /// the attempt.
    pub fn fixed(self) -> Self {
        self.refine(Lock::fixed)
    }

    /// Extends each of them so many times at the most, those included that happen while the others
    /// are waited for. After that it ends by itself, with [`Loss::Capped`](crate::Loss::Capped).
    pub fn max_extensions(self, most: u32) -> Self {
        self.refine(|lock| lock.max_extensions(most))
    }

    /// Holds each of them for so long at the most, counted from when that one was taken. Then it
    /// ends by itself, with [`Loss::Capped`](crate::Loss::Capped).
    pub fn max_hold(self, longest: Duration) -> Self {
        self.refine(|lock| lock.max_hold(longest))
    }

    /// Takes them for an owner that may hold some of them already, and then gets those at once.
    ///
    /// What an owner held before is not taken in the order of all: two owners that each come with
    /// something the other wants wait for each other until a waiting time ends.
    pub fn owner(self, owner: &Owner) -> Self {
        self.refine(|lock| lock.owner(owner))
    }

    /// Leaves a note about the holder on the nodes, as [`Lock::note`] does: each of the locks has it,
    /// with the time at which that one was taken. What an owner holds already keeps the note it has.
    pub fn note(self, note: impl Into<String>) -> Self {
        self.refine(|lock| lock.note(note))
    }

    pub(crate) fn runtime(&self) -> Arc<dyn Runtime> {
        self.first.runtime()
    }

    fn refine(mut self, how: impl FnOnce(Lock) -> Lock) -> Self {
        self.first = how(self.first);
        self
    }
}

fn no_names() -> Error {
    Error::misuse("no names were given to lock_many", "name at least one lock")
}

impl IntoFuture for LockMany {
    type Output = Result<Guards, Error>;
    type IntoFuture = LockingMany;

    fn into_future(self) -> LockingMany {
        // From the last to the first, so that the next one is popped.
        let rest = self.rest.into_iter().rev().map(|name| self.first.also(name)).collect();
        let locking = Some(self.first.into_future());
        LockingMany { rest, locking, began: None, held: Vec::new() }
    }
}

/// Locks that are being taken, from awaiting a [`LockMany`].
///
/// While one is waited for, those that were taken are extended as any held lock is.
///
/// # Errors
/// After each of them nothing is held. The error names the lock that it is about.
/// - [`Error::Taken`]: not waiting, and somebody else holds one of them.
/// - [`Error::TimedOut`]: one did not become free in time; `waited` is the time for all of them.
/// - [`Error::Lost`]: one that was taken got lost while another was waited for.
/// - [`Error::NoQuorum`]: not waiting, and too few nodes answered. Waiting, it tries again.
/// - [`Error::Node`]: a name is in use for something that is not a lock.
/// - [`Error::Misuse`]: no names, a name or a time that cannot work, or the locker was shut down. No
///   bad name is found out after another was taken.
///
/// # Cancel safety
/// Dropping it in the middle leaves nothing behind: what was taken is released, and so is whatever
/// was granted of the rest, or is granted later.
#[must_use = "locks are taken only when they are awaited"]
pub struct LockingMany {
    /// Not begun yet, the next one last.
    rest: Vec<Lock>,
    /// The one that is being taken; `None` when all were, or it has failed.
    locking: Option<Locking>,
    /// When the first was begun: from then on the waiting time runs.
    began: Option<Moment>,
    held: Vec<Taken>,
}

struct Taken {
    guard: Guard,
    lost: Lost,
}

impl LockingMany {
    /// Ready if one that was taken is lost.
    fn poll_lost(&mut self, cx: &mut Context<'_>) -> Poll<Error> {
        for Taken { guard, lost } in &mut self.held {
            if let Poll::Ready(reason) = Pin::new(lost).poll(cx) {
                return Poll::Ready(Error::Lost { name: guard.name().clone(), reason });
            }
        }
        Poll::Pending
    }

    /// Nothing is held or wanted any more.
    fn fail(&mut self, error: Error) -> Poll<Result<Guards, Error>> {
        self.locking = None;
        self.held.clear();
        Poll::Ready(Err(error))
    }
}

impl Future for LockingMany {
    type Output = Result<Guards, Error>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        loop {
            // After each one that was taken too: all are held when this ends.
            if let Poll::Ready(error) = self.poll_lost(cx) {
                return self.fail(error);
            }
            let Some(locking) = &mut self.locking else {
                if self.held.is_empty() {
                    return Poll::Pending;
                }
                let held = std::mem::take(&mut self.held);
                return Poll::Ready(Ok(Guards::new(held.into_iter().map(|it| it.guard))));
            };
            match Pin::new(&mut *locking).poll(cx) {
                Poll::Pending => {
                    if locking.is_giving_up() {
                        // It only finds out what to say: nobody is kept waiting for that.
                        self.held.clear();
                    }
                    return Poll::Pending;
                }
                Poll::Ready(Err(error)) => return self.fail(error),
                Poll::Ready(Ok(guard)) => {
                    let began = locking.began();
                    let began = *self.began.get_or_insert(began);
                    self.locking = self.rest.pop().map(|next| next.since(began));
                    self.held.push(Taken { lost: guard.lost(), guard });
                }
            }
        }
    }
}

impl fmt::Debug for LockingMany {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LockingMany")
            .field("held", &self.held.len())
            .field("locking", &self.locking)
            .field("rest", &self.rest.len())
            .finish_non_exhaustive()
    }
}
