//! What a holder has in its hands.

use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use crate::Error;
use crate::drive::{Claim, ExtendRound, Passed, ReleaseRound, Released};
use crate::error::Loss;
use crate::lease_clock::Deadline;
use crate::loss::Lost;
use crate::name::Name;
use crate::runtime::Runtime;
use crate::token::TokenText;
use quorlock_protocol::{Lease, LeaseState, LossReason};

/// A lock that is held.
///
/// # The bad news first
///
/// - **It can end by itself.** It is extended while this guard lives, a third of the TTL after the
///   last time. If too few nodes answer, or a cap forbids it, it ends: the nodes forget it after its
///   TTL, and this guard stops believing in it earlier than that ([`remaining`](Self::remaining)).
///   Work has to stop then: [`lost`](Self::lost) tells when, and [`run`](Self::run) does it.
/// - **A paused process does not notice.** A process that is stopped, swapped out or suspended
///   between asking [`is_held`](Self::is_held) and acting on the answer acts late. No lock with a
///   timeout can prevent that; only the resource can, by refusing.
/// - **Dropping it releases it**, at once and in the background: it does not block, spawn or
///   panic, and nobody learns whether it worked. [`release`](Self::release) tells.
/// - **Forgetting it** ([`std::mem::forget`]) keeps the lock for as long as the process lives. With
///   [`Lock::fixed`](crate::Lock::fixed) it stays taken until its TTL has passed. To hand it to
///   another process, turn it [`into_token`](Self::into_token).
#[must_use = "a guard that is dropped releases its lock at once"]
pub struct Guard {
    claim: Arc<Claim>,
    /// Its fence, which is not that of the next holder of the same claim.
    fence: u64,
    /// Whether the release has begun, so that the drop does not begin it again.
    released: bool,
}

/// What is known of a held lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum GuardState {
    /// Taken, and not extended since.
    Held,
    /// The last extension was confirmed by a majority.
    Renewed,
    /// The last extension was neither confirmed nor refused. Held until its old deadline.
    Unknown,
    /// Not held any more. Final.
    Lost(Loss),
}

impl Guard {
    pub(crate) fn new(claim: Arc<Claim>) -> Self {
        let fence = claim.fence();
        claim.mark_taken();
        Self { claim, fence, released: false }
    }

    /// What it holds.
    #[cfg(feature = "postgres")]
    pub(crate) fn claim(&self) -> &Claim {
        &self.claim
    }

    pub(crate) fn runtime(&self) -> &dyn Runtime {
        &*self.claim.core.runtime
    }

    /// The name of the lock.
    #[must_use]
    pub fn name(&self) -> &Name {
        &self.claim.name
    }

    /// The fence of this holder: higher than that of everybody who held the lock before, whichever
    /// nodes they had it from, and lower than that of everybody who holds it later.
    ///
    /// Pass it on with every write to what the lock protects, and let that refuse a lower fence than
    /// the highest it has seen: then a holder that was paused and does not know that it lost the lock
    /// can do no harm. It is worth nothing if nobody checks it; [`Fence`](crate::Fence) does, and
    /// `docs/recipes/fencing.md` has the same for SQL, Redis and HTTP.
    ///
    /// An owner's guards of one lock share a fence.
    ///
    /// # Panics
    /// If the locker was built [without fences](crate::Builder::fences): a zero here would pass for a
    /// fence, and protect nothing.
    #[must_use]
    pub fn fence(&self) -> u64 {
        assert!(
            self.fence > 0,
            "the lock {} has no fence: its Locker was built with fences(false)",
            self.name()
        );
        self.fence
    }

    /// The [`fence`](Self::fence), or nothing if this holder has none: the lock may have been taken
    /// without one by another process, and be held here for the same owner.
    #[must_use]
    pub fn try_fence(&self) -> Option<u64> {
        (self.fence > 0).then_some(self.fence)
    }

    /// Whether the lock is held at this moment. Once it is `false` it stays so.
    #[must_use]
    pub fn is_held(&self) -> bool {
        !matches!(self.state(), GuardState::Lost(_))
    }

