//! The check at the resource: a value that refuses earlier holders of the lock.
//!
//! ```text
//!   A holds the lock: 33 ───── paused ─────────────────────────── write(33): Stale
//!   B                             holds it: 34 ── write(34): done
//! ```

use std::ops::{Deref, DerefMut};
use std::sync::{RwLock, RwLockReadGuard, RwLockWriteGuard};

/// A value of this process that remembers the highest [fence](crate::Guard::fence) it was written
/// with, and refuses a lower one.
///
/// For what a lock protects inside of a program: the state of a server that several holders write to
/// over the network, or a device that one process talks to. For data that lies elsewhere the check has
/// to be made there, by whatever stores it: SQL, Redis and HTTP have recipes of their own in
/// `docs/recipes/fencing.md`. What only the tasks of one program write to needs
/// a [`Mutex`](std::sync::Mutex), and neither a fence nor a distributed lock.
///
/// The check and the write are one step: nobody comes in between while [`write`](Self::write)'s guard
/// lives. Where the written thing is not a value, put a fence with `()` in front of it, and write while
/// the guard lives.
///
/// # Example
///
/// ```
/// # use std::{sync::Arc, time::Duration};
/// # use quorlock::{Locker, node::{Node, memory::MemoryNode}};
/// use quorlock::{Fence, Stale};
///
/// let balance = Fence::new(100);
///
/// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
/// # let node = Arc::new(MemoryNode::new());
/// # let locker = Locker::builder().with_nodes([node as Arc<dyn Node>]).connect().await?;
/// let guard = locker.lock("account/42").await?;
/// let early = guard.fence();
/// *balance.write(early)? -= 10;
/// *balance.write(early)? -= 10;            // a holder writes as often as it likes
/// # drop(guard);
/// // … it is paused, loses the lock, and somebody else takes it …
/// let guard = locker.lock("account/42").await?;
/// *balance.write(guard.fence())? += 5;
///
/// let late: Stale = balance.write(early).unwrap_err();
/// assert_eq!((late.fence, late.highest), (early, guard.fence()));
/// assert_eq!(*balance.read(), 85);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Raise it before you read
///
/// A holder that reads, decides and then writes should call [`write`](Self::write) first, or
/// [`raise`](Self::raise) if it has nothing to write yet. From then on nobody before it can change what
/// it reads.
///
/// # After a restart
///
/// A fence forgets with its process. If what it protects outlives the process, store
/// [`highest`](Self::highest) with it and start with [`starting_at`](Self::starting_at).
#[derive(Debug, Default)]
pub struct Fence<T> {
    behind: RwLock<Behind<T>>,
}

#[derive(Debug, Default)]
struct Behind<T> {
    highest: u64,
    value: T,
}

impl<T> Fence<T> {
    /// A value that nobody has written to yet.
    pub const fn new(value: T) -> Self {
        Self::starting_at(0, value)
    }

    /// A value that was written with this fence before, and refuses lower ones.
    pub const fn starting_at(highest: u64, value: T) -> Self {
        Self { behind: RwLock::new(Behind { highest, value }) }
    }

    /// Lets the holder with this fence write, unless one with a higher fence came before it. Blocks
    /// while another thread reads or writes.
    ///
    /// The fence counts as seen, whether anything is written or not. The same fence may come again.
    ///
    /// The guard cannot be sent to another thread: do not hold it over an `.await`. A write that has
    /// to wait is done in a thread of its own.
    ///
    /// # Errors
    /// [`Stale`]: a later holder was here. Nothing was changed; stop the work.
    ///
    /// # Panics
    /// If an earlier write panicked: what it left behind may be half of a change.
    pub fn write(&self, fence: u64) -> Result<FenceWrite<'_, T>, Stale> {
        let mut behind = self.behind.write().expect(HALF_WRITTEN);
        if fence < behind.highest {
            return Err(Stale { fence, highest: behind.highest });
        }
        behind.highest = fence;
        Ok(FenceWrite(behind))
    }

    /// Refuses all lower fences from now on, and writes nothing. For a holder that wants to read first.
    ///
    /// # Errors
    /// Those of [`write`](Self::write).
    ///
    /// # Panics
    /// As [`write`](Self::write).
    pub fn raise(&self, fence: u64) -> Result<(), Stale> {
        self.write(fence).map(drop)
    }

    /// Reads the value, which needs no fence. Blocks while another thread writes.
    ///
    /// # Panics
    /// As [`write`](Self::write).
    #[must_use]
    pub fn read(&self) -> FenceRead<'_, T> {
        FenceRead(self.behind.read().expect(HALF_WRITTEN))
    }

    /// The highest fence that was seen; zero if there was none.
    ///
    /// # Panics
    /// As [`write`](Self::write).
    #[must_use]
    pub fn highest(&self) -> u64 {
        self.behind.read().expect(HALF_WRITTEN).highest
    }
}

