//! Asking for a lock, and waiting for it.

use std::fmt;
use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use crate::Error;
use crate::core::Core;
use crate::drive::{Claim, Defeated, InspectRound, Status};
use crate::guard::Guard;
use crate::name::Name;
use crate::node::FailureKind;
use crate::runtime::{BoxFuture, random_u64};
use crate::settings::Keep;
use quorlock_protocol::{Defeat, Moment};

/// A lock to be taken: refine it, then `.await` it.
///
/// Made by [`Locker::lock`](crate::Locker::lock) and [`Locker::try_lock`](crate::Locker::try_lock).
#[derive(Debug)]
#[must_use = "a lock is taken only when it is awaited"]
pub struct Lock {
    core: Arc<Core>,
    name: Result<Name, Error>,
    ttl: Duration,
    wait: Option<Duration>,
    least: Duration,
    keep: Keep,
}

impl Lock {
    pub(crate) fn new(core: &Arc<Core>, name: impl AsRef<[u8]>) -> Self {
        Self {
            core: Arc::clone(core),
            name: Name::new(name),
            ttl: core.settings.ttl,
            wait: None,
            least: Duration::ZERO,
            keep: core.settings.keep(),
        }
    }

    /// Waits so long at the most, then fails with [`Error::TimedOut`]. Zero is a single attempt.
    pub fn wait(mut self, at_most: Duration) -> Self {
        self.wait = Some(at_most);
        self
    }

    /// Takes it for another time than the [`Locker`](crate::Locker)'s own.
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.ttl = ttl;
        self
    }

    /// Takes it only if more than this is left of its validity when the nodes have answered.
    pub fn at_least(mut self, validity: Duration) -> Self {
        self.least = validity;
        self
    }

    /// Does not extend it by itself: it ends after its TTL, unless [`Guard::extend`] is called.
    ///
    /// For a lock that is to outlive its process, or that must not be kept by a holder that hangs.
    pub fn fixed(mut self) -> Self {
        self.keep.renew = false;
        self
    }

    /// Extends it so many times at the most, counting those that [`Guard::extend`] asks for. After
    /// that it ends by itself, with [`Loss::Capped`](crate::Loss::Capped).
    pub fn max_extensions(mut self, most: u32) -> Self {
        self.keep.max_extensions = Some(most);
        self
    }

    /// Holds it for so long at the most, however often it is extended. Then it ends by itself, with
    /// [`Loss::Capped`](crate::Loss::Capped).
    pub fn max_hold(mut self, longest: Duration) -> Self {
        self.keep.max_hold = Some(longest);
        self
    }

    fn checked(&self) -> Result<Name, Error> {
        let name = self.name.clone()?;
        self.core.settings.check_ttl(self.ttl)?;
        self.core.settings.check_keep(self.keep)?;
        let most = self.core.terms(self.ttl).validity();
        let most = self.keep.max_hold.map_or(most, |hold| hold.min(most));
        if self.least >= most {
            return Err(Error::misuse(
                format!(
                    "a validity of {:?} was asked for, and a TTL of {:?} gives less than {most:?}",
                    self.least, self.ttl
                ),
                "ask for less, or use a longer TTL",
            ));
        }
        if self.core.closed.load(Ordering::Acquire) {
            return Err(Error::misuse(
                format!("the lock {name} was asked for after the shutdown of its Locker"),
                "connect a new Locker",
            ));
        }
        Ok(name)
    }
}

impl IntoFuture for Lock {
    type Output = Result<Guard, Error>;
    type IntoFuture = Locking;

    fn into_future(self) -> Locking {
        let stage = Stage::New;
        Locking { lock: self, stage, began: Moment::default(), attempts: 0, seen: None }
    }
}

/// A lock that is being taken, from awaiting a [`Lock`].
///
/// # Errors
/// - [`Error::Taken`]: not waiting, and somebody else holds it.
/// - [`Error::TimedOut`]: it did not become free in time; `last` says how the last attempt ended.
/// - [`Error::NoQuorum`]: not waiting, and too few nodes answered. Waiting, it tries again.
/// - [`Error::Node`]: the name is in use for something that is not a lock.
/// - [`Error::Misuse`]: a name or a time that cannot work, or the locker was shut down.
///
/// # Cancel safety
/// Dropping it in the middle leaves nothing behind: whatever was granted, or is granted later, is
/// released.
#[must_use = "a lock is taken only when it is awaited"]
pub struct Locking {
    lock: Lock,
    stage: Stage,
    began: Moment,
    attempts: u32,
    /// Who held it when it was first found taken.
    seen: Option<Status>,
}

