//! What to ask for: a lock, refined before it is awaited.

use std::future::IntoFuture;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::Error;
use crate::core::Core;
use crate::guard::Guard;
use crate::lock_options::LockOptions;
use crate::locking::Locking;
use crate::name::Name;
use crate::note::MAX_NOTE_BYTES;
use crate::owner::Owner;
use crate::runtime::Runtime;
use quorlock_protocol::Moment;

/// A lock to be taken: refine it, then `.await` it.
///
/// Made by [`Locker::lock`](crate::Locker::lock) and [`Locker::try_lock`](crate::Locker::try_lock).
#[derive(Debug)]
#[must_use = "a lock is taken only when it is awaited"]
pub struct Lock {
    pub(crate) core: Arc<Core>,
    /// In a box, since a lock is moved about, and hardly ever has one.
    pub(crate) name: Result<Name, Box<Error>>,
    pub(crate) wait: Option<Duration>,
    pub(crate) options: LockOptions,
    /// Whether the owner may hold it by another process.
    pub(crate) from_elsewhere: bool,
    /// What the holder says of itself.
    pub(crate) note: Option<Box<str>>,
    /// How long to wait for votes that are missing, though not for a holder. In a box as well.
    pub(crate) votes_within: Option<Box<Duration>>,
}

impl Lock {
    pub(crate) fn new(core: &Arc<Core>, name: Result<Name, Error>) -> Self {
        Self {
            core: Arc::clone(core),
            name: name.map_err(Box::new),
            wait: None,
            options: LockOptions {
                ttl: core.settings.ttl,
                least: Duration::ZERO,
                owner: None,
                keep: core.settings.keep(),
                noted: false,
            },
            from_elsewhere: false,
            note: None,
            votes_within: None,
        }
    }

    /// Waits so long at the most, then fails with [`Error::TimedOut`]. Zero is a single attempt.
    pub fn wait(mut self, at_most: Duration) -> Self {
        self.wait = Some(at_most);
        self
    }

    /// With [`try_lock`](crate::Locker::try_lock), or a [`wait`](Self::wait) of zero: waits so long at the most
    /// for votes that are missing, and not for anybody who holds the lock. Nodes that were restarted cast no
    /// vote for a while, the set of nodes may be forming, or too few of them can be reached. If it is known that
    /// the time is not enough, it fails at once. Who waits for the lock waits for all of that anyway.
    pub fn votes_within(mut self, at_most: Duration) -> Self {
        self.votes_within = (!at_most.is_zero()).then(|| Box::new(at_most));
        self
    }

    /// Takes it for another time than the [`Locker`](crate::Locker)'s own.
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.options.ttl = ttl;
        self
    }

    /// Takes it only if more than this is left of its validity when the nodes have answered.
    pub fn at_least(mut self, validity: Duration) -> Self {
        self.options.least = validity;
        self
    }

    /// Does not extend it by itself: it ends after its TTL, unless [`Guard::extend`] is called.
    ///
    /// For a lock that is to outlive its process, or that must not be kept by a holder that hangs.
    pub fn fixed(mut self) -> Self {
        self.options.keep.renew = false;
        self
    }

    /// Extends it so many times at the most, counting those that [`Guard::extend`] asks for. After
    /// that it ends by itself, with [`Loss::Capped`](crate::Loss::Capped).
    pub fn max_extensions(mut self, most: u32) -> Self {
        self.options.keep.max_extensions = Some(most);
        self
    }

    /// Holds it for so long at the most, however often it is extended. Then it ends by itself, with
    /// [`Loss::Capped`](crate::Loss::Capped).
    pub fn max_hold(mut self, longest: Duration) -> Self {
        self.options.keep.max_hold = Some(longest);
        self
    }

    /// Takes it for an owner that may hold it already, and then gets it at once.
    pub fn owner(mut self, owner: &Owner) -> Self {
        self.options.owner = Some(owner.id);
        self.from_elsewhere = owner.from_elsewhere;
        self
    }

    /// Leaves a note on the nodes for people who ask who holds it, at most [`MAX_NOTE_BYTES`] long,
    /// with the time of day at which it was taken. Anyone who can [inspect](crate::Locker::inspect) the
    /// lock can read it: no secrets.
    ///
    /// It is kept while the lock is, and goes with it. That takes one more command for each node with
    /// each step, which nobody waits for and nothing depends on. An owner's further guards, here or in
    /// other processes, change nothing about the note of the first. An empty one is none.
    pub fn note(mut self, note: impl Into<String>) -> Self {
        let note: String = note.into();
        self.options.noted = !note.is_empty();
        self.note = self.options.noted.then(|| note.into());
        self
    }

    pub(crate) fn runtime(&self) -> Arc<dyn Runtime> {
        Arc::clone(&self.core.runtime)
    }

    /// The same for another name.
    pub(crate) fn also(&self, name: Name) -> Self {
        let Self { wait, options, from_elsewhere, .. } = *self;
        let (core, note) = (Arc::clone(&self.core), self.note.clone());
        let votes_within = self.votes_within.clone();
        Self { core, name: Ok(name), wait, options, from_elsewhere, note, votes_within }
    }

    /// Begins, with a waiting time that has run since then.
    pub(crate) fn since(self, began: Moment) -> Locking {
        Locking::new(self, Some(began))
    }

    #[cfg(test)]
    pub(crate) fn options(&self) -> LockOptions {
        self.options
    }

    /// Whether it is waited for: a time of zero is a single attempt.
    pub(crate) fn waits(&self) -> bool {
        self.wait.is_none_or(|wait| !wait.is_zero())
    }

    /// Fails if this can never work.
    pub(crate) fn check(&self, name: &Name) -> Result<(), Error> {
        // The locker's own was looked at when that was built.
        if self.options.ttl != self.core.settings.ttl {
            self.core.settings.check_ttl(self.options.ttl)?;
        }
        self.core.settings.check_keep(self.options.keep)?;
        if self.from_elsewhere {
            let what = format!("another process was to take part in the lock {name}");
            self.core.settings.check_shared(&what)?;
        }
        if let Some(note) = self.note.as_ref().filter(|note| note.len() > MAX_NOTE_BYTES) {
            return Err(Error::misuse(
                format!("the note for the lock {name} is {} bytes long", note.len()),
                format!("use at most {MAX_NOTE_BYTES} bytes"),
            ));
        }
        // Every lock has more than none.
        if !self.options.least.is_zero() {
            let most = self.core.terms(self.options.ttl).validity();
            let most = self.options.keep.max_hold.map_or(most, |hold| hold.min(most));
            if self.options.least >= most {
                return Err(Error::misuse(
                    format!(
                        "a validity of {:?} was asked for, and a TTL of {:?} gives less than {most:?}",
                        self.options.least, self.options.ttl
                    ),
                    "ask for less, or use a longer TTL",
                ));
            }
        }
        if self.core.closed.load(Ordering::Acquire) {
            return Err(Error::misuse(
                format!("the lock {name} was asked for after the shutdown of its Locker"),
                "connect a new Locker",
            ));
        }
        Ok(())
    }
}

impl IntoFuture for Lock {
    type Output = Result<Guard, Error>;
    type IntoFuture = Locking;

    fn into_future(self) -> Locking {
        Locking::new(self, None)
    }
}