    /// What is left of the validity; zero once the lock is lost.
    ///
    /// It counts from before the first byte was sent, on a clock that also runs while the machine
    /// is suspended, and leaves out an allowance for clocks that run apart. On nodes that compare the
    /// clients' times of day, as in the `strict` dialect, it counts on that as well: what the time of day
    /// is set ahead by is taken off.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        self.claim.with_lease(quorlock_protocol::Lease::remaining)
    }

    /// When the lock ends unless it is extended, for another process of this machine that is to see to it
    /// that the work stops. It is over already if the lock is lost.
    #[must_use]
    pub fn deadline(&self) -> Deadline {
        self.claim.deadline()
    }

    /// What is left to stop the work in once the loss was notified: until then no other client can have
    /// the lock. Zero if another may have it already.
    #[must_use]
    pub fn grace(&self) -> Duration {
        self.claim.with_lease(|lease, now| lease.grace(now))
    }

    /// What is known of the lock.
    #[must_use]
    pub fn state(&self) -> GuardState {
        match self.claim.with_lease(quorlock_protocol::Lease::state) {
            LeaseState::Held => GuardState::Held,
            LeaseState::Renewed => GuardState::Renewed,
            LeaseState::Unknown => GuardState::Unknown,
            LeaseState::Lost(reason) => GuardState::Lost(reason.into()),
        }
    }

    /// Makes the lock last for another TTL from now.
    ///
    /// That is done while the guard lives, without being asked for. It is of use for a lock that is
    /// [`fixed`](crate::Lock::fixed), or before a stretch of work in which this process cannot run.
    ///
    /// The nodes are asked when this is called; the future only waits for what they say. An
    /// extension never takes the lock again if it was lost, and never shortens it.
    ///
    /// # Errors
    /// - [`Error::Lost`]: the lock is not held any more. Stop.
    /// - [`Error::Capped`]: the lock is held, but was extended as often, or is held for as long, as
    ///   it may be.
    /// - [`Error::NoQuorum`]: too few nodes answered in time. The lock is held until its old
    ///   deadline, see [`remaining`](Self::remaining); try again before it.
    ///
    /// # Cancel safety
    /// Dropping the future loses nothing: if enough nodes answer in time the lock is extended all
    /// the same.
    pub fn extend(&self) -> Extending {
        Extending(match ExtendRound::start(&self.claim) {
            Ok(round) => ExtendingState::Asked(round),
            Err(refused) => ExtendingState::Refused(refused),
        })
    }

    /// Ends when the lock is lost, or is about to be: while there is still the builder's
    /// [`loss_lead`](crate::Builder::loss_lead) to stop the work in.
    ///
    /// It needs no answer from any node: a timer of this process ends it, though all nodes hang.
    /// From then on the lock counts as lost, and cannot be extended any more. A process that was
    /// stopped, or a machine that was suspended, learns of it soon after it goes on.
    ///
    /// # Cancel safety
    /// Nothing is lost by dropping it.
    pub fn lost(&self) -> Lost {
        Lost::of(&self.claim)
    }

    /// Does some work, and drops it when the lock is lost or about to be, as [`lost`](Self::lost)
    /// tells.
    ///
    /// The work is dropped where it awaits something. What it has handed to others goes on, and so
    /// does work that never awaits.
    ///
    /// # Errors
    /// [`Error::Lost`]: the work was not finished.
    ///
    /// # Cancel safety
    /// Dropping it drops the work.
    pub async fn run<W: Future>(&self, work: W) -> Result<W::Output, Error> {
        let mut lost = self.lost();
        let mut work = pin!(work);
        poll_fn(|cx| {
            if let Poll::Ready(reason) = Pin::new(&mut lost).poll(cx) {
                return Poll::Ready(Err(Error::Lost { name: self.name().clone(), reason }));
            }
            work.as_mut().poll(cx).map(Ok)
        })
        .await
    }

    /// What proves to the nodes that the lock is held. It is another one with every acquisition.
    ///
    /// It serves as a compare-and-set value where a store knows no order: write it beside what the
    /// lock protects when the work begins, and let each later write happen only if it still stands
    /// there. Guards of one owner have the same, and so have those in one process that pass the lock
    /// on to each other: a store cannot tell these apart by it.
    ///
    /// It is a secret: anyone who has it, and can reach the nodes, can extend and release the lock
    /// ([`Locker::resume`](crate::Locker::resume)).
    #[must_use]
    pub fn token(&self) -> TokenText {
        self.claim.token.text()
    }

    /// Stops extending the lock without giving it back, and returns what proves that it is held. The
    /// nodes keep it for the rest of its TTL: in that time, [`Locker::resume`](crate::Locker::resume)
    /// goes on with it in this process or in any other.
    ///
    /// The token is a secret: anyone who has it, and can reach the nodes, can extend and release the lock.
    /// Those of this process who wait for the lock go on waiting.
    ///
    /// # Errors
    /// - [`Error::Lost`]: it is not held any more.
    /// - [`Error::Misuse`]: its owner has other guards of it, it is another process's to keep, or the nodes end it
    ///   with the session of this process. This guard is dropped.
    pub fn into_token(mut self) -> Result<TokenText, Error> {
        let what = format!("the lock {} was to be kept for another process", self.claim.name);
        self.claim.core.settings.check_outlives(&what)?;
        let token = Arc::clone(&self.claim).into_token()?;
        self.released = true;
        Ok(token.text())
    }

    /// Gives the lock back on all nodes.
    ///
    /// The nodes are asked when this is called; the future only waits for what they say. It is
    /// ready as soon as a majority has let go.
    ///
    /// # Errors
    /// - [`Error::Lost`]: it was lost before: another client may have held it in the meantime.
    /// - [`Error::NoQuorum`]: too few nodes answered in time. Those that cannot be reached are
    ///   asked again in the background until the record has expired there by itself.
    ///
    /// # Cancel safety
    /// Dropping the future takes nothing back: the release goes on without it.
    pub fn release(mut self) -> Releasing {
        self.released = true;
        // By its own clock: some kinds of nodes keep a record that has ended, and others do not.
        let over = LeaseState::Lost(LossReason::Expired);
        let expired = self.claim.with_lease(Lease::state) == over;
        let expired = expired.then(|| self.claim.name.clone());
        let state = match self.claim.drop_guard() {
            None | Some(Passed::Nothing) => ReleasingState::Done(Released::STILL_HELD),
            Some(Passed::On) => ReleasingState::Done(Released::PASSED_ON),
            Some(Passed::Freed(round)) => ReleasingState::Asked(round),
        };
        Releasing { state, expired }
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        if !self.released {
            self.claim.drop_guard();
        }
    }
}