const HALF_WRITTEN: &str = "an earlier write to this value panicked half-way";

/// A late write: the lock has had a later holder, which was here before.
///
/// A holder that gets this has lost its lock and did not notice. Stop, and take the lock again to do the
/// work anew; to try again with the same fence is of no use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "the write with the fence {fence} came too late: a later holder of the lock was here with \
     {highest}; stop, and take the lock again"
)]
#[non_exhaustive]
pub struct Stale {
    /// The fence of the write.
    pub fence: u64,
    /// The highest fence that was seen before.
    pub highest: u64,
}

/// Write access to a value behind a [`Fence`], while this lives.
#[derive(Debug)]
#[must_use = "the value can be written while this lives"]
pub struct FenceWrite<'a, T>(RwLockWriteGuard<'a, Behind<T>>);

impl<T> Deref for FenceWrite<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0.value
    }
}

impl<T> DerefMut for FenceWrite<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.0.value
    }
}

/// Read access to a value behind a [`Fence`], while this lives.
#[derive(Debug)]
pub struct FenceRead<'a, T>(RwLockReadGuard<'a, Behind<T>>);

impl<T> Deref for FenceRead<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0.value
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    #[test]
    fn the_same_holder_and_later_ones_write_and_earlier_ones_do_not() {
        let fenced = Fence::new(Vec::new());
        for (fence, is_taken) in
            [(5, true), (5, true), (4, false), (9, true), (8, false), (9, true)]
        {
            let highest = fenced.highest();
            match fenced.write(fence) {
                Ok(mut value) => {
                    assert!(is_taken, "{fence} after {highest}");
                    value.push(fence);
                }
                Err(stale) => {
                    assert!(!is_taken, "{stale}");
                    assert_eq!(stale, Stale { fence, highest });
                }
            }
        }
        assert_eq!(*fenced.read(), [5, 5, 9, 9]);
    }

    #[test]
    fn the_refusal_has_both_fences_and_what_to_do() {
        let stale = Fence::starting_at(34, ()).write(33).map(drop).expect_err("too late");
        let text = stale.to_string();
        for part in ["33", "34", "stop", "take the lock again"] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }

    #[test]
    fn who_raised_it_reads_what_no_earlier_holder_changes_any_more() {
        let fenced = Fence::new("old");
        fenced.raise(2).expect("the first");
        assert!(fenced.write(1).is_err());
        assert!(fenced.raise(1).is_err());
        assert_eq!((*fenced.read(), fenced.highest()), ("old", 2));
    }

    /// If the check and the write were two steps, a lower fence would sometimes come after a higher.
    #[test]
    fn nobody_comes_between_the_check_and_the_write() {
        const THREADS: u64 = 4;
        const WRITES: u64 = 2_000;
        let fenced = Fence::new(Vec::new());
        thread::scope(|scope| {
            for thread in 0..THREADS {
                let fenced = &fenced;
                scope.spawn(move || {
                    for fence in (0..WRITES).map(|turn| turn * THREADS + thread) {
                        if let Ok(mut value) = fenced.write(fence) {
                            value.push(fence);
                        }
                    }
                });
            }
        });
        let written = fenced.read();
        assert!(written.is_sorted());
        assert_eq!(written.last(), Some(&(THREADS * WRITES - 1)));
        assert_eq!(fenced.highest(), THREADS * WRITES - 1);
    }

    #[test]
    fn half_a_change_is_not_shown() {
        let fenced = Fence::new([0, 0]);
        let write = || {
            let mut value = fenced.write(1).expect("the first");
            value[0] = 1;
            panic!("before the other half");
        };
        thread::scope(|scope| scope.spawn(write).join().expect_err("it panics"));
        let read = || *fenced.read();
        assert!(thread::scope(|scope| scope.spawn(read).join().is_err()));
    }
}