enum Stage {
    New,
    Asking(Arc<Claim>),
    /// Lost, and looking who holds it.
    Looking(Arc<InspectRound>, Defeated),
    Pausing(BoxFuture<'static, ()>),
    Over,
}

impl Locking {
    fn ask(&mut self, name: Name) {
        self.attempts = self.attempts.saturating_add(1);
        let lock = &self.lock;
        self.stage = Stage::Asking(Claim::start(&lock.core, name, lock.ttl, lock.least, lock.keep));
    }

    /// What is left of the time the caller is ready to wait; `None` without end.
    fn patience(&self) -> Option<Duration> {
        let waited = self.lock.core.now().since(self.began);
        self.lock.wait.map(|wait| wait.saturating_sub(waited))
    }

    /// After a lost attempt: sleeps before the next one, or gives up.
    fn pause(&mut self, defeated: Defeated) -> Result<(), Error> {
        let patience = self.patience();
        if patience.is_some_and(|left| left.is_zero()) {
            return Err(self.give_up(defeated));
        }
        let core = &self.lock.core;
        let random = random_u64(&*core.runtime);
        let delay =
            core.settings.retry.delay(self.attempts, defeated.took, defeated.defeat, random);
        let delay = patience.map_or(delay, |left| delay.min(left));
        self.stage = Stage::Pausing(core.runtime.sleep(delay));
        Ok(())
    }

    fn give_up(&self, defeated: Defeated) -> Error {
        let last = self.explain(defeated);
        match (&self.lock.wait, &self.lock.name) {
            (Some(wait), Ok(name)) if !wait.is_zero() => Error::TimedOut {
                name: name.clone(),
                waited: self.lock.core.now().since(self.began),
                last: Box::new(last),
            },
            _ => last,
        }
    }

    fn explain(&self, defeated: Defeated) -> Error {
        let name = match &self.lock.name {
            Ok(name) => name.clone(),
            Err(error) => return error.clone(),
        };
        match defeated.defeat {
            Defeat::Taken | Defeat::Split => Error::Taken {
                name,
                holder: self.seen.as_ref().and_then(Status::holder),
                remaining: self.seen.as_ref().and_then(Status::remaining),
            },
            Defeat::Unreachable | Defeat::TooLate | Defeat::Abandoned => {
                let late = defeated.defeat == Defeat::TooLate;
                let too_late = if late { " too late for it to be of use" } else { "" };
                let quorum = self.lock.core.quorum;
                Error::NoQuorum {
                    verb: format!("granted the lock {name}{too_late}"),
                    have: defeated.granted,
                    need: quorum.enough(),
                    nodes: quorum.nodes(),
                    answers: defeated.answers,
                }
            }
        }
    }

    /// A name that so many nodes use for something else can never be locked.
    fn wrong_type(&self, status: &Status) -> Option<Error> {
        let mut wrong = status.nodes.iter().filter_map(|node| match &node.record {
            Err(failure) if failure.kind() == FailureKind::WrongType => {
                Some(Error::Node { node: node.node.clone(), failure: failure.clone() })
            }
            _ => None,
        });
        wrong.nth(self.lock.core.quorum.too_many() - 1)
    }
}

impl Future for Locking {
    type Output = Result<Guard, Error>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        loop {
            match &mut this.stage {
                Stage::New => {
                    let name = this.lock.checked()?;
                    this.began = this.lock.core.now();
                    this.ask(name);
                }
                Stage::Asking(claim) => match ready!(claim.poll(cx)) {
                    Ok(()) => {
                        let guard = Guard::new(Arc::clone(claim));
                        this.stage = Stage::Over;
                        return Poll::Ready(Ok(guard));
                    }
                    Err(defeated) => {
                        let taken = matches!(defeated.defeat, Defeat::Taken | Defeat::Split);
                        if taken && this.seen.is_none() {
                            let look = InspectRound::start(&claim.core, claim.name.clone());
                            this.stage = Stage::Looking(look, defeated);
                        } else {
                            this.pause(defeated)?;
                        }
                    }
                },
                Stage::Looking(look, _) => {
                    let status = ready!(look.poll(cx));
                    let Stage::Looking(_, defeated) =
                        std::mem::replace(&mut this.stage, Stage::Over)
                    else {
                        continue;
                    };
                    if let Some(error) = this.wrong_type(&status) {
                        return Poll::Ready(Err(error));
                    }
                    this.seen = Some(status);
                    this.pause(defeated)?;
                }
                Stage::Pausing(pause) => {
                    ready!(pause.as_mut().poll(cx));
                    let name = this.lock.name.clone()?;
                    this.ask(name);
                }
                Stage::Over => return Poll::Pending,
            }
        }
    }
}

impl Drop for Locking {
    fn drop(&mut self) {
        if let Stage::Asking(claim) = std::mem::replace(&mut self.stage, Stage::Over) {
            claim.abandon();
        }
    }
}

impl fmt::Debug for Locking {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Locking")
            .field("lock", &self.lock)
            .field("attempts", &self.attempts)
            .finish_non_exhaustive()
    }
}