impl fmt::Debug for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Guard")
            .field("name", self.name())
            .field("state", &self.state())
            .field("remaining", &self.remaining())
            .finish()
    }
}

/// An extension under way, from [`Guard::extend`].
#[must_use = "the future says whether the lock was extended"]
pub struct Extending(ExtendingState);

enum ExtendingState {
    Asked(Arc<ExtendRound>),
    Refused(Error),
}

impl Future for Extending {
    type Output = Result<(), Error>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match &self.0 {
            ExtendingState::Asked(round) => round.poll(cx),
            ExtendingState::Refused(error) => Poll::Ready(Err(error.clone())),
        }
    }
}

impl fmt::Debug for Extending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Extending").finish_non_exhaustive()
    }
}

/// A release under way, from [`Guard::release`].
#[must_use = "the future says whether the lock was released"]
pub struct Releasing {
    state: ReleasingState,
    /// Its time was over before.
    expired: Option<Name>,
}

enum ReleasingState {
    Asked(Arc<ReleaseRound>),
    Done(Released),
}

impl Future for Releasing {
    type Output = Result<Released, Error>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let released = match &self.state {
            ReleasingState::Asked(round) => ready!(round.poll(cx)),
            ReleasingState::Done(released) => Ok(released.clone()),
        };
        Poll::Ready(match &self.expired {
            Some(name) => Err(Error::Lost { name: name.clone(), reason: Loss::Expired }),
            None => released,
        })
    }
}

impl fmt::Debug for Releasing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Releasing").finish_non_exhaustive()
    }
}
